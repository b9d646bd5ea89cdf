"""Which allowances a subscription gets, and how much of earlier ones lapses. Pure.

An allowance belongs to a period of the plan and is due at its start. A part of a period gets its share of days, in whole credits.
A period that has its allowance, or a part of it, gets no other: after a change of plan the next period gets the new allowance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor

from billing.rating.periods import Period, Schedule, TimeSpan, periods
from billing.rating.prices import Proration
from billing.rating.proration import share


@dataclass(frozen=True, slots=True)
class AllowanceSpan:
    """The subscription was on a plan that grants credits in `[start, end)`; an end of None is open.

    Args:
        amount: credits of a full period, above 0.
        rollover_cap: the number of unspent credits that go over into the next period; None: they expire with their period.
        pays_usage: usage of the same plan is paid in these credits. A run rates usage when its period is over, so the credits
            expire a period later.
    """

    item_id: int
    credit_type: str
    amount: int
    rollover_cap: int | None
    schedule: Schedule
    start: datetime
    end: datetime | None
    pays_usage: bool = False


@dataclass(frozen=True, slots=True)
class Allowance:
    """The allowance of one period; `amount` is 0 or more."""

    span: AllowanceSpan
    part: Period
    amount: int

    @property
    def expires_at(self) -> datetime | None:
        """When unspent credits expire; None where they roll over."""
        if self.span.rollover_cap is not None:
            return None
        return self.span.schedule.period_at(self.part.end).end if self.span.pays_usage else self.part.end

    def is_lost(self, now: datetime) -> bool:
        """True when the credits would be expired already."""
        return self.expires_at is not None and self.expires_at <= now


def due_allowances(
    spans: Iterable[AllowanceSpan], granted: Sequence[TimeSpan], as_of: datetime, since: datetime | None
) -> list[Allowance]:
    """The allowances of periods that have begun and have none yet, oldest first.

    Args:
        granted: the stretches whose allowance was given, or passed over.
        since: periods that begin before it are settled; None: no period is.
    """
    found: list[Allowance] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, since) if since else span.start, span.end):
            if part.start > as_of:
                break
            if not any(one.start < part.end and part.start < one.end for one in granted):
                fraction = share(span.schedule, part, Proration.DAY).fraction
                found.append(Allowance(span, part, floor(span.amount * fraction)))
    return sorted(found, key=lambda one: one.part.start)


def next_allowance(spans: Iterable[AllowanceSpan], as_of: datetime) -> datetime | None:
    """The start of the first period with an allowance after `as_of`; None where there is no such period."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, span.schedule.period_at(as_of).start), span.end):
            if part.start > as_of:
                instants.append(part.start)
                break
    return min(instants, default=None)


def over_cap(unspent: Sequence[tuple[int, int]], cap: int) -> list[tuple[int, int]]:
    """The credits to take back so that at most the cap goes over into the next period: the oldest first.

    Args:
        unspent: each grant with its rest, oldest first.

    Returns:
        Grant and amount, above 0.
    """
    excess = sum(left for _, left in unspent) - cap
    taken: list[tuple[int, int]] = []
    for grant, left in unspent:
        amount = min(left, excess)
        if amount > 0:
            taken.append((grant, amount))
            excess -= amount
    return taken
