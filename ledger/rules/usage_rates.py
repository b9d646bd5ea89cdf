"""How fast an account is being used up: credits a day, and how long what is left lasts at that pace."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ledger.rules.kinds import taken_by

DAY = timedelta(days=1)


class BurnRate(NamedTuple):
    """`used` credits were spent for good within `days` days, 1 or more."""

    used: int
    days: float

    @property
    def a_day(self) -> float:
        return self.used / self.days

    def lasts_days(self, available: int) -> int | None:
        """How many whole days `available` credits last at this pace; None where nothing is being used."""
        return None if self.used <= 0 else int(available / self.a_day)


def burn_rate(entries: Iterable[Any], *, since: datetime, now: datetime) -> BurnRate:
    """What the entries used from `since` until `now`: spends and captures, less refunds.

    Args:
        entries: those recorded since then, with kind, amount and drawn.
    """
    used = sum(_used(entry) for entry in entries)
    return BurnRate(max(used, 0), max((now - since) / DAY, 1.0))


def _used(entry: Any) -> int:
    return taken_by(entry) or (-int(entry.amount) if entry.kind == "refund" else 0)
