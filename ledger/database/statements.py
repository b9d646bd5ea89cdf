"""Prepared statements, sent through libpq directly, for the few statements that every request sends.

Cursors of Django and psycopg, with their client-side binding, cost a spend much CPU in the process; parsing and planning cost as
much in the server (docs/explanation/performance.md, "What was taken off"). All other statements go through cursors.

If the setting PREPARE_STATEMENTS is off, for a pooler that cannot keep prepared statements, they are sent unprepared.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from psycopg import pq

from ledger import conf
from ledger.database.cluster import sql_of
from ledger.database.locks import sqlstate
from ledger.database.schema_versions import ensure_schema

UTF8 = "utf-8"
BINARY: Final = 1
PREPARED_IS_GONE = {"26000", "42P05", "0A000"}
"""The prepared statement does not exist, exists already, or a migration has changed its result: after DISCARD ALL, behind a
pooler, or during a new release."""
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""From which PostgreSQL counts in binary."""
UNIX_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: PostgreSQL counts its timestamps from there."""

_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[str, bytes]] = WeakKeyDictionary()
"""Per connection: the statement's name -> its name in the server."""
_numbers = count()
"""Makes each name in the server unique: the server may still have an old statement under an earlier name."""

_PARAMETER = re.compile(r"%(?:\((\w+)\))?s")

Loader = Callable[[bytes], Any]
Parameters = Sequence[bytes | None] | Mapping[str, bytes | None]


integer: Final = partial(int.from_bytes, byteorder="big", signed=True)
"""Decodes a bigint from PostgreSQL's binary form."""


def instant_us(value: bytes) -> int:
    """Decode a timestamptz from PostgreSQL's binary form to microseconds since 1970."""
    return integer(value) + UNIX_EPOCH_US


def instant(value: bytes) -> datetime:
    """Decode a timestamptz from PostgreSQL's binary form."""
    return EPOCH + timedelta(microseconds=integer(value))


def decimal(value: bytes) -> Decimal:
    """Decode a numeric that the statement casts to text."""
    return Decimal(value.decode())


boolean: Final[Loader] = b"\x01".__eq__
"""Decodes a boolean from PostgreSQL's binary form."""


def parameter(value: str | int | datetime | UUID | None) -> bytes | None:
    """Encode a parameter in PostgreSQL's text form."""
    if value is None:
        return None
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


def array(values: Sequence[str | None]) -> bytes:
    """Encode an array parameter from values in PostgreSQL's text form. psycopg's adaptation would take much of a batch's time."""
    present = [value for value in values if value is not None]
    if not present:
        return _nulls(len(values))
    text = '","'.join(present)
    # One test of all values: most need no escaping.
    if len(present) < len(values) or "\\" in text or text.count('"') > 2 * len(values) - 2:
        return f"{{{','.join([_element(value) for value in values])}}}".encode()
    return f'{{"{text}"}}'.encode()


@lru_cache(1024)
def _nulls(count: int) -> bytes:
    """Return an array of nulls: a third of the columns of most groups."""
    return f"{{{','.join(['NULL'] * count)}}}".encode()


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def wait_at_most(milliseconds: int) -> None:
    """Set lock_timeout for this transaction; begin the transaction if it has not begun, if possible by the same message."""
    database = connections[DEFAULT_DB_ALIAS]
    driver: Any = database.connection
    with database.wrap_database_errors:
        bound = f"SET LOCAL lock_timeout = {milliseconds:d}"
        is_idle = driver.pgconn.transaction_status == pq.TransactionStatus.IDLE
        for message in BEGINNING if is_idle else ("{}",):
            _check_result(driver.pgconn.exec_(message.format(bound).encode()))


BEGINNING: Final = sql_of("begin with a statement", "BEGIN; {}").splitlines()
"""The messages that begin a transaction and execute a statement in it."""


