"""Use-cases: open the transaction, lock the holder, decide by the rules, append.

A function that takes `holder_id` has its own transaction: it returns when the entry is committed, or raises. Inside the caller's
`atomic()` it joins that transaction; who writes to several holders in one locks them together before, by `holder_lock`. A
function that takes `lock` runs inside the transaction of a caller that holds the holder's lock, such as the finalisation of an
invoice.
"""

from ledger.database.locks import holder_lock
from ledger.database.transactions import in_transaction
from ledger.previews import preview
from ledger.services.api_keys import create_api_key, find_api_key, revoke_api_key
from ledger.services.batches import MAX_OPERATIONS, BatchResult, Mode, Outcome, RejectedOperation, batch
from ledger.services.credits import (
    available_under,
    book_expirations,
    capture,
    extend,
    grant,
    grant_under,
    hold,
    refund,
    refund_under,
    release,
    revoke,
    revoke_under,
    set_incoming_transfers,
    set_overdraft,
    spend,
    spend_under,
    transfer,
)
from ledger.services.execute import GROUP_COMMIT, execute_once, execute_under
from ledger.services.rates import PublishedRate, current_rate, publish_rate, quote

__all__ = [
    "GROUP_COMMIT",
    "MAX_OPERATIONS",
    "BatchResult",
    "Mode",
    "Outcome",
    "PublishedRate",
    "RejectedOperation",
    "available_under",
    "batch",
    "book_expirations",
    "capture",
    "create_api_key",
    "current_rate",
    "execute_once",
    "execute_under",
    "extend",
    "find_api_key",
    "grant",
    "grant_under",
    "hold",
    "holder_lock",
    "in_transaction",
    "preview",
    "publish_rate",
    "quote",
    "refund",
    "refund_under",
    "release",
    "revoke",
    "revoke_api_key",
    "revoke_under",
    "set_incoming_transfers",
    "set_overdraft",
    "spend",
    "spend_under",
    "transfer",
]
