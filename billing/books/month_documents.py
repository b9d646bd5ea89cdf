"""The documents of a month: what each invoiced, credited or took back, by rate and country, and what was unpaid at its end.

A document counts in the month of its issue. Voiding it counts the same amounts again, with the other sign, on the day of the
voiding: so a month that is over does not change. What an invoice carries into a credit note lowers its amount on the day of that
invoice, because no later document shows it. Days are those of the customer's zone, as on documents.
"""

from datetime import date, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from ledger.database.statements import fetch_rows
from ledger.months import month_after

KINDS: Final = {
    "invoiced": "Invoices issued",
    "carried": "Carried over as credit",
    "credited": "Credit notes issued",
    "voided": "Voided",
}
"""What a document did in a month, with titles. A voided invoice takes its credit notes with it."""

# Each row is what a document did in a country at a rate.
TAXED: Final = """
    WITH invoice AS (
        SELECT i.id, i.number, i.customer_ref, i.issue_date AS day, i.seller_id, i.currency, i.buyer,
            'invoiced' AS kind, 1 AS sign, i.subtotal_minor - i.discount_minor AS whole_minor
        FROM billing_invoice AS i
        WHERE i.issue_date >= %(start)s AND i.issue_date < %(end)s
        UNION ALL
        SELECT i.id, i.number, i.customer_ref, (i.voided_at AT TIME ZONE c.time_zone)::date, i.seller_id, i.currency, i.buyer,
            'voided', -1, i.subtotal_minor - i.discount_minor
        FROM billing_invoice AS i JOIN billing_customer AS c ON c.id = i.customer_id
        WHERE i.state = 'void' AND (i.voided_at AT TIME ZONE c.time_zone)::date >= %(start)s
            AND (i.voided_at AT TIME ZONE c.time_zone)::date < %(end)s
    ), note AS (
        SELECT n.id, n.number, i.customer_ref, n.issue_date AS day, n.seller_id, n.currency, i.buyer,
            'credited' AS kind, -1 AS sign, n.subtotal_minor AS whole_minor
        FROM billing_creditnote AS n JOIN billing_invoice AS i ON i.id = n.invoice_id
        WHERE n.number IS NOT NULL AND n.issue_date >= %(start)s AND n.issue_date < %(end)s
        UNION ALL
        SELECT n.id, n.number, i.customer_ref, (n.released_at AT TIME ZONE c.time_zone)::date, n.seller_id, n.currency, i.buyer,
            'voided', 1, n.subtotal_minor
        FROM billing_creditnote AS n JOIN billing_invoice AS i ON i.id = n.invoice_id
        JOIN billing_customer AS c ON c.id = i.customer_id
        WHERE n.number IS NOT NULL AND (n.released_at AT TIME ZONE c.time_zone)::date >= %(start)s
            AND (n.released_at AT TIME ZONE c.time_zone)::date < %(end)s
    ), taxed AS (
        SELECT invoice.*, 'invoice' AS document, tax.category, tax.rate, tax.code, invoice.sign * tax.base_minor AS base_minor,
            invoice.sign * tax.amount_minor AS tax_minor,
            CASE WHEN tax.id = min(tax.id) OVER (PARTITION BY invoice.id, invoice.kind) THEN invoice.sign * invoice.whole_minor
                ELSE 0 END AS net_minor
        FROM invoice JOIN billing_invoicetax AS tax ON tax.invoice_id = invoice.id
        UNION ALL
        SELECT invoice.id, invoice.number, invoice.customer_ref, invoice.day, invoice.seller_id, invoice.currency, invoice.buyer,
            CASE invoice.kind WHEN 'invoiced' THEN 'carried' ELSE invoice.kind END, invoice.sign, invoice.whole_minor, 'invoice',
            carried.category, carried.rate, carried.code, -invoice.sign * carried.base_minor, -invoice.sign * carried.tax_minor,
            CASE WHEN carried.is_first THEN -invoice.sign * line.amount_minor ELSE 0 END
        FROM invoice JOIN billing_line AS line ON line.invoice_id = invoice.id AND line.kind = 'carried'
        CROSS JOIN LATERAL (
            SELECT line.tax_category AS category, line.tax_rate AS rate, '' AS code, line.amount_minor AS base_minor,
                (line.rating ->> 'tax_minor')::bigint AS tax_minor, true AS is_first
            WHERE line.taxes = '[]'
            UNION ALL
            SELECT category, rate, code, base_minor, round(base_minor * rate / 100)::bigint, code = line.taxes #>> '{0,code}'
            FROM (
                SELECT each.*, line.amount_minor + CASE WHEN is_compound THEN (
                    SELECT coalesce(sum(round(line.amount_minor * other.rate / 100)), 0)
                    FROM jsonb_to_recordset(line.taxes) AS other(rate numeric, is_compound boolean) WHERE NOT other.is_compound
                )::bigint ELSE 0 END AS base_minor
                FROM jsonb_to_recordset(line.taxes) AS each(category text, rate numeric, code text, is_compound boolean)
            ) AS declared
        ) AS carried
        UNION ALL
        SELECT note.*, 'creditnote', tax.category, tax.rate, tax.code, note.sign * tax.base_minor, note.sign * tax.amount_minor,
            CASE WHEN tax.id = min(tax.id) OVER (PARTITION BY note.id, note.kind) THEN note.sign * note.whole_minor ELSE 0 END
        FROM note JOIN billing_creditnotetax AS tax ON tax.credit_note_id = note.id
    )
    SELECT taxed.kind, taxed.document, taxed.id, taxed.number, taxed.customer_ref, taxed.day,
        coalesce(seller.ref, 'default') AS seller, taxed.currency,
        coalesce(nullif(taxed.buyer #>> '{address,country}', ''), seller.details ->> 'country', '') AS country,
        taxed.category, taxed.rate, taxed.code, taxed.base_minor, taxed.tax_minor, taxed.net_minor
    FROM taxed LEFT JOIN billing_seller AS seller ON seller.id = taxed.seller_id
"""
DOCUMENTS: Final = f"""
    {TAXED} ORDER BY taxed.day, taxed.document DESC, taxed.id, taxed.kind, taxed.category, taxed.rate, taxed.code
"""
SALES: Final = f"""
    SELECT kind, currency, count(DISTINCT (document, id)), sum(net_minor)::bigint, sum(tax_minor)::bigint
    FROM ({TAXED}) AS part GROUP BY 1, 2
"""

