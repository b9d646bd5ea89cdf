"""Prepared statements, straight to libpq, for the few statements that every request sends.

Django's and psycopg's cursors and their client-side binding cost a spend much CPU in the process, parsing and planning as much in
the server (docs/PERFORMANCE.md, "What was taken off"). Everything else goes through cursors.

They are sent unprepared where settings.LEDGER["PREPARE_STATEMENTS"] is off, for a pooler that cannot keep them.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections
from psycopg import pq

from ledger.database.locks import sqlstate

UTF8 = "utf-8"
BINARY: Final = 1
PREPARED_IS_GONE = {"26000", "42P05", "0A000"}
"""It is not there, another one is, or a migration has changed what it gives: DISCARD ALL, a pooler, a new release."""
UNIX_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""

_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[str, bytes]] = WeakKeyDictionary()
"""What each connection keeps: the statement's name -> what the server knows it by."""
_numbers = count()
"""Never the same name again, for one that the server may still have or know by another meaning."""

Loader = Callable[[bytes], Any]


def integer(value: bytes) -> int:
    """A bigint in binary."""
    return int.from_bytes(value, "big", signed=True)


def instant_us(value: bytes) -> int:
    """A timestamptz in binary, as microseconds since 1970."""
    return int.from_bytes(value, "big", signed=True) + UNIX_EPOCH_US


def boolean(value: bytes) -> bool:
    """A boolean in binary."""
    return value == b"\x01"


def array(values: Iterable[str | None]) -> bytes:
    """An array parameter of values in PostgreSQL's text form; psycopg's own adaptation takes much of a batch's time."""
    return f"{{{','.join(map(_element, values))}}}".encode()


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def wait_at_most(milliseconds: int) -> None:
    """Bound how long statements of this transaction wait for a lock; begins it by the same message where it has not begun."""
    database = connections[DEFAULT_DB_ALIAS]
    driver: Any = database.connection
    with database.wrap_database_errors:
        begin = "BEGIN; " if driver.pgconn.transaction_status == pq.TransactionStatus.IDLE else ""
        _checked(driver.pgconn.exec_(f"{begin}SET LOCAL lock_timeout = {milliseconds:d}".encode()))


class Statement:
    """One SQL statement with parameters, and what its rows are read as."""

    def __init__(self, name: str, sql: str, loaders: Sequence[Loader] = ()) -> None:
        """Describe it.

        Args:
            name: unique among all statements.
            sql: with %s for each parameter and no other percent sign.
            loaders: for each column of the result, from PostgreSQL's binary form to the value.
        """
        self.sql = sql
        self._name = name
        head, *rest = sql.split("%s")
        self._numbered = (head + "".join(f"${place}{part}" for place, part in enumerate(rest, 1))).encode()
        self._loaders = tuple(loaders)

    def execute(self, values: Sequence[bytes | None]) -> list[Any] | None:
        """As `rows`; the first row, None for none."""
        rows = self.rows(values)
        return rows[0] if rows else None

    def read(self, values: Sequence[bytes | None]) -> list[list[Any]]:
        """As `rows`, for a read that may stand alone: with a connection that works, and again where the prepared one is gone."""
        database = connections[DEFAULT_DB_ALIAS]
        if database.in_atomic_block:
            return self.rows(values)
        database.close_if_health_check_failed()
        database.ensure_connection()
        try:
            return self.rows(values)
        except Error as error:
            if sqlstate(error) not in PREPARED_IS_GONE:
                raise
            return self.rows(values)

    def rows(self, values: Sequence[bytes | None]) -> list[list[Any]]:
        """Send it in the transaction that is open, or is to begin; the rows.

        Args:
            values: the parameters in PostgreSQL's text form.

        Raises:
            django.db.Error: as a cursor would; the transaction is aborted.
        """
        database = connections[DEFAULT_DB_ALIAS]
        send: Any = self._send
        if database.queries_logged:
            database.queries_log.append({"sql": self.sql, "time": ""})
        # Who watches the cursors' statements sees these too.
        for wrapper in reversed(database.execute_wrappers):
            send = partial(wrapper, send)
        rows: list[list[Any]] = send(self.sql, values, False, {"connection": database, "cursor": None})
        return rows

    def _send(self, sql: str, values: Sequence[bytes | None], many: bool, context: dict[str, Any]) -> list[list[Any]]:
        database = context["connection"]
        driver = database.connection
        with database.wrap_database_errors:
            if driver.pgconn.transaction_status == pq.TransactionStatus.IDLE and not driver.autocommit:
                _checked(driver.pgconn.exec_(b"BEGIN"))
            if settings.LEDGER["PREPARE_STATEMENTS"]:
                result = self._exec_prepared(driver, values)
            else:
                result = _checked(driver.pgconn.exec_params(self._numbered, values, result_format=BINARY))
        return [self._row(result, place) for place in range(result.ntuples)]

    def _exec_prepared(self, driver: "psycopg.Connection[Any]", values: Any) -> pq.abc.PGresult:
        names = _prepared.setdefault(driver, {})
        try:
            name = names.get(self._name)
            if name is None:
                name = f"ledger_{self._name}_{next(_numbers)}".encode()
                _checked(driver.pgconn.prepare(name, self._numbered))
                names[self._name] = name
            return _checked(driver.pgconn.exec_prepared(name, values, result_format=BINARY))
        except psycopg.Error as error:
            if error.sqlstate in PREPARED_IS_GONE:
                names.clear()
            raise

    def _row(self, result: pq.abc.PGresult, place: int) -> list[Any]:
        row = []
        for column, load in enumerate(self._loaders):
            value = result.get_value(place, column)
            row.append(None if value is None else load(value))
        return row


def _checked(result: pq.abc.PGresult) -> pq.abc.PGresult:
    """The result; or the error that it is, raised as the driver raises it."""
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return result
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        raise psycopg.OperationalError(result.get_error_message(UTF8))
    raise psycopg.errors.error_from_result(result, UTF8)
