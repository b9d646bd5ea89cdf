"""Claims and overage in words, for people: what an `adjust` entry says of them."""

from collections.abc import Mapping
from typing import Any

from ledger.rules.claims import WITHDRAWN
from ledger.rules.overage import ENDED

INTERVALS = {"half_year": "half year"}


def claim_words(setting: Mapping[str, Any], number: Any) -> str:
    """What an `adjust` entry says of a claim, behind "the account": "owes 450 of the credits that come back".

    Args:
        setting: the entry's `counterpart`. number: writes an amount.
    """
    if setting["claim"] == WITHDRAWN:
        return f"no longer owes {number(setting['amount'])} of claim #{setting['setting']}"
    return f"owes {number(setting['amount'])} of the credits that come back"


def overage_words(setting: Mapping[str, Any], number: Any) -> str:
    """What an `adjust` entry says of an overage, behind "the account": "may use 500 a month on overage".

    Args:
        setting: the entry's `counterpart`. number: writes an amount.
    """
    if setting["overage"] == ENDED:
        return "may use nothing more on overage"
    count = setting.get("interval_count", 1)
    unit = INTERVALS.get(setting["interval"], setting["interval"])
    each = f"a {unit}" if count == 1 else f"every {count} {unit}s"
    limit = setting.get("limit")
    return f"may use {'any amount' if limit is None else number(limit)} {each} on overage"
