"""What the generator reads of one subscription, all of it after the lock was taken, and never locking a row."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from billing.documents.invoices import invoice_key
from billing.errors import NotFound
from billing.generator.allowance_periods import AllowanceSpan
from billing.generator.draft import OneOff
from billing.generator.minimums import BoundClaim, BoundedSpan, BoundTerms
from billing.generator.reconcile import Claimed, Counted, Origin
from billing.models import Claim
from billing.orders import plans
from billing.rating.aggregation import Usage
from billing.rating.money import decimal_text
from billing.rating.periods import Schedule, first_charged_instant
from billing.rating.prepaid_units import NOTHING_COVERED, Coverage, Spent, covered_basis, covered_of, stretches_of
from billing.rating.pricing import PriceKind
from billing.rating.proration import Share
from billing.rating.tax import VatStatus, vat_status_of
from ledger.database.locks import Lock

HEAD = """
    SELECT s.id, s.ref, s.customer_id, s.started_at, s.anchor_at, s.time_zone, s.trial_end,
        c.ref, c.name, c.language, c.address, c.vat_id, c.vat_status, c.terms_days, c.time_zone, c.currency,
        c.holder_id, c.credit_type, c.credit_unit_value,
        coalesce((SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id), 0),
        coalesce((SELECT max(o.sequence) FROM billing_charge AS o WHERE o.subscription_id = s.id), 0),
        cursor.recurring_amendments_seen, cursor.usage_amendments_seen, cursor.recurring_due_at, cursor.usage_due_at,
        cursor.charges_seen, cursor.claims_from,
        (SELECT min(a.effective_at) FROM billing_amendment AS a
         WHERE a.subscription_id = s.id
            AND a.sequence > least(coalesce(cursor.recurring_amendments_seen, 0), coalesce(cursor.usage_amendments_seen, 0))),
        (SELECT p.reason FROM billing_parking AS p WHERE p.subscription_id = s.id AND p.unparked_at IS NULL),
        EXISTS (SELECT FROM billing_customercoupon AS cc WHERE cc.customer_id = s.customer_id),
        EXISTS (SELECT FROM billing_creditnote AS n WHERE n.subscription_id = s.id AND n.released_at IS NULL),
        c.grace_days,
        EXISTS (SELECT FROM billing_invoice AS i
            WHERE i.subscription_id = s.id AND i.state = 'draft' AND i.grace_ends_at IS NOT NULL)
    FROM billing_subscription AS s
    JOIN billing_customer AS c ON c.id = s.customer_id
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE s.ref = %s
"""

VERSIONS = """
    SELECT v.item_id, v.plan_id, v.price_id, v.quantity, v.starts_at, v.ends_at, v.is_termination
    FROM billing_itemversion AS v
    WHERE v.subscription_id = %s AND v.superseded_at IS NULL
    ORDER BY v.item_id, v.starts_at
"""

CLAIMS = """
    SELECT id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor, invoice_id, line_position, basis
    FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind IN (1, 2, 4) AND ends_at > %s
    ORDER BY item_id, starts_at
"""

# What credit notes on request have given back of the lines of these invoices.
NOTED = """
    SELECT note.invoice_id, line.position, sum(line.amount_minor)
    FROM billing_creditnote AS note JOIN billing_creditnoteline AS line ON line.credit_note_id = note.id
    WHERE note.subscription_id = %s AND note.released_at IS NULL AND note.invoice_id = ANY(%s)
    GROUP BY note.invoice_id, line.position
"""

CHARGES = """
    SELECT o.id, o.currency, o.amount_minor, o.description, o.tax_category, o.tax_rate, o.recorded_at
    FROM billing_charge AS o
    WHERE o.subscription_id = %s AND NOT EXISTS (
        SELECT FROM billing_claim AS c WHERE c.item_id = o.id AND c.kind = 3 AND c.released_at IS NULL
            AND c.subscription_id = o.subscription_id)
    ORDER BY o.sequence
"""

USAGE_STARTS = """
    SELECT item_id, starts_at, price_id FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 2
    ORDER BY starts_at DESC
"""

PERIODS_LOOKED_AT = 3
"""Of how many of an item's newest periods every run reads the claims: the last two for late usage, and one to spare."""

