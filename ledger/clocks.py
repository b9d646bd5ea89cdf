"""What time it is for a holder: the server's, or that of the holder's test clock where `TEST_CLOCKS` is on."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from ledger import conf
from ledger.database.statements import Loader, Statement, fetch_rows

SERVER: Final = "statement_timestamp()"


def clock_of(holder_id: str) -> datetime | None:
    """Return the time of the holder's test clock, or None if it has none; an empty id is no holder."""
    if not (conf.TEST_CLOCKS.value and holder_id):
        return None
    shown: list[datetime | None] = fetch_rows(lambda shown: shown, "SELECT ledger_clock(%s)", [holder_id])
    return shown[0]


def time_of(holder_id: str) -> datetime:
    """Return the holder's time: that of its test clock, or the present time."""
    return clock_of(holder_id) or timezone.now()


def holders_time(sql: str, *, holder: str) -> str:
    """Return the query with each holder's time for the server's, if holders may have test clocks.

    Args:
        holder: the expression in the query for the holder's id.
    """
    return _by_clock(sql, holder) if conf.TEST_CLOCKS.value else sql


def _by_clock(sql: str, holder: str) -> str:
    return sql.replace(SERVER, f"COALESCE(ledger_clock({holder}), {SERVER})")


class TimedStatement:
    """A prepared statement that reads the server's time, and its twin that reads the holder's."""

    def __init__(
        self,
        name: str,
        sql: str,
        loaders: Sequence[Loader],
        *,
        holder: str,
        row: Callable[[list[Any]], Any] = lambda row: row,
    ) -> None:
        """As `Statement`; `holder` as for `holders_time`."""
        self._by_server = Statement(name, sql, loaders, row=row)
        self._by_clock = Statement(f"{name}_by_clock", _by_clock(sql, holder), loaders, row=row)

    @property
    def present(self) -> Statement:
        """The one that this deployment needs."""
        return self._by_clock if conf.TEST_CLOCKS.value else self._by_server
