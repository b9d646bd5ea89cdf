"""The rules of credits: pure functions from an account's state and a request to the next entries, or a refusal.

No Django, no I/O, no clock: the instant is part of the state. So the rules are tested by the hundred thousand
without a database, and the shell around them (`ledger.journal`, `ledger.services`) only locks, loads and stores.
"""

from ledger.rules.accounts import Account
from ledger.rules.decisions import expirations, grant, refund, revoke, spend
from ledger.rules.entries import KINDS, Entry
from ledger.rules.lots import MAX_OPEN_LOTS, Lot
from ledger.rules.requests import (
    MAX_AMOUNT,
    MAX_BALANCE,
    GrantRequest,
    RefundRequest,
    Request,
    RevokeRequest,
    SpendRequest,
)

__all__ = [
    "KINDS",
    "MAX_AMOUNT",
    "MAX_BALANCE",
    "MAX_OPEN_LOTS",
    "Account",
    "Entry",
    "GrantRequest",
    "Lot",
    "RefundRequest",
    "Request",
    "RevokeRequest",
    "SpendRequest",
    "expirations",
    "grant",
    "refund",
    "revoke",
    "spend",
]