LONG_AGO = "0001-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Head:
    """The subscription, its customer and where the generator got to."""

    subscription_id: int
    ref: str
    customer_id: int
    active_from: datetime
    anchor_at: datetime
    time_zone: str
    customer_ref: str
    buyer: dict[str, Any]
    vat_status: VatStatus
    terms_days: int
    customer_time_zone: str
    currency: str
    holder_id: str
    credit_type: str
    credit_unit_value: Decimal | None
    amendments: int
    charges: int
    recurring_amendments_seen: int | None
    usage_amendments_seen: int | None
    recurring_due_at: datetime | None
    usage_due_at: datetime | None
    charges_seen: int | None
    claims_from: datetime | None
    first_unseen_amendment_at: datetime | None
    parked: str | None
    has_coupons: bool
    has_notes: bool
    grace_days: int
    has_drafts_in_grace: bool


@dataclass(frozen=True, slots=True)
class Intent:
    """The spans in which the items counted, recurring and usage, by item; and those of the subscription as a whole."""

    recurring: Mapping[int, list[Counted]]
    usage: Mapping[int, list[Counted]]
    bounded: list[BoundedSpan]
    allowances: list[AllowanceSpan]

    def all_of(self, kinds: set[PriceKind]) -> list[Counted]:
        """The spans of these kinds."""
        chosen: list[Counted] = []
        if PriceKind.RECURRING in kinds:
            chosen += [span for spans in self.recurring.values() for span in spans]
        if PriceKind.USAGE in kinds:
            chosen += [span for spans in self.usage.values() for span in spans]
        return chosen


def read_head(lock: Lock, ref: str) -> Head:
    """The subscription and its customer as they are now.

    Raises:
        NotFound: there is no such subscription.
    """
    lock.ensure_held(invoice_key(ref))
    with connection.cursor() as cursor:
        cursor.execute(HEAD, [ref])
        row = cursor.fetchone()
    if row is None:
        raise NotFound(resource="subscription", ref=ref)
    return Head(
        subscription_id=row[0],
        ref=row[1],
        customer_id=row[2],
        active_from=first_charged_instant(row[3], row[6]),
        anchor_at=row[4],
        time_zone=row[5],
        customer_ref=row[7],
        buyer={"name": row[8], "language": row[9], "address": _json(row[10]), "vat_id": row[11], "vat_status": row[12]},
        vat_status=vat_status_of(row[12], row[11]),
        terms_days=row[13],
        customer_time_zone=row[14],
        currency=row[15],
        holder_id=row[16],
        credit_type=row[17],
        credit_unit_value=row[18],
        amendments=row[19],
        charges=row[20],
        recurring_amendments_seen=row[21],
        usage_amendments_seen=row[22],
        recurring_due_at=row[23],
        usage_due_at=row[24],
        charges_seen=row[25],
        claims_from=row[26],
        first_unseen_amendment_at=row[27],
        parked=row[28],
        has_coupons=row[29],
        has_notes=row[30],
        grace_days=row[31],
        has_drafts_in_grace=row[32],
    )


def read_intent(lock: Lock, head: Head) -> Intent:
    """Which item counted when, by one statement, so that an amendment is seen whole or not at all."""
    lock.ensure_held(invoice_key(head.ref))
    with connection.cursor() as cursor:
        cursor.execute(VERSIONS, [head.subscription_id])
        rows = cursor.fetchall()
    intent = Intent({}, {}, [], [])
    earlier: dict[int, list[tuple[Schedule, datetime | None]]] = {}
    for item_id, plan_id, price_id, quantity, starts_at, ends_at, terminates in rows:
        start = max(starts_at, head.active_from)
        if ends_at is not None and ends_at <= start:
            continue
        if price_id is None:
            intent.bounded.extend(_bounded(head, plan_id, item_id, start, ends_at))
            intent.allowances.extend(_allowances(head, plan_id, item_id, start, ends_at))
            continue
        terms, price = plans.price_of(price_id)
        schedule = _schedule(head, price_id)
        known = earlier.setdefault(item_id, [])
        continues = _continues(schedule, start, known)
        known.append((schedule, ends_at))
        span = Counted(
            item_id=item_id,
            price_id=price_id,
            price=price,
            plan_code=terms.code,
            currency=terms.currency,
            schedule=schedule,
            quantity=quantity,
            start=start,
            end=ends_at,
            terminates=terminates,
            continues=continues,
        )
        spans = intent.recurring if price.kind == PriceKind.RECURRING else intent.usage
        spans.setdefault(item_id, []).append(span)  # type: ignore[attr-defined]
    return intent


def _continues(schedule: Schedule, start: datetime, earlier: Iterable[tuple[Schedule, datetime | None]]) -> bool:
    """True when the item counted earlier in the same full period: before a change, or before a pause."""
    ends = [end for before, end in earlier if before == schedule]
    return bool(ends) and any(end is None or end > schedule.period_at(start).start for end in ends)


