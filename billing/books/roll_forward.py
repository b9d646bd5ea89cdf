"""A month of deferred revenue, from opening to closing, by credit type and currency."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Final

from ledger.totals.costs import CLOSING, OPENING, CostRow, MonthCosts, costs_at, month_costs

LINES: Final = {
    "sold": "Sold",
    "recognised": "Recognised revenue",
    "breakage": "Breakage",
    "revoked": "Revoked",
    "transferred": "Transferred or moved to other terms",
}
"""The lines between opening and closing, in order, with their words."""
_LINE_OF: Final = {
    "sold": "sold",
    "recognised": "recognised",
    "refunded": "recognised",
    "breakage": "breakage",
    "revoked": "revoked",
    "transferred_in": "transferred",
    "transferred_out": "transferred",
    "reissued": "transferred",
}
"""By a line of the ledger's costs: the line of the books. What refunds give back lowers the revenue."""


def cost_lines_of(line: str) -> list[str]:
    """Return the lines of the ledger's costs that a line of the books sums up."""
    return [name for name, of in _LINE_OF.items() if of == line]


@dataclass(frozen=True, slots=True)
class Expiry:
    """The deferred revenue of credits that expire in a month, "2026-10"; "never" for those that do not."""

    expires: str
    opening_minor: int
    closing_minor: int


@dataclass(frozen=True, slots=True)
class RollForwardSection:
    """A credit type in a currency. All amounts are in minor units; those of lines are changes of deferred revenue.

    Args:
        lines: by LINES. late: the same, of entries that appeared after the month of their time was closed.
    """

    credit_type: str
    currency: str
    opening_minor: int
    lines: dict[str, int]
    late: dict[str, int]
    closing_minor: int
    by_expiry: tuple[Expiry, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """A month.

    Args:
        as_of: the instant up to which entries are counted; None for a closed month, whose book never changes.
    """

    month: date
    is_closed: bool
    as_of: datetime | None
    sections: tuple[RollForwardSection, ...]

    def facts(self) -> dict[str, Any]:
        """Return the book as plain values."""
        return {
            "month": f"{self.month:%Y-%m}",
            "is_closed": self.is_closed,
            "as_of": None if self.as_of is None else self.as_of.isoformat().replace("+00:00", "Z"),
            "sections": [
                asdict(section) | {"by_expiry": [asdict(each) for each in section.by_expiry]} for section in self.sections
            ],
        }

    def as_json(self) -> str:
        """Return the book as JSON: the same bytes each time once the month is closed."""
        return json.dumps(self.facts(), indent=2) + "\n"

    def as_csv(self) -> str:
        """Return the book as a table of amounts in minor units: the same bytes each time once the month is closed."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(["month", "state", "credit_type", "currency", "line", "expires", "amount_minor"])
        state = "closed" if self.is_closed else "open"
        for section in self.sections:
            for line, expires, minor in rows_of(section):
                writer.writerow([f"{self.month:%Y-%m}", state, section.credit_type, section.currency, line, expires, minor])
        return out.getvalue()


def rows_of(section: RollForwardSection) -> Iterator[tuple[str, str, int]]:
    """Yield the lines of a section in the order of the books: name, month of expiry or an empty text, minor units."""
    yield OPENING, "", section.opening_minor
    for name, minor in section.lines.items():
        yield name, "", minor
    for name, minor in section.late.items():
        yield f"late_{name}", "", minor
    yield CLOSING, "", section.closing_minor
    for each in section.by_expiry:
        yield "closing_by_expiry", each.expires, each.closing_minor


def book_of(month: date) -> Book:
    """Return the book of a month.

    Raises:
        Invalid: the month lies before 2000, or has not begun at the instant up to which entries are counted.
    """
    return _book(month_costs(month))


@dataclass(frozen=True, slots=True)
class Deferred:
    """The deferred revenue of a credit type in a currency at an instant, by month of expiry."""

    credit_type: str
    currency: str
    expires: str
    deferred_minor: int


def deferred_at(at: datetime) -> list[Deferred]:
    """Return the deferred revenue at an instant, by what was recorded before it."""
    costs = sorted(costs_at(at).items())
    return [Deferred(key.credit_type, key.currency, key.expires or "never", minor) for key, minor in costs if minor]


def _book(costs: MonthCosts) -> Book:
    sections: dict[tuple[str, str], list[CostRow]] = {}
    for row in costs.rows:
        sections.setdefault((row.key.credit_type, row.key.currency), []).append(row)
    parts = tuple(_section(*key, rows) for key, rows in sorted(sections.items()))
    return Book(costs.month, costs.is_closed, costs.as_of, parts)


def _section(credit_type: str, currency: str, rows: list[CostRow]) -> RollForwardSection:
    lines, late = dict.fromkeys(LINES, 0), dict.fromkeys(LINES, 0)
    ends: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.line in (OPENING, CLOSING):
            ends.setdefault(row.key.expires, {OPENING: 0, CLOSING: 0})[row.line] += row.minor
        else:
            (late if row.is_late else lines)[_LINE_OF[row.line]] += row.minor
    # The months in their order, credits that never expire behind them.
    by_expiry = [Expiry(expires or "never", end[OPENING], end[CLOSING]) for expires, end in sorted(ends.items(), key=_in_order)]
    return RollForwardSection(
        credit_type,
        currency,
        sum(each.opening_minor for each in by_expiry),
        lines,
        {name: minor for name, minor in late.items() if minor},
        sum(each.closing_minor for each in by_expiry),
        tuple(by_expiry),
    )


def _in_order(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0] == "", item[0]
