"""The filters of a list: values in its address, read and checked. An operator can correct a wrong value, see `WrongFilter`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import MAXYEAR, MINYEAR, date, datetime
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.contrib.filters.forms import SearchForm
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.rules.instants import from_us, to_us

Date = TypeVar("Date", bound=date)


class WrongFilter(Exception):
    """A value in the address is not what its filter takes; the message is for the operator."""


class ChoiceFilter(DropdownFilter):
    """One of a few fixed values. Compares `column` of a queryset; without one, the page reads the value itself."""

    column: str | None = None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value and value not in dict(self.lookup_choices):
            raise WrongFilter(f"“{value[:40]}” is not a valid {self.title}.")
        return queryset.filter(**{self.column: value}) if self.column and value else queryset


def choice(name: str, values: Sequence[str], *, title: str = "", of_column: str | None = None) -> type[ChoiceFilter]:
    """A filter by one of `values`."""
    pairs = [(value, value.replace("_", " ")) for value in values]

    class Filter(ChoiceFilter):
        parameter_name = name
        column = of_column

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return pairs

    Filter.title = title or name.replace("_", " ")
    return Filter


class ExactFilter(TextFilter):
    """An exact value; the page that reads it decides what it does."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset


def text(name: str, *, title: str = "", form: type[SearchForm] = SearchForm) -> type[ExactFilter]:
    """A filter by an exact value."""

    class Filter(ExactFilter):
        parameter_name = name
        form_class = form

    Filter.title = title or name.replace("_", " ")
    return Filter


class PickerForm(SearchForm):
    """A value that browsers offer a picker for."""

    input_type: str

    def __init__(self, name: str, label: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(name, label, *args, **kwargs)
        self.fields[name].widget = UnfoldAdminTextInputWidget(attrs={"type": self.input_type})


class InstantForm(PickerForm):
    """A time, in the operator's zone."""

    input_type = "datetime-local"


class DayForm(PickerForm):
    """A day of the calendar."""

    input_type = "date"


def instant(name: str, *, title: str) -> type[ExactFilter]:
    """A filter by a time, in the operator's zone."""
    return text(name, title=title, form=InstantForm)


def day(name: str, *, title: str) -> type[ExactFilter]:
    """A filter by a day of the calendar."""
    return text(name, title=title, form=DayForm)


def read_instant(values: Mapping[str, str], name: str) -> datetime | None:
    """Return the time of a filter, in the operator's zone if it names none; or raise WrongFilter."""
    found = _read_date(values, name, _parse_instant, "a time; write it as 2026-01-31T14:00")
    return found if found is None or found.tzinfo else found.replace(tzinfo=timezone.get_current_timezone())


def read_day(values: Mapping[str, str], name: str) -> date | None:
    """Return the day of a filter; None if it is not set; or raise WrongFilter."""
    return _read_date(values, name, parse_date, "a day; write it as 2026-01-31")


def _parse_instant(given: str) -> datetime | None:
    return parse_datetime(given if "T" in given or " " in given.strip() else f"{given}T00:00")


def _read_date(values: Mapping[str, str], name: str, parse: Callable[[str], Date | None], otherwise: str) -> Date | None:
    """Return the parsed value of a filter. The first and last year are refused: their days have no neighbours in every zone."""
    given = values.get(name)
    if not given:
        return None
    try:
        found = parse(given)
    except ValueError:
        found = None
    if found is None or not MINYEAR < found.year < MAXYEAR:
        raise WrongFilter(f"“{given[:40]}” is not {otherwise}.")
    return found


def instant_cursor(at: datetime) -> str:
    """Return a row's time as text for an address: exact to the microsecond."""
    return str(to_us(at))


def read_instant_cursor(text: str) -> datetime:
    """The inverse of `instant_cursor`; or raise WrongFilter."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 17):
        raise WrongFilter("The page link is not valid for this list.")
    return from_us(int(text))


def read_number(text: str) -> int:
    """Return a whole number from the address, or raise WrongFilter."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not (text.isascii() and 0 <= number < 2**63):
        raise WrongFilter(f"“{text[:40]}” is not a valid page link for this list.")
    return number
