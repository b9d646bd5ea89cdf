"""Claims in words, for people."""

from collections.abc import Mapping
from typing import Any

from ledger.rules.claims import WITHDRAWN


def setting_words(setting: Mapping[str, Any], number: Any) -> str:
    """What an `adjust` entry says of a claim, behind "the account": "owes 450 of the credits that come back".

    Args:
        setting: the entry's `counterpart`. number: writes an amount.
    """
    if setting["claim"] == WITHDRAWN:
        return f"no longer owes {number(setting['amount'])} of claim #{setting['setting']}"
    return f"owes {number(setting['amount'])} of the credits that come back"
