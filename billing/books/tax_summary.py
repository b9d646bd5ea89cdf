"""The taxes of a month, by seller, currency, country, tax and rate: what a tax return is filled in from."""

from datetime import date
from decimal import Decimal
from typing import Final, NamedTuple

from billing.books.month_documents import TAXED, bounds_of
from ledger.database.statements import fetch_rows

SUMMARY: Final = f"""
    SELECT seller, currency, country, category, rate, code, sum(base_minor)::bigint, sum(tax_minor)::bigint,
        sum(net_minor)::bigint
    FROM ({TAXED}) AS part
    WHERE %(seller)s::text IS NULL OR seller = %(seller)s
    GROUP BY 1, 2, 3, 4, 5, 6
    HAVING sum(base_minor) <> 0 OR sum(tax_minor) <> 0
    ORDER BY 1, 2, 3, category COLLATE "C", 5, code COLLATE "C"
"""


class TaxRow(NamedTuple):
    """What was charged in a country at one rate: net and tax, after credit notes.

    Args:
        country: of the buyer's address, or the seller's if that has none; empty if neither has one.
        rate: percent.
        code: of the declared tax; empty: the rate of prices.
        net_minor: the part of the month's net amount that no other row counts.
    """

    seller: str
    currency: str
    country: str
    category: str
    rate: Decimal
    code: str
    base_minor: int
    tax_minor: int
    net_minor: int


def tax_summary(month: date, *, seller: str | None = None) -> list[TaxRow]:
    """Return the taxes of a month.

    Args:
        month: any day of it.
        seller: only of this seller.
    """
    return fetch_rows(TaxRow, SUMMARY, {**bounds_of(month), "seller": seller})