# What was to be paid at the end of the month before or on the day of issue, what credit notes and payments took of it since, and
# how it was settled otherwise. An invoice that was settled before the month is not read; what was paid and is due again is open.
RECEIVABLES: Final = """
    WITH invoice AS (
        SELECT i.id, i.number, i.customer_ref, i.currency, i.issue_date, i.due_date, i.finalized_at, c.time_zone,
            i.issue_date >= %(start)s AS is_new,
            i.total_minor + i.rounding_minor - coalesce(credits.amount_minor, 0) AS payable_minor,
            (least(i.voided_at, i.uncollectible_at) AT TIME ZONE c.time_zone)::date AS settled_on,
            CASE least(i.voided_at, i.uncollectible_at)
                WHEN i.voided_at THEN 'void' WHEN i.uncollectible_at THEN 'written_off' ELSE ''
            END AS settled
        FROM billing_invoice AS i
        JOIN billing_customer AS c ON c.id = i.customer_id
        LEFT JOIN billing_creditpayment AS credits ON credits.invoice_id = i.id
        WHERE i.issue_date < %(end)s AND coalesce(least(i.paid_at, i.voided_at, i.uncollectible_at), 'infinity') >= %(since)s
    ), change AS (
        SELECT invoice.id, 'credited' AS what, used.amount_minor AS minor, used.recorded_at < invoice.finalized_at AS is_at_issue,
            (used.recorded_at AT TIME ZONE invoice.time_zone)::date AS since,
            coalesce((used.released_at AT TIME ZONE invoice.time_zone)::date, 'infinity') AS until
        FROM invoice JOIN billing_creditnoteuse AS used ON used.invoice_id = invoice.id
        UNION ALL
        SELECT invoice.id, CASE payment.provider WHEN 'credit' THEN 'credited' ELSE 'paid' END, payment.applied_minor, false,
            (payment.recorded_at AT TIME ZONE invoice.time_zone)::date, 'infinity'
        FROM invoice JOIN billing_invoicepayment AS payment ON payment.invoice_id = invoice.id
        UNION ALL
        SELECT invoice.id, 'paid', -back.reopened_minor, false, (back.recorded_at AT TIME ZONE invoice.time_zone)::date,
            'infinity'
        FROM invoice
        JOIN billing_invoicepayment AS payment ON payment.invoice_id = invoice.id
        JOIN billing_paymentreturn AS back ON back.invoice_payment_id = payment.id
    ), changed AS (
        SELECT id, coalesce(sum(minor) FILTER (WHERE is_at_issue), 0) AS at_issue_minor,
            coalesce(sum(minor) FILTER (WHERE since < %(start)s AND until >= %(start)s), 0) AS before_minor,
            coalesce(sum(minor) FILTER (WHERE what = 'credited' AND since < %(start)s AND until >= %(start)s), 0) AS noted_before,
            coalesce(sum(minor) FILTER (WHERE what = 'credited' AND since < %(end)s AND until >= %(end)s), 0) AS noted_minor,
            coalesce(sum(minor) FILTER (WHERE what = 'paid' AND since >= %(start)s AND since < %(end)s), 0) AS paid_minor
        FROM change GROUP BY id
    )
    SELECT i.id, i.number, i.customer_ref, i.currency, i.issue_date, i.due_date, i.is_new,
        CASE WHEN i.settled_on < %(end)s THEN i.settled ELSE '' END,
        (i.payable_minor - CASE WHEN i.is_new THEN coalesce(c.at_issue_minor, 0) ELSE coalesce(c.before_minor, 0) END)::bigint,
        (coalesce(c.noted_minor, 0)
            - CASE WHEN i.is_new THEN coalesce(c.at_issue_minor, 0) ELSE coalesce(c.noted_before, 0) END)::bigint,
        coalesce(c.paid_minor, 0)::bigint
    FROM invoice AS i LEFT JOIN changed AS c USING (id)
    WHERE i.settled_on IS NULL OR i.settled_on >= %(start)s
    ORDER BY i.due_date, i.id
"""


