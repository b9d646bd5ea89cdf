"""The responses of the calls about the books. Each field is declared once, for the body and for the OpenAPI document."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from rest_framework import serializers

from billing.reads.response_fields import decimal, minor, sum_of_minor, text, time
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.schema import page_of
from ledger.totals.figures import FigureQuantity, FigureRow, Placed, Reference, amounts_of


class TaxRowSerializer(ResponseSchema):
    """What was charged in a country at one rate."""

    seller = text()
    currency = text()
    country = text(help_text="Of the buyer, or else of the seller; empty if neither has one.")
    tax = computed(
        serializers.CharField(required=False, help_text="The code of a declared tax; missing: the rate of prices."),
        lambda row: row.code or None,
    )
    category = text()
    rate = decimal()
    base_minor = sum_of_minor()
    tax_minor = sum_of_minor()


class TaxSummarySerializer(ResponseSchema):
    """The taxes of a month."""

    month = text()
    rows = TaxRowSerializer(many=True)


# The books -------------------------------------------------------------------------------------------


def _line(name: str, help_text: str = "In minor units.", *, required: bool = True) -> serializers.IntegerField:
    """A line of the books, out of the amounts by line."""
    return computed(serializers.IntegerField(required=required, help_text=help_text), lambda lines: lines.get(name))


class BookLinesSerializer(ResponseSchema):
    """Changes of deferred revenue in a month: above zero what was added, below zero what left."""

    sold = _line("sold", "What was paid for credits, without tax.")
    recognised = _line("recognised", "Revenue of credits that were used, less what refunds gave back.")
    breakage = _line("breakage", "Revenue of credits that expired unused.")
    revoked = _line("revoked", "Of credits that were taken back.")
    transferred = _line("transferred", "Between holders or terms: 0 in all, unless a transfer crossed the end of a month.")


class LateLinesSerializer(ResponseSchema):
    """The same, of entries that appeared after the month of their time was closed; lines of 0 are left out."""

    sold = _line("sold", required=False)
    recognised = _line("recognised", required=False)
    breakage = _line("breakage", required=False)
    revoked = _line("revoked", required=False)
    transferred = _line("transferred", required=False)


class BookExpirySerializer(ResponseSchema):
    """Deferred revenue of credits that expire in a month."""

    expires = text(help_text="The month (UTC), or `never`.")
    opening_minor = minor()
    closing_minor = minor()


class BookSectionSerializer(ResponseSchema):
    """A credit type in a currency."""

    credit_type = text()
    currency = text()
    opening_minor = minor()
    lines = BookLinesSerializer()
    late = LateLinesSerializer()
    closing_minor = minor(help_text="Opening, lines and late lines add up to it.")
    by_expiry = BookExpirySerializer(many=True)


class BookSerializer(ResponseSchema):
    """Deferred revenue of a month."""

    month = computed(serializers.CharField(), lambda book: f"{book.month:%Y-%m}")
    is_closed = serializers.BooleanField(help_text="A closed month never changes.")
    as_of = time(null=True, help_text="Until when the entries are counted; null for a closed month.")
    sections = BookSectionSerializer(many=True)


def _amount(placed: Placed) -> str:
    return str(placed.amount.value)


class MonthFigureSerializer(ResponseSchema):
    """An amount of a month."""

    figure = text(attrgetter("figure.key"), help_text="What it is; a key that does not change.")
    title = text(attrgetter("figure.title"), help_text="The same in words.")
    column = text(
        attrgetter("column.key"), help_text="The currency or credit type, such as `EUR`, `EUR/net`, `credits` or `credits/EUR`."
    )
    amount = text(_amount, help_text="A decimal. Money is in minor units, credits in the smallest unit of their type.")
    unit = text(
        attrgetter("amount.unit"), help_text="Such as `EUR minor units`, `smallest unit of credits`, `customers` or `percent`."
    )


class MonthSectionSerializer(ResponseSchema):
    """Figures that belong together."""

    section = text(attrgetter("key"), help_text="A key that does not change.")
    title = text()
    figures = computed(MonthFigureSerializer(many=True), amounts_of)


class MonthCellSerializer(ResponseSchema):
    """What a row of a figure says."""

    heading = text()
    id = text(null=True, help_text="The id of an invoice or credit note; null for all else.")
    text = text(help_text="Days are ISO 8601; amounts have minor units, or the smallest unit of credits.")


class MonthRowSerializer(ResponseSchema):
    """A row of a figure."""

    cells = MonthCellSerializer(many=True)
    amount = text(help_text="What it adds to the figure, in the figure's unit: an integer.")


class MonthRowsSerializer(page_of(MonthRowSerializer)):  # type: ignore[misc]
    """A page of the rows of a figure."""

    title = serializers.CharField(help_text="What the rows are.")
    total = serializers.CharField(help_text="The sum of all rows, of this page and the others: the figure.")


def month_row_body(headings: Sequence[str], row: FigureRow) -> dict[str, Any]:
    """Return the body of a row of a figure."""
    cells = [
        {"heading": heading, "id": value.id or None if isinstance(value, Reference) else None, "text": _month_cell(value)}
        for heading, value in zip(headings, row.cells, strict=False)
    ]
    return {"cells": cells, "amount": str(row.amount)}


def _month_cell(value: Any) -> str:
    if isinstance(value, Reference):
        return value.text
    return str(value.amount if isinstance(value, FigureQuantity) else value)


class FinanceMonthSerializer(ResponseSchema):
    """A month for finance."""

    month = computed(serializers.CharField(), lambda found: f"{found.month:%Y-%m}")
    is_final = serializers.BooleanField(help_text="Nothing that counts in the month can appear any more: it never changes.")
    as_of = time(
        lambda found: None if found.is_final else found.as_of,
        null=True, help_text="Until when entries are counted; null for a final month.",
    )  # fmt: skip
    sections = MonthSectionSerializer(many=True)


class DeferredSerializer(ResponseSchema):
    """Deferred revenue of credits of a type, sold in a currency, that expire in a month."""

    credit_type = text()
    currency = text()
    expires = text(help_text="The month (UTC), or `never`.")
    deferred_minor = minor()


class DeferredRevenueSerializer(ResponseSchema):
    """Deferred revenue at an instant."""

    at = time()
    results = DeferredSerializer(many=True)
