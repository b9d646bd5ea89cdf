"""Minimum and maximum per subscription and period: they raise or lower the sum of a period. Pure.

A period is bounded after its end. The claims and the lines of this run have the amount billed for it. The claim of the bound
stores its own amount, so that late usage or a correction bills only the difference.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import takewhile

from billing.generator.difference.draft_lines import MAXIMUM, MINIMUM, DraftLine
from billing.generator.state.spans import BoundClaim, BoundedSpan, BoundTerms
from billing.rating.money import to_minor
from billing.rating.periods import Period, periods
from billing.rating.prices.price import Proration
from billing.rating.proration import share
from billing.rating.tax_sales import Taxed


@dataclass(frozen=True, slots=True)
class BilledAmount:
    """The amount billed for a stretch of time from `start` on, after discounts and the minimum of the price."""

    currency: str
    start: datetime
    net_minor: int


@dataclass(frozen=True, slots=True)
class BoundChange:
    """The new amount of the bounds of a period; `lines` bill the difference, one line per changed bound.

    An amount of None: the period no longer exists, and its claim is only released.
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
        billed: the amounts billed after this run, with the discounts of its lines.
        until: bound the periods that end by then.
        since: periods that begin before it are settled.
    """

    spans: Sequence[BoundedSpan]
    billed: Callable[[], Sequence[BilledAmount]]
    claims: Sequence[BoundClaim]
    until: datetime
    since: datetime | None = None
    changes: list[BoundChange] = field(default_factory=list)

    @property
    def currencies(self) -> set[str]:
        """The currencies in which a minimum may be owed without usage."""
        return {span.terms.currency for span in self.spans} | {claim.terms.currency for claim in self.claims}

    def lines(self, currency: str) -> list[DraftLine]:
        """Return the lines that bring past periods to their bounds, after all other lines have their discounts."""
        billed = self.billed() if self.spans else ()
        changes = [_gone_change(claim) for claim in self._stale() if claim.terms.currency == currency]
        for span in self.spans:
            if span.terms.currency == currency:
                changes += [change for part in self._over(span) if (change := self._change(span, part, billed)) is not None]
        self.changes += changes
        return [line for change in changes for line in change.lines]

    def _stale(self) -> list[BoundClaim]:
        """Return the claims of periods whose shape or plan a late amendment has changed: they are given back as a whole."""
        if not self.claims:
            return []
        last = max(claim.end for claim in self.claims)
        known = {
            (span.terms, part.start, part.end)
            for span in self.spans
            for part in takewhile(lambda part: part.start < last, periods(span.schedule, span.start, span.end))
        }
        judged = [claim for claim in self.claims if self.since is None or claim.start >= self.since]
        return [claim for claim in judged if (claim.terms, claim.start, claim.end) not in known]

    def _over(self, span: BoundedSpan) -> Iterable[Period]:
        # Everything before `since` is settled, and its claims were not read: only later periods can be judged.
        for part in periods(span.schedule, span.start, span.end):
            if part.end > self.until:
                return
            if self.since is None or part.start >= self.since:
                yield part

    def _change(self, span: BoundedSpan, part: Period, billed: Sequence[BilledAmount]) -> BoundChange | None:
        net = sum(one.net_minor for one in billed if one.currency == span.terms.currency and part.start <= one.start < part.end)
        adjustment = _adjustment(span, part, net)
        claimed = (span.terms, part.start, part.end)
        claim = next((one for one in self.claims if (one.terms, one.start, one.end) == claimed), None)
        before = claim.amount_minor if claim else 0
        if claim is not None and adjustment == before:
            return None
        lines = _lines(span.item_id, span.terms, part.start, part.end, before, adjustment, claim)
        return BoundChange(span.item_id, part.start, part.end, span.terms, adjustment, claim, lines)


def _gone_change(claim: BoundClaim) -> BoundChange:
    lines = _lines(claim.item_id, claim.terms, claim.start, claim.end, claim.amount_minor, 0, claim)
    return BoundChange(claim.item_id, claim.start, claim.end, claim.terms, None, claim, lines)


def _adjustment(span: BoundedSpan, part: Period, net_minor: int) -> int:
    """Return the amount that raises (above zero) or lowers the sum of a period, with bounds prorated by days."""
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
    item_id: int, terms: BoundTerms, start: datetime, end: datetime, before_minor: int, wanted_minor: int,
    claim: BoundClaim | None,
) -> tuple[DraftLine, ...]:  # fmt: skip
    """Return the lines that take a period's bounds from one amount to another: above zero is a minimum, below zero a maximum.

    If a minimum becomes smaller, the line belongs to the minimum: a plan without a maximum never shows a maximum.
    """
    changes = {
        MINIMUM: max(wanted_minor, 0) - max(before_minor, 0),
        MAXIMUM: min(wanted_minor, 0) - min(before_minor, 0),
    }
    taxed = claim.taxed if claim else None
    return tuple(_line(kind, item_id, terms, start, end, amount, taxed) for kind, amount in changes.items() if amount)


def _line(
    kind: str, item_id: int, terms: BoundTerms, start: datetime, end: datetime, amount_minor: int, taxed: Taxed | None
) -> DraftLine:
    return DraftLine(
        kind=kind,
        description=f"{kind.capitalize()} of {terms.plan_code}",
        amount_minor=amount_minor,
        quantity=Decimal(1),
        tax_category=terms.tax_category,
        tax_rate=terms.tax_rate,
        tax_class=terms.tax_class,
        taxed=taxed,
        due_at=end,
        item_id=item_id,
        plan_code=terms.plan_code,
        starts_at=start,
        ends_at=end,
        discountable=False,
        # The title on documents names this plan.
        rating={"plan": terms.plan_code},
    )
