"""Minimum and maximum per subscription and period: what lifts or lowers all that a period came to. Pure.

A period is bounded once it is over. What was billed for it is known from the claims and from the lines of this run; the claim
on the bound says what it came to, so that late usage or a correction bills only the difference.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import takewhile

from billing.generator.draft import MAXIMUM, MINIMUM, DraftLine
from billing.rating.money import to_minor
from billing.rating.periods import Period, Schedule, periods
from billing.rating.pricing import Proration
from billing.rating.proration import share


@dataclass(frozen=True, slots=True)
class Billed:
    """What is billed for a stretch of time that begins at `start`, after discounts and a price's own minimum."""

    currency: str
    start: datetime
    net_minor: int


@dataclass(frozen=True, slots=True)
class BoundTerms:
    """Of which plan a bound is, and how its line is taxed: what has to agree for one line to correct another."""

    plan_code: str
    currency: str
    tax_category: str
    tax_rate: Decimal


@dataclass(frozen=True, slots=True)
class BoundedSpan:
    """That a subscription was on a plan with a minimum or maximum in `[start, end)`; money in major units."""

    item_id: int
    terms: BoundTerms
    minimum: Decimal | None
    maximum: Decimal | None
    schedule: Schedule
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """What the bounds of a period came to: above zero a true-up, below a reduction."""

    id: int
    item_id: int
    start: datetime
    end: datetime
    amount_minor: int
    terms: BoundTerms


@dataclass(frozen=True, slots=True)
class BoundChange:
    """That the bounds of a period come to `amount_minor` now; `lines` bill the difference, one for each bound that moved.

    An amount of None: there is no such period any more, and its claim is only released.
    """

    item_id: int
    start: datetime
    end: datetime
    terms: BoundTerms
    amount_minor: int | None
    claim: BoundClaim | None
    lines: tuple[DraftLine, ...]


@dataclass(slots=True)
class Bounds:
    """The bounds of one subscription in one run.

    Args:
        billed: what is billed once this run has been, given its lines with their discounts.
        until: periods that end by then are bounded.
        since: periods that begin before are settled.
    """

    spans: Sequence[BoundedSpan]
    billed: Callable[[Sequence[DraftLine]], Sequence[Billed]]
    claims: Sequence[BoundClaim]
    until: datetime
    since: datetime | None = None
    changes: list[BoundChange] = field(default_factory=list)

    @property
    def currencies(self) -> set[str]:
        """The currencies in which something may have to be lifted although nothing was used."""
        return {span.terms.currency for span in self.spans} | {claim.terms.currency for claim in self.claims}

    def lines(self, currency: str, lines: Sequence[DraftLine]) -> list[DraftLine]:
        """The lines that bring the periods that are over to their bounds, given all others with their discounts."""
        changes = [_gone(claim) for claim in self._stale() if claim.terms.currency == currency]
        for span in self.spans:
            if span.terms.currency == currency:
                changes += [change for part in self._over(span) if (change := self._change(span, part, lines)) is not None]
        self.changes += changes
        return [line for change in changes for line in change.lines]

    def _stale(self) -> list[BoundClaim]:
        """Claims on periods that have another shape or plan now, by an amendment that came late: they are given back whole."""
        if not self.claims:
            return []
        last = max(claim.end for claim in self.claims)
        standing = {
            (span.terms, part.start, part.end)
            for span in self.spans
            for part in takewhile(lambda part: part.start < last, periods(span.schedule, span.start, span.end))
        }
        judged = [claim for claim in self.claims if self.since is None or claim.start >= self.since]
        return [claim for claim in judged if (claim.terms, claim.start, claim.end) not in standing]

    def _over(self, span: BoundedSpan) -> Iterable[Period]:
        # With everything before `since` settled, only periods of which all claims were read can be judged.
        for part in periods(span.schedule, span.start, span.end):
            if part.end > self.until:
                return
            if self.since is None or part.start >= self.since:
                yield part

    def _change(self, span: BoundedSpan, part: Period, lines: Sequence[DraftLine]) -> BoundChange | None:
        net = sum(
            one.net_minor
            for one in self.billed(lines)
            if one.currency == span.terms.currency and part.start <= one.start < part.end
        )
        wanted = _adjustment(span, part, net)
        wanted_claim = (span.terms, part.start, part.end)
        claim = next((one for one in self.claims if (one.terms, one.start, one.end) == wanted_claim), None)
        before = claim.amount_minor if claim else 0
        if claim is not None and wanted == before:
            return None
        lines = _lines(span.item_id, span.terms, part.start, part.end, before, wanted)
        return BoundChange(span.item_id, part.start, part.end, span.terms, wanted, claim, lines)


def _gone(claim: BoundClaim) -> BoundChange:
    lines = _lines(claim.item_id, claim.terms, claim.start, claim.end, claim.amount_minor, 0)
    return BoundChange(claim.item_id, claim.start, claim.end, claim.terms, None, claim, lines)


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
        least = to_minor(Fraction(span.minimum) * fraction, span.terms.currency)
        if net_minor < least:
            return least - net_minor
    if span.maximum is not None:
        most = to_minor(Fraction(span.maximum) * fraction, span.terms.currency)
        if net_minor > most:
            return most - net_minor
    return 0


def _lines(
    item_id: int, terms: BoundTerms, start: datetime, end: datetime, before_minor: int, wanted_minor: int
) -> tuple[DraftLine, ...]:
    """What takes the bounds of a period from one amount to another: a minimum counts above zero, a maximum below.

    What is less of a minimum is a line of the minimum: a plan without a maximum never shows one.
    """
    moved = {
        MINIMUM: max(wanted_minor, 0) - max(before_minor, 0),
        MAXIMUM: min(wanted_minor, 0) - min(before_minor, 0),
    }
    return tuple(_line(kind, item_id, terms, start, end, amount) for kind, amount in moved.items() if amount)


def _line(kind: str, item_id: int, terms: BoundTerms, start: datetime, end: datetime, amount_minor: int) -> DraftLine:
    return DraftLine(
        kind=kind,
        description=f"{kind.capitalize()} of {terms.plan_code}",
        amount_minor=amount_minor,
        quantity=Decimal(1),
        tax_category=terms.tax_category,
        tax_rate=terms.tax_rate,
        due_at=end,
        item_id=item_id,
        plan_code=terms.plan_code,
        starts_at=start,
        ends_at=end,
        discountable=False,
    )
