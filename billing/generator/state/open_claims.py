"""The claims that are not released: what they billed, its storage, and the unused part that is given back. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from billing.generator.state.spans import BoundTerms, ItemSpan
from billing.rating.aggregation import Group, RatingInput
from billing.rating.money import decimal_text, to_minor
from billing.rating.periods import Schedule, instant_of
from billing.rating.prices.prepaid_units import (
    NOTHING_COVERED,
    Coverage,
    CreditSpend,
    Stretch,
    covered_of,
    covered_snapshot,
    stretches_of,
)
from billing.rating.prices.price import Price, Proration
from billing.rating.prices.pricing import rate
from billing.rating.proration import BilledLine, Share, share, unused_credit_minor
from billing.rating.tax_amounts import Treatment, applied_taxes
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.tax_sales import Taxed


@dataclass(frozen=True, slots=True)
class Origin:
    """The line that billed a recurring claim, and the full period of its share."""

    full_start: datetime
    full_end: datetime
    share: Share
    amount_minor: int
    discount_minor: int = 0
    credited_minor: int = 0


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A claim that is not released.

    Args:
        schedule, plan_schedule: the periods of its price, and those of its plan.
        share_used: the share of the origin's full period that this claim still bills (recurring).
        usage, gross_minor: the usage rated so far, and its amount before coupons and bounds (usage).
        after_coupons_minor: its amount after coupons, which the price's minimum and maximum bound (usage).
        is_running: it bills a running period so far: the rest of the period is still due (usage).
        coverage, spends: the units that credits pay for, and the ledger's entries that paid them (usage).
        short_of: the units that were covered when `gross_minor` was billed, if voiding a correction could not spend all of their
            credits again; then the next run rates the period again (usage).
        net_minor: the amount of the line, less its discount, that this claim still bills.
        net_of_groups: of a price that groups its usage, the amount of each group's lines, less their discounts (usage).
        noted_minor: the part of it that credit notes on request have given back (recurring).
        taxed: how its line was taxed under the rules of the seller; None: as the price and the customer's status say.
    """

    id: int
    item_id: int
    price_id: int
    price: Price
    currency: str
    schedule: Schedule
    plan_schedule: Schedule
    quantity: Decimal
    start: datetime
    end: datetime
    net_minor: int
    invoice_id: int | None
    line_position: int | None
    origin: Origin | None = None
    share_used: int = 0
    noted_minor: int = 0
    usage: RatingInput | None = None
    gross_minor: int = 0
    after_coupons_minor: int = 0
    is_running: bool = False
    coverage: Coverage = NOTHING_COVERED
    spends: tuple[CreditSpend, ...] = ()
    short_of: tuple[Stretch, ...] = ()
    net_of_groups: Mapping[Group, int] = field(default_factory=dict)
    taxed: Taxed | None = None


@dataclass(frozen=True, slots=True)
class KeptPart:
    """The rest of a recurring claim after a credit: its time, share and money, and its line with the credits on it."""

    start: datetime
    end: datetime
    share_used: int
    net_minor: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class UnusedPart:
    """An unused stretch of a claim, and the credit of its line for it; `amount_minor` is 0 or more.

    Args:
        freed_minor: the discount of the line for this stretch, which coupons can give on another line of the period.
    """

    start: datetime
    end: datetime
    amount_minor: int
    freed_minor: int = 0


@dataclass(frozen=True, slots=True)
class Credit:
    """The credits of a claim: the unused parts of its line, each from the instant on from which it is unused."""

    claim: OpenClaim
    parts: tuple[UnusedPart, ...]
    kept: tuple[KeptPart, ...] = ()

    @property
    def amount_minor(self) -> int:
        """The sum of the credits: 0 or more."""
        return sum(part.amount_minor for part in self.parts)


def has_same_price(span: ItemSpan, claim: OpenClaim) -> bool:
    return span.price_id == claim.price_id and span.schedule == claim.schedule


