"""The taxes of a month, by seller, currency, country, category and rate: what a tax return is filled in from."""

from datetime import date
from decimal import Decimal
from typing import Final, NamedTuple

from ledger.database.statements import fetch_rows

# A document counts in the month of its issue. Voiding it counts the same amounts again, with the other sign, on the day of the
# voiding: so a month that is over does not change. What an invoice carries into a credit note lowers the tax on the day of that
# invoice, because no later document shows it. Days are those of the customer's zone, as on documents.
SUMMARY: Final = """
    WITH invoice AS (
        SELECT i.id, i.seller_id, i.currency, i.buyer, 1 AS sign
        FROM billing_invoice AS i
        WHERE i.issue_date >= %(start)s AND i.issue_date < %(end)s
        UNION ALL
        SELECT i.id, i.seller_id, i.currency, i.buyer, -1
        FROM billing_invoice AS i JOIN billing_customer AS c ON c.id = i.customer_id
        WHERE i.state = 'void' AND (i.voided_at AT TIME ZONE c.time_zone)::date >= %(start)s
            AND (i.voided_at AT TIME ZONE c.time_zone)::date < %(end)s
    ), note AS (
        SELECT n.id, n.seller_id, n.currency, i.buyer, -1 AS sign
        FROM billing_creditnote AS n JOIN billing_invoice AS i ON i.id = n.invoice_id
        WHERE n.number IS NOT NULL AND n.issue_date >= %(start)s AND n.issue_date < %(end)s
        UNION ALL
        SELECT n.id, n.seller_id, n.currency, i.buyer, 1
        FROM billing_creditnote AS n JOIN billing_invoice AS i ON i.id = n.invoice_id
        JOIN billing_customer AS c ON c.id = i.customer_id
        WHERE n.number IS NOT NULL AND (n.released_at AT TIME ZONE c.time_zone)::date >= %(start)s
            AND (n.released_at AT TIME ZONE c.time_zone)::date < %(end)s
    ), taxed AS (
        SELECT invoice.seller_id, invoice.currency, invoice.buyer, tax.category, tax.rate,
            invoice.sign * tax.base_minor AS base_minor, invoice.sign * tax.amount_minor AS tax_minor
        FROM invoice JOIN billing_invoicetax AS tax ON tax.invoice_id = invoice.id
        UNION ALL
        SELECT invoice.seller_id, invoice.currency, invoice.buyer, line.tax_category, line.tax_rate,
            -invoice.sign * line.amount_minor, -invoice.sign * (line.rating ->> 'tax_minor')::bigint
        FROM invoice JOIN billing_line AS line ON line.invoice_id = invoice.id AND line.kind = 'carried'
        UNION ALL
        SELECT note.seller_id, note.currency, note.buyer, tax.category, tax.rate,
            note.sign * tax.base_minor, note.sign * tax.amount_minor
        FROM note JOIN billing_creditnotetax AS tax ON tax.credit_note_id = note.id
    )
    SELECT coalesce(seller.ref, 'default') AS seller, taxed.currency,
        coalesce(nullif(taxed.buyer #>> '{address,country}', ''), seller.details ->> 'country', '') AS country,
        taxed.category, taxed.rate, sum(taxed.base_minor)::bigint, sum(taxed.tax_minor)::bigint
    FROM taxed LEFT JOIN billing_seller AS seller ON seller.id = taxed.seller_id
    WHERE %(seller)s::text IS NULL OR coalesce(seller.ref, 'default') = %(seller)s
    GROUP BY 1, 2, 3, 4, 5
    HAVING sum(taxed.base_minor) <> 0 OR sum(taxed.tax_minor) <> 0
    ORDER BY 1, 2, 3, taxed.category COLLATE "C", 5
"""


class TaxRow(NamedTuple):
    """What was charged in a country at one rate: net and tax, after credit notes.

    Args:
        country: of the buyer's address, or the seller's if that has none; empty if neither has one.
        rate: percent.
    """

    seller: str
    currency: str
    country: str
    category: str
    rate: Decimal
    base_minor: int
    tax_minor: int


def tax_summary(month: date, *, seller: str | None = None) -> list[TaxRow]:
    """Return the taxes of a month.

    Args:
        month: any day of it.
        seller: only of this seller.
    """
    start = month.replace(day=1)
    end = date(start.year + start.month // 12, start.month % 12 + 1, 1)
    return fetch_rows(TaxRow, SUMMARY, {"start": start, "end": end, "seller": seller})
