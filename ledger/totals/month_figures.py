"""Reads the figures of a month, and the rows of one of them."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Final

from ledger.errors import Invalid
from ledger.months import BEGINNING, month_after, starts
from ledger.rules.credit_units import plain_unit
from ledger.totals.closing import is_closed_up_to
from ledger.totals.counting import counted_until
from ledger.totals.credit_figures import SOURCE
from ledger.totals.figures import Month, Rows, amounts_of, sources_around

LAST_ZONE: Final = timedelta(hours=12)
"""A month ends this much later than in UTC in the last zone, in which a document may still be issued."""
LAST_YEAR: Final = 2199


def month_figures(month: date, *, may: Callable[[str], bool] = lambda permission: True) -> Month:
    """Return a month with its sections.

    Args:
        month: its first day.
        may: whether the reader has a permission; other sections are left out.

    Raises:
        Invalid: the month lies outside the years 2000 to 2199, or has not begun at the instant up to which entries are counted.
    """
    as_of = _counted_into(month)
    is_final = as_of >= starts(month_after(month)) + LAST_ZONE and is_closed_up_to(month)
    sections = [section for source in sources_around(SOURCE) if may(source.permission) for section in source.sections(month)]
    return Month(month, is_final, as_of, sections)


def rows_of(
    month: date, section: str, figure: str, column: str, *, may: Callable[[str], bool] = lambda permission: True
) -> Rows | None:
    """Return the rows of a figure; None if there is no such figure, it is a rate, or the reader may not see it.

    Raises:
        Invalid: as `month_figures`.
    """
    _counted_into(month)
    seen = [source for source in sources_around(SOURCE) if may(source.permission)]
    for source in seen:
        if (found := source.rows(month, section, figure, column)) is not None:
            return found
    shown = [each for source in seen for each in source.sections(month) if each.key == section]
    for placed in (placed for each in shown for placed in amounts_of(each)):
        if (placed.figure.key, placed.column.key) == (figure, column) and placed.amount.is_sum and not placed.amount.value:
            return Rows(placed.figure.title, ["Amount"], [], plain_unit(placed.amount.unit))
    return None


def _counted_into(month: date) -> datetime:
    """Return the instant up to which entries are counted, or raise Invalid if the month has not begun by then."""
    as_of = counted_until()
    if not BEGINNING.date() <= month < date(LAST_YEAR + 1, 1, 1):
        raise Invalid(pointer="/month", rule="out-of-range", detail=f"must lie in the years 2000 to {LAST_YEAR}")
    if starts(month) > as_of:
        raise Invalid(pointer="/month", rule="in-the-future", detail=_how_far(as_of))
    return as_of


def _how_far(as_of: datetime) -> str:
    if as_of == BEGINNING:
        return "no entries have been counted yet; manage.py update_totals counts them"
    return f"entries are counted up to {as_of:%Y-%m-%d %H:%M:%S} UTC"
