"""Use-cases: open the transaction, lock the holder, decide by the rules, append.

A function that takes `holder_id` has its own transaction: it returns when the entry is committed, or raises. Inside the caller's
`atomic()` it joins that transaction; who writes to several holders in one locks them together before, by `holder_lock`. A
function that takes `lock` runs inside the transaction of a caller that holds the holder's lock, such as the finalisation of an
invoice. A function with an `a` in front is its twin for `async` code: `await services.aspend(...)`.
"""

from ledger import records
from ledger.clocks import clock_of, holders_time, time_of
from ledger.database.locks import holder_lock
from ledger.database.transactions import in_transaction
from ledger.previews import preview
from ledger.services import credits  # noqa: A004
from ledger.services.batches import MAX_OPERATIONS, BatchResult, Mode, OperationOutcome, RejectedOperation, batch
from ledger.services.coming_credits import Lack, UnderWay, decided, lacks_credits, may_be_asked
from ledger.services.credits import *
from ledger.services.execute import GROUP_COMMIT, execute_once, execute_under
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
    "GROUP_COMMIT", "MAX_OPERATIONS", "BatchResult", "Lack", "Mode", "Next", "OperationOutcome", "PublishedRate",
    "RecurringSummary", "RejectedOperation", "UnderWay", "Wait", "batch", "clock_of", "current_rate", "decided",
    "end_recurring_grant", "execute_once", "execute_under", "grant_all_due", "grant_due_period", "holder_lock", "holders_time",
    "in_transaction", "lacks_credits", "may_be_asked", "preview", "publish_rate", "quote", "set_recurring_grant", "time_of",
]  # fmt: skip
__all__ += credits.__all__

__getattr__ = records.async_twins(globals())
