"""Budgets in words, for people."""

from collections.abc import Mapping
from typing import Any

WINDOWS = {"day": "a day", "week": "a week", "month": "a month"}


def window_words(window: str, hours: int | None, time_zone: str) -> str:
    """ "a day (Europe/Berlin)", "in 24 hours"."""
    if hours is not None:
        return f"in {hours} hours" if hours > 1 else "in an hour"
    return WINDOWS[window] if time_zone == "UTC" else f"{WINDOWS[window]} ({time_zone})"


def scope_words(by: str, label: str | None, subject: str | None) -> str:
    """Whose spending is counted: "the account", "each member", "member ann", "actor key:shop"."""
    if by == "holder":
        return "the account"
    noun = label if by == "label" else by
    return f"each {noun}" if subject is None else f"{noun} {subject}" if subject else f"no {noun}"


def setting_words(counterpart: Mapping[str, Any] | None, number: Any) -> str:
    """What an `adjust` entry says of a budget, behind "the account": "has the budget daily: 100 a day for each member".

    Args:
        counterpart: of the entry. number: writes an amount.
    """
    counterpart = counterpart or {}
    name, settings = counterpart.get("budget"), counterpart.get("settings")
    starts_at, ends_at = counterpart.get("starts_at"), counterpart.get("ends_at")
    if settings is None:
        return f"has no budget {name}{_from_words(ends_at)}"
    window = window_words(settings["window"], settings["hours"], settings["time_zone"])
    whose = scope_words(settings["by"], settings["label"], settings["subject"])
    if settings.get("parent"):
        whose += f" within {settings['parent']}"
    times = _from_words(starts_at, ends_at)
    return f"has the {settings['mode']} budget {name}, {number(settings['limit'])} {window} for {whose}{times},"


def _from_words(starts_at: str | None, ends_at: str | None = None) -> str:
    """When it is in force, in UTC: " from 2026-03-01 00:00:00 UTC on"; empty: from now on."""
    starts = f" from {_moment_words(starts_at)} on" if starts_at else ""
    return f"{starts} until {_moment_words(ends_at)}" if ends_at else starts


def _moment_words(instant: str) -> str:
    return instant[:19].replace("T", " ") + " UTC"


def counted_words(*, budget: str, used: int, limit: int, requested: int, resets_at: str | None, **others: Any) -> str:
    """What a refusal by a budget says, from its facts."""
    whose = f" of {others['subject']}" if others.get("subject") else ""
    until = f" It resets at {resets_at}." if resets_at else ""
    return f"The budget {budget}{whose} had {used} of {limit} used, and {requested} were requested.{until}"
