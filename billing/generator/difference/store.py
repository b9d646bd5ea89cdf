"""Writes the result of a run, in one statement each: the draft with its lines and taxes, and the claims."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from billing.errors import PeriodAlreadyBilled
from billing.generator.difference.draft import Bill
from billing.generator.difference.draft_lines import DraftLine, RatedUsage
from billing.generator.difference.minimums import BilledAmount, BoundChange
from billing.generator.difference.reconcile import RecurringCharge
from billing.generator.options import Options
from billing.generator.state.open_claims import (
    Credit,
    OneOffCharge,
    OpenClaim,
    Origin,
    anchor_snapshot,
    bound_snapshot,
    groups_snapshot,
    origin_snapshot,
    taxed_snapshot,
    usage_snapshot,
)
from billing.generator.state.subscription_state import SubscriptionState
from billing.models import INVOICE, Claim
from billing.rating.aggregation import Group, in_order
from billing.rating.money import to_decimal
from ledger.database.statements import Statement, fetch_rows, integer, parameter

LINE_COLUMNS: Final = (
    "position", "kind", "item_id", "price_id", "price_key", "description", "starts_at", "ends_at", "quantity", "unit_amount",
    "amount_minor", "discount_minor", "tax_category", "tax_rate", "taxes", "rating", "subscription_id",
)  # fmt: skip

# A draft and its parts in one statement: less to send and to plan.
INSERT_INVOICE = Statement(
    "insert_invoice",
    f"""
    WITH invoice AS (
        INSERT INTO billing_invoice (id, series, subscription_id, subscription_ref, customer_id, customer_ref, buyer, currency,
            state, scope, as_of, subtotal_minor, discount_minor, tax_minor, total_minor, credit_notes_minor,
            credits_applied_minor, rounding_minor, amount_due_minor, amendments_seen, run_id, grace_ends_at, consolidates_on,
            stays_draft, note)
        VALUES (coalesce(%(id)s, nextval(pg_get_serial_sequence('billing_invoice', 'id'))), '{INVOICE.series}',
            %(subscription_id)s, %(subscription_ref)s, %(customer_id)s, %(customer_ref)s, %(buyer)s,
            %(currency)s, 'draft', %(scope)s, %(as_of)s,
            %(subtotal_minor)s, %(discount_minor)s, %(tax_minor)s, %(total_minor)s, 0, 0, %(rounding_minor)s,
            %(payable_minor)s, %(amendments_seen)s,
            %(run_id)s, %(grace_ends_at)s, %(consolidates_on)s, %(stays_draft)s, %(note)s)
        RETURNING id
    ), lines AS (
        INSERT INTO billing_line (invoice_id, {", ".join(LINE_COLUMNS)})
        SELECT invoice.id, {", ".join(f"line.{name}" for name in LINE_COLUMNS)}
        FROM invoice, jsonb_to_recordset(%(lines)s::jsonb) AS line(
            position int, kind text, item_id bigint, price_id bigint, price_key text, description text, starts_at timestamptz,
            ends_at timestamptz, quantity numeric, unit_amount numeric, amount_minor bigint, discount_minor bigint,
            tax_category text, tax_rate numeric, taxes jsonb, rating jsonb, subscription_id bigint
        )
    ), taxes AS (
        INSERT INTO billing_invoicetax (invoice_id, category, rate, code, tax_id, base_minor, amount_minor)
        SELECT invoice.id, category, rate, code, tax_id, base_minor, amount_minor
        FROM invoice, jsonb_to_recordset(%(taxes)s::jsonb) AS tax(
            category text, rate numeric, code text, tax_id bigint, base_minor bigint, amount_minor bigint
        )
    )
    SELECT id FROM invoice
""",
    [integer],
)

RESERVE_INVOICE = "SELECT nextval(pg_get_serial_sequence('billing_invoice', 'id'))"

RELEASE_CLAIMS = Statement(
    "release_claims",
    """
    UPDATE billing_claim AS claim
    SET released_at = clock_timestamp(), released_by = freed.invoice_id
    FROM jsonb_to_recordset(%s::jsonb) AS freed(id bigint, invoice_id bigint)
    WHERE claim.id = freed.id AND claim.released_at IS NULL
    RETURNING claim.id
