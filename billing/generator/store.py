"""Writing what a run decided: the draft with its lines and taxes, the claims, and the cursor. A statement per table."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from billing.errors import PeriodAlreadyBilled
from billing.generator.allowance_periods import next_allowance
from billing.generator.draft import MINIMUM, Bill, DraftLine, OneOff, RatedUsage
from billing.generator.load import PERIODS_LOOKED_AT, Head, Intent, bound_basis, origin_basis, usage_basis
from billing.generator.minimums import Billed, BoundChange, next_bound
from billing.generator.reconcile import (
    LATE_PERIODS_AFTER_END,
    Claimed,
    Counted,
    Credit,
    Origin,
    RecurringCharge,
    late_usage_until,
    next_due,
)
from billing.models import Claim
from billing.rating.money import to_decimal
from billing.rating.periods import periods
from billing.rating.pricing import PriceKind

# A draft with its parts in one statement: less to send, and less to plan.
INSERT_INVOICE = """
    WITH invoice AS (
        INSERT INTO billing_invoice (id, series, subscription_id, subscription_ref, customer_id, customer_ref, buyer, currency,
            state, scope, as_of, subtotal_minor, discount_minor, tax_minor, total_minor, credit_notes_minor,
            credits_applied_minor, amount_due_minor, run_id, grace_ends_at)
        VALUES (coalesce(%s, nextval(pg_get_serial_sequence('billing_invoice', 'id'))),
            'INV', %s, %s, %s, %s, %s, %s, 'draft', %s, %s, %s, %s, %s, %s, 0, 0, %s, %s, %s)
        RETURNING id
    ), lines AS (
        INSERT INTO billing_line (invoice_id, position, kind, item_id, price_id, price_key, description, starts_at, ends_at,
            quantity, unit_amount, amount_minor, discount_minor, tax_category, tax_rate, rating)
        SELECT invoice.id, position, kind, item_id, price_id, price_key, description, starts_at, ends_at,
            quantity, unit_amount, amount_minor, discount_minor, tax_category, tax_rate, rating
        FROM invoice, jsonb_to_recordset(%s::jsonb) AS line(
            position int, kind text, item_id bigint, price_id bigint, price_key text, description text, starts_at timestamptz,
            ends_at timestamptz, quantity numeric, unit_amount numeric, amount_minor bigint, discount_minor bigint,
            tax_category text, tax_rate numeric, rating jsonb
        )
    ), taxes AS (
        INSERT INTO billing_invoicetax (invoice_id, category, rate, base_minor, amount_minor)
        SELECT invoice.id, category, rate, base_minor, amount_minor
        FROM invoice, jsonb_to_recordset(%s::jsonb) AS tax(category text, rate numeric, base_minor bigint, amount_minor bigint)
    )
    SELECT id FROM invoice
"""

RESERVE_INVOICE = "SELECT nextval(pg_get_serial_sequence('billing_invoice', 'id'))"

RELEASE_CLAIMS = """
    UPDATE billing_claim AS claim
    SET released_at = clock_timestamp(), released_by = freed.invoice_id
    FROM jsonb_to_recordset(%s::jsonb) AS freed(id bigint, invoice_id bigint)
    WHERE claim.id = freed.id AND claim.released_at IS NULL
"""

INSERT_CLAIMS = """
    INSERT INTO billing_claim (subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, basis, made_by)
    SELECT %s, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor, invoice_id, line_position, basis, made_by
    FROM jsonb_to_recordset(%s::jsonb) AS claim(
        item_id bigint, kind int, starts_at timestamptz, ends_at timestamptz, price_id bigint, quantity numeric,
        amount_minor bigint, invoice_id bigint, line_position int, basis jsonb, made_by bigint
    )
