"""The periods of a recurring coupon, counted for one subscription. Pure.

The first period that counts is the first of which the coupon lowers a whole line: a fee from the period's start on, or usage
where no fee is lowered. From there on periods are counted by the calendar, whatever changes within them. A line belongs to the
period that it begins in, whenever it is invoiced: a change and late usage have the discount of their period and use up no other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from billing.generator.claim_credits import Credit
from billing.generator.draft_lines import DraftLine
from billing.rating.periods import Period, Schedule
from billing.rating.totals import CouponTerms


@dataclass(slots=True)
class CouponPeriods:
    """The periods of a coupon for a subscription.

    Args:
        most: for how many periods it is.
        active_from: since when the subscription is charged.
        given_at: when the customer got it, where it is for periods of the customer; None: for periods of the subscription.
        counted: `[from, until)`, which earlier invoices have fixed; None: this invoice does, if a whole line of it is lowered.
        used_minor: what it has taken off so far, by the start of the period.
        is_for: whether an amount is for this subscription, in the period that begins at an instant.
    """

    most: int
    active_from: datetime
    given_at: datetime | None = None
    counted: tuple[datetime, datetime] | None = None
    used_minor: dict[datetime, int] = field(default_factory=dict)
    is_for: Callable[[datetime], bool] = lambda _: True

    def count_from(self, lines: Iterable[DraftLine]) -> None:
        """Fix which periods count, by the lines that the coupon may lower; unless that is fixed."""
        if self.counted is not None:
            return
        whole = [(line, period) for line in lines if (period := self._whole_period(line)) is not None]
        fees = [one for one in whole if one[0].kind == "recurring"]
        if not whole:
            return
        line, first = min(fees or whole, key=lambda one: one[1].start)
        assert line.schedule is not None
        if self.given_at is not None:
            first = min(first, _begins_at_or_after(line.schedule, self.given_at), key=lambda period: period.start)
        after = line.schedule.period(first.index + self.most)
        self.counted = first.start, after.start

    def _whole_period(self, line: DraftLine) -> Period | None:
        period = line.period
        if period is None or line.late is not None or line.starts_at not in (period.start, max(period.start, self.active_from)):
            return None
        return period

    def counts(self, line: DraftLine) -> bool:
        """True when the coupon lowers the line: its period counts, or was running before the first that counts."""
        if self.counted is None:
            return True
        since, until = self.counted
        period = line.period
        if period is None:
            return (line.counted_at or line.due_at) < until
        return period.start < until and period.end >= since


@dataclass(frozen=True, slots=True)
class FreedDiscount:
    """A discount that a credit gave back, in the period that begins at `start`: an amount can be taken off again there."""

    start: datetime
    due_at: datetime
    amount_minor: int


def freed_by(credit: Credit) -> list[FreedDiscount]:
    """The discounts that a credit gives back."""
    start = credit.claim.schedule.period_at(credit.claim.start).start
    return [FreedDiscount(start, part.start, part.freed_minor) for part in credit.parts if part.freed_minor]


def _begins_at_or_after(schedule: Schedule, instant: datetime) -> Period:
    period = schedule.period_at(instant)
    return period if period.start == instant else schedule.period(period.index + 1)


def terms_by_period(coupon: CouponTerms, periods: CouponPeriods, lines: Sequence[DraftLine]) -> list[CouponTerms]:
    """What a coupon takes off lines that became due together: a percentage at once, an amount once for each period."""
    counted = [line for line in lines if periods.counts(line)]
    if coupon.amount_minor is None:
        return [replace(coupon, positions=frozenset(line.position for line in counted))] if counted else []
    found: list[CouponTerms] = []
    for start in sorted({start_of(line) for line in counted}):
        of_period = [line for line in counted if start_of(line) == start]
        left = coupon.amount_minor - periods.used_minor.get(start, 0)
        if left > 0 and periods.is_for(max(start, periods.active_from)):
            positions = frozenset(line.position for line in of_period)
            found.append(replace(coupon, amount_minor=left, positions=positions))
    return found


def start_of(line: DraftLine) -> datetime:
    """The start of the period that a line belongs to; when it became due, for what belongs to no period."""
    period = line.period
    return line.due_at if period is None else period.start
