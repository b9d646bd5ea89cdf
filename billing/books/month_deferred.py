"""What credits were sold for and earned in a month: the books as figures, each credit type and currency a column."""

from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, Final

from billing.books.roll_forward import LINES, Book, book_of, cost_lines_of
from billing.books.roll_forward import RollForwardSection as Sold
from ledger.months import month_after, month_before, starts
from ledger.totals.costs import CostKey, changes_by_day, costs_by_holder, late_by_month
from ledger.totals.credit_figures import day_rows, entries_on, holder_rows
from ledger.totals.figures import (
    Figure,
    FigureColumn,
    FigureLink,
    FigureRow,
    FigureSection,
    Reference,
    Rows,
    money,
    month_link,
    rows_link,
)
from ledger.units import currency_unit

DEFERRED, EXPIRY = "deferred", "deferred_by_expiry"
OPENING, CLOSING, REVENUE = "opening", "closing", "revenue"
LATE: Final = "late_"
ELSEWHERE: Final = "Counted in other months"
EARNED: Final = ("recognised", "breakage")
"""The lines that are revenue."""
TITLES: Final = {
    OPENING: "Deferred revenue at the start",
    **LINES,
    CLOSING: "Deferred revenue at the end",
    REVENUE: "Revenue from credits",
}
DEFINITIONS: Final = {
    "recognised": "Used credits, less refunds.",
    "breakage": "Credits that expired unused.",
    REVENUE: "Recognised revenue and breakage.",
}


def sections(month: date) -> list[FigureSection]:
    """Return the sections of deferred revenue; none if no credits were sold."""
    book = book_of(month)
    if not book.sections:
        return []
    columns = [FigureColumn(_key(each), f"{each.credit_type}, {each.currency}") for each in book.sections]
    files = [("Journal as CSV", FigureLink("billing_journal", {"month": f"{month:%Y-%m}"}))] if book.is_closed else []
    lines = [figure for key, title in TITLES.items() for figure in _figures(book, key, title)]
    return [
        FigureSection(DEFERRED, "Sold credits in money", columns, lines, files=files),
        FigureSection(EXPIRY, "Deferred revenue at the end, by expiry", columns, _by_expiry(book), first="Expires"),
    ]


def _key(each: Sold) -> str:
    return f"{each.credit_type}/{each.currency}"


def _minor(each: Sold, key: str) -> int:
    """Return the amount of a figure in a column, in minor units."""
    if key in LINES:
        return each.lines[key]
    revenue = -sum(each.lines[name] + each.late.get(name, 0) for name in EARNED)
    return {OPENING: each.opening_minor, CLOSING: each.closing_minor, REVENUE: revenue}[key]


def _figures(book: Book, key: str, title: str) -> list[Figure]:
    """Return a figure, and if there is any that of its late entries."""

    def figure(key: str, title: str, minor: Callable[[Sold], int], **more: Any) -> Figure:
        return Figure(key, title, [money(minor(each), each.currency) for each in book.sections], **more)

    figures = [figure(key, title, partial(_minor, key=key), definition=DEFINITIONS.get(key, ""), is_sum=key not in LINES)]
    if any(each.late.get(key) for each in book.sections):
        figures.append(figure(f"{LATE}{key}", f"{title}, late: of closed months", lambda each: each.late.get(key, 0)))
    return figures


def _by_expiry(book: Book) -> list[Figure]:
    left = [{part.expires: part.closing_minor for part in each.by_expiry} for each in book.sections]
    months = sorted({expires for of in left for expires in of}, key=lambda expires: (expires == "never", expires))
    figures = []
    for expires in months:
        parts = zip(book.sections, left, strict=True)
        figures.append(Figure(expires, expires, [money(of.get(expires, 0), each.currency) for each, of in parts]))
    whole = [money(each.closing_minor, each.currency) for each in book.sections]
    return [*figures, Figure(CLOSING, "At the end", whole, is_sum=True)]


# Rows ------------------------------------------------------------------------------------------------


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the days of a line or of the revenue, the months of late entries, the months of expiry, or the holders of one."""
    if section not in (DEFERRED, EXPIRY):
        return None
    book = book_of(month)
    each = next((one for one in book.sections if _key(one) == column), None)
    if each is None:
        return None
    if section == EXPIRY and figure != CLOSING:
        return _holders(month, book, each, figure)
    if figure in (OPENING, CLOSING):
        return _expiries(month, each, figure)
    if figure.removeprefix(LATE) in LINES and figure.startswith(LATE):
        return _late(month, each, figure.removeprefix(LATE))
    return _days(month, book, each, figure) if figure in (*LINES, REVENUE) else None


def _title(words: str, each: Sold) -> str:
    return f"{words}: {each.credit_type}, {each.currency}"


def _holders(month: date, book: Book, each: Sold, expires: str) -> Rows | None:
    """Return the holders of the credits that expire in a month; "never" is a month too."""
    left = next((part.closing_minor for part in each.by_expiry if part.expires == expires), None)
    if left is None:
        return None
    key = CostKey(each.credit_type, each.currency, "" if expires == "never" else expires)
    holders = costs_by_holder(book.as_of or starts(month_after(month)), key)
    title = _title(f"Deferred revenue of credits that expire {expires}", each)
    return Rows(title, ["Holder", each.currency], holder_rows(holders), currency_unit(each.currency), total=left)


def _expiries(month: date, each: Sold, figure: str) -> Rows:
    of, at = (month_before(month), "opening_minor") if figure == OPENING else (month, "closing_minor")
    cells = [
        FigureRow((f"{part.expires}",), [Reference(part.expires, rows_link(of, EXPIRY, part.expires, _key(each)))], minor)
        for part in each.by_expiry
        if (minor := getattr(part, at))
    ]
    return Rows(_title(TITLES[figure], each), ["Expires", each.currency], cells, currency_unit(each.currency))


def _days(month: date, book: Book, each: Sold, figure: str) -> Rows:
    lines, sign = (EARNED, -1) if figure == REVENUE else ((figure,), 1)
    days: Counter[date] = Counter()
    until = book.as_of or starts(month_after(month))
    for line in lines:
        changes = changes_by_day(month, each.credit_type, each.currency, cost_lines_of(line), until=until)
        days.update({day: sign * minor for day, minor in changes.items()})
    cells = day_rows(days, partial(entries_on, credit_type=each.credit_type))
    if figure == REVENUE and (late := -sum(each.late.get(name, 0) for name in EARNED)):
        cells.append(FigureRow(("late",), ["late, of closed months"], late))
    unit, total = currency_unit(each.currency), _minor(each, figure)
    return Rows(_title(TITLES[figure], each), ["Day (UTC)", each.currency], cells, unit, total=total)


def _late(month: date, each: Sold, line: str) -> Rows:
    months = late_by_month(month, each.credit_type, each.currency, cost_lines_of(line))
    cells = day_rows(months, lambda of: Reference(f"{of:%Y-%m}", month_link(of)))
    title, unit = _title(f"{LINES[line]}, late: of closed months", each), currency_unit(each.currency)
    return Rows(title, ["Month", each.currency], cells, unit, total=each.late.get(line, 0), rest=ELSEWHERE)
