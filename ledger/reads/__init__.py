"""Reads without a lock, for showing only: a number read here may be outdated before it is shown, so no decision is made from it.

What a client asks for often, a balance, a page of entries, one entry, holds, is read by one prepared statement, which is planned
once per connection and decodes only what is shown.
"""

from ledger.reads.account_state import (
    BALANCES,
    Balance,
    NextExpiry,
    ShownHold,
    ShownLot,
    balance,
    balance_by_effective_time,
    balances,
    lots_in_full,
    page_of_holds,
)
from ledger.reads.explanations import explanation
from ledger.reads.history import EntryPosition, Refusal, ShownEntry, entries, entry, refusals, shown_entry
from ledger.reads.holder_list import accounts, holders, incoming_transfers, is_known, seen
from ledger.reads.rate_list import rate_versions, rates

__all__ = [
    "BALANCES",
    "Balance",
    "EntryPosition",
    "NextExpiry",
    "Refusal",
    "ShownEntry",
    "ShownHold",
    "ShownLot",
    "accounts",
    "balance",
    "balance_by_effective_time",
    "balances",
    "entries",
    "entry",
    "explanation",
    "holders",
    "incoming_transfers",
    "is_known",
    "lots_in_full",
    "page_of_holds",
    "rate_versions",
    "rates",
    "refusals",
    "seen",
    "shown_entry",
]
