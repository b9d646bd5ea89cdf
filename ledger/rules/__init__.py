"""The rules of credits: pure functions from an account's state and a request to the next entries, or a refusal.

No Django, no I/O, no clock: the time is part of the state. So property tests run them a hundred thousand times without a
database. The code around them (`ledger.journal`, `ledger.services`) only locks, loads and stores.
"""

from ledger.rules.accounts import Account
from ledger.rules.decisions.credits import grant, revoke, set_overdraft, spend
from ledger.rules.decisions.hold_rules import capture, extend, hold, release
from ledger.rules.decisions.refunds import debt_of, refund
from ledger.rules.decisions.settlement import settle_due
from ledger.rules.decisions.transfers import set_incoming_transfers, transfer
from ledger.rules.entries import Entry
from ledger.rules.holds import Hold
from ledger.rules.kinds import KINDS
from ledger.rules.lots import MAX_OPEN_LOTS, Lot
from ledger.rules.requests import (
    MAX_BALANCE,
    CaptureRequest,
    ExtendRequest,
    GrantRequest,
    HoldRequest,
    IncomingTransfersRequest,
    OverdraftRequest,
    PricedRequest,
    QuoteRequest,
    RateRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from ledger.values import MAX_AMOUNT

__all__ = [
    "KINDS",
    "MAX_AMOUNT",
    "MAX_BALANCE",
    "MAX_OPEN_LOTS",
    "Account",
    "CaptureRequest",
    "Entry",
    "ExtendRequest",
    "GrantRequest",
    "Hold",
    "HoldRequest",
    "IncomingTransfersRequest",
    "Lot",
    "OverdraftRequest",
    "PricedRequest",
    "QuoteRequest",
    "RateRequest",
    "RefundRequest",
    "ReleaseRequest",
    "Request",
    "RevokeRequest",
    "SpendRequest",
    "TransferRequest",
    "capture",
    "debt_of",
    "extend",
    "grant",
    "hold",
    "refund",
    "release",
    "revoke",
    "set_incoming_transfers",
    "set_overdraft",
    "settle_due",
    "spend",
    "transfer",
]
