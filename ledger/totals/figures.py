"""A month as figures for finance: each is declared once, for page, file, PDF and API, with the rows that it sums up.

Applications register sections; the ledger's own is in `credit_figures`, and `month_figures` reads a month. All amounts are whole
numbers of the smallest unit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple

from ledger.database.copies import csv_text
from ledger.rules.credit_units import CreditUnit, currency_unit

PERCENT: Final = "percent"
LATE: Final = "Recorded after the month was closed"
LAST_KEY: Final = "~"
"""Behind all days and months."""


class FigureAmount(NamedTuple):
    """One number: as programs read it, its unit, and as people read it."""

    value: int | Decimal
    unit: str
    text: str

    @property
    def is_sum(self) -> bool:
        """Whether it has rows; a rate is the sum of nothing."""
        return self.unit != PERCENT


class FigureLink(NamedTuple):
    """An operators' page: its name without "admin:", and its query; `key` is of a row's page."""

    page: str
    query: Mapping[str, str] = {}
    key: str = ""


class FigureColumn(NamedTuple):
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
    amounts: Sequence[FigureAmount | None]
    definition: str = ""
    is_sum: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether people see it: a row of nothing but zeros says nothing."""
        return self.is_sum or any(amount is not None and amount.value for amount in self.amounts)


@dataclass(frozen=True, slots=True)
class FigureSection:
    """Figures that belong together, their columns side by side.

    Args:
        note: a sentence below the title.
        first: the heading of the titles.
        files: what else can be saved: title and page.
    """

    key: str
    title: str
    columns: Sequence[FigureColumn]
    figures: Sequence[Figure]
    note: str = ""
    first: str = ""
    files: Sequence[tuple[str, FigureLink]] = ()


class Reference(NamedTuple):
    """A cell of `Rows` that names something with a page; `id` is what the API knows it by, if not by the text."""

    text: str
    link: FigureLink
    id: str = ""


class FigureQuantity(NamedTuple):
    """A cell of `Rows` with an amount beside the one that is summed up."""

    amount: int
    unit: CreditUnit


RowKey = tuple[str | int, ...]


class FigureRow(NamedTuple):
    """One row of a figure.

    Args:
        key: unique among the rows of the figure; the rows are in its order.
        cells: texts, days, whole numbers, References, Quantities.
    """

    key: RowKey
    cells: Sequence[Any]
    amount: int


class Rows:
    """The rows of which a figure is the sum, in the order of their keys.

    Args:
        title: what they are.
        headings: of the cells; the last is that of `amount`.
        unit: of the amounts.
        total: the figure as it was stored, if later entries may be among the rows: a last row takes them off.
        rest: what that row says.
    """

    def __init__(
        self,
        title: str,
        headings: Sequence[str],
        rows: Iterable[FigureRow],
        unit: CreditUnit,
        *,
        total: int | None = None,
        rest: str = LATE,
    ) -> None:
        self.title, self.headings, self.unit = title, headings, unit
        self.rows = sorted(rows, key=lambda row: row.key)
        if total is not None and (late := total - self.total):
            key = tuple(LAST_KEY if isinstance(part, str) else 1 for part in self.rows[-1].key) if self.rows else (LAST_KEY,)
            self.rows.append(FigureRow(key, [rest, *[""] * (len(headings) - 2)], late))

    @property
    def total(self) -> int:
        return sum(row.amount for row in self.rows)

    def page(self, limit: int, *, after: RowKey | None = None, before: RowKey | None = None) -> Sequence[FigureRow]:
        """Return the rows next to a key, which need not exist any more; without a key, the first."""
        if before is not None:
            end = bisect_left(self.rows, before, key=lambda row: row.key)
            return self.rows[max(0, end - limit) : end]
        start = 0 if after is None else bisect_right(self.rows, after, key=lambda row: row.key)
        return self.rows[start : start + limit]


@dataclass(frozen=True, slots=True)
class SectionSource:
    """Where sections come from.

    Args:
        permission: of operators who may see them.
        sections: those of a month, by its first day.
        rows: those of a figure, by month and the keys of section, figure and column; None: it has none.
    """

    permission: str
    sections: Callable[[date], Sequence[FigureSection]]
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
    sections: Sequence[FigureSection]

    @property
    def state(self) -> str:
        return "final" if self.is_final else "preliminary"

    def as_csv(self) -> str:
        """Return the month as a table with a row for each amount; the same bytes each time once it is final."""
        heading = ["month", "state", "section", "figure", "title", "column", "amount", "unit"]
        rows = (
            [f"{self.month:%Y-%m}", self.state, section.key, figure.key, figure.title, column.key, amount.value, amount.unit]
            for section in self.sections
            for figure, column, amount in amounts_of(section)
        )
        return csv_text(chain([heading], rows))


class Placed(NamedTuple):
    """An amount with its figure and column."""

    figure: Figure
    column: FigureColumn
    amount: FigureAmount


def amounts_of(section: FigureSection) -> list[Placed]:
    """Return the amounts of a section, figure by figure."""
    return [
        Placed(figure, column, amount)
        for figure in section.figures
        for column, amount in zip(section.columns, figure.amounts, strict=True)
        if amount is not None
    ]


_first: list[SectionSource] = []
_sources: list[SectionSource] = []


def register_sections(source: SectionSource, *, is_first: bool = False) -> None:
    """Show these sections in each month, before or behind the ledger's own."""
    sources = _first if is_first else _sources
    if source not in sources:
        sources.append(source)


def sources_around(own: SectionSource) -> list[SectionSource]:
    """Return the registered sources, with the ledger's own between those that come first and the others."""
    return [*_first, own, *_sources]


def rows_link(month: date, section: str, figure: str, column: str) -> FigureLink:
    """Return the page of the rows of a figure."""
    return FigureLink("ledger_month_rows", {"month": f"{month:%Y-%m}", "section": section, "figure": figure, "column": column})


def month_link(month: date) -> FigureLink:
    """Return the page of a month."""
    return FigureLink("ledger_month_end", {"month": f"{month:%Y-%m}"})


# Amounts ---------------------------------------------------------------------------------------------


def money(minor: int, currency: str) -> FigureAmount:
    """Return an amount of money, in minor units."""
    return FigureAmount(minor, f"{currency} minor units", currency_unit(currency).number(minor))


def credits_in(unit: CreditUnit, amount: int) -> FigureAmount:
    """Return an amount of credits, in the smallest unit of their type."""
    return FigureAmount(amount, f"smallest unit of {unit.credit_type}", unit.number(amount))


def count(number: int, unit: str) -> FigureAmount:
    """Return a number of things, such as customers."""
    return FigureAmount(number, unit, CreditUnit("", unit, unit).number(number))


def percent(value: Decimal | None) -> FigureAmount | None:
    """Return a rate in percent with one decimal; None stays None."""
    return None if value is None else FigureAmount(value, PERCENT, f"{value:,.1f} %".replace("-", "−"))