def read_claims(
    lock: Lock, head: Head, since: datetime | None
) -> tuple[dict[Claim.Kind, dict[int, list[Claimed]]], list[BoundClaim]]:
    """What is billed, by kind and item, and what the minimums and maximums came to: what ends after `since`, or everything."""
    lock.ensure_held(invoice_key(head.ref))
    found: dict[Claim.Kind, dict[int, list[Claimed]]] = {Claim.Kind.RECURRING: {}, Claim.Kind.USAGE: {}}
    bounds: list[BoundClaim] = []
    with connection.cursor() as cursor:
        cursor.execute(CLAIMS, [head.subscription_id, since or LONG_AGO])
        for row in cursor.fetchall():
            if row[2] == Claim.Kind.BOUND:
                bounds.append(BoundClaim(row[0], row[1], row[3], row[4], row[7], _bound_terms(_json(row[10]))))
            else:
                found[Claim.Kind(row[2])].setdefault(row[1], []).append(_claimed(head, row))
    if head.has_notes:
        _subtract_noted(head, found[Claim.Kind.RECURRING])
    return found, bounds


def _subtract_noted(head: Head, by_item: dict[int, list[Claimed]]) -> None:
    """Tell each claim what of its line credit notes have given back already: the latest claim of the line first."""
    invoices = {claim.invoice_id for claims in by_item.values() for claim in claims if claim.invoice_id is not None}
    with connection.cursor() as cursor:
        cursor.execute(NOTED, [head.subscription_id, list(invoices)])
        left = {(invoice_id, position): int(noted) for invoice_id, position, noted in cursor.fetchall()}
    if not left:
        return
    for claims in by_item.values():
        for index in sorted(range(len(claims)), key=lambda index: claims[index].end, reverse=True):
            claim = claims[index]
            line = (claim.invoice_id or 0, claim.line_position or 0)
            noted = min(left.get(line, 0), max(claim.net_minor, 0))
            if noted > 0:
                left[line] -= noted
                claims[index] = replace(claim, noted_minor=noted)


def late_usage_from(lock: Lock, head: Head, lookback: int) -> datetime | None:
    """Where the last `lookback` billed periods of each usage item begin; None where the cursor's mark lies before that anyway."""
    lock.ensure_held(invoice_key(head.ref))
    if lookback <= PERIODS_LOOKED_AT or head.claims_from is None:
        return None
    begun: dict[int, set[datetime]] = {}
    with connection.cursor() as cursor:
        cursor.execute(USAGE_STARTS, [head.subscription_id])
        for item_id, starts_at, price_id in cursor.fetchall():
            of_item = begun.setdefault(item_id, set())
            if len(of_item) < lookback:
                of_item.add(_schedule(head, price_id).period_at(starts_at).start)
    return min((min(starts) for starts in begun.values()), default=None)


def settled_until(head: Head, intent: Intent, late_from: datetime | None = None) -> datetime | None:
    """The instant before which nothing has to be looked at again; None: everything has to.

    Everything before the cursor's mark is billed, unless an amendment that was not looked at yet reaches back further. It is
    moved to the start of the periods it falls into, so that what continues a period sees all of that period.

    Args:
        late_from: from where on late usage is looked for, when that is further back than usual.
    """
    if head.claims_from is None:
        return None
    mark = min(filter(None, [head.claims_from, head.first_unseen_amendment_at, late_from]))
    schedules = {span.schedule for span in intent.all_of({PriceKind.RECURRING, PriceKind.USAGE})}
    return min([mark, *(schedule.period_at(mark).start for schedule in schedules)])


def since(spans: list[Counted], claims: list[Claimed], mark: datetime | None) -> list[Counted]:
    """The spans of one item from a mark on, or from where the claims that reach over it begin."""
    if mark is None:
        return spans
    start = min([mark, *(claim.start for claim in claims)])
    return [
        replace(span, start=start, continues=True) if span.start < start else span
        for span in spans
        if span.end is None or span.end > start
    ]


def read_charges(lock: Lock, head: Head) -> list[tuple[str, OneOff]]:
    """One-off charges that are not billed, with their currency."""
    lock.ensure_held(invoice_key(head.ref))
    if not head.charges:
        return []
    with connection.cursor() as cursor:
        cursor.execute(CHARGES, [head.subscription_id])
        return [(row[1], OneOff(row[0], *row[2:])) for row in cursor.fetchall()]


