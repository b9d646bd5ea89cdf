"""Minimum and maximum per subscription and period: what lifts or lowers all that a period came to. Pure.

A period is bounded once it is over. What was billed for it is known from the claims and from the lines of this run; the claim
on the bound says what it came to, so that late usage or a correction bills only the difference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from billing.lines import MAXIMUM, MINIMUM, DraftLine
from billing.money import to_minor
from billing.periods import Period, Schedule, periods
from billing.pricing import Proration
from billing.proration import share
from billing.targets import Claimed

COUNTED = {"recurring", "usage", "late_usage", "credit", MINIMUM}


@dataclass(frozen=True, slots=True)
class BoundedSpan:
    """That a subscription was on a plan with a minimum or maximum in `[start, end)`; money in major units."""

    item_id: int
    plan_code: str
    currency: str
    minimum: Decimal | None
    maximum: Decimal | None
    tax_category: str
    tax_rate: Decimal
    schedule: Schedule
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """What the bounds of a period came to: above zero a true-up, below a reduction."""

    id: int
    start: datetime
    end: datetime
    amount_minor: int


@dataclass(frozen=True, slots=True)
class BoundChange:
    """That the bounds of a period come to `amount_minor` now; `line` bills the difference, None when there is none."""

    item_id: int
    part: Period
    amount_minor: int
    claim: BoundClaim | None
    line: DraftLine | None


@dataclass(slots=True)
class Bounds:
    """The bounds of one subscription in one run.

    Args:
        until: periods that end by then are bounded.
        since: periods that begin before are settled.
    """

    spans: Sequence[BoundedSpan]
    billed: Sequence[Claimed]
    claims: Sequence[BoundClaim]
    until: datetime
    since: datetime | None = None
    changes: list[BoundChange] = field(default_factory=list)

    @property
    def currencies(self) -> set[str]:
        """The currencies in which something may have to be lifted although nothing was used."""
        return {span.currency for span in self.spans}

    def lines(self, currency: str, lines: Sequence[DraftLine]) -> list[DraftLine]:
        """The lines that bring the periods that are over to their bounds, given all others with their discounts."""
        made: list[DraftLine] = []
        for span in self.spans:
            if span.currency == currency:
                for part in self._over(span):
                    change = self._change(span, part, lines)
                    if change is not None:
                        self.changes.append(change)
                        made += [change.line] if change.line else []
        return made

    def _over(self, span: BoundedSpan) -> Iterable[Period]:
        # With everything before `since` settled, only periods of which all claims were read can be judged.
        for part in periods(span.schedule, span.start, span.end):
            if part.end > self.until:
                return
            if self.since is None or part.start >= self.since:
                yield part

    def _change(self, span: BoundedSpan, part: Period, lines: Sequence[DraftLine]) -> BoundChange | None:
        net = sum(
            claim.net_minor for claim in self.billed if claim.currency == span.currency and part.start <= claim.start < part.end
        )
        net += sum(
            line.net_minor
            for line in lines
            if line.kind in COUNTED and line.starts_at is not None and part.start <= line.starts_at < part.end
        )
        wanted = _adjustment(span, part, net)
        claim = next((one for one in self.claims if (one.start, one.end) == (part.start, part.end)), None)
        difference = wanted - (claim.amount_minor if claim else 0)
        if claim is not None and not difference:
            return None
        return BoundChange(span.item_id, part, wanted, claim, _line(span, part, difference) if difference else None)


def next_bound(spans: Iterable[BoundedSpan], as_of: datetime) -> datetime | None:
    """The first instant after `as_of` at which a period with bounds is over."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, span.schedule.period_at(as_of).start), span.end):
            if part.end > as_of:
                instants.append(part.end)
                break
    return min(instants, default=None)


def _adjustment(span: BoundedSpan, part: Period, net_minor: int) -> int:
    """What lifts (above zero) or lowers what a period came to, with bounds prorated by days."""
    fraction = share(span.schedule, part, Proration.DAY).fraction
    if span.minimum is not None:
        least = to_minor(Fraction(span.minimum) * fraction, span.currency)
        if net_minor < least:
            return least - net_minor
    if span.maximum is not None:
        most = to_minor(Fraction(span.maximum) * fraction, span.currency)
        if net_minor > most:
            return most - net_minor
    return 0


def _line(span: BoundedSpan, part: Period, amount_minor: int) -> DraftLine:
    kind = MINIMUM if amount_minor > 0 else MAXIMUM
    return DraftLine(
        kind=kind,
        description=f"{kind.capitalize()} of {span.plan_code}",
        amount_minor=amount_minor,
        quantity=Decimal(1),
        tax_category=span.tax_category,
        tax_rate=span.tax_rate,
        due_at=part.end,
        item_id=span.item_id,
        plan_code=span.plan_code,
        starts_at=part.start,
        ends_at=part.end,
        discountable=False,
    )
