"""Exact money and time: rounding, splitting, the clock on the wall, boundaries of periods, and stretches of time."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

Time = tuple[datetime, datetime]
"""A stretch of time `[start, end)`."""

MONTHS = {"month": 1, "quarter": 3, "half_year": 6, "year": 12}
DAYS = {"day": 1, "week": 7}
DECIMALS = {"EUR": 2, "USD": 2, "JPY": 0, "BHD": 3}
ONE_DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)
FOREVER = datetime.max.replace(tzinfo=UTC)


# Money -----------------------------------------------------------------------------------------------


def half_up(exact: Fraction) -> int:
    """The nearest whole number; a half away from zero."""
    whole, rest = divmod(abs(exact), 1)
    nearest = int(whole) + (rest >= Fraction(1, 2))
    return nearest if exact >= 0 else -nearest


def to_minor(exact: Fraction, currency: str) -> int:
    """Major units, rounded once to minor units."""
    return half_up(exact * 10 ** DECIMALS[currency])


def number(text: Any) -> Fraction:
    """A number of a plan; zero where it has none."""
    return Fraction(0) if text is None else Fraction(str(text))


def split(amount: int, weights: list[int]) -> list[int]:
    """The amount by weight: rounded down, then a cent at a time to the part furthest below its share, the first of equals."""
    shares = [Fraction(amount * weight, sum(weights)) for weight in weights]
    parts = [int(share) for share in shares]
    furthest_below = sorted(range(len(weights)), key=lambda i: parts[i] - shares[i])
    for i in furthest_below[: amount - sum(parts)]:
        parts[i] += 1
    return parts


# Time ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=100_000)
def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a time on the wall: the first of two, and forward by the gap where there is none."""
    offsets = {zone.utcoffset((local + days).replace(tzinfo=zone)) for days in (-ONE_DAY, ONE_DAY)}
    meant = sorted((local - (offset or timedelta())).replace(tzinfo=UTC) for offset in offsets)
    shown = [instant for instant in meant if instant.astimezone(zone).replace(tzinfo=None) == local]
    if shown:
        return shown[0]
    before = zone.utcoffset((local - ONE_DAY).replace(tzinfo=zone)) or timedelta()
    return (local - before).replace(tzinfo=UTC)


@lru_cache(maxsize=100_000)
def boundary(anchor: datetime, zone: ZoneInfo, unit: str, count: int, n: int) -> datetime:
    """Boundary n, counted from the anchor month by month, or in days."""
    if unit in DAYS:
        return instant_of(anchor + n * count * DAYS[unit] * ONE_DAY, zone)
    step = 1 if n >= 0 else -1
    year, month, day = anchor.year, anchor.month, anchor.day
    for _ in range(abs(n) * count * MONTHS[unit]):
        month += step
        if month in (0, 13):
            year, month = year + step, 12 if month == 0 else 1
    while True:
        try:
            return instant_of(anchor.replace(year=year, month=month, day=day), zone)
        except ValueError:
            day -= 1


@lru_cache(maxsize=200_000)
def local_day(instant: datetime, zone: ZoneInfo) -> date:
    """The calendar day in the billing zone."""
    return instant.astimezone(zone).date()


def cut_at(stretches: list[Time], instants: Iterable[datetime]) -> list[Time]:
    """The stretches in pieces, with an edge at each instant that lies inside one."""
    for instant in sorted(set(instants)):
        stretches = [
            piece
            for start, end in stretches
            for piece in ([(start, instant), (instant, end)] if start < instant < end else [(start, end)])
        ]
    return stretches


def without(wanted: Time, taken: Iterable[Time]) -> list[Time]:
    """What is left of a stretch without those that are taken."""
    left = [wanted]
    for taken_start, taken_end in taken:
        pieces = [piece for start, end in left for piece in ((start, min(end, taken_start)), (max(start, taken_end), end))]
        left = [(start, end) for start, end in pieces if start < end]
    return left
