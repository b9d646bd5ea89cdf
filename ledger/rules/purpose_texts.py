"""What the credits of a lot can pay for, in words."""

from collections.abc import Mapping
from typing import Any


def purpose_words(applies_to: Mapping[str, Any] | None, *, limit: int = 3) -> str:
    """Return "only for the rates a, b" or "only for member ada"; empty for credits that can pay for everything.

    Args:
        applies_to: as requests have it. limit: how many names of each list are written out.
    """
    if not applies_to:
        return ""
    rates = applies_to.get("rates", ())
    parts = [f"the {'rate' if len(rates) == 1 else 'rates'} {_list_names(rates, limit)}"] if rates else []
    parts += [f"{label} {_list_names(values, limit)}" for label, values in applies_to.get("labels", {}).items()]
    return f"only for {' with '.join(parts)}"


def purpose_names(applies_to: Mapping[str, Any]) -> str:
    """Return "a, b": the rates and values of labels, for pages in any language."""
    return ", ".join([*applies_to.get("rates", ()), *(name for names in applies_to.get("labels", {}).values() for name in names)])


def _list_names(names: Any, limit: int) -> str:
    shown = list(names)
    more = len(shown) - limit
    return ", ".join(shown) if more <= 0 else f"{', '.join(shown[:limit])} and {more} more"