def has_same_terms(span: ItemSpan, claim: OpenClaim) -> bool:
    return has_same_price(span, claim) and span.quantity == claim.quantity


def unused_stretches(claim: OpenClaim, spans: Sequence[ItemSpan]) -> list[tuple[datetime, datetime]]:
    """Return the stretches of a recurring claim in which the item did not count as claimed, in order of time.

    They are cut at each change of the item: each piece is given back when its change takes effect, as each charge is made when it
        is due.
    """
    gaps = _without_spans(claim, [span for span in spans if has_same_terms(span, claim)])
    changes = sorted({at for span in spans for at in (span.start, span.end) if at is not None})
    return [piece for gap in gaps for piece in _cut(gap, changes)]


def unused_since(start: datetime, unused: Mapping[datetime, datetime], spans: Sequence[ItemSpan]) -> datetime:
    """Return when the change took effect because of which a stretch is unused: its start, or that of the stretch it continues.

    Two claims without a change between them count as one: the time that a withdrawn end had cut off has a claim of its own.

    Args:
        unused: the unused stretches of all claims of the item, the start of each by its end.
    """
    changes = {at for span in spans for at in (span.start, span.end)}
    while start in unused and start not in changes:
        start = unused[start]
    return start


def not_as_claimed_from(claim: OpenClaim, spans: Sequence[ItemSpan]) -> datetime:
    """Return the first instant at which the item does not count at the price of a usage claim."""
    unused = _without_spans(claim, [span for span in spans if has_same_price(span, claim)])
    return min((start for start, _ in unused), default=claim.start)


def _without_spans(claim: OpenClaim, spans: Sequence[ItemSpan]) -> list[tuple[datetime, datetime]]:
    """Return the parts of a claim's time outside of all spans. The spans are in order of time."""
    gaps: list[tuple[datetime, datetime]] = []
    cursor = claim.start
    for span in spans:
        if span.start > cursor:
            gaps.append((cursor, min(span.start, claim.end)))
        cursor = claim.end if span.end is None else max(cursor, span.end)
        if cursor >= claim.end:
            break
    return [gap for gap in [*gaps, (cursor, claim.end)] if gap[0] < gap[1]]


def _cut(gap: tuple[datetime, datetime], instants: Iterable[datetime]) -> list[tuple[datetime, datetime]]:
    start, end = gap
    edges = [start, *(instant for instant in instants if start < instant < end), end]
    return list(pairwise(edges))


def credit_for(claim: OpenClaim, gaps: Sequence[tuple[datetime, datetime]], spans: Sequence[ItemSpan]) -> Credit:
    """Return the credits of a recurring claim for these stretches, one after the other, as runs in time would have given them."""
    parts: list[UnusedPart] = []
    left = [claim]
    for start, end in gaps:
        cut = next(one for one in left if one.start <= start and end <= one.end)
        pieces = [(a, b) for a, b in ((cut.start, start), (end, cut.end)) if a < b]
        shares = _shares_of(cut, pieces, spans)
        unused = cut.share_used - sum(shares)
        amount = _credit_minor(cut, unused)
        parts.append(UnusedPart(start, end, amount, _freed_minor(cut, unused, amount)))
        left.remove(cut)
        left += _rests(cut, pieces, shares, amount)
    return Credit(claim, tuple(parts), tuple(_kept_part(one) for one in sorted(left, key=lambda one: one.start)))


def _kept_part(rest: OpenClaim) -> KeptPart:
    assert rest.origin is not None
    return KeptPart(rest.start, rest.end, rest.share_used, rest.net_minor, rest.origin)


