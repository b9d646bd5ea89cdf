"""What credits were sold for and earned in a month: the books as figures, each credit type and currency a column."""

from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, Final

from billing.books.roll_forward import LINES, Book, book_of, cost_lines_of
from billing.books.roll_forward import Section as Sold
from ledger.totals import changes_by_day
from ledger.totals.credit_figures import entries_on
from ledger.totals.figures import Column, Figure, Link, Rows, Section, money, month_link, rows_link
from ledger.totals.months import month_before
from ledger.units import currency_unit

DEFERRED, EXPIRY = "deferred", "deferred_by_expiry"
OPENING, CLOSING, REVENUE = "opening", "closing", "revenue"
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


def sections(month: date) -> list[Section]:
    """Return the sections of deferred revenue; none if no credits were sold."""
    book = book_of(month)
    if not book.sections:
        return []
    columns = [Column(_key(each), f"{each.credit_type}, {each.currency}") for each in book.sections]
    files = [("Journal as CSV", Link("billing_journal", {"month": f"{month:%Y-%m}"}))] if book.is_closed else []
    lines = [figure for key, title in TITLES.items() for figure in _figures(month, book, key, title)]
    return [
        Section(DEFERRED, "Sold credits in money", columns, lines, files=files),
        Section(EXPIRY, "Deferred revenue at the end, by expiry", columns, _by_expiry(month, book), first="Expires"),
    ]


def _key(each: Sold) -> str:
    return f"{each.credit_type}/{each.currency}"


def _minor(each: Sold, key: str) -> int:
    """Return the amount of a figure in a column, in minor units."""
    if key in LINES:
        return each.lines[key]
    revenue = -sum(each.lines[name] + each.late.get(name, 0) for name in EARNED)
    return {OPENING: each.opening_minor, CLOSING: each.closing_minor, REVENUE: revenue}[key]


def _figures(month: date, book: Book, key: str, title: str) -> list[Figure]:
    """Return a figure, and if there is any that of its late entries."""

    def figure(key: str, title: str, minor: Callable[[Sold], int], *, has_rows: bool = True) -> Figure:
        amounts = []
        for each in book.sections:
            link = month_link(month_before(month)) if key == OPENING else rows_link(month, DEFERRED, key, _key(each))
            amounts.append(money(minor(each), each.currency, link if has_rows else None))
        return Figure(key, title, amounts, DEFINITIONS.get(key, ""), is_sum=key not in LINES and has_rows)

    found = [figure(key, title, partial(_minor, key=key))]
    if any(each.late.get(key) for each in book.sections):
        words = f"{title}, late: of closed months"
        found.append(figure(f"late_{key}", words, lambda each: each.late.get(key, 0), has_rows=False))
    return found


def _by_expiry(month: date, book: Book) -> list[Figure]:
    links = [rows_link(month, DEFERRED, CLOSING, _key(each)) for each in book.sections]
    left = [{part.expires: part.closing_minor for part in each.by_expiry} for each in book.sections]
    months = sorted({expires for of in left for expires in of}, key=lambda expires: (expires == "never", expires))
    found = []
    for expires in months:
        parts = zip(book.sections, left, links, strict=True)
        found.append(Figure(expires, expires, [money(of.get(expires, 0), each.currency, link) for each, of, link in parts]))
    whole = [money(each.closing_minor, each.currency, link) for each, link in zip(book.sections, links, strict=True)]
    return [*found, Figure(CLOSING, "At the end", whole, is_sum=True)]


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the days of a line and of the revenue; of the closing, its months of expiry."""
    if section != DEFERRED or figure not in (*LINES, CLOSING, REVENUE):
        return None
    each = next((one for one in book_of(month).sections if _key(one) == column), None)
    if each is None:
        return None
    title, unit = f"{TITLES[figure]}: {each.credit_type}, {each.currency}", currency_unit(each.currency)
    if figure == CLOSING:
        left = [([part.expires], part.closing_minor) for part in each.by_expiry if part.closing_minor]
        return Rows(title, ["Expires", each.currency], left, unit)
    lines = EARNED if figure == REVENUE else (figure,)
    sign = -1 if figure == REVENUE else 1
    days: Counter[date] = Counter()
    for line in lines:
        for day, minor in changes_by_day(month, each.credit_type, each.currency, cost_lines_of(line)).items():
            days[day] += sign * minor
    cells: list[tuple[list[Any], int]] = [
        ([entries_on(day, each.credit_type)], minor) for day, minor in sorted(days.items()) if minor
    ]
    if figure == REVENUE and (late := -sum(each.late.get(name, 0) for name in EARNED)):
        cells.append((["late, of closed months"], late))
    return Rows(title, ["Day (UTC)", each.currency], cells, unit) if cells else None
