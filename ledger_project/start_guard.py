"""What a web process asks of its database before it serves."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections

from ledger.checks import verify_database
from ledger_project import database_urls, embedded_postgres

logger = logging.getLogger(__name__)

PREPARED_WHEN_FREE = "LEDGER_PREPARED_WHEN_FREE"
"""In the environment of web processes that come up while their database is being prepared: the file that is locked meanwhile."""


@contextmanager
def web_processes_held_back(file: Path) -> Iterator[IO[str]]:
    """For the block, web processes that are started wait. Closing what it yields, or the end of this process, lets them go."""
    with file.open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        os.environ[PREPARED_WHEN_FREE] = str(file)
        yield gate


def wait_until_prepared() -> None:
    """Return once whoever started this process has prepared the database; at once if nobody said that it does."""
    file = os.environ.get(PREPARED_WHEN_FREE)
    if file:
        with Path(file).open("rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        if not os.environ.get("DATABASE_URL"):
            # The embedded server may have come up elsewhere than it was when the settings were read.
            url = embedded_postgres.application_url(settings.DATA_DIR)
            connections.databases[DEFAULT_DB_ALIAS].update(database_urls.parse(url))


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
