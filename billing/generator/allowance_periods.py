"""Which allowances of credits a subscription is to be given, and what of earlier ones lapses. Pure.

An allowance belongs to a period of the plan and is due at its start. A part of a period is given its share of days, whole
credits only. A period that has had its allowance, or part of it, gets no other: a change of plan grants from the next period on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor

from billing.rating.periods import Period, Schedule, periods
from billing.rating.pricing import Proration
from billing.rating.proration import share


@dataclass(frozen=True, slots=True)
class AllowanceSpan:
    """That a subscription was on a plan that grants credits in `[start, end)`; an end of None is open.

    Args:
        amount: credits of a full period, above 0.
        rollover_cap: how many unspent ones may be taken along into the next period; None: they expire with their period.
        pays_usage: usage of the same plan is paid in these credits. It is rated when its period is over, so they expire one
            period later.
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
    """What is to be given for one period; `amount` is 0 or more."""

    span: AllowanceSpan
    part: Period
    amount: int

    @property
    def expires_at(self) -> datetime | None:
        """When what is unspent expires; None for what rolls over."""
        if self.span.rollover_cap is not None:
            return None
        return self.span.schedule.period_at(self.part.end).end if self.span.pays_usage else self.part.end

    def is_lost(self, now: datetime) -> bool:
        """True when the credits would have expired before anybody could have spent them."""
        return self.expires_at is not None and self.expires_at <= now


def due_allowances(
    spans: Iterable[AllowanceSpan], granted: Sequence[tuple[datetime, datetime]], as_of: datetime, since: datetime | None
) -> list[Allowance]:
    """The allowances whose period has begun and that were not given, oldest first.

    Args:
        granted: the stretches `[start, end)` that have been seen to.
        since: what begins before is settled; None: nothing is.
    """
    found: list[Allowance] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, since) if since else span.start, span.end):
            if part.start > as_of:
                break
            if not any(start < part.end and part.start < end for start, end in granted):
                fraction = share(span.schedule, part, Proration.DAY).fraction
                found.append(Allowance(span, part, floor(span.amount * fraction)))
    return sorted(found, key=lambda one: one.part.start)


def next_allowance(spans: Iterable[AllowanceSpan], as_of: datetime) -> datetime | None:
    """The first instant after `as_of` at which a period with an allowance begins; None when none ever will."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, span.schedule.period_at(as_of).start), span.end):
            if part.start > as_of:
                instants.append(part.start)
                break
    return min(instants, default=None)


def over_cap(unspent: Sequence[tuple[int, int]], cap: int) -> list[tuple[int, int]]:
    """What has to be taken back so that no more than the cap is taken along: the oldest first.

    Args:
        unspent: grant and what is left of it, oldest first.

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
