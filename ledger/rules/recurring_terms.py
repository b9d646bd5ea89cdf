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
PRORATE: Final = "prorate"
KEEP: Final = "keep"
FULL: Final = "full"
CHANGES: Final = (PRORATE, KEEP, FULL)
"""What other terms do with the credits of the running period."""
EXPIRED, LOTS_FULL, NOT_KEPT, FILLED_EXPIRED = SKIPPED = ("expired", "full", "not_kept", "filled_expired")
"""Why periods are skipped: their credits have expired, the lots were full, what rolls over is of later periods, or the lots were
full in some and what filled them in the others has expired."""
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


class GrantedSpan(NamedTuple):
    """What was granted last: `amount` credits by the entry `lot`, for `[start_us, until_us)`, counted in days of a zone."""

    lot: int
    amount: int
    start_us: int
    until_us: int
    time_zone: str

    def kept(self, cut_us: int) -> int:
        """Return the whole credits of the time up to an instant of the span."""
        return share_of_days(self.amount, Span(self.start_us, cut_us), Span(self.start_us, self.until_us), self.time_zone)

    def stored(self) -> dict[str, Any]:
        """Return the form on an entry."""
        return {
            "lot": self.lot,
            "amount": self.amount,
            "from": to_text(self.start_us),
            "until": to_text(self.until_us),
            "time_zone": self.time_zone,
        }

    @classmethod
    def from_stored(cls, facts: Mapping[str, Any]) -> "GrantedSpan":
        """Return the span of a stored form: the inverse of `stored`."""
        start_us, until_us = (us_of(facts[name]) for name in ("from", "until"))
        assert start_us is not None
        assert until_us is not None
        return cls(facts["lot"], facts["amount"], start_us, until_us, facts["time_zone"])


def share_of_days(amount: int, part: Span, whole: Span, time_zone: str) -> int:
    """Return the whole credits of a part of a span, by the calendar days of a zone; by time if the span has no midnight."""
    zone = ZoneInfo(time_zone)
    days = [from_us(at).astimezone(zone).date() for at in (part.start_us, part.end_us, whole.start_us, whole.end_us)]
    used, of = (days[1] - days[0]).days, (days[3] - days[2]).days
    if not of:
        used, of = part.end_us - part.start_us, whole.end_us - whole.start_us
    return amount * min(used, of) // of


