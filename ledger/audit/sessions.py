"""The audit's own sessions: they read one snapshot, which Django's connection does not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import psycopg
from django.db import connections

Session = psycopg.Connection[Any]

DJANGO_ONLY: Final = {"cursor_factory", "context"}

BEGIN = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL jit = off;
SET LOCAL work_mem = '64MB';
"""


def connector(using: str = "default", **address: Any) -> Callable[[], Session]:
    """Return a function that opens a session to the same database with the same role, without Django's settings.

    The audit needs another isolation level than Django's connection, and several sessions.

    Args:
        address: `host` and `port` of another node.
    """
    given = connections[using].get_connection_params()
    parameters = {name: value for name, value in given.items() if name not in DJANGO_ONLY}
    # No prepared statements: behind a pooler the next transaction may run on another server connection.
    parameters["prepare_threshold"] = None
    # Transactions are begun and ended by hand.
    return lambda: psycopg.connect(**(parameters | address), autocommit=True)


@contextmanager
def one_snapshot(connect: Callable[[], AbstractContextManager[Session]], count: int) -> Iterator[list[Session]]:
    """Yield `count` read-only sessions that all see the ledger as of this moment; later writes stay invisible to them.

    REPEATABLE READ is right here. It is forbidden only to code that decides and writes, and an audit does neither.
    """
    with ExitStack() as stack:
        first = stack.enter_context(connect())
        first.execute(BEGIN)
        sessions = [first]
        if count > 1:
            [(snapshot,)] = first.execute("SELECT pg_export_snapshot()")
            for _ in range(count - 1):
                session = stack.enter_context(connect())
                # The snapshot must be set before the first query, and SET TRANSACTION takes no parameter.
                session.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '{snapshot}'")
                session.execute(BEGIN.partition(";")[2])
                sessions.append(session)
        yield sessions
