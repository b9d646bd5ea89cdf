"""What a web process asks of its database before it serves."""

import logging

from django.db import OperationalError, connection

from ledger.checks import verify_database

logger = logging.getLogger(__name__)


def refuse_unsafe_database() -> None:
    """Look at the database once, or raise and do not come up.

    A database that cannot be reached is no reason to stay away: `/readyz` says so, and requests are answered 503 until it is
    back. It is then looked at on the first connection, see ledger.checks.

    Raises:
        ledger.errors.UnsafeDatabase: as `ledger.checks.verify_database` says; `lock_timeout` included.
    """
    try:
        verify_database(connection, needs_lock_timeout=True)
    except OperationalError as error:
        logger.warning("The database cannot be reached yet: %s", error)
    finally:
        connection.close()
