"""Separate database sessions for the audit, because it needs another isolation level than Django's connection, and several."""

from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connections

Session = psycopg.Connection[Any]

DJANGO_ONLY = {"cursor_factory", "context"}


def connector(using: str = "default", **address: Any) -> Callable[[], Session]:
    """Return a function that opens a session to the same database with the same role, without Django's settings.

    Args:
        address: `host` and `port` of another node.
    """
    given = connections[using].get_connection_params()
    parameters = {name: value for name, value in given.items() if name not in DJANGO_ONLY}
    # No prepared statements: behind a pooler the next transaction may run on another server connection.
    parameters["prepare_threshold"] = None
    # Transactions are begun and ended by hand.
    return lambda: psycopg.connect(**(parameters | address), autocommit=True)