""",
    [integer],
)

INSERT_CLAIMS = Statement(
    "insert_claims",
    """
    INSERT INTO billing_claim (subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, snapshot, made_by)
    SELECT %s::bigint, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor, invoice_id, line_position, snapshot,
        made_by
    FROM jsonb_to_recordset(%s::jsonb) AS claim(
        item_id bigint, kind int, starts_at timestamptz, ends_at timestamptz, price_id bigint, quantity numeric,
        amount_minor bigint, invoice_id bigint, line_position int, snapshot jsonb, made_by bigint
    )
""",
)


@dataclass(slots=True)
class ClaimChanges:
    """The changes of claims, each with the line that bills it; None without an amount, because then there is no line.

    Args:
        credits: each with its lines, one per part that is given back.
        usages: each with its lines, of a price that groups its usage one per group.
        credits_due_at: the due instant of later credits.
    """

    credits: list[tuple[Credit, list[DraftLine]]] = field(default_factory=list)
    charges: list[tuple[RecurringCharge, DraftLine | None]] = field(default_factory=list)
    usages: list[tuple[RatedUsage, list[DraftLine]]] = field(default_factory=list)
    one_offs: list[tuple[OneOffCharge, DraftLine]] = field(default_factory=list)
    bounds: list[BoundChange] = field(default_factory=list)
    released: list[OpenClaim] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)
    credits_due_at: Sequence[datetime] = ()


def billed_after(claims: Iterable[OpenClaim], changes: "ClaimChanges") -> list[BilledAmount]:
    """What is billed after `changes` are written; the next run computes the same from the claims."""
    freed = {credit.claim.id for credit, _ in changes.credits}
    freed |= {claim.id for rated, _ in changes.usages for claim in rated.due.continued}
    billed = [BilledAmount(claim.currency, claim.start, claim.net_minor) for claim in claims if claim.id not in freed]
    for credit, _ in changes.credits:
        billed += [BilledAmount(credit.claim.currency, part.start, part.net_minor) for part in credit.kept]
    for charge, line in changes.charges:
        if line is not None:
            billed.append(BilledAmount(charge.span.currency, charge.part.start, line.net_minor + line.minimum_minor))
    for rated, lines in changes.usages:
        net = sum(claim.net_minor for claim in rated.due.continued)
        net += sum(line.net_minor + line.minimum_minor for line in lines)
        billed.append(BilledAmount(rated.due.span.currency, rated.due.part.start, net))
    return billed


# The draft -------------------------------------------------------------------------------------------


def reserve_invoice() -> int:
    """Reserve the id of an invoice, for entries that name it before its amounts are known."""
    [invoice_id] = fetch_rows(int, RESERVE_INVOICE)
    return invoice_id


@dataclass(frozen=True, slots=True)
class DraftHead:
    """Whose draft it is, and what a run says of it.

    Args:
        subscription_id, subscription_ref: None and empty on a consolidated invoice.
        amendments: the last of the subscription's amendments that it bills.
    """

    customer_id: int
    customer_ref: str
    buyer: Mapping[str, Any]
    as_of: datetime
    scope: str
    run_id: UUID | None
    subscription_id: int | None = None
    subscription_ref: str = ""
    amendments: int = 0
    grace_ends_at: datetime | None = None
    consolidates_on: date | None = None
    stays_draft: bool = False
    note: str = ""


def head_of(subscription: SubscriptionState, options: Options) -> DraftHead:
    """Return the head of a draft of one subscription."""
    return DraftHead(
        customer_id=subscription.customer_id,
        customer_ref=subscription.customer_ref,
        buyer=subscription.buyer,
        as_of=options.as_of,
        scope=options.only or "",
        run_id=options.run_id,
        subscription_id=subscription.id,
        subscription_ref=subscription.ref,
        amendments=subscription.amendments,
        grace_ends_at=options.grace_ends_at,
        consolidates_on=options.consolidates_on,
        stays_draft=options.stays_draft,
    )


def insert_invoice(head: DraftHead, currency: str, bill: Bill, *, reserved_id: int | None = None) -> int:
    """Write a draft with its lines and taxes, and set the invoice of each line.

    Args:
        reserved_id: the id from `reserve_invoice`; None: a new id.
    """
    taxes = [
        {
            "category": t.category, "rate": str(t.rate), "code": t.code, "tax_id": t.tax_id, "base_minor": t.base_minor,
            "amount_minor": t.tax_minor,
        }
        for t in bill.taxes
    ]  # fmt: skip
    (invoice_id,) = INSERT_INVOICE.execute(
        {
            "id": parameter(reserved_id),
            "subscription_id": parameter(head.subscription_id),
            "subscription_ref": parameter(head.subscription_ref),
            "customer_id": parameter(head.customer_id),
            "customer_ref": parameter(head.customer_ref),
            "buyer": parameter(json.dumps(head.buyer)),
            "currency": parameter(currency),
            "scope": parameter(head.scope),
            "as_of": parameter(head.as_of),
            "subtotal_minor": parameter(bill.subtotal_minor),
            "discount_minor": parameter(bill.discount_minor),
            "tax_minor": parameter(bill.tax_minor),
            "total_minor": parameter(bill.total_minor),
            "rounding_minor": parameter(bill.rounding_minor),
            "payable_minor": parameter(bill.payable_minor),
            "amendments_seen": parameter(head.amendments),
            "run_id": parameter(head.run_id),
            "grace_ends_at": parameter(head.grace_ends_at),
            "consolidates_on": parameter(None if head.consolidates_on is None else head.consolidates_on.isoformat()),
            "stays_draft": parameter(head.stays_draft),
            "note": parameter(head.note),
            "lines": parameter(json.dumps([_line_row(line) for line in bill.lines])),
            "taxes": parameter(json.dumps(taxes)),
        }
    )
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
        "amount_minor": line.taxable_minor + line.taxable_discount_minor,
        "discount_minor": line.taxable_discount_minor,
        "tax_category": line.tax_category,
        "tax_rate": str(line.tax_rate),
        "taxes": [tax.as_dict() for tax in line.taxes],
        "rating": line.rating,
        "subscription_id": line.subscription_id,
    }


# Claims ----------------------------------------------------------------------------------------------


def write_claims(subscription: SubscriptionState, changes: ClaimChanges) -> None:
    """Release the corrected claims, then insert the new claims. The exclusion constraint refuses any overlap.

    Raises:
        PeriodAlreadyBilled: another process has released one of the claims at the same time.
    """
    freed = _freed_rows(changes)
    changes.written = [
        *_kept_rows(changes, subscription.anchor_at),
        *_charge_rows(changes, subscription.anchor_at),
        *_usage_rows(changes, subscription.anchor_at),
        *_one_off_rows(changes),
        *_bound_rows(changes),
    ]
    if freed and len(RELEASE_CLAIMS.rows([parameter(json.dumps(freed))])) != len(freed):
        raise PeriodAlreadyBilled(subscription=subscription.ref)
    if changes.written:
        INSERT_CLAIMS.rows([parameter(subscription.id), parameter(json.dumps(changes.written))])


def _freed_rows(changes: ClaimChanges) -> list[dict[str, Any]]:
    freed: dict[int, int | None] = {}
    for credit, lines in changes.credits:
        freed[credit.claim.id] = _invoice_of(lines)
        changes.released.append(credit.claim)
    for rated, lines in changes.usages:
        for claim in rated.due.continued:
            freed[claim.id] = _invoice_of(lines)
            changes.released.append(claim)
    for bound in changes.bounds:
        if bound.claim is not None:
            freed[bound.claim.id] = _invoice_of(bound.lines)
    return [{"id": claim_id, "invoice_id": invoice_id} for claim_id, invoice_id in sorted(freed.items())]


def _kept_rows(changes: ClaimChanges, anchor_at: datetime) -> Iterable[dict[str, Any]]:
    """The rest of a credited claim still belongs to the line that billed it."""
    for credit, lines in changes.credits:
        claim = credit.claim
        for part in credit.kept:
            yield _row(
                claim.item_id, Claim.Kind.RECURRING, part.start, part.end, claim.price_id, claim.quantity, part.net_minor,
                claim.invoice_id, claim.line_position,
                origin_snapshot(part.origin, part.share_used)
                | anchor_snapshot(claim.schedule, anchor_at)
                | taxed_snapshot(claim.taxed),
                _invoice_of(lines),
            )  # fmt: skip


def _invoice_of(lines: Sequence[DraftLine]) -> int | None:
    return next((line.invoice_id for line in lines if line.invoice_id is not None), None)


def _charge_rows(changes: ClaimChanges, anchor_at: datetime) -> Iterable[dict[str, Any]]:
    for charge, line in changes.charges:
        part, span = charge.part, charge.span
        discount = line.discount_minor if line else 0
        net = charge.amount_minor - discount + (line.minimum_minor if line else 0)
        origin = Origin(part.full_start, part.full_end, charge.share, charge.amount_minor, discount)
        yield _row(
            span.item_id, Claim.Kind.RECURRING, part.start, part.end, span.price_id, span.quantity, net,
            line.invoice_id if line else None, line.position if line else None,
            origin_snapshot(origin, charge.share.used)
            | anchor_snapshot(span.schedule, anchor_at)
            | taxed_snapshot(line.taxed if line else None),
            line.invoice_id if line else None,
        )  # fmt: skip


def _usage_rows(changes: ClaimChanges, anchor_at: datetime) -> Iterable[dict[str, Any]]:
    for rated, lines in changes.usages:
        part, span = rated.due.part, rated.due.span
        net = sum(claim.net_minor for claim in rated.due.continued) + sum(line.net_minor + line.minimum_minor for line in lines)
        after_coupons = sum(claim.after_coupons_minor for claim in rated.due.continued)
        after_coupons += sum(line.after_coupons_minor for line in lines) if lines else rated.rating.amount_minor
        invoice_id, position = _line_of(rated)
        written = [line for line in lines if line.invoice_id is not None]
        if written:
            invoice_id, position = written[0].invoice_id, written[0].position
        continued = rated.due.continued
        taxed = written[0].taxed if written else continued[-1].taxed if continued else None
        yield _row(
            span.item_id, Claim.Kind.USAGE, part.start, part.end, span.price_id,
            to_decimal(rated.usage.quantity), net, invoice_id, position,
            usage_snapshot(
                rated.usage, rated.gross_minor, after_coupons, rated.coverage, rated.spends,
                is_running=rated.due.whole is not None, of_groups=groups_snapshot(span.price, _net_of_groups(rated, lines)),
            )
            | anchor_snapshot(span.schedule, anchor_at)
            | taxed_snapshot(taxed),
            _invoice_of(lines),
        )  # fmt: skip


def _net_of_groups(rated: RatedUsage, lines: Sequence[DraftLine]) -> dict[Group, int]:
    """Return the amount of each group's lines so far, after discounts; without minimums, and corrections of all groups."""
    net: Counter[Group] = Counter()
    for claim in rated.due.continued:
        net.update(claim.net_of_groups)
    net.update({line.group: line.net_minor for line in lines if line.group is not None})
    return {group: net[group] for group in in_order(net)}


