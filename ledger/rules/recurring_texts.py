"""Recurring grants in words, for people."""

from collections.abc import Mapping
from typing import Any, Final

from ledger.rules.recurring_terms import EXPIRED, FILLED_EXPIRED, LOTS_FULL, NOT_KEPT, RecurringTerms, name_words

WHY_SKIPPED: Final = {
    EXPIRED: "their credits had expired before the next write",
    LOTS_FULL: "the lots were full",
    NOT_KEPT: "what rolls over is of later periods",
    FILLED_EXPIRED: "the lots were full, or what filled them had expired before the next write",
}
"""Why periods were skipped, by the `because` of their entry."""


def amount_words(terms: RecurringTerms, number: Any) -> str:
    """ "100", "up to 100". Args: number: writes an amount."""
    return f"up to {number(terms.up_to)}" if terms.amount is None else str(number(terms.amount))


def expiry_words(terms: RecurringTerms, number: Any) -> str:
    """When the credits of a period expire."""
    if terms.rollover_cap is not None:
        return f"up to {number(terms.rollover_cap)} unspent kept"
    if terms.expires_after_days is not None:
        return f"expire after {terms.expires_after_days} day{'s' if terms.expires_after_days > 1 else ''}"
    return "never expire" if terms.expiry == "never" else "expire with the period"


def setting_words(counterpart: Mapping[str, Any], number: Any) -> str:
    """What an `adjust` entry says of a recurring grant, behind "the account".

    Args:
        counterpart: of the entry. number: writes an amount.
    """
    name = counterpart["recurring_grant"]
    if "periods" in counterpart:
        days = f"from {counterpart['period_start'][:10]} to {counterpart['period_end'][:10]}"
        why = WHY_SKIPPED[counterpart["because"]]
        return f"gets nothing of the recurring grant {name} for {counterpart['periods']:,} periods {days}: {why}"
    if "period_start" in counterpart:
        return f"needs nothing of the recurring grant {name} for the period from {counterpart['period_start'][:10]}"
    if "terms" not in counterpart:
        return f"has no recurring grant {name}"
    terms = RecurringTerms.from_stored(counterpart["terms"])
    return f"has the recurring grant {name}: {name_words(terms).lower()} of {amount_words(terms, number)},"
