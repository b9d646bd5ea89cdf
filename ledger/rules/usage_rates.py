"""How fast an account is being used up: credits a day, and how long what is left lasts at that pace."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from ledger.rules.instants import to_us
from ledger.rules.kinds import taken_by

DAY: Final = timedelta(days=1)
DAY_US: Final = 86_400_000_000
LEAST_DAYS: Final = 3
"""Of fewer days of use, no forecast is made: the use of a day says nothing about the next one."""


class Stock(NamedTuple):
    """Credits that can be used now, and for how many days yet; None: they do not expire."""

    credits: int
    days: float | None = None


class Forecast(NamedTuple):
    """For how many whole days credits last, and how many of them expire before they are used."""

    days: int
    unused: int


class BurnRate(NamedTuple):
    """`used` credits were spent for good within `days` days."""

    used: int
    days: float

    @property
    def a_day(self) -> float:
        return self.used / max(self.days, 1.0)

    @property
    def is_known(self) -> bool:
        """Whether there are enough days of use to say how it goes on."""
        return self.days >= LEAST_DAYS

    def forecast(self, stocks: Iterable[Stock]) -> Forecast | None:
        """Return how long these credits last at this pace, used in their order, each as long as it has not expired.

        None where nothing is being used, and of fewer days than LEAST_DAYS.
        """
        if self.used <= 0 or not self.is_known:
            return None
        day, unused = 0.0, 0.0
        for stock in stocks:
            needed = stock.credits / self.a_day
            open_days = needed if stock.days is None else max(0.0, stock.days - day)
            unused += max(0.0, needed - open_days) * self.a_day
            day += min(needed, open_days)
        # A millionth of a day is the error of the sums, not use.
        return Forecast(int(day + 1e-6), round(unused))


def burn_rate(entries: Iterable[Any], *, since: datetime, now: datetime) -> BurnRate:
    """What the entries used from `since` until `now`: spends and captures, less refunds.

    Args:
        entries: those recorded since then, with kind, amount and drawn.
    """
    used = sum(_used_credits(entry) for entry in entries)
    return BurnRate(max(used, 0), max((now - since) / DAY, 0.0))


def _used_credits(entry: Any) -> int:
    return taken_by(entry) or (-int(entry.amount) if entry.kind == "refund" else 0)


def stocks_of(account: Any) -> list[Stock]:
    """Return the credits that an account can use now, in the order in which they are used; an overdraft's rest is the last.

    Args:
        account: anything with available, lots in burn order, and as_of.
    """
    now_us, left, stocks = to_us(account.as_of), int(account.available), list[Stock]()
    for lot in account.lots:
        if left > 0 and lot.is_spendable(now_us):
            days = None if lot.expires_us is None else (lot.expires_us - now_us) / DAY_US
            stocks.append(Stock(min(left, lot.remaining), days))
            left -= stocks[-1].credits
    return [*stocks, Stock(left)] if left > 0 else stocks
