"""Use-cases: open the transaction, lock the holder, decide by the rules, append.

What takes `holder_id` owns its transaction: it returns when the entry is committed, or raises. What takes `lock` runs inside the
transaction of a caller who holds the holder's lock, such as an invoice's finalisation.
"""

from ledger.database.transactions import in_transaction
from ledger.services.answering import GROUP_COMMIT, answer, answer_under
from ledger.services.api_keys import create_api_key, find_api_key, revoke_api_key
from ledger.services.batches import MAX_OPERATIONS, Answered, Mode, Outcome, TurnedAway, batch
from ledger.services.credits import (
    available_under,
    book_expirations,
    grant,
    grant_under,
    refund,
    refund_under,
    revoke,
    revoke_under,
    set_overdraft,
    spend,
    spend_under,
)
from ledger.services.crossing import NamedEntry, missing_entries, references_of
from ledger.services.holding import capture, extend, hold, release
from ledger.services.rates import Published, current_rate, publish_rate, quote
from ledger.services.transferring import transfer

__all__ = [
    "GROUP_COMMIT",
    "MAX_OPERATIONS",
    "Answered",
    "Mode",
    "NamedEntry",
    "Outcome",
    "Published",
    "TurnedAway",
    "answer",
    "answer_under",
    "available_under",
    "batch",
    "book_expirations",
    "capture",
    "create_api_key",
    "current_rate",
    "extend",
    "find_api_key",
    "grant",
    "grant_under",
    "hold",
    "in_transaction",
    "missing_entries",
    "publish_rate",
    "quote",
    "references_of",
    "refund",
    "refund_under",
    "release",
    "revoke",
    "revoke_api_key",
    "revoke_under",
    "set_overdraft",
    "spend",
    "spend_under",
    "transfer",
]
