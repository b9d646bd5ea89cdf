"""Use-cases: open the transaction, lock the holder, decide by the rules, append.

A function that takes `holder_id` has its own transaction: it returns when the entry is committed, or raises. Inside the caller's
`atomic()` it joins that transaction; who writes to several holders in one locks them together before, by `holder_lock`. A
function that takes `lock` runs inside the transaction of a caller that holds the holder's lock, such as the finalisation of an
invoice. A function with an `a` in front is its twin for `async` code: `await services.aspend(...)`.
"""

# ruff: noqa: F405 - use-cases are named once more in __all__
from ledger import records
from ledger.clocks import clock_of, holders_time, time_of
from ledger.database.locks import holder_lock
from ledger.database.transactions import in_transaction
from ledger.previews import preview
from ledger.services.batches import MAX_OPERATIONS, BatchResult, Mode, OperationOutcome, RejectedOperation, batch
from ledger.services.claims import claim_under, open_claims
from ledger.services.coming_credits import Lack, UnderWay, decided, lacks_credits, may_be_asked
from ledger.services.credits import *  # noqa: F403 - every use-case, by its declaration
from ledger.services.execute import GROUP_COMMIT, execute_once, execute_under
from ledger.services.overage import overage_changed, overage_used
from ledger.services.rates import PublishedRate, current_rate, publish_rate, quote
from ledger.services.recurring_grants import (
    RecurringSummary,
    end_recurring_grant,
    grant_all_due,
    grant_due_period,
    set_recurring_grant,
)
from ledger.services.waiting import Next, Wait

# What type checkers that are strict let others import.
__all__ = [
    "GROUP_COMMIT",
    "MAX_OPERATIONS",
    "BatchResult",
    "Lack",
    "Mode",
    "Next",
    "OperationOutcome",
    "PublishedRate",
    "RecurringSummary",
    "RejectedOperation",
    "UnderWay",
    "Wait",
    "available_under",
    "batch",
    "book_expirations",
    "capture",
    "claim_under",
    "clock_of",
    "current_rate",
    "decided",
    "end_budget",
    "end_budget_under",
    "end_claim_under",
    "end_overage",
    "end_overage_under",
    "end_recurring_grant",
    "end_recurring_grant_under",
    "execute_once",
    "execute_under",
    "extend",
    "freeze",
    "grant",
    "grant_all_due",
    "grant_due_period",
    "grant_under",
    "hold",
    "holder_lock",
    "holders_time",
    "in_transaction",
    "lacks_credits",
    "may_be_asked",
    "open_claims",
    "overage_changed",
    "overage_under",
    "overage_used",
    "preview",
    "publish_rate",
    "quote",
    "refund",
    "refund_under",
    "reissue",
    "release",
    "reverse",
    "revoke",
    "revoke_under",
    "set_budget",
    "set_budget_under",
    "set_clock",
    "set_incoming_transfers",
    "set_overage",
    "set_overage_under",
    "set_overdraft",
    "set_recurring_grant",
    "set_recurring_grant_under",
    "spend",
    "spend_under",
    "time_of",
    "transfer",
    "void",
]

__getattr__ = records.async_twins(globals())