class DocumentRow(NamedTuple):
    """What a document did in a month, in a country at a rate (percent): net and tax, with its sign.

    Args:
        kind: one of KINDS.
        document: invoice or creditnote.
        country: of the buyer's address, or the seller's if that has none; empty if neither has one.
        code: of the declared tax; empty: the rate of prices.
        base_minor: of this tax; two taxes may have the same base, or one the other in its base.
        net_minor: the document's net amount, in one of its rows; 0 in the others.
    """

    kind: str
    document: str
    id: int
    number: str
    customer: str
    day: date
    seller: str
    currency: str
    country: str
    category: str
    rate: Decimal
    code: str
    base_minor: int
    tax_minor: int
    net_minor: int

    @property
    def total_minor(self) -> int:
        return self.net_minor + self.tax_minor


class SalesRow(NamedTuple):
    """What the documents of a month did in a currency: one of KINDS, how many, net and tax with their sign."""

    kind: str
    currency: str
    documents: int
    base_minor: int
    tax_minor: int


class Receivable(NamedTuple):
    """An invoice that was to be paid at the start of a month or was issued in it.

    Args:
        settled: void or written_off, if it was up to the end of the month; else empty.
        due_minor: what was to be paid at the start of the month, or at its issue.
        credited_minor, paid_minor: what credit notes and payments took of it since then, less what went back.
    """

    id: int
    number: str
    customer: str
    currency: str
    issue_date: date
    due_date: date
    is_new: bool
    settled: str
    due_minor: int
    credited_minor: int
    paid_minor: int

    @property
    def rest_minor(self) -> int:
        """What is left of it, settled or not."""
        return self.due_minor - self.credited_minor - self.paid_minor

    @property
    def unpaid_minor(self) -> int:
        """What was not paid at the end of the month."""
        return 0 if self.settled else self.rest_minor

    def days_late(self, month: date) -> int:
        """Return by how many days it was late on the last day of the month; 0 and less: it was not."""
        return (month_after(month) - self.due_date).days - 1


def documents_of(month: date) -> list[DocumentRow]:
    """Return what each document did in a month, the oldest first, by country and rate."""
    return fetch_rows(DocumentRow, DOCUMENTS, bounds_of(month))


def sales_of(month: date) -> list[SalesRow]:
    """Return the sums of `documents_of` by kind and currency."""
    return fetch_rows(SalesRow, SALES, bounds_of(month))


def receivables_of(month: date) -> list[Receivable]:
    """Return the invoices that were to be paid in a month, the longest due first."""
    bounds = bounds_of(month)
    # An instant before the first day in every zone: what was settled earlier was settled before the month.
    return fetch_rows(Receivable, RECEIVABLES, {**bounds, "since": bounds["start"] - timedelta(days=1)})


def bounds_of(month: date) -> dict[str, date]:
    """Return the first day of a month and of the next."""
    start = month.replace(day=1)
    return {"start": start, "end": month_after(start)}