def _line_of(rated: RatedUsage) -> tuple[int | None, int | None]:
    """Return the line of the claims that a zero-amount claim continues."""
    if not rated.due.continued:
        return None, None
    return rated.due.continued[-1].invoice_id, rated.due.continued[-1].line_position


def _one_off_rows(changes: ClaimChanges) -> Iterable[dict[str, Any]]:
    for charge, line in changes.one_offs:
        ends_at = charge.recorded_at + timedelta(microseconds=1)
        yield _row(
            charge.id, Claim.Kind.CHARGE, charge.recorded_at, ends_at, None, 1, line.net_minor, line.invoice_id,
            line.position, {}, line.invoice_id,
        )  # fmt: skip


def _bound_rows(changes: ClaimChanges) -> Iterable[dict[str, Any]]:
    for bound in changes.bounds:
        if bound.amount_minor is None:
            continue
        invoice_id = _invoice_of(bound.lines)
        taxed = bound.lines[0].taxed if bound.lines else bound.claim.taxed if bound.claim else None
        yield _row(
            bound.item_id, Claim.Kind.BOUND, bound.start, bound.end, None, 1, bound.amount_minor, invoice_id,
            bound.lines[0].position if bound.lines else None, bound_snapshot(bound.terms) | taxed_snapshot(taxed), invoice_id,
        )  # fmt: skip


def _row(
    item_id: int, kind: int, starts_at: datetime, ends_at: datetime, price_id: int | None, quantity: Any, amount_minor: int,
    invoice_id: int | None, line_position: int | None, snapshot: Mapping[str, Any], made_by: int | None,
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
        "snapshot": snapshot,
        "made_by": made_by,
    }


def _iso(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None
