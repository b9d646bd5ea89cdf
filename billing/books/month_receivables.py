"""What customers owe on invoices in a month: from the start to the end, and the end by age."""

from datetime import date
from typing import Final

from billing.books.month_documents import Receivable, receivables_of
from billing.books.month_parts import customer, document, money_figure
from ledger.totals.figures import Figure, FigureColumn, FigureRow, FigureSection, Rows
from ledger.units import currency_unit

UNPAID, AGE = "unpaid", "unpaid_by_age"
LINES: Final = {
    "opening": "Unpaid at the start",
    "issued": "Issued",
    "paid": "Paid",
    "credited": "Credit notes set against invoices",
    "void": "Voided",
    "written_off": "Uncollectible",
    "closing": "Unpaid at the end",
}
HEADINGS: Final = ("Invoice", "Customer", "Issued", "Due", "Days overdue at the end")
ENDS: Final = ("opening", "closing")
DEFINITIONS: Final = {
    "issued": "The amount due on the day of issue, after credit notes and prepaid credits.",
    "paid": "Payments by the day of their recording, less what went back.",
}
AGES: Final = {
    "not_due": ("Not due yet", None, 0),
    "days_1_30": ("1 to 30 days overdue", 1, 30),
    "days_31_60": ("31 to 60 days overdue", 31, 60),
    "days_61_90": ("61 to 90 days overdue", 61, 90),
    "days_91": ("More than 90 days overdue", 91, None),
}
"""With their titles, and the first and last number of days after the due date."""


def sections(month: date) -> list[FigureSection]:
    """Return the sections of what is unpaid; none if nothing was to be paid."""
    receivables = receivables_of(month)
    columns = [FigureColumn(currency, currency) for currency in sorted({row.currency for row in receivables})]
    if not columns:
        return []
    lines = [_figure(month, key, title, columns, receivables) for key, title in LINES.items()]
    ages = [_figure(month, key, title, columns, receivables) for key, (title, *_) in AGES.items()]
    whole = _figure(month, "closing", LINES["closing"], columns, receivables)
    return [
        FigureSection(UNPAID, "Unpaid invoices", columns, lines),
        FigureSection(AGE, "Unpaid at the end, by age", columns, [*ages, whole], first="On the last day"),
    ]


def _figure(month: date, key: str, title: str, columns: list[FigureColumn], receivables: list[Receivable]) -> Figure:
    def minor(currency: str, part: str) -> int:
        return sum(amount_of(row, key, month) for row in receivables if row.currency == currency)

    definition = DEFINITIONS.get(key, "")
    return money_figure(key, title, columns, minor, is_sum=key in ENDS, definition=definition)


def amount_of(row: Receivable, figure: str, month: date) -> int:
    """Return what an invoice adds to a figure, in minor units."""
    if figure in AGES:
        _, least, most = AGES[figure]
        days = row.days_late(month)
        is_in = (least is None or days >= least) and (most is None or days <= most)
        return row.unpaid_minor if is_in else 0
    amounts = {
        "opening": 0 if row.is_new else row.due_minor,
        "issued": row.due_minor if row.is_new else 0,
        "credited": -row.credited_minor,
        "paid": -row.paid_minor,
        "closing": row.unpaid_minor,
    }
    return amounts.get(figure, -row.rest_minor if row.settled == figure else 0)


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the invoices of a figure, the longest due first."""
    if section not in (UNPAID, AGE) or not (figure in AGES or figure in LINES):
        return None
    amounts = [(row, amount_of(row, figure, month)) for row in receivables_of(month) if row.currency == column]
    cells = [FigureRow((f"{row.due_date}", row.id), _cells(row, month), minor) for row, minor in amounts if minor]
    if not cells:
        return None
    title = AGES[figure][0] if figure in AGES else LINES[figure]
    return Rows(f"{title}, in {column}", [*HEADINGS, column], cells, currency_unit(column))


def _cells(row: Receivable, month: date) -> list[object]:
    days = max(0, row.days_late(month))
    return [document("invoice", row.id, row.number), customer(row.customer), row.issue_date, row.due_date, days]
