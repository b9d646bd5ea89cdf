"""The picture of a balance over time: an SVG drawn here, without scripts and without a request to anywhere."""

import itertools
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH = 960
HEIGHT = 260
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 16, 44

TIME_STEPS = [
    (timedelta(seconds=1), "%H:%M:%S"),
    (timedelta(seconds=10), "%H:%M:%S"),
    (timedelta(minutes=1), "%H:%M"),
    (timedelta(minutes=10), "%H:%M"),
    (timedelta(hours=1), "%H:%M"),
    (timedelta(hours=6), "%d %b %H:%M"),
    (timedelta(days=1), "%d %b"),
    (timedelta(days=7), "%d %b"),
    (timedelta(days=14), "%d %b"),
    (timedelta(days=30), "%d %b %Y"),
    (timedelta(days=91), "%b %Y"),
    (timedelta(days=365), "%Y"),
]
MOST_TIME_LABELS = 8


class Point(NamedTuple):
    """The balance from an instant on."""

    at: datetime
    balance: int


class Scale(NamedTuple):
    """From a value in [low, high] to a place in [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)


def balance_line(points: Sequence[Point], *, now: datetime, title: str, note: str = "") -> SafeString:
    """Draw the balance as steps: it stays as it is from each entry to the next, and from the last one until `now`.

    Args:
        points: by rising time, one or more.
        title: what a screen reader says first; the numbers follow.
        note: shown below, such as how the points were chosen.

    Returns:
        An `<svg>` element, safe to put into a page; nothing when there are no points.
    """
    if not points:
        return SafeString("")
    first, last = points[0].at, max(now, points[-1].at)
    seconds = max((last - first).total_seconds(), 1.0)
    values = [0, *(point.balance for point in points)]
    rows = ticks(min(values), max(values))
    across = Scale(0, seconds, LEFT, WIDTH - RIGHT)
    up = Scale(rows[0], rows[-1], HEIGHT - BOTTOM, TOP)
    description = (
        f"From {first:%Y-%m-%d} to {last:%Y-%m-%d}: the balance began at {points[0].balance}, is {points[-1].balance} now, "
        f"was at least {min(point.balance for point in points)} and at most {max(point.balance for point in points)}."
    )
    return format_html(
        '<svg class="balance-line" viewBox="0 0 {} {}" role="img" aria-labelledby="balance-title balance-desc">'
        '<title id="balance-title">{}</title><desc id="balance-desc">{}</desc>'
        "{}{}"
        '<path class="area" d="{}"/><path class="line" d="{}"/>'
        '<circle class="end" cx="{}" cy="{}" r="3.5"/>'
        '<text class="axis" x="{}" y="{}">balance</text><text class="axis note" x="{}" y="{}">{}</text>'
        "</svg>",
        WIDTH, HEIGHT, title, description,
        _rows(rows, up), _columns(first, last, across),
        _area(points, seconds, across, up), _steps(points, seconds, across, up),
        across(seconds), up(points[-1].balance),
        LEFT, TOP - 5, WIDTH - RIGHT, HEIGHT - 4, f"time (UTC){'; ' if note else ''}{note}",
    )  # fmt: skip


def ticks(low: int, high: int) -> list[int]:
    """Round values from `low` or below to `high` or above, about five, evenly apart."""
    span = max(high - low, 1)
    magnitude = 10 ** int(math.log10(max(span // 4, 1)))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude * 4 >= span)
    first = low // step * step
    count = max(-(-(high - first) // step), 1)
    return [first + step * place for place in range(count + 1)]


def instants(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """Round instants in [first, last], at most MOST_TIME_LABELS, with their labels in UTC."""
    span = last - first
    step, label = next(((step, label) for step, label in TIME_STEPS if step * MOST_TIME_LABELS >= span), (None, ""))
    if step is None:
        years = -(-(last.year - first.year + 1) // MOST_TIME_LABELS)
        step, label = timedelta(days=365 * years), "%Y"
    start = datetime(first.year, 1, 1, tzinfo=UTC)
    passed = -(-(first - start) // step)
    every = (start + step * place for place in itertools.count(passed))
    return [(at, f"{at.astimezone(UTC):{label}}") for at in itertools.takewhile(lambda at: at <= last, every)]


def _steps(points: Sequence[Point], seconds: float, across: Scale, up: Scale) -> str:
    first = points[0].at
    moves = [f"M{across(0)} {up(points[0].balance)}"]
    moves += [f"H{across((point.at - first).total_seconds())}V{up(point.balance)}" for point in points[1:]]
    return "".join([*moves, f"H{across(seconds)}"])


def _area(points: Sequence[Point], seconds: float, across: Scale, up: Scale) -> str:
    return f"{_steps(points, seconds, across, up)}V{up(0)}H{across(0)}Z"


def _rows(values: Sequence[int], up: Scale) -> SafeString:
    return format_html_join(
        "",
        '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="axis value" x="{}" y="{}">{}</text>',
        (
            (
                "zero" if value == 0 else "grid",
                LEFT, WIDTH - RIGHT, up(value), up(value),
                LEFT - 8, up(value) + 4, f"{value:,}".replace(",", "\u202f"),
            )
            for value in values
        ),
    )  # fmt: skip


def _columns(first: datetime, last: datetime, across: Scale) -> SafeString:
    return format_html_join(
        "",
        '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text class="axis time" x="{0}" y="{3}">{4}</text>',
        (
            (across((at - first).total_seconds()), TOP, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 16, label)
            for at, label in instants(first, last)
        ),
    )
