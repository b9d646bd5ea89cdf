"""Makes one draft of several: their lines, claims and coupon uses go onto a draft of the customer, and they are deleted."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from django.db import connection

from billing.documents.invoice_locks import document_key, invoice_key
from billing.documents.invoices import MAX_NOTE_CHARACTERS
from billing.generator.difference import store
from billing.generator.difference.draft import CARRIED, total_bill
from billing.generator.difference.draft_lines import DraftLine
from billing.models import InvoicedSubscription, Line
from billing.rating.tax_amounts import applied_taxes
from ledger.database.locks import Lock

_NAMED: Final = ", ".join(name for name in store.LINE_COLUMNS if name != "rating")

# A claim is of a line, and was made and released by a document. Credits on other drafts name the lines that they give back: a
# line is never updated, so these are written again.
MOVE: Final = (
    """
    UPDATE billing_claim AS claim SET invoice_id = %(invoice)s, line_position = claim.line_position + moved.positions
    FROM unnest(%(drafts)s::bigint[], %(positions)s::int[]) AS moved(draft, positions)
    WHERE claim.invoice_id = moved.draft
    """,
    "UPDATE billing_claim SET made_by = %(invoice)s WHERE made_by = ANY(%(drafts)s)",
    "UPDATE billing_claim SET released_by = %(invoice)s WHERE released_by = ANY(%(drafts)s)",
    "UPDATE billing_couponuse SET invoice_id = %(invoice)s WHERE invoice_id = ANY(%(drafts)s)",
    f"""
    WITH named AS (
        DELETE FROM billing_line AS line
        USING billing_invoice AS other, unnest(%(drafts)s::bigint[], %(positions)s::int[]) AS moved(draft, positions)
        WHERE other.id = line.invoice_id AND other.state = 'draft' AND other.subscription_id = ANY(%(subscriptions)s)
            AND NOT other.id = ANY(%(drafts)s) AND line.kind = 'credit'
            AND (line.rating -> 'credits' ->> 'invoice')::bigint = moved.draft
        RETURNING line.*, moved.positions
    )
    INSERT INTO billing_line (invoice_id, {_NAMED}, rating)
    SELECT invoice_id, {_NAMED}, jsonb_set(rating, '{{credits}}', jsonb_build_object(
        'invoice', %(invoice)s::bigint, 'line', (rating -> 'credits' ->> 'line')::int + positions))
    FROM named
    """,
    "DELETE FROM billing_line WHERE invoice_id = ANY(%(drafts)s)",
    "DELETE FROM billing_invoicetax WHERE invoice_id = ANY(%(drafts)s)",
    "DELETE FROM billing_invoice WHERE id = ANY(%(drafts)s)",
)


@dataclass(frozen=True, slots=True)
class Part:
    """A draft that goes onto the consolidated invoice of a day.

    Args:
        stays_draft: a person finalises that invoice.
        place: the first, second … draft of its subscription for the same document; each document takes one.
        lines: how many.
        charged_minor: the sum of its lines, each without its sign.
        buyer: as JSON.
        is_corrected: a finalised document corrects it, so its lines keep their document.
    """

    id: int
    customer_id: int
    customer_ref: str
    subscription_id: int
    subscription_ref: str
    day: date
    stays_draft: bool
    scope: str
    currency: str
    place: int
    as_of: datetime
    amendments_seen: int
    buyer: str
    note: str
    lines: int
    charged_minor: int
    is_corrected: bool


def merge_under(lock: Lock, parts: Sequence[Part], run_id: UUID | None) -> int:
    """Make one draft of drafts of a customer, in the order of the subscriptions, and return its id.

    The lines and their discounts stay as they are; taxes, the tax that prices include, carried credit and the total are those
    of one document.
    """
    lock.ensure_held(document_key("", parts[0].customer_ref), *(invoice_key(part.subscription_ref) for part in parts))
    parts = sorted(parts, key=lambda part: part.subscription_id)
    newest = max(parts, key=lambda part: part.id)
    lines, positions = _lines_of(parts)
    bill = total_bill(lines)
    head = store.DraftHead(
        customer_id=newest.customer_id,
        customer_ref=newest.customer_ref,
        buyer=json.loads(newest.buyer),
        as_of=max(part.as_of for part in parts),
        scope=newest.scope,
        run_id=run_id,
        note=" ".join(dict.fromkeys(part.note for part in parts if part.note))[:MAX_NOTE_CHARACTERS],
    )
    invoice_id = store.insert_invoice(head, newest.currency, bill)
    InvoicedSubscription.objects.bulk_create(
        InvoicedSubscription(
            invoice_id=invoice_id,
            subscription_id=part.subscription_id,
            subscription_ref=part.subscription_ref,
            as_of=part.as_of,
            amendments_seen=part.amendments_seen,
        )
        for part in parts
    )
    moved: dict[str, Any] = {
        "invoice": invoice_id,
        "drafts": [part.id for part in parts],
        "positions": positions,
        "subscriptions": [part.subscription_id for part in parts],
    }
    with connection.cursor() as cursor:
        for statement in MOVE:
            cursor.execute(statement, moved)
    return invoice_id


def _lines_of(parts: Sequence[Part]) -> tuple[list[DraftLine], list[int]]:
    """Return the lines of all parts with their new positions, and for each part how many lines come before its own."""
    stored = (
        Line.objects.filter(invoice_id__in=[part.id for part in parts]).exclude(kind=CARRIED).order_by("invoice_id", "position")
    )
    of_invoice = {invoice_id: list(lines) for invoice_id, lines in groupby(stored, key=lambda line: line.invoice_id)}
    lines: list[DraftLine] = []
    positions: list[int] = []
    for part in parts:
        positions.append(len(lines))
        lines += _renumber_lines(of_invoice.get(part.id, ()), part, len(lines))
    return lines, positions


def _renumber_lines(lines: Sequence[Line], part: Part, before: int) -> Iterator[DraftLine]:
    for line in lines:
        included = line.rating.get("included_tax")
        priced = included or {"amount_minor": line.amount_minor, "discount_minor": line.discount_minor}
        yield DraftLine(
            kind=line.kind,
            description=line.description,
            amount_minor=priced["amount_minor"],
            discount_minor=priced["discount_minor"],
            quantity=line.quantity,
            tax_category=line.tax_category,
            tax_rate=line.tax_rate,
            taxes=applied_taxes(line.taxes),
            due_at=part.as_of,
            item_id=line.item_id,
            price_id=line.price_id,
            price_key=line.price_key,
            starts_at=line.starts_at,
            ends_at=line.ends_at,
            unit_amount=line.unit_amount,
            rating=line.rating,
            position=before + line.position,
            included_rate=Decimal(included["rate"]) if included else None,
            subscription_id=part.subscription_id,
        )
