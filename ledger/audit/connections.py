"""Sessions of the audit's own, beside Django's connection: for another isolation level, and for several at once."""

from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connections

Session = psycopg.Connection[Any]

DJANGO_ONLY = {"cursor_factory", "context"}


def connector(using: str = "default") -> Callable[[], Session]:
    """How to open one more session to the same database under the same role, without Django's settings on it."""
    given = connections[using].get_connection_params()
    parameters = {name: value for name, value in given.items() if name not in DJANGO_ONLY}
    # Never prepared on the server: behind a pooler the next transaction may be elsewhere.
    parameters["prepare_threshold"] = None
    # Transactions are begun and ended by hand.
    return lambda: psycopg.connect(**parameters, autocommit=True)
