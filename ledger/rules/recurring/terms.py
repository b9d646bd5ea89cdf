"""The terms of a recurring grant, its periods, and how far an account has got with it.

Period n begins at boundary n of the schedule (`ledger.periods`): the start plus n intervals, on the clocks of the time zone.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from ledger.periods import Interval, IntervalUnit, Schedule, instant_of
from ledger.rules.instants import from_us, to_text, to_us, us_of

UNITS: Final = ("day", "week", "month", "year")
PERIOD_END, AFTER_DAYS, NEVER, ROLLOVER = EXPIRIES = ("period_end", "after_days", "never", "rollover")
LARGEST_NAME: Final = "~"
"""Sorts behind each name."""
MAX_RECURRING_GRANTS: Final = 50
"""How many an account may have that have not ended."""
MAX_COUNT: Final = 100
MAX_DAYS: Final = 3_660
MAX_PERIODS: Final = 100_000
LAST_END_US: Final = to_us(datetime(2200, 12, 31, tzinfo=UTC))
"""No period ends later: these are the times that the ledger takes."""


class Span(NamedTuple):
    """A period `[start, end)`, in microseconds."""

    start_us: int
    end_us: int


class RecurringTerms(NamedTuple):
    """What recurs: `amount` credits each period, or as many as fill the schedule's lots up to `up_to`.

    `starts_us` is the boundary 0. `ends_us` and `periods` limit the periods by their starts and by their number. `rollover_cap`
    belongs to the expiry `rollover`, `expires_after_days` to `after_days`.
    """

    amount: int | None
    up_to: int | None
    interval: str
    interval_count: int
    starts_us: int
    time_zone: str
    source: str
    priority: int
    expiry: str
    expires_after_days: int | None
    rollover_cap: int | None
    ends_us: int | None
    periods: int | None

    @property
    def schedule(self) -> Schedule:
        interval = Interval(IntervalUnit(self.interval), self.interval_count)
        return Schedule.anchored_at(from_us(self.starts_us), ZoneInfo(self.time_zone), interval)

    def span(self, n: int) -> Span:
        """Return period n."""
        found = self.schedule.period(n)
        return Span(to_us(found.start), to_us(found.end))

    def has(self, n: int) -> bool:
        """Return whether period n is one of the schedule's."""
        if n < 0 or (self.periods is not None and n >= self.periods):
            return False
        span = self.span(n)
        return span.end_us <= LAST_END_US and (self.ends_us is None or span.start_us < self.ends_us)

    def first(self, now_us: int, *, not_before_us: int | None) -> int | None:
        """Return the first period to grant of a schedule that is set now; None if it has no period any more.

        It is the period of this instant, or the first one of a schedule that starts later; but none that begins before
        `not_before_us`, up to which the schedule has granted already.
        """
        n = max(0, self.schedule.index_at(from_us(now_us)))
        while not_before_us is not None and self.has(n) and self.span(n).start_us < not_before_us:
            n += 1
        return n if self.has(n) else None

    def expires_us(self, n: int) -> int | None:
        """Return when the credits of period n expire; None if they do not expire by themselves."""
        if self.expiry == PERIOD_END:
            return self.span(n).end_us
        if self.expires_after_days is None:
            return None
        schedule = self.schedule
        local = schedule.local_boundary(n) + timedelta(days=self.expires_after_days)
        return to_us(instant_of(local, schedule.zone))

    def stored(self) -> dict[str, Any]:
        """Return the form on an entry, without what is not given."""
        facts = self._asdict() | {"starts_at": to_text(self.starts_us)}
        facts |= {"ends_at": None if self.ends_us is None else to_text(self.ends_us)}
        return {name: value for name, value in facts.items() if value is not None and not name.endswith("_us")}

    @classmethod
    def from_stored(cls, facts: Mapping[str, Any]) -> "RecurringTerms":
        """Return the terms of a stored form: the inverse of `stored`."""
        times = {name: us_of(facts.get(name.replace("_us", "_at"))) for name in ("starts_us", "ends_us")}
        return cls(**{name: times.get(name, facts.get(name)) for name in cls._fields})  # type: ignore[arg-type]


class RecurringGrant(NamedTuple):
    """A recurring grant of an account, as its entries say.

    Args:
        setting: the entry that set the terms; a key of a grant names it.
        terms: None after its end.
        next_period: what is granted next; None if nothing is left.
        granted_until_us: the end of the last period that was handled; None before the first one.
    """

    name: str
    setting: int
    terms: RecurringTerms | None
    next_period: int | None
    granted_until_us: int | None

    @classmethod
    def from_entries(
        cls, name: str, setting: int, counterpart: Mapping[str, Any], handled: Mapping[str, Any] | None
    ) -> "RecurringGrant":
        """Return the recurring grant that its entries describe.

        Args:
            counterpart: of the entry that set or ended it. handled: the metadata of the last period's entry since then.
        """
        terms = RecurringTerms.from_stored(counterpart["terms"]) if "terms" in counterpart else None
        if handled is None:
            return cls(name, setting, terms, counterpart.get("next_period"), us_of(counterpart.get("granted_until")))
        following = handled["period"] + 1 if "next_at" in handled else None
        return cls(name, setting, terms, following, us_of(handled["period_end"]))

    @property
    def next_us(self) -> int | None:
        """When the next period begins; None if nothing is left."""
        if self.terms is None or self.next_period is None:
            return None
        return self.terms.span(self.next_period).start_us

    def is_due(self, now_us: int) -> bool:
        return self.next_us is not None and self.next_us <= now_us

    def upcoming(self, count: int) -> list[int]:
        """Return the next periods to grant, at most `count`."""
        if self.terms is None or self.next_period is None:
            return []
        return [n for n in range(self.next_period, self.next_period + count) if self.terms.has(n)]