"""

# What this run did not look at keeps what is known of it; where nothing is, it is due at once.
MOVE_CURSOR = """
    INSERT INTO billing_cursor AS cursor (subscription_id, recurring_due_at, usage_due_at, recurring_amendments_seen,
        usage_amendments_seen, charges_seen, claims_from, looked_at)
    VALUES (%(subscription)s, %(recurring_due_at)s, %(usage_due_at)s, %(recurring_seen)s, %(usage_seen)s, %(charges_seen)s,
        %(claims_from)s, clock_timestamp())
    ON CONFLICT (subscription_id) DO UPDATE SET
        recurring_due_at = excluded.recurring_due_at, usage_due_at = excluded.usage_due_at,
        recurring_amendments_seen = excluded.recurring_amendments_seen,
        usage_amendments_seen = excluded.usage_amendments_seen,
        charges_seen = excluded.charges_seen, claims_from = excluded.claims_from, looked_at = excluded.looked_at
"""


@dataclass(slots=True)
class Changes:
    """What happens to claims, each with the line that bills it; None where nothing is owed and so no line is made.

    Args:
        credits: each with its lines, one for each part that is given back; none where nothing is.
        credits_due_at: when credits that are not due yet will be.
    """

    credits: list[tuple[Credit, list[DraftLine]]] = field(default_factory=list)
    charges: list[tuple[RecurringCharge, DraftLine | None]] = field(default_factory=list)
    usages: list[tuple[RatedUsage, DraftLine | None]] = field(default_factory=list)
    one_offs: list[tuple[OneOff, DraftLine]] = field(default_factory=list)
    true_ups: list[DraftLine] = field(default_factory=list)
    bounds: list[BoundChange] = field(default_factory=list)
    released: list[Claimed] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)
    credits_due_at: list[datetime] = field(default_factory=list)
    allowances_seen_to: bool = False


def billed_after(claims: Iterable[Claimed], changes: "Changes", lines: Sequence[DraftLine]) -> list[Billed]:
    """What will be billed once `changes` are written, whatever way it came about: so the next run sees the same."""
    ups = {id(line.source): line.amount_minor for line in lines if line.kind == MINIMUM and isinstance(line.source, DraftLine)}
    freed = {credit.claim.id for credit, _ in changes.credits}
    freed |= {claim.id for rated, _ in changes.usages for claim in rated.due.continued}
    billed = [Billed(claim.currency, claim.start, claim.net_minor) for claim in claims if claim.id not in freed]
    for credit, _ in changes.credits:
        billed += [Billed(credit.claim.currency, keep.start, keep.net_minor) for keep in credit.kept]
    for charge, line in changes.charges:
        if line is not None:
            billed.append(Billed(charge.counted.currency, charge.part.start, line.net_minor + ups.get(id(line), 0)))
    for rated, line in changes.usages:
        net = sum(claim.net_minor for claim in rated.due.continued)
        net += line.net_minor + ups.get(id(line), 0) if line is not None else 0
        billed.append(Billed(rated.due.counted.currency, rated.due.part.start, net))
    return billed


# The draft -------------------------------------------------------------------------------------------


def reserve_invoice() -> int:
    """The id that an invoice will have, for what has to name it before its amounts are known."""
    with connection.cursor() as cursor:
        cursor.execute(RESERVE_INVOICE)
        invoice_id: int = cursor.fetchone()[0]
    return invoice_id


def insert_invoice(
    head: Head,
    currency: str,
    bill: Bill,
    *,
    as_of: datetime,
    only: str | None,
    run_id: UUID | None,
    grace_ends_at: datetime | None = None,
    reserved_id: int | None = None,
) -> int:
    """Write a draft with its lines and taxes, and tell each line which invoice it is on.

    Args:
        reserved_id: the id that was promised to it; None: the next one.
    """
    taxes = [
        {"category": t.category, "rate": str(t.rate), "base_minor": t.base_minor, "amount_minor": t.tax_minor} for t in bill.taxes
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            INSERT_INVOICE,
            [
                reserved_id,
                head.subscription_id,
                head.ref,
                head.customer_id,
                head.customer_ref,
                json.dumps(head.buyer),
                currency,
                only or "",
                as_of,
                bill.subtotal_minor,
                bill.discount_minor,
                bill.tax_minor,
                bill.total_minor,
                bill.total_minor,
                run_id,
                grace_ends_at,
                json.dumps([_line_row(line) for line in bill.lines]),
                json.dumps(taxes),
            ],
        )
        invoice_id: int = cursor.fetchone()[0]
    for line in bill.lines:
        line.invoice_id = invoice_id
    return invoice_id


def _line_row(line: DraftLine) -> dict[str, Any]:
    return {
        "position": line.position,
        "kind": line.kind,
        "item_id": line.item_id,
        "price_id": line.price_id,
        "price_key": line.price_key,
        "description": line.description,
        "starts_at": _iso(line.starts_at),
        "ends_at": _iso(line.ends_at),
        "quantity": str(line.quantity),
        "unit_amount": None if line.unit_amount is None else str(line.unit_amount),
        "amount_minor": line.amount_minor,
        "discount_minor": line.discount_minor,
        "tax_category": line.tax_category,
        "tax_rate": str(line.tax_rate),
        "rating": line.rating,
    }


# Claims ----------------------------------------------------------------------------------------------


def write_claims(head: Head, changes: Changes) -> None:
    """Release what is corrected, then claim what is billed; the exclusion constraint has the last word.

    Raises:
        PeriodAlreadyBilled: a claim to be released was released by somebody else meanwhile.
    """
    freed = _freed(changes)
    changes.written = [
        *_kept_rows(changes),
        *_charge_rows(changes),
        *_usage_rows(changes),
        *_one_off_rows(changes),
        *_bound_rows(changes),
    ]
    with connection.cursor() as cursor:
        if freed:
            cursor.execute(RELEASE_CLAIMS, [json.dumps(freed)])
            if cursor.rowcount != len(freed):
                raise PeriodAlreadyBilled(subscription=head.ref)
        if changes.written:
            cursor.execute(INSERT_CLAIMS, [head.subscription_id, json.dumps(changes.written)])


def _freed(changes: Changes) -> list[dict[str, Any]]:
    freed: dict[int, int | None] = {}
    for credit, lines in changes.credits:
        freed[credit.claim.id] = _invoice_of(lines)
        changes.released.append(credit.claim)
    for rated, line in changes.usages:
        for claim in rated.due.continued:
            freed[claim.id] = line.invoice_id if line else None
            changes.released.append(claim)
    for bound in changes.bounds:
        if bound.claim is not None:
            freed[bound.claim.id] = _invoice_of(bound.lines)
    return [{"id": claim_id, "invoice_id": invoice_id} for claim_id, invoice_id in sorted(freed.items())]


def _kept_rows(changes: Changes) -> Iterable[dict[str, Any]]:
    """What is left of a claim after a credit still belongs to the line that it was billed on."""
    for credit, lines in changes.credits:
        claim = credit.claim
        for keep in credit.kept:
            yield _row(
                claim.item_id, Claim.Kind.RECURRING, keep.start, keep.end, claim.price_id, claim.quantity, keep.net_minor,
                claim.invoice_id, claim.line_position, origin_basis(keep.origin, keep.share_used), _invoice_of(lines),
            )  # fmt: skip


def _invoice_of(lines: Sequence[DraftLine]) -> int | None:
    return lines[0].invoice_id if lines else None


def _charge_rows(changes: Changes) -> Iterable[dict[str, Any]]:
    true_ups = _true_ups(changes)
    for charge, line in changes.charges:
        part, counted = charge.part, charge.counted
        discount = line.discount_minor if line else 0
        net = charge.amount_minor - discount + (true_ups.get(id(line), 0) if line else 0)
        origin = Origin(part.full_start, part.full_end, charge.share, charge.amount_minor, discount)
        yield _row(
            counted.item_id, Claim.Kind.RECURRING, part.start, part.end, counted.price_id, counted.quantity, net,
            line.invoice_id if line else None, line.position if line else None, origin_basis(origin, charge.share.used),
            line.invoice_id if line else None,
        )  # fmt: skip


def _usage_rows(changes: Changes) -> Iterable[dict[str, Any]]:
    true_ups = _true_ups(changes)
    for rated, line in changes.usages:
        part, counted = rated.due.part, rated.due.counted
        net = sum(claim.net_minor for claim in rated.due.continued)
        after_coupons = sum(claim.after_coupons_minor for claim in rated.due.continued)
        after_coupons += line.after_coupons_minor if line is not None else rated.rating.amount_minor
        invoice_id, position = _line_of(rated)
        if line is not None:
            net += line.net_minor + true_ups.get(id(line), 0)
            invoice_id, position = line.invoice_id, line.position
        yield _row(
            counted.item_id, Claim.Kind.USAGE, part.start, part.end, counted.price_id,
            to_decimal(rated.usage.quantity), net, invoice_id, position,
            usage_basis(rated.usage, rated.gross_minor, after_coupons, rated.coverage, rated.spends),
            line.invoice_id if line else None,
        )  # fmt: skip


def _line_of(rated: RatedUsage) -> tuple[int | None, int | None]:
    """The line that a silent continuation stays on."""
    if not rated.due.continued:
        return None, None
    return rated.due.continued[-1].invoice_id, rated.due.continued[-1].line_position


def _one_off_rows(changes: Changes) -> Iterable[dict[str, Any]]:
    for charge, line in changes.one_offs:
        ends_at = charge.recorded_at + timedelta(microseconds=1)
        yield _row(
            charge.id, Claim.Kind.CHARGE, charge.recorded_at, ends_at, None, 1, line.net_minor, line.invoice_id,
            line.position, {}, line.invoice_id,
        )  # fmt: skip


def _bound_rows(changes: Changes) -> Iterable[dict[str, Any]]:
    for bound in changes.bounds:
        if bound.amount_minor is None:
            continue
        invoice_id = _invoice_of(bound.lines)
        yield _row(
            bound.item_id, Claim.Kind.BOUND, bound.start, bound.end, None, 1, bound.amount_minor, invoice_id,
            bound.lines[0].position if bound.lines else None, bound_basis(bound.terms), invoice_id,
        )  # fmt: skip


def _true_ups(changes: Changes) -> dict[int, int]:
    return {id(up.source): up.amount_minor for up in changes.true_ups}


def _row(
    item_id: int, kind: int, starts_at: datetime, ends_at: datetime, price_id: int | None, quantity: Any, amount_minor: int,
    invoice_id: int | None, line_position: int | None, basis: Mapping[str, Any], made_by: int | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "item_id": item_id,
        "kind": int(kind),
        "starts_at": starts_at.isoformat(),
        "ends_at": ends_at.isoformat(),
        "price_id": price_id,
        "quantity": str(quantity),
        "amount_minor": amount_minor,
        "invoice_id": invoice_id,
        "line_position": line_position,
        "basis": basis,
        "made_by": made_by,
    }


# The cursor ------------------------------------------------------------------------------------------


def move_cursor(
    head: Head,
    intent: Intent,
    claims: Mapping[Claim.Kind, Mapping[int, Sequence[Claimed]]],
    changes: Changes,
    kinds: set[PriceKind],
    as_of: datetime,
) -> None:
    """Note where to look next; the claims stay the truth."""
    recurring, usage = PriceKind.RECURRING in kinds, PriceKind.USAGE in kinds
    unknown = head.recurring_amendments_seen is None
    with connection.cursor() as cursor:
        cursor.execute(
            MOVE_CURSOR,
            {
                "subscription": head.subscription_id,
                "recurring_due_at": _not_sooner(
                    _earliest(
                        next_due(intent.all_of({PriceKind.RECURRING}), as_of),
                        next_allowance(intent.allowances, as_of),
                        *changes.credits_due_at,
                    ),
                    head.recurring_due_at,
                    is_known=(head.recurring_amendments_seen, head.charges_seen) == (head.amendments, head.charges),
                )
                if recurring
                else (head.active_from if unknown else head.recurring_due_at),
                "usage_due_at": _not_sooner(
                    _earliest(
                        _next_usage(intent.all_of({PriceKind.USAGE}), as_of),
                        next_bound(intent.bounded, as_of),
                        *changes.credits_due_at,
                    ),
                    head.usage_due_at,
                    is_known=head.usage_amendments_seen == head.amendments,
                )
                if usage
                else (head.active_from if unknown else head.usage_due_at),
                "recurring_seen": head.amendments if recurring else head.recurring_amendments_seen or 0,
                "usage_seen": head.amendments if usage else head.usage_amendments_seen or 0,
                "charges_seen": head.charges if recurring else head.charges_seen or 0,
                "claims_from": _claims_from(head, intent, claims, changes, as_of),
            },
        )


def _not_sooner(found: datetime | None, known: datetime | None, *, is_known: bool) -> datetime | None:
    """When to look next: a run as of an earlier instant does not turn back what a later one has noted.

    Args:
        is_known: nothing was ordered or amended since then, and nothing voided: that deletes the cursor.
    """
    if not is_known or found is None:
        return found
    return known if known is None or known > found else found


def _earliest(*instants: datetime | None) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _next_usage(spans: Sequence[Counted], as_of: datetime) -> datetime | None:
    """The next usage period to bill; after the last one, when to look for late usage."""
    following = next_due(spans, as_of)
    ends = [span.end for span in spans if span.end is not None]
    if following is not None or not ends:
        return following
    last = max((span for span in spans if span.end is not None), key=lambda span: span.end or as_of)
    assert last.end is not None
    for looked, period in enumerate(periods(last.schedule, last.end)):
        if looked == LATE_PERIODS_AFTER_END:
            return None
        if period.end > as_of:
            return period.end
    return None


def _claims_from(
    head: Head,
    intent: Intent,
    claims: Mapping[Claim.Kind, Mapping[int, Sequence[Claimed]]],
    changes: Changes,
    as_of: datetime,
) -> datetime | None:
    """From where on the next run has to read claims: a few of the newest of every item that still counts."""
    stretches: dict[tuple[int, int], list[tuple[datetime, datetime]]] = {}
    released = {claim.id for claim in changes.released}
    for kind, held in claims.items():
        for item_id, of_item in held.items():
            stretches[kind, item_id] = [(claim.start, claim.end) for claim in of_item if claim.id not in released]
    for row in changes.written:
        stretch = (datetime.fromisoformat(row["starts_at"]), datetime.fromisoformat(row["ends_at"]))
        stretches.setdefault((row["kind"], row["item_id"]), []).append(stretch)
    live: list[datetime] = []
    ended: list[datetime] = []
    for kind, counted in ((Claim.Kind.RECURRING, intent.recurring), (Claim.Kind.USAGE, intent.usage)):
        for item_id, spans in counted.items():
            known = sorted(stretches.get((kind, item_id), []))
            mark = _last_periods(spans[-1], known) if known else min(span.start for span in spans)
            settled = bool(known) and all(span.end is not None and span.end <= known[-1][1] for span in spans)
            if settled and kind == Claim.Kind.USAGE:
                until = late_usage_until(spans[-1], spans)
                settled = until is not None and until <= as_of
            (ended if settled else live).append(mark)
    # Allowances are looked for from the mark on: it stays where it is until a run has seen to them.
    if intent.allowances and not changes.allowances_seen_to:
        live.append(head.claims_from or min(one.start for one in intent.allowances))
    for span in intent.bounded:
        known = sorted(stretches.get((Claim.Kind.BOUND, span.item_id), []))
        if not known and (span.end is None or span.end > min(live, default=span.start)):
            live.append(span.start)
    return min(live or ended, default=None)


def _last_periods(span: Counted, known: Sequence[tuple[datetime, datetime]]) -> datetime:
    """Where the last periods begin of which something is billed, whatever they were cut into and however far apart they are."""
    return sorted({span.schedule.period_at(start).start for start, _ in known})[-PERIODS_LOOKED_AT:][0]


def _iso(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None
