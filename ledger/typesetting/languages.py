"""The notation of numbers and days in the languages of documents. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from typing import Final

MINUS: Final = "−"
DASH: Final = "–"
NO_BREAK: Final = "\u00a0"


@dataclass(frozen=True, slots=True)
class Language:
    """A language of documents.

    Args:
        code: BCP 47, for the document's own language tag.
        month_names: from January on.
        months: their names in a day; empty if days are written in digits.
    """

    code: str
    decimal: str
    group: str
    month_names: tuple[str, ...]
    months: tuple[str, ...] = ()

    def number(self, value: Decimal | int | str, *, decimals: int | None = None) -> str:
        """Return a number with separators and a real minus.

        Args:
            decimals: how many to print; None: as many as the number has.
        """
        exact = Decimal(value)
        text = f"{exact:,f}" if decimals is None else f"{exact:,.{decimals}f}"
        if decimals is None and "." in text:
            text = text.rstrip("0").rstrip(".")
        swapped = text.replace(",", "\0").replace(".", self.decimal).replace("\0", self.group)
        return swapped.replace("-", MINUS)

    def day(self, day: date) -> str:
        """Return a day of the calendar."""
        if not self.months:
            return f"{day.day:02}.{day.month:02}.{day.year}"
        return f"{day.day}{NO_BREAK}{self.months[day.month - 1]}{NO_BREAK}{day.year}"

    def month(self, day: date) -> str:
        """Return the month of a day, with its year."""
        return f"{self.month_names[day.month - 1]}{NO_BREAK}{day.year}"

    def date_and_time(self, at: datetime, zone: tzinfo) -> str:
        """Return a day and its time of day in a zone, to the minute."""
        local = at.astimezone(zone)
        return f"{self.day(local.date())}, {local:%H:%M}"

    def period(self, start: datetime, end: datetime, zone: tzinfo) -> str:
        """Return `[start, end)`: its first and last day if both are midnights in the zone, otherwise both with their times."""
        first, after = start.astimezone(zone), end.astimezone(zone)
        if first.time() == after.time() == time() and first.date() < after.date():
            last = date.fromordinal(after.date().toordinal() - 1)
            return self.day(first.date()) if last == first.date() else f"{self.day(first.date())} {DASH} {self.day(last)}"
        return f"{self.date_and_time(start, zone)} {DASH} {self.date_and_time(end, zone)}"


_ENGLISH_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_GERMAN_MONTHS: Final = (
    "Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember",
)  # fmt: skip
ENGLISH: Final = Language("en", ".", ",", _ENGLISH_MONTHS, tuple(name[:3] for name in _ENGLISH_MONTHS))
GERMAN: Final = Language("de", ",", ".", _GERMAN_MONTHS)
LANGUAGES: Final[Sequence[Language]] = (ENGLISH, GERMAN)


def language_of(tag: str) -> Language:
    """Return the language of documents for a reader of this one (BCP 47); English if there are no texts in it."""
    primary = tag.replace("_", "-").split("-")[0].lower()
    return next((language for language in LANGUAGES if language.code == primary), ENGLISH)
