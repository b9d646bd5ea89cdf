"""A month as figures for finance: each is declared once, for page, file, PDF and API, with the rows that it sums up.

Applications register sections; the ledger's own is in `credit_figures`. All amounts are whole numbers of the smallest unit.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ledger.errors import Invalid
from ledger.rules.texts.credit_units import CreditUnit, currency_unit
from ledger.totals.closing import is_closed_up_to
from ledger.totals.counting import counted_until
from ledger.totals.months import BEGINNING, month_after, starts

LAST_ZONE: Final = timedelta(hours=12)
"""A month ends this much later than in UTC in the last zone, in which a document may still be issued."""
LAST_YEAR: Final = 2199


class Amount(NamedTuple):
    """One number: as programs read it, its unit, and as people read it; `rows` opens what it is the sum of."""

    value: int | Decimal
    unit: str
    text: str
    rows: "Link | None" = None


class Link(NamedTuple):
    """An operators' page: its name without "admin:", and its query; `key` is of a row's page."""

    page: str
    query: Mapping[str, str] = {}
    key: str = ""


class Column(NamedTuple):
    """A column of a section: a currency, a credit type, or one of them with a part."""

    key: str
    title: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a section.

    Args:
        amounts: by column; None: the figure does not exist there.
        definition: what it is, where the title does not say it.
        is_sum: the sum of the rows above, or their beginning; shown also if it is 0.
    """

    key: str
    title: str
    amounts: Sequence[Amount | None]
    definition: str = ""
    is_sum: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether people see it: a row of nothing but zeros says nothing."""
        return self.is_sum or any(amount is not None and amount.value for amount in self.amounts)


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together, their columns side by side.

    Args:
        note: a sentence below the title.
        first: the heading of the titles.
        files: what else can be saved: title and page.
    """

    key: str
    title: str
    columns: Sequence[Column]
    figures: Sequence[Figure]
    note: str = ""
    first: str = ""
    files: Sequence[tuple[str, Link]] = ()


class Reference(NamedTuple):
    """A cell of `Rows` that names something with a page."""

    text: str
    link: Link


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of which a figure is the sum.

    Args:
        title: what they are.
        headings: of the cells; the last is that of `amount`.
        cells: of a row: texts, days, whole numbers, References.
        unit: of the amounts.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[tuple[Sequence[Any], int]]
    unit: CreditUnit

    @property
    def total(self) -> int:
        return sum(amount for _, amount in self.rows)


@dataclass(frozen=True, slots=True)
class SectionSource:
    """Where sections come from.

    Args:
        permission: of operators who may see them.
        sections: those of a month, by its first day.
        rows: those of a figure, by month and the keys of section, figure and column; None: it has none.
    """

    permission: str
    sections: Callable[[date], Sequence[Section]]
    rows: Callable[[date, str, str, str], Rows | None]


@dataclass(frozen=True, slots=True)
class Month:
    """All sections of a month.

    Args:
        is_final: nothing that counts in the month can appear any more, so it never changes.
        as_of: the instant up to which entries are counted.
    """

    month: date
    is_final: bool
    as_of: datetime
    sections: Sequence[Section]

    @property
    def state(self) -> str:
        return "final" if self.is_final else "preliminary"

    def as_csv(self) -> str:
        """Return the month as a table with a row for each amount; the same bytes each time once it is final."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(["month", "state", "section", "figure", "title", "column", "amount", "unit"])
        for section in self.sections:
            for figure, column, amount in amounts_of(section):
                row = [section.key, figure.key, figure.title, column.key, amount.value, amount.unit]
                writer.writerow([f"{self.month:%Y-%m}", self.state, *row])
        return out.getvalue()


class Placed(NamedTuple):
    """An amount with its figure and column."""

    figure: Figure
    column: Column
    amount: Amount


def amounts_of(section: Section) -> list[Placed]:
    """Return the amounts of a section, figure by figure."""
    return [
        Placed(figure, column, amount)
        for figure in section.figures
        for column, amount in zip(section.columns, figure.amounts, strict=True)
        if amount is not None
    ]


_sources: list[SectionSource] = []


def register_sections(source: SectionSource, *, is_first: bool = False) -> None:
    """Show these sections in each month, before or behind those that are registered already."""
    _sources.insert(0 if is_first else len(_sources), source)


def month_figures(month: date, *, may: Callable[[str], bool] = lambda permission: True) -> Month:
    """Return a month with its sections.

    Args:
        month: its first day.
        may: whether the reader has a permission; other sections are left out.

    Raises:
        Invalid: the month lies outside the years 2000 to 2199, or has not begun at the instant up to which entries are counted.
    """
    as_of = counted_until()
    if not BEGINNING.date() <= month < date(LAST_YEAR + 1, 1, 1):
        raise Invalid(pointer="/month", rule="out-of-range", detail=f"must lie in the years 2000 to {LAST_YEAR}")
    if starts(month) > as_of:
        raise Invalid(pointer="/month", rule="in-the-future", detail=_how_far(as_of))
    is_final = as_of >= starts(month_after(month)) + LAST_ZONE and is_closed_up_to(month)
    sections = [section for source in _sources if may(source.permission) for section in source.sections(month)]
    return Month(month, is_final, as_of, sections)


def rows_of(month: date, section: str, figure: str, column: str, *, may: Callable[[str], bool]) -> Rows | None:
    """Return the rows of a figure; None if it has none, or the reader may not see it."""
    for source in _sources:
        if may(source.permission) and (found := source.rows(month, section, figure, column)) is not None:
            return found
    return None


def rows_link(month: date, section: str, figure: str, column: str) -> Link:
    """Return the page of the rows of a figure."""
    return Link("ledger_month_rows", {"month": f"{month:%Y-%m}", "section": section, "figure": figure, "column": column})


def month_link(month: date) -> Link:
    """Return the page of a month."""
    return Link("ledger_month_end", {"month": f"{month:%Y-%m}"})


def _how_far(as_of: datetime) -> str:
    if as_of == BEGINNING:
        return "no entries have been counted yet; manage.py update_totals counts them"
    return f"entries are counted up to {as_of:%Y-%m-%d %H:%M:%S} UTC"


# Amounts ---------------------------------------------------------------------------------------------


def money(minor: int, currency: str, rows: Link | None = None) -> Amount:
    """Return an amount of money, in minor units."""
    return Amount(minor, f"{currency} minor units", currency_unit(currency).number(minor), rows)


def credits_in(unit: CreditUnit, amount: int, rows: Link | None = None) -> Amount:
    """Return an amount of credits, in the smallest unit of their type."""
    return Amount(amount, f"smallest unit of {unit.credit_type}", unit.number(amount), rows)


def count(number: int, unit: str, rows: Link | None = None) -> Amount:
    """Return a number of things, such as customers."""
    return Amount(number, unit, CreditUnit("", unit, unit).number(number), rows)


def percent(value: Decimal | None) -> Amount | None:
    """Return a rate in percent with one decimal; None stays None."""
    return None if value is None else Amount(value, "percent", f"{value:,.1f} %".replace("-", "−"))
