"""The cells of the operators' pages: links, numbers, times and ids, in the same form on every page."""

from datetime import UTC, date, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger.typesetting.languages import ENGLISH, NO_BREAK

EXACT_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
"""Return a time in UTC that can be copied into a command."""


def row_url(model: type[Model], pk: Any) -> str:
    """Return the address of the row's page."""
    opts = model._meta
    # Quoted, because a key may hold slashes.
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[quote(str(pk))])


def row_link(model: type[Model], pk: Any, text: Any) -> SafeString:
    """Return a link to the row's page."""
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', row_url(model, pk), text)


def link(url: str, text: Any) -> SafeString:
    """Return a link inside the pages."""
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, text)


def number_text(value: int) -> str:
    """Return a whole number with grouped thousands and a real minus."""
    return f"{value:,}".replace("-", "−")


def number(value: int | None) -> SafeString | str:
    """Return a cell with a whole number that does not break; empty for None."""
    return "" if value is None else format_html('<span class="figure">{}</span>', number_text(value))


def digits(written: str) -> SafeString:
    """Return a cell with a number that is text already and does not break."""
    return format_html('<span class="figure">{}</span>', written)


def signed(value: int, words: str = "") -> SafeString:
    """Return a whole number with its sign, plus in green; `words` is its text if it has decimals or a unit."""
    words = words or (f"+{number_text(value)}" if value > 0 else number_text(value))
    kind = "text-green-700 dark:text-green-400" if value > 0 else "text-font-important-light dark:text-font-important-dark"
    return format_html('<span class="figure {}">{}</span>', kind, words)


def timestamp(value: datetime | None, zone: tzinfo | None = None) -> SafeString | str:
    """Return a time to the second, as `instant_words` has it; the tooltip has it in UTC, to the microsecond."""
    if value is None:
        return ""
    utc = value.astimezone(UTC)
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{} UTC">{}</time>',
        utc.isoformat(), f"{utc:{EXACT_FORMAT}}", _write_time(value, zone, "%H:%M:%S"),
    )  # fmt: skip


def contract_day(value: datetime | None, zone_name: str) -> SafeString | str:
    """Return the day of a time in a contract's zone, such as 1 Sep 2026; the tooltip has the time."""
    if value is None:
        return ""
    local, utc = value.astimezone(ZoneInfo(zone_name)), value.astimezone(UTC)
    words = f"{instant_words(value, ZoneInfo(zone_name))}; {utc:{EXACT_FORMAT}} UTC"
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{}">{}</time>', utc.isoformat(), words, ENGLISH.day(local.date())
    )


def contract_time(value: datetime | None, zone_name: str) -> SafeString | str:
    """Return a time of a contract, in the contract's zone."""
    return timestamp(value, ZoneInfo(zone_name))


def instant_words(value: datetime, zone: tzinfo | None = None) -> str:
    """Return a time for a sentence, to the minute, with the zone's name: "1 Sep 2026, 00:00 CEST".

    Args:
        zone: the zone of the text; None: the operator's.
    """
    return _write_time(value, zone, "%H:%M")


def day_words(value: date | None) -> str:
    """Return a day of the calendar, as in `instant_words`; empty for None."""
    return "" if value is None else ENGLISH.day(value)


def _write_time(value: datetime, zone: tzinfo | None, clock: str) -> str:
    local = timezone.localtime(value, zone)
    name = f"{local:%Z}"
    # Some zones have no name, only an offset to UTC.
    return f"{ENGLISH.day(local.date())}, {local:{clock}}{NO_BREAK}{f'UTC{name}' if name[:1] in '+-' else name}"


def mono(value: Any) -> SafeString | str:
    """Return an id, key or digest."""
    return "" if value in (None, "") else format_html('<code class="break-all text-xs">{}</code>', value)