class Statement:
    """One SQL statement with parameters, and the loaders of its columns."""

    def __init__(
        self,
        name: str,
        sql: str,
        loaders: Sequence[Loader] = (),
        *,
        row: Callable[[list[Any]], Any] = lambda row: row,
    ) -> None:
        """Describe the statement; nothing is sent.

        Args:
            name: unique among all statements.
            sql: has %s for each parameter, or %(name)s for each place of a named one, and no other percent sign.
            loaders: one for each column of the result, from PostgreSQL's binary form to the value. None is not loaded.
            row: makes the row from the list of its values, such as a named tuple's `_make`.
        """
        sql = sql_of(name, sql)
        self._name = name
        self.parameters = tuple(dict.fromkeys(name for name in _PARAMETER.findall(sql) if name))
        places = count(1)
        self.sql = _PARAMETER.sub(lambda found: f"${self.parameters.index(found[1]) + 1 if found[1] else next(places)}", sql)
        """As the server gets it, with $1 for the first parameter."""
        self.loaders = tuple(loaders)
        self._places = tuple(enumerate(loaders))
        self._row = row

    def execute(self, values: Parameters) -> Any:
        """As `rows`; return the first row, or None if there is no row."""
        rows = self.rows(values)
        return rows[0] if rows else None

    def first(self, values: Parameters) -> Any:
        """As `read`; return the first row, or None if there is no row."""
        rows = self.read(values)
        return rows[0] if rows else None

    def read(self, values: Parameters) -> list[Any]:
        """As `rows`, for reads outside a transaction too: reconnect if the connection is broken, and repeat a lost statement."""
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

    def rows(self, values: Parameters) -> list[Any]:
        """Send the statement and return its rows; outside autocommit it begins the transaction if none is open.

        Args:
            values: the parameters in PostgreSQL's text form, in their order or by name.

        Raises:
            django.db.Error: as from a cursor; the transaction is aborted.
        """
        if isinstance(values, Mapping):
            values = [values[name] for name in self.parameters]
        database = connections[DEFAULT_DB_ALIAS]
        ensure_schema(database)
        send: Any = self._send
        if database.queries_logged:
            database.queries_log.append({"sql": self.sql, "time": ""})
        # Wrappers that observe the statements of cursors (tests, tracing) see these statements too.
        for wrapper in reversed(database.execute_wrappers):
            send = partial(wrapper, send)
        rows: list[Any] = send(self.sql, values, False, {"connection": database, "cursor": None})
        return rows

    def _send(self, sql: str, values: Sequence[bytes | None], many: bool, context: dict[str, Any]) -> list[Any]:
        database = context["connection"]
        driver = database.connection
        with database.wrap_database_errors:
            if driver.pgconn.transaction_status == pq.TransactionStatus.IDLE and not driver.autocommit:
                _check_result(driver.pgconn.exec_(b"BEGIN"))
            if conf.PREPARE_STATEMENTS.value:
                result = self._exec_prepared(driver, values)
            else:
                result = _check_result(driver.pgconn.exec_params(self.sql.encode(), values, result_format=BINARY))
        return self._rows_in(result)

    def rows_of(self, result: pq.abc.PGresult) -> list[Any]:
        """Return the rows of a result that another has received, or raise its error as the driver would."""
        return self._rows_in(_check_result(result))

    def _rows_in(self, result: pq.abc.PGresult) -> list[Any]:
        value_at = result.get_value
        return [
            self._row([None if (value := value_at(place, column)) is None else load(value) for column, load in self._places])
            for place in range(result.ntuples)
        ]

    def _exec_prepared(self, driver: "psycopg.Connection[Any]", values: Any) -> pq.abc.PGresult:
        names = _prepared.setdefault(driver, {})
        try:
            name = names.get(self._name)
            if name is None:
                name = names[self._name] = self.prepare(driver)
            return _check_result(driver.pgconn.exec_prepared(name, values, result_format=BINARY))
        except psycopg.Error as error:
            if error.sqlstate in PREPARED_IS_GONE:
                names.clear()
            raise

    def prepare(self, driver: "psycopg.Connection[Any]") -> bytes:
        """Prepare the statement on a connection and return its name in the server."""
        name = f"ledger_{self._name}_{next(_numbers)}".encode()
        _check_result(driver.pgconn.prepare(name, self.sql.encode()))
        return name


def _check_result(result: pq.abc.PGresult) -> pq.abc.PGresult:
    """Return the result, or raise its error as the driver would."""
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return result
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        raise psycopg.OperationalError(result.get_error_message(UTF8))
    raise psycopg.errors.error_from_result(result, UTF8)


Row = TypeVar("Row")


def fetch_rows(row: Callable[..., Row], sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> list[Row]:
    """Return all rows of a query, each made by `row` from its columns in their order.

    Args:
        row: a NamedTuple, a dataclass, or a function of the columns; for one column also `int` or `str`.
        parameters: None: a `%` in the query is a plain character.
    """
    ensure_schema(connection)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return [row(*values) for values in cursor.fetchall()]


def fetch_value(value: Callable[[Any], Row], sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Row:
    """Return the only value of a query, made by `value`, such as `int`, `str` or `bool`; the parameters as for `fetch_rows`."""
    [row] = fetch_rows(value, sql, parameters)
    return row