class RecurringTerms(NamedTuple):
    """What recurs: `amount` credits each period, or as many as fill the schedule's lots up to `up_to`.

    `starts_us` is the boundary 0. `ends_us` and `periods` limit the periods by their starts and by their number. `rollover_cap`
    belongs to the expiry `rollover`, `expires_after_days` to `after_days`. `applies_to` says what the credits can pay for,
    as in a grant; None: for everything.
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
    applies_to: dict[str, Any] | None = None

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

    def first(self, from_us_: int) -> int | None:
        """Return the period of an instant, or the first one of a schedule that starts later; None if it has no such period."""
        n = max(0, self.schedule.index_at(from_us(from_us_)))
        return n if self.has(n) else None

    def first_after(self, first: int | None, until_us: int) -> int | None:
        """Return the first period, from number `first` on, that does not begin before an instant; None if there is none."""
        if first is None:
            return None
        n = max(first, self.schedule.index_at(from_us(until_us - 1)) + 1)
        return n if self.has(n) else None

    def last_begun(self, now_us: int) -> int:
        """Return the last period that has begun; below 0 if there is none."""
        n = self.schedule.index_at(from_us(now_us if self.ends_us is None else min(now_us, self.ends_us - 1)))
        return n if self.periods is None else min(n, self.periods - 1)

    def gives_like(self, other: "RecurringTerms", now_us: int) -> bool:
        """Return whether both give as many credits for the same period at an instant."""
        if (self.amount, self.up_to) != (other.amount, other.up_to):
            return False
        mine, theirs = (terms.schedule.period_at(from_us(now_us)) for terms in (self, other))
        return (mine.start, mine.end) == (theirs.start, theirs.end)

    def expires_us(self, n: int, begins_us: int | None = None) -> int | None:
        """Return when the credits of period n expire; None if they do not expire by themselves.

        Args:
            begins_us: the start of a part of the period; None: all of it.
        """
        if self.expiry == PERIOD_END:
            return self.span(n).end_us
        if self.expires_after_days is None:
            return None
        schedule = self.schedule
        start = schedule.local_boundary(n)
        if begins_us is not None:
            start = from_us(begins_us).astimezone(schedule.zone).replace(tzinfo=None)
        local = start + timedelta(days=self.expires_after_days)
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


class GrantPart(NamedTuple):
    """A stretch of time `[start_us, end_us)` with credits of its own, beside the periods of the terms.

    Args:
        amount: its credits, 0 or more.
        expires_us: when they expire; None: they do not expire by themselves.
        applies_to: what they can pay for; None: everything.
        known_as: what the setter of the terms knows it by.
        taken_back: when it begins, what goes back of earlier lots, as far as it is unspent: each lot with an amount above 0.
        at_us: when it is due, if that is before its start.
        rollover_cap: when it begins, how many unspent credits of earlier lots that do not expire it keeps; None: all.
    """

    start_us: int
    end_us: int
    amount: int
    expires_us: int | None
    applies_to: dict[str, Any] | None = None
    known_as: str = ""
    taken_back: tuple[tuple[int, int], ...] = ()
    at_us: int | None = None
    rollover_cap: int | None = None

    @property
    def due_us(self) -> int:
        """When it is granted."""
        return self.start_us if self.at_us is None else self.at_us

    @property
    def span(self) -> Span:
        return Span(self.start_us, self.end_us)

    def stored(self) -> dict[str, Any]:
        """Return the form on an entry, without what is not given."""
        facts: dict[str, Any] = {"from": to_text(self.start_us), "until": to_text(self.end_us), "amount": self.amount}
        if self.expires_us is not None:
            facts["expires_at"] = to_text(self.expires_us)
        if self.applies_to is not None:
            facts["applies_to"] = self.applies_to
        if self.known_as:
            facts["known_as"] = self.known_as
        if self.taken_back:
            facts["taken_back"] = [list(each) for each in self.taken_back]
        if self.at_us is not None:
            facts["at"] = to_text(self.at_us)
        if self.rollover_cap is not None:
            facts["rollover_cap"] = self.rollover_cap
        return facts

    @classmethod
    def from_stored(cls, facts: Mapping[str, Any]) -> "GrantPart":
        """Return the part of a stored form: the inverse of `stored`."""
        start_us, end_us = (us_of(facts[name]) for name in ("from", "until"))
        assert start_us is not None
        assert end_us is not None
        back = tuple((lot, amount) for lot, amount in facts.get("taken_back", ()))
        expires_us, known_as = us_of(facts.get("expires_at")), facts.get("known_as", "")
        return cls(
            start_us, end_us, facts["amount"], expires_us, facts.get("applies_to"), known_as, back, us_of(facts.get("at")),
            facts.get("rollover_cap"),
        )  # fmt: skip


class RecurringGrant(NamedTuple):
    """A recurring grant of an account, as its entries say.

    Args:
        setting: the entry that set the terms; a key of a grant names it.
        terms: None after its end.
        next_period: what is granted next; None if nothing is left.
        granted_until_us: the end of the last period that was handled; None before the first one.
        begins_us: within the next period, the instant from which it is granted; None: all of it.
        is_full: that part gives as many credits as the whole.
        granted: what was granted last; None before the first grant, and if it is not known any more.
        granted_as: reason and reference of its grants; empty ones are the ledger's.
        known_as: what the setter of the terms knows the periods by.
        parts: the parts that the terms name, in order of time, all of them; they and the periods do not overlap.
        next_part: the number of the next part; `len(parts)` if none is left.
        still_open: what periods that were skipped had granted and the next one still finds: each with when it expires, which is
            over by now, and its credits.
    """

    name: str
    setting: int
    terms: RecurringTerms | None
    next_period: int | None
    granted_until_us: int | None
    begins_us: int | None = None
    is_full: bool = False
    granted: GrantedSpan | None = None
    granted_as: tuple[str, str] = ("", "")
    known_as: str = ""
    parts: tuple[GrantPart, ...] = ()
    next_part: int = 0
    still_open: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_entries(
        cls,
        name: str,
        setting: int,
        counterpart: Mapping[str, Any],
        handled: Mapping[str, Any] | None,
        last: int | None,
        amount: int | None,
    ) -> "RecurringGrant":
        """Return the recurring grant that its entries describe.

        Args:
            counterpart: of the entry that set or ended it. handled: the metadata of the last period's entry since then.
            last, amount: the number and the credits of that entry; None if there is none.
        """
        terms = RecurringTerms.from_stored(counterpart["terms"]) if "terms" in counterpart else None
        reason, reference = counterpart.get("granted_as", ("", ""))
        known_as = counterpart.get("known_as", "")
        parts = tuple(GrantPart.from_stored(each) for each in counterpart.get("parts", ()))
        if handled is None:
            stored = counterpart.get("granted")
            return cls(
                name, setting, terms, counterpart.get("next_period"), us_of(counterpart.get("granted_until")),
                begins_us=us_of(counterpart.get("begins_at")),
                is_full=counterpart.get("is_full", False),
                granted=None if stored is None else GrantedSpan.from_stored(stored), granted_as=(reason, reference),
                known_as=known_as, parts=parts,
            )  # fmt: skip
        start_us, until_us = us_of(handled["period_start"]), us_of(handled["period_end"])
        assert terms is not None
        assert start_us is not None
        assert until_us is not None
        granted = GrantedSpan(last or 0, amount or 0, start_us, until_us, terms.time_zone)
        is_part = "part" in handled
        following = terms.first_after(counterpart.get("next_period"), start_us + 1 if is_part else until_us)
        next_part = handled["part"] + 1 if is_part else sum(each.start_us < until_us for each in parts)
        return cls(
            name, setting, terms, following, until_us, granted=granted, granted_as=(reason, reference), known_as=known_as,
            parts=parts, next_part=next_part, still_open=tuple((at_us, left) for at_us, left in handled.get("still_open", ())),
        )  # fmt: skip

    def part(self, n: int) -> Span:
        """Return the time for which period n is granted: all of it, or of the next one what `begins_us` leaves."""
        assert self.terms is not None
        span = self.terms.span(n)
        return span if self.begins_us is None or n != self.next_period else span._replace(start_us=self.begins_us)

    def amount(self, n: int) -> int | None:
        """Return the credits of that time; None if it fills the lots up to a level."""
        assert self.terms is not None
        part, span = self.part(n), self.terms.span(n)
        if self.terms.amount is None or part == span or self.is_full:
            return self.terms.amount
        return share_of_days(self.terms.amount, part, span, self.terms.time_zone)

    def after(self, n: int) -> "RecurringGrant":
        """Return the recurring grant after its periods up to n were handled."""
        assert self.terms is not None
        following = n + 1 if self.terms.has(n + 1) else None
        until_us = self.part(n).end_us
        return self._replace(next_period=following, granted_until_us=until_us, begins_us=None, is_full=False)._with_open()

    def expires_us(self, n: int) -> int | None:
        """Return when the credits of that time expire."""
        assert self.terms is not None
        part = self.part(n)
        return self.terms.expires_us(n, None if part == self.terms.span(n) else part.start_us)

    @property
    def next_us(self) -> int | None:
        """When the next period or part begins; None if nothing is left."""
        part = self.due_part
        return self._next_period_us if part is None else part.due_us

    @property
    def _next_period_us(self) -> int | None:
        if self.terms is None or self.next_period is None:
            return None
        return self.part(self.next_period).start_us

    @property
    def due_part(self) -> GrantPart | None:
        """The next part that the terms name; None if there is none before the next period."""
        if self.terms is None or self.next_part >= len(self.parts):
            return None
        part, period_us = self.parts[self.next_part], self._next_period_us
        return part if period_us is None or part.due_us < period_us else None

    def after_part(self) -> "RecurringGrant":
        """Return the recurring grant after its next part was handled."""
        return self._replace(next_part=self.next_part + 1, granted_until_us=self.parts[self.next_part].end_us)._with_open()

    def _with_open(self) -> "RecurringGrant":
        """Return it with what of `still_open` is there when the next period or part begins."""
        next_us = self.next_us
        still_open = () if next_us is None else tuple(each for each in self.still_open if each[0] > next_us)
        return self._replace(still_open=still_open)

    def is_due(self, now_us: int) -> bool:
        return self.next_us is not None and self.next_us <= now_us

    def upcoming(self, count: int) -> list[int]:
        """Return the next periods to grant, at most `count`."""
        if self.terms is None or self.next_period is None:
            return []
        return [n for n in range(self.next_period, self.next_period + count) if self.terms.has(n)]

    def upcoming_parts(self, count: int) -> list[GrantPart]:
        """Return the next parts that bring credits, at most `count`."""
        return [] if self.terms is None else [each for each in self.parts[self.next_part :] if each.amount][:count]


# In words, as the reason of entries ------------------------------------------------------------------

ADJECTIVES: Final = {"day": "Daily", "week": "Weekly", "month": "Monthly", "year": "Yearly"}


def grant_words(terms: RecurringTerms, span: Span) -> str:
    """The reason of a period's entries: "Monthly grant, period 1 Sep 2026 – 1 Oct 2026"."""
    return f"{name_words(terms)}, period {period_words(terms, span)}"


def name_words(terms: RecurringTerms) -> str:
    """ "Monthly grant", "Grant every 2 weeks"."""
    if terms.interval_count == 1:
        return f"{ADJECTIVES[terms.interval]} grant"
    return f"Grant every {terms.interval_count} {terms.interval}s"


def period_words(terms: RecurringTerms, span: Span) -> str:
    """ "1 Sep 2026 – 1 Oct 2026", on the clocks of its zone; with the time where a period does not begin at midnight."""
    zone = terms.schedule.zone
    start, end = (from_us(each).astimezone(zone) for each in span)
    return f"{_moment(start)} – {_moment(end)}"


def _moment(at: datetime) -> str:
    day = f"{at.day} {at:%b %Y}"
    return day if at.time() == datetime.min.time() else f"{day} {at:%H:%M}"
