"""Pays unused time out that an end of a subscription refunds: as far as it was paid in money, once, when its invoice is final."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

from billing.documents.credit_rests import take_out
from billing.models import CreditNote, CreditRefund
from billing.orders.item_versions import UnusedTime
from billing.rating.tax_amounts import AppliedTax, Treatment, applied_taxes
from ledger.database.statements import fetch_rows

ACTOR = "billing"

# The paid ones of some invoices, of those whose lines they give back, and so on: what money paid of each, and its total. Credit
# notes on request give the money back first.
PAID_INVOICES = """
    WITH RECURSIVE behind AS (
        SELECT unnest(%(invoices)s::bigint[]) AS id
        UNION
        SELECT (line.rating -> 'credits' ->> 'invoice')::bigint
        FROM behind JOIN billing_line AS line ON line.invoice_id = behind.id AND line.kind = 'credit'
    )
    SELECT i.id, i.amount_paid_minor - i.rounding_minor - noted.money_minor - (
            SELECT coalesce(sum(p.applied_minor), 0)::bigint FROM billing_invoicepayment AS p
            WHERE p.invoice_id = i.id AND p.provider = 'credit'
        ), i.total_minor - noted.minor
    FROM behind JOIN billing_invoice AS i ON i.id = behind.id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(n.amount_minor), 0)::bigint AS minor,
            coalesce(sum(n.amount_minor - n.credits_returned_minor - lowered.minor), 0)::bigint AS money_minor
        FROM billing_creditnote AS n
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(u.amount_minor), 0) AS minor FROM billing_creditnoteuse AS u
            WHERE u.credit_note_id = n.id AND u.invoice_id = n.invoice_id AND u.released_at IS NULL
        ) AS lowered
        WHERE n.invoice_id = i.id AND n.kind = 'requested' AND n.released_at IS NULL
    ) AS noted
    WHERE i.state = 'paid'
    ORDER BY i.id
"""

CREDITS_ON = """
    SELECT invoice_id, (rating -> 'credits' ->> 'invoice')::bigint, -amount_minor, tax_category, tax_rate, taxes
    FROM billing_line WHERE invoice_id = ANY(%(invoices)s) AND kind = 'credit' AND amount_minor < 0
"""


@dataclass(frozen=True, slots=True)
class UnusedCredit:
    """A credit for unused time after an end that refunds it.

    Args:
        invoice_id: the invoice that charged the time.
        net_minor: above 0.
    """

    invoice_id: int
    net_minor: int
    tax_category: str
    tax_rate: Decimal
    taxes: tuple[AppliedTax, ...] = ()

    @property
    def treatment(self) -> Treatment:
        """How it is taxed."""
        return Treatment(self.tax_category, self.tax_rate, self.taxes)


class PaidInvoice(NamedTuple):
    """A row of PAID_INVOICES: what money paid of a paid invoice, and what it came to."""

    id: int
    money_minor: int
    total_minor: int


class _CreditOn(NamedTuple):
    """A row of CREDITS_ON."""

    on_invoice: int
    invoice_id: int
    net_minor: int
    tax_category: str
    tax_rate: Decimal
    stored_taxes: str

    @property
    def treatment(self) -> Treatment:
        """How it is taxed."""
        return Treatment(self.tax_category, self.tax_rate, applied_taxes(json.loads(self.stored_taxes)))


def is_refunded(rating: Mapping[str, Any]) -> bool:
    """Return whether a line gives back time after an end that refunds it."""
    return rating.get("unused_time") == UnusedTime.REFUND.value and rating["credits"]["invoice"] is not None


def refund_unused(note: CreditNote, unused: Sequence[UnusedCredit], *, subscription_ref: str) -> None:
    """Pay out of an invoice's own note what the unused time came to, with tax, as far as it was paid in money.

    The caller finalises the invoice, so it happens once; a unique index refuses a second refund of an invoice.

    Args:
        note: what the invoice gave back beyond its charges; other transactions do not see it yet.
    """
    note.refresh_from_db(fields=["left_minor"])
    amount_minor = min(note.left_minor, _paid_in_money(unused))
    if amount_minor <= 0:
        return
    refund = CreditRefund.objects.create(
        customer_id=note.customer_id,
        currency=note.currency,
        amount_minor=amount_minor,
        reason=f"Unused time of {subscription_ref}",
        invoice_id=note.invoice_id,
        actor=ACTOR,
    )
    take_out(note, amount_minor, refund.pk)


def _paid_in_money(unused: Sequence[UnusedCredit]) -> int:
    invoices = sorted({credit.invoice_id for credit in unused})
    paid = fetch_rows(PaidInvoice, PAID_INVOICES, {"invoices": invoices})
    given_back: dict[int, list[_CreditOn]] = {}
    for row in fetch_rows(_CreditOn, CREDITS_ON, {"invoices": [one.id for one in paid]}):
        given_back.setdefault(row.on_invoice, []).append(row)
    shares = money_shares(paid, {on_invoice: _by_invoice(rows) for on_invoice, rows in given_back.items()})
    return sum(floor(minor * shares.get(invoice_id, Fraction(0))) for invoice_id, minor in _by_invoice(unused).items())


def _by_invoice(given_back: Iterable[UnusedCredit | _CreditOn]) -> dict[int, int]:
    """Return by the invoice whose lines it gives back what is given back, with tax, rounded once by its taxes."""
    bases: dict[tuple[int, Treatment], int] = {}
    for credit in given_back:
        group = credit.invoice_id, credit.treatment
        bases[group] = bases.get(group, 0) + credit.net_minor
    found: dict[int, int] = {}
    for (invoice_id, treatment), base in bases.items():
        found[invoice_id] = found.get(invoice_id, 0) + base + treatment.tax_minor(base)
    return found


def money_shares(paid: Sequence[PaidInvoice], given_back: Mapping[int, Mapping[int, int]]) -> dict[int, Fraction]:
    """Return by invoice the share of its charges that money paid, from 0 to 1; an invoice that is not paid has no share.

    Credits on an invoice pay for its charges too, with the share of money of the invoice that they give back.

    Args:
        paid: in the order of their ids; an invoice gives back lines of earlier ones only.
        given_back: by invoice, what it gives back of other invoices, with tax.
    """
    shares: dict[int, Fraction] = {}
    for invoice in paid:
        given = given_back.get(invoice.id, {})
        whole = invoice.total_minor + sum(given.values())
        money = invoice.money_minor + sum(minor * shares.get(of, Fraction(0)) for of, minor in given.items())
        shares[invoice.id] = min(max(Fraction(money) / whole, Fraction(0)), Fraction(1)) if whole > 0 else Fraction(0)
    return shares