def _allowances(head: Head, plan_id: int, item_id: int, start: datetime, end: datetime | None) -> Iterator[AllowanceSpan]:
    """The subscription itself on a plan that grants credits, where its customer has a holder who can be given them."""
    terms = plans.terms_of(plan_id)
    if terms.allowance is None or not head.holder_id:
        return
    yield AllowanceSpan(
        item_id=item_id,
        credit_type=terms.allowance["credit_type"],
        amount=terms.allowance["amount"],
        rollover_cap=terms.allowance["rollover_cap"],
        schedule=Schedule.anchored_at(head.anchor_at, ZoneInfo(head.time_zone), terms.interval),
        start=start,
        end=end,
        pays_usage=any(
            price.credits is not None and price.credits.credit_type == terms.allowance["credit_type"] for _, price in terms.prices
        ),
    )


def _bounded(head: Head, plan_id: int, item_id: int, start: datetime, end: datetime | None) -> Iterator[BoundedSpan]:
    """The subscription itself on a plan, where that has a minimum or a maximum per period."""
    terms = plans.terms_of(plan_id)
    if terms.minimum is None and terms.maximum is None:
        return
    schedule = Schedule.anchored_at(head.anchor_at, ZoneInfo(head.time_zone), terms.interval)
    first = terms.prices[0][1]
    yield BoundedSpan(
        item_id=item_id,
        terms=BoundTerms(terms.code, terms.currency, first.tax_category, first.tax_rate),
        minimum=terms.minimum,
        maximum=terms.maximum,
        schedule=schedule,
        start=start,
        end=end,
    )


def _schedule(head: Head, price_id: int) -> Schedule:
    terms, _ = plans.price_of(price_id)
    return Schedule.anchored_at(head.anchor_at, ZoneInfo(head.time_zone), terms.interval)


def _claimed(head: Head, row: tuple[Any, ...]) -> Claimed:
    claim_id, item_id, _, starts_at, ends_at, price_id, quantity, amount_minor, invoice_id, line_position, raw = row
    basis = _json(raw)
    terms, price = plans.price_of(price_id)
    return Claimed(
        id=claim_id,
        item_id=item_id,
        price_id=price_id,
        price=price,
        currency=terms.currency,
        schedule=_schedule(head, price_id),
        quantity=quantity,
        start=starts_at,
        end=ends_at,
        net_minor=amount_minor,
        invoice_id=invoice_id,
        line_position=line_position,
        origin=_origin(basis["origin"]) if "origin" in basis else None,
        share_used=basis.get("share_used", 0),
        usage=_usage(basis["usage"]) if "usage" in basis else None,
        gross_minor=basis.get("gross_minor", 0),
        after_coupons_minor=basis.get("after_coupons_minor", 0),
        **_covered(basis),
    )


def _covered(basis: Mapping[str, Any]) -> dict[str, Any]:
    if "covered" not in basis:
        return {}
    coverage, spends = covered_of(basis["covered"])
    return {"coverage": coverage, "spends": spends, "short_of": stretches_of(basis["covered"].get("short_of", ()))}


def _origin(known: Mapping[str, Any]) -> Origin:
    return Origin(
        full_start=datetime.fromisoformat(known["full_start"]),
        full_end=datetime.fromisoformat(known["full_end"]),
        share=Share(*known["share"]),
        amount_minor=known["amount_minor"],
        discount_minor=known["discount_minor"],
        credited_minor=known["credited_minor"],
    )


def _usage(known: Mapping[str, Any]) -> Usage:
    return Usage(Fraction(known["quantity"]), known["events"], Fraction(known["free_quantity"]), known["free_events"])


def origin_basis(origin: Origin, share_used: int) -> dict[str, Any]:
    """What a recurring claim keeps of its line."""
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


def bound_basis(terms: BoundTerms) -> dict[str, Any]:
    """What the claim on a minimum or maximum keeps of its line."""
    return {
        "plan": terms.plan_code,
        "currency": terms.currency,
        "tax_category": terms.tax_category,
        "tax_rate": decimal_text(terms.tax_rate),
    }


def _bound_terms(known: Mapping[str, Any]) -> BoundTerms:
    return BoundTerms(known["plan"], known["currency"], known["tax_category"], Decimal(known["tax_rate"]))


def usage_basis(
    usage: Usage,
    gross_minor: int,
    after_coupons_minor: int,
    coverage: Coverage = NOTHING_COVERED,
    spends: Sequence[Spent] = (),
) -> dict[str, Any]:
    """What a usage claim keeps of what was rated, exactly; and of what credits cover, with the spends on which that stands."""
    covered = {"covered": covered_basis(coverage, spends)} if coverage.stretches else {}
    return covered | {
        "usage": {
            "quantity": str(usage.quantity),
            "events": usage.events,
            "free_quantity": str(usage.free_quantity),
            "free_events": usage.free_events,
        },
        "quantity": decimal_text(usage.quantity),
        "gross_minor": gross_minor,
        "after_coupons_minor": after_coupons_minor,
    }


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