def _rests(
    claim: OpenClaim, pieces: Sequence[tuple[datetime, datetime]], shares: Sequence[int], credited_minor: int
) -> list[OpenClaim]:
    """Return the pieces of a claim that are left after a credit. Shares divide its money; the last piece takes the remainder."""
    assert claim.origin is not None
    left, noted = claim.net_minor - credited_minor, claim.noted_minor
    parts = [left * used // max(sum(shares), 1) for used in shares]
    parts = [*parts[:-1], left - sum(parts[:-1])] if parts else []
    origin = replace(claim.origin, credited_minor=claim.origin.credited_minor + credited_minor)
    rests: list[OpenClaim] = []
    for (start, end), used, net in reversed(list(zip(pieces, shares, parts, strict=True))):
        # The amount that credit notes have given back counts against the latest piece first, as in `claims.read_claims`.
        of_this = min(noted, max(net, 0))
        noted -= of_this
        rests.append(replace(claim, start=start, end=end, share_used=used, net_minor=net, noted_minor=of_this, origin=origin))
    return rests


def _ends_with_subscription(claim: OpenClaim, end: datetime, spans: Sequence[ItemSpan]) -> bool:
    return any(span.terminates and span.end == end and has_same_terms(span, claim) for span in spans)


def _shares_of(claim: OpenClaim, pieces: Sequence[tuple[datetime, datetime]], spans: Sequence[ItemSpan]) -> list[int]:
    """Return the share of each piece in the claim's full period."""
    assert claim.origin is not None
    if claim.price.proration == Proration.NONE:
        # A period stays charged as long as any part of it is used.
        return [claim.share_used if position == 0 else 0 for position in range(len(pieces))]
    full = claim.schedule.period_at(claim.origin.full_start)
    return [
        share(
            claim.schedule,
            replace(full, start=start, end=end, full_start=claim.origin.full_start, full_end=claim.origin.full_end),
            claim.price.proration,
            terminated=_ends_with_subscription(claim, end, spans),
            bill_last_day=claim.price.bill_last_day,
        ).used
        for start, end in pieces
    ]


def _credit_minor(claim: OpenClaim, unused: int) -> int:
    assert claim.origin is not None
    if unused <= 0:
        return 0
    most = max(claim.net_minor - claim.noted_minor, 0)
    if unused >= claim.share_used:
        return most
    line = BilledLine(
        full_amount=rate(claim.price, claim.quantity, claim.currency).exact,
        share=claim.origin.share,
        amount_minor=claim.origin.amount_minor,
        discount_minor=claim.origin.discount_minor,
        credited_minor=claim.origin.credited_minor,
    )
    return min(unused_credit_minor(line, Share(unused, claim.origin.share.of), claim.currency), most)


def _freed_minor(claim: OpenClaim, unused: int, credited_minor: int) -> int:
    """Return by how much the discount of a line made a credit smaller than the price of the unused share."""
    assert claim.origin is not None
    if unused <= 0 or not claim.origin.discount_minor:
        return 0
    exact = rate(claim.price, claim.quantity, claim.currency).exact
    price_minor = to_minor(exact * Fraction(unused, claim.origin.share.of), claim.currency)
    return min(max(price_minor - credited_minor - claim.noted_minor, 0), claim.origin.discount_minor)


@dataclass(frozen=True, slots=True)
class OneOffCharge:
    """A one-off charge that is not billed yet."""

    id: int
    amount_minor: int
    description: str
    tax_category: str
    tax_rate: Decimal
    tax_class: str
    recorded_at: datetime


def read_coverage(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    if "covered" not in snapshot:
        return {}
    coverage, spends = covered_of(snapshot["covered"])
    return {"coverage": coverage, "spends": spends, "short_of": stretches_of(snapshot["covered"].get("short_of", ()))}


def groups_snapshot(price: Price, net_of_groups: Mapping[Group, int]) -> list[dict[str, Any]]:
    """Return the amounts of the lines of each group that a usage claim stores."""
    return [{"group": price.named(group), "amount_minor": minor} for group, minor in net_of_groups.items()]


def read_net_of_groups(price: Price, snapshot: Mapping[str, Any]) -> dict[Group, int]:
    """Return the amounts that `groups_snapshot` made."""
    known = snapshot.get("groups", ())
    return {tuple(one["group"][name] for name in price.group_by): one["amount_minor"] for one in known}


def read_origin(known: Mapping[str, Any]) -> Origin:
    return Origin(
        full_start=datetime.fromisoformat(known["full_start"]),
        full_end=datetime.fromisoformat(known["full_end"]),
        share=Share(*known["share"]),
        amount_minor=known["amount_minor"],
        discount_minor=known["discount_minor"],
        credited_minor=known["credited_minor"],
    )


def origin_snapshot(origin: Origin, share_used: int) -> dict[str, Any]:
    """Return the data of its line that a recurring claim stores."""
    return {
        "origin": {
            "full_start": origin.full_start.isoformat(),
            "full_end": origin.full_end.isoformat(),
            "share": [origin.share.used, origin.share.of],
            "amount_minor": origin.amount_minor,
            "discount_minor": origin.discount_minor,
            "credited_minor": origin.credited_minor,
        },
        "share_used": share_used,
    }


def anchor_of(known: Mapping[str, Any]) -> datetime | None:
    """Return the anchor of a moved billing day that a claim stores; None: the order's."""
    return datetime.fromisoformat(known["anchor_at"]) if "anchor_at" in known else None


def anchor_snapshot(schedule: Schedule, own: datetime) -> dict[str, Any]:
    """Return the anchor that the claim of a moved billing day stores.

    Args:
        own: the anchor of the order.
    """
    anchor = instant_of(schedule.anchor, schedule.zone)
    return {} if schedule == Schedule.anchored_at(own, schedule.zone, schedule.interval) else {"anchor_at": anchor.isoformat()}


def bound_snapshot(terms: BoundTerms) -> dict[str, Any]:
    """Return the data of its line that the claim of a minimum or maximum stores."""
    return {
        "plan": terms.plan_code,
        "currency": terms.currency,
        "tax_category": terms.tax_category,
        "tax_rate": decimal_text(terms.tax_rate),
    } | ({} if terms.tax_class == STANDARD_CLASS else {"tax_class": terms.tax_class})


def read_bound_terms(known: Mapping[str, Any]) -> BoundTerms:
    tax_class = known.get("tax_class", STANDARD_CLASS)
    return BoundTerms(known["plan"], known["currency"], known["tax_category"], Decimal(known["tax_rate"]), tax_class)


def taxed_snapshot(taxed: Taxed | None) -> dict[str, Any]:
    """Return how its line was taxed, as a claim stores it, so that credits and late usage are taxed in the same way."""
    if taxed is None:
        return {}
    treatment = taxed.treatment
    return {
        "taxed": {
            "category": treatment.category,
            "rate": decimal_text(treatment.rate),
            "included_rate": decimal_text(taxed.included_rate),
            "taxes": [tax.as_dict() for tax in treatment.taxes],
        }
    }


def read_taxed(snapshot: Mapping[str, Any]) -> Taxed | None:
    known = snapshot.get("taxed")
    if known is None:
        return None
    treatment = Treatment(known["category"], Decimal(known["rate"]), applied_taxes(known["taxes"]))
    return Taxed(treatment, Decimal(known["included_rate"]))


def usage_snapshot(
    usage: RatingInput,
    gross_minor: int,
    after_coupons_minor: int,
    coverage: Coverage = NOTHING_COVERED,
    spends: Sequence[CreditSpend] = (),
    *,
    is_running: bool = False,
    of_groups: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the exact data of the rated usage that a usage claim stores, with its coverage and the spends that paid for it.

    Args:
        of_groups: see `groups_snapshot`.
    """
    covered = {"covered": covered_snapshot(coverage, spends)} if coverage.stretches else {}
    running = {"running": True} if is_running else {}
    return (
        covered
        | running
        | ({"groups": list(of_groups)} if of_groups else {})
        | {
            "usage": usage.as_stored(),
            "quantity": decimal_text(usage.quantity),
            "gross_minor": gross_minor,
            "after_coupons_minor": after_coupons_minor,
        }
    )
