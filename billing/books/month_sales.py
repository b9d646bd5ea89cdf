"""Sales of a month and their taxes: invoices issued, credit notes, what was voided; by country and rate."""

from collections import Counter
from datetime import date
from functools import partial
from typing import Final

from billing.books.month_documents import KINDS, DocumentRow, SalesRow, documents_of, sales_of
from billing.books.month_parts import columns_of, customer, document, money_figure, split
from billing.books.tax_summary import TaxRow, tax_summary
from ledger.totals.figures import Figure, FigureColumn, FigureRow, FigureSection, Rows, count
from ledger.units import currency_unit, plain_unit

SALES, TAXES, ALL = "sales", "taxes", "all"
PARTS: Final = (("net", "net"), ("tax", "tax"), ("total", "total"))
TAX_PARTS: Final = PARTS[:2]
DEFINITIONS: Final = {
    "invoiced": "By their day of issue, in the customer's zone.",
    "carried": "What an invoice credits beyond its charges, and leaves to later invoices.",
    "credited": "By their day of issue.",
    "voided": "Invoices and their credit notes, on the day of the voiding.",
}


def sections(month: date) -> list[FigureSection]:
    """Return the sections of sales and taxes; none without a document."""
    sales = sales_of(month)
    currencies = sorted({row.currency for row in sales})
    if not currencies:
        return []
    columns = columns_of(currencies, PARTS)
    figures = [_sales(columns, kind, title, sales) for kind, title in KINDS.items()]
    figures.append(_sales(columns, ALL, "Sales", sales))
    figures.append(_number(columns, sales))
    taxes = tax_summary(month)
    tax_columns = columns_of(currencies, TAX_PARTS)
    return [
        FigureSection(SALES, "Sales", columns, figures),
        FigureSection(TAXES, "Taxes, by country and rate", tax_columns, _taxes(tax_columns, taxes), first="Country, rate"),
    ]


def _sales(columns: list[FigureColumn], kind: str, title: str, sales: list[SalesRow]) -> Figure:
    sums: Counter[tuple[str, str]] = Counter()
    for row in sales:
        if kind in (ALL, row.kind):
            parts = {"net": row.base_minor, "tax": row.tax_minor, "total": row.base_minor + row.tax_minor}
            sums.update({(row.currency, part): minor for part, minor in parts.items()})
    return money_figure(
        kind, title, columns, lambda currency, part: sums[currency, part], is_sum=kind == ALL,
        definition=DEFINITIONS.get(kind, ""),
    )  # fmt: skip


def _number(columns: list[FigureColumn], sales: list[SalesRow]) -> Figure:
    numbers = {row.currency: row.documents for row in sales if row.kind == "invoiced"}
    return Figure(
        "invoices",
        "Number of invoices",
        [
            count(numbers.get(currency, 0), "invoices") if part == "total" else None
            for column in columns
            for currency, part in [split(column.key)]
        ],
    )


def _taxes(columns: list[FigureColumn], taxes: list[TaxRow]) -> list[Figure]:
    several = len({row.seller for row in taxes}) > 1
    sums: Counter[tuple[str, str, str]] = Counter()
    titles: dict[str, str] = {}
    for row in taxes:
        key = _tax_key(row)
        place = f"{row.seller}: {row.country or 'no country'}" if several else row.country or "no country"
        titles[key] = f"{place}, {f'{row.code} ' if row.code else ''}{row.rate.normalize():f} % ({row.category})"
        sums.update({(key, row.currency, "net"): row.base_minor, (key, row.currency, "tax"): row.tax_minor})
        sums.update({(ALL, row.currency, "net"): row.net_minor, (ALL, row.currency, "tax"): row.tax_minor})
    titles[ALL] = "All"

    def minor(key: str, currency: str, part: str) -> int:
        return sums[key, currency, part]

    return [money_figure(key, title, columns, partial(minor, key), is_sum=key == ALL) for key, title in titles.items()]


def _tax_key(row: TaxRow | DocumentRow) -> str:
    return f"{row.seller}/{row.country}/{row.rate.normalize():f}/{row.category}" + (f"/{row.code}" if row.code else "")


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the documents of a figure, or the parts of documents at a rate."""
    currency, part = split(column)
    if part not in dict({SALES: PARTS, TAXES: TAX_PARTS}.get(section, ())):
        return None
    if figure == "invoices" and section == SALES:
        return _invoices(month, currency) if part == "total" else None
    documents = [row for row in documents_of(month) if row.currency == currency]
    if section == TAXES:
        documents = [row for row in documents if figure in (ALL, _tax_key(row))]
    else:
        documents = [row for row in documents if figure in (ALL, row.kind)]
    if not documents:
        return None
    sums: dict[tuple[str, str, int], int] = {}
    of = {(row.kind, row.document, row.id): row for row in documents}
    for row in documents:
        net = row.base_minor if section == TAXES and figure != ALL else row.net_minor
        minor = {"net": net, "tax": row.tax_minor, "total": row.total_minor}[part]
        sums[row.kind, row.document, row.id] = sums.get((row.kind, row.document, row.id), 0) + minor
    cells = [
        FigureRow(
            (f"{row.day}", row.document, row.id, row.kind),
            [row.day, document(row.document, row.id, row.number), customer(row.customer), KINDS[row.kind]],
            minor,
        )
        for row, minor in ((of[key], minor) for key, minor in sums.items())
        if minor
    ]
    title = f"{KINDS.get(figure, 'Sales' if section == SALES else 'Taxes')}: {dict(PARTS)[part]} in {currency}"
    return Rows(title, ["Day", "Document", "Customer", "What", currency], cells, currency_unit(currency))


def _invoices(month: date, currency: str) -> Rows | None:
    invoices = {row.id: row for row in documents_of(month) if row.kind == "invoiced" and row.currency == currency}
    cells = [
        FigureRow((f"{row.day}", row.id), [row.day, document(row.document, row.id, row.number), customer(row.customer)], 1)
        for row in invoices.values()
    ]
    if not cells:
        return None
    return Rows(f"Invoices issued in {currency}", ["Day", "Document", "Customer", "Number"], cells, plain_unit("invoices"))
