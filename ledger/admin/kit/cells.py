"""What stands in the cells of the operators' pages: links, numbers, times and ids, written in one way on every page."""

from collections.abc import Sequence
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
"""A time in UTC as one can copy it into a command."""


def row_url(model: type[Model], pk: Any) -> str:
    """Where the page of that row is."""
    opts = model._meta
    # Quoted, because a key may hold slashes.
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[quote(str(pk))])


def row_link(model: type[Model], pk: Any, text: Any) -> SafeString:
    """A link to the page of that row."""
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', row_url(model, pk), text)


def link(url: str, text: Any) -> SafeString:
    """A link inside the pages."""
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, text)


def number_text(value: int) -> str:
    """A whole number as people write it: with grouped thousands, and a real minus."""
    return f"{value:,}".replace("-", "−")


def number(value: int | None) -> SafeString | str:
    """A whole number in a cell, that does not break; nothing for none."""
    return "" if value is None else format_html('<span class="figure">{}</span>', number_text(value))


def digits(written: str) -> SafeString:
    """A number that has been written already, in a cell, that does not break."""
    return format_html('<span class="figure">{}</span>', written)


def signed(value: int, words: str = "") -> SafeString:
    """A whole number with its sign, plus in green; `words` is how it is written, where it has decimals or a unit."""
    words = words or (f"+{number_text(value)}" if value > 0 else number_text(value))
    kind = "text-green-700 dark:text-green-400" if value > 0 else "text-font-important-light dark:text-font-important-dark"
    return format_html('<span class="figure {}">{}</span>', kind, words)


def timestamp(value: datetime | None, zone: tzinfo | None = None) -> SafeString | str:
    """A time to the second, as `instant_words` has it; in UTC, to the microsecond, when pointed at."""
    if value is None:
        return ""
    utc = value.astimezone(UTC)
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{} UTC">{}</time>',
        utc.isoformat(), f"{utc:{EXACT_FORMAT}}", _written(value, zone, "%H:%M:%S"),
    )  # fmt: skip


def contract_time(value: datetime | None, zone_name: str) -> SafeString | str:
    """A time that a contract names, in the contract's zone."""
    return timestamp(value, ZoneInfo(zone_name))


def instant_words(value: datetime, zone: tzinfo | None = None) -> str:
    """A time inside a sentence, to the minute, with the zone's name: "1 Sep 2026, 00:00 CEST".

    Args:
        zone: in which it is written; None: the operator's.
    """
    return _written(value, zone, "%H:%M")


def day_words(value: date | None) -> str:
    """A day of the calendar, as in `instant_words`; nothing for none."""
    return "" if value is None else ENGLISH.day(value)


def _written(value: datetime, zone: tzinfo | None, clock: str) -> str:
    local = timezone.localtime(value, zone)
    name = f"{local:%Z}"
    # Some zones have no name, only what they are ahead of UTC.
    return f"{ENGLISH.day(local.date())}, {local:{clock}}{NO_BREAK}{f'UTC{name}' if name[:1] in '+-' else name}"


def mono(value: Any) -> SafeString | str:
    """An id, key or digest."""
    return "" if value in (None, "") else format_html('<code class="break-all text-xs">{}</code>', value)


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What unfold's table component takes."""
    return {"headers": list(headers), "rows": [list(row) for row in rows]}
