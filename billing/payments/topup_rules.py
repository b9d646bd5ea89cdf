"""Whether an account is topped up now, and with how many packs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

PERIODS: Final = ("day", "week", "month")


@dataclass(frozen=True, slots=True)
class TopUpTerms:
    """When an account is topped up, and how far; credits in the smallest unit, money in minor units."""

    threshold: int
    packs: int | None
    up_to: int | None
    cap_minor: int | None
    cap_period: str
    cooldown_seconds: int
    declines: int


@dataclass(frozen=True, slots=True)
class TopUpAttempt:
    """A payment of the top-up: when it began, what was asked for, and how it stands."""

    at: datetime
    amount_minor: int
    is_open: bool
    is_failed: bool


def packs_to_buy(
    terms: TopUpTerms, *, available: int, credits_of_pack: int, price_minor: int, spent_minor: int, most: int
) -> int:
    """Return how many packs are bought; 0 if the account has enough, or the cap leaves no room for one.

    Args:
        available: what can be spent now.
        credits_of_pack: with the bonus.
        spent_minor: what top-ups have asked for in the period of the cap.
        most: how many packs one payment may have.
    """
    if available >= terms.threshold:
        return 0
    wanted = terms.packs or max(1, -((available - (terms.up_to or 0)) // credits_of_pack))
    room = most if terms.cap_minor is None else max(0, terms.cap_minor - spent_minor) // price_minor
    return min(wanted, room, most)


def is_paused(terms: TopUpTerms, attempts: Sequence[TopUpAttempt]) -> bool:
    """Return whether the last payments were all declined, as many as the terms say, so that a person has to look.

    Args:
        attempts: the newest first.
    """
    last = attempts[: terms.declines]
    return len(last) == terms.declines and all(each.is_failed for each in last)


def waits(terms: TopUpTerms, attempts: Sequence[TopUpAttempt], now: datetime) -> bool:
    """Return whether a payment is under way, or the last one began less than the cooldown ago."""
    if not attempts:
        return False
    return attempts[0].is_open or now < attempts[0].at + timedelta(seconds=terms.cooldown_seconds)


def period_begins(period: str, now: datetime) -> datetime:
    """Return when the period of the cap began: the day, the week from Monday or the month, in UTC."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day
