"""What can go wrong, grouped by what a caller does about it. Imports nothing.

- `Refused`: the ledger refuses the request and records that; the same key gets the same refusal. It does not record
  a limit that passes.
- `Retryable`: nothing was written; the same key is safe to repeat.
- `Invalid`: the request itself is wrong; nothing was written, nothing is recorded.
- `Misuse`: a bug in the caller. Never catch it.

Statuses are given in `ledger.api.problems`, nowhere else.
"""

from typing import Any, ClassVar, Final, NamedTuple


class FieldError(NamedTuple):
    """One thing that is wrong with a request.

    `pointer` is a JSON pointer into the body ("" is the body itself); for a query parameter or a header it is "/" and its name.
    """

    pointer: str
    code: str
    detail: str


class LedgerError(Exception):
    """Base of all; carries a stable `code` and the facts of the case."""

    code: ClassVar[str] = "ledger-error"
    title: ClassVar[str] = "The ledger could not execute the request"

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(", ".join(f"{name}={value!r}" for name, value in facts.items()))


# The ledger refuses, and records that ----------------------------------------------------------------


class Refused(LedgerError):
    """The ledger refused the request and recorded the refusal under the request's key, unless the limit `passes`."""

    code = "refused"
    title = "The ledger refused the request"

    stored_as: ClassVar[str] = ""
    """What a stored refusal is recognised by, where another class has the same code; empty: the code."""
    passes: ClassVar[bool] = False
    """True for a limit that passes: such a refusal is not recorded, and the same key may succeed later."""
    replayed: bool = False
    """True when the same key got this refusal before."""
    request_id: str = ""
    """The request that was refused first."""


class InsufficientCredits(Refused):
    """The account has fewer credits available than the request needs.

    Facts: available, balance, requested, shortfall; the causes: held, expired, not_yet_effective, up to ten lots and holds;
    earliest_sufficient_at, the time from which enough credits will be available if nothing else happens, or None.
    """

    code = "insufficient-credits"
    title = "The account has too few credits"


class Shortfall(InsufficientCredits):
    """The account has fewer credits available than a dry run asks for, told to a key that may not read it. Facts: shortfall."""

    stored_as = "shortfall"  # never stored: a dry run records nothing


class EntryNotFound(Refused):
    """The account has no entry of this sequence. Facts: sequence, credit_type."""

    code = "entry-not-found"
    title = "The entry does not exist"


class NotRefundable(Refused):
    """The entry is not a spend. Facts: sequence, kind."""

    code = "not-refundable"
    title = "Only a spend can be refunded"


class RefundExceedsSpend(Refused):
    """The refund asks for more than the unrefunded rest of the spend. Facts: sequence, refundable, requested."""

    code = "refund-exceeds-spend"
    title = "The refund exceeds the spend"


class NotRevocable(Refused):
    """The entry is not a grant. Facts: sequence, kind."""

    code = "not-revocable"
    title = "Only a grant can be revoked"


class RevocationExceedsGrant(Refused):
    """The revocation asks for more than the unspent rest of the grant. Facts: sequence, revocable, requested."""

    code = "revocation-exceeds-grant"
    title = "The revocation exceeds the rest of the grant"


class LotLimit(Refused):
    """The account, or the receiver of a transfer, has no room for another lot. Not recorded. Facts: open_lots, limit."""

    code = "lot-limit"
    title = "The account has too many open lots"
    passes = True


class BalanceLimit(Refused):
    """Received credits would exceed the most that an account can have of them. Not recorded. Facts: limit."""

    code = "balance-limit"
    title = "The account has too many credits"
    passes = True


class HoldLimit(Refused):
    """The open holds of the account would exceed the limit of held lots. Not recorded. Facts: held_lots, limit."""

    code = "hold-limit"
    title = "The open holds of the account hold too many lots"
    passes = True


class TransfersRefused(Refused):
    """The holder who would receive the credits refuses transfers. Facts: to."""

    code = "transfers-refused"
    title = "The other holder refuses transfers"


class NotAHold(Refused):
    """The entry is not a hold. Facts: sequence, kind."""

    code = "not-a-hold"
    title = "Only a hold can be captured, released or extended"


class HoldClosed(Refused):
    """The hold was captured or released, or has expired. Facts: sequence, how ("captured", "released", "expired"), closed_by."""

    code = "hold-closed"
    title = "The hold is closed"


class CaptureExceedsHold(Refused):
    """The capture asks for more than the hold still holds. Facts: sequence, held, requested."""

    code = "capture-exceeds-hold"
    title = "The capture exceeds the hold"


class UnknownRate(Refused):
    """No rate has this name. Facts: rate, credit_type."""

    code = "unknown-rate"
    title = "The rate does not exist"


class AmountLimit(Refused):
    """Rate times quantity exceeds the largest amount of one operation. Facts: rate, quantity, limit."""

    code = "amount-limit"
    title = "The amount is too large"


REFUSALS: dict[str, type[Refused]] = {
    refusal.code: refusal
    for refusal in (
        InsufficientCredits,
        EntryNotFound,
        NotRefundable,
        RefundExceedsSpend,
        NotRevocable,
        RevocationExceedsGrant,
        LotLimit,
        BalanceLimit,
        HoldLimit,
        TransfersRefused,
        NotAHold,
        HoldClosed,
        CaptureExceedsHold,
        UnknownRate,
        AmountLimit,
    )
}
"""By code, as recorded refusals and the outcomes of batches name them."""

RECORDED: Final = tuple(code for code, refusal in REFUSALS.items() if not refusal.passes)
"""The codes that a recorded refusal can have."""


# Nothing was written, try again ----------------------------------------------------------------------


class Retryable(LedgerError):
    """Nothing was written. The same request with the same key may be sent again."""

    code = "retryable"
    title = "The request can be sent again"


class HolderBusy(Retryable):
    """The holder's lock was not free within `lock_timeout`. Facts: key; retry_after_seconds if it has been busy for long."""

    code = "holder-busy"
    title = "The holder is busy"


class LockBusy(Retryable):
    """Another process holds a lock that this request does not wait for. Facts: key."""

    code = "lock-busy"
    title = "Another process holds this lock"


class SequenceTaken(Retryable):
    """Another writer, without the lock, took the sequence number. Facts: holder_id, credit_type."""

    code = "sequence-taken"
    title = "Another writer added an entry first"


class ServerBusy(Retryable):
    """The queue of this process is full, or the process is stopping."""

    code = "server-busy"
    title = "The server is busy"


class OutcomeUnknown(LedgerError):
    """The connection broke during COMMIT. Sending the same request with the same key tells if it was written."""

    code = "outcome-unknown"
    title = "The outcome is unknown"


# The request is wrong --------------------------------------------------------------------------------


class Invalid(LedgerError):
    """A field has a value that its rule does not allow. Facts: pointer, rule."""

    code = "invalid-request"
    title = "The request is not valid"

    def __init__(self, *, pointer: str, rule: str, detail: str) -> None:
        super().__init__(pointer=pointer, rule=rule, detail=detail)


class IdempotencyKeyReused(LedgerError):
    """The key belongs to another request of this holder. Facts: idempotency_key."""

    code = "idempotency-key-reused"
    title = "Another request has used this idempotency key"


class BatchRejected(LedgerError):
    """One operation of an atomic batch failed; the ledger executed none. Facts: index, problem (of that operation), results."""

    code = "batch-rejected"
    title = "The ledger rejected the batch"

    replayed: bool = False
    request_id: str = ""


class AccountMovedOn(LedgerError):
    """The account has a later entry than the request expects; nothing was written. Facts: expected, sequence."""

    code = "account-moved-on"
    title = "The account has a later entry"


class DocumentTooLong(LedgerError):
    """The document has more rows than a PDF is made of. Nothing was written. Facts: rows, limit."""

    code = "document-too-long"
    title = "The document is too long for a PDF"


REJECTIONS: dict[str, type[LedgerError]] = {error.code: error for error in (Invalid, IdempotencyKeyReused, AccountMovedOn)}
"""By code: errors that end one operation of a batch and are not recorded as refusals."""


# Bugs ------------------------------------------------------------------------------------------------


class Misuse(LedgerError):
    """A bug in the calling code; never caught."""

    code = "misuse"
    title = "Misuse"


class LockNotHeld(Misuse):
    """A journal function got a lock that is not held here: it has ended, was rolled back, or is another holder's."""

    code = "lock-not-held"


class NotInTransaction(Misuse):
    """A transaction-level lock was requested outside a transaction, where it would end with its own statement."""

    code = "not-in-transaction"


class LocksOutOfOrder(Misuse):
    """A transaction asks for a holder's lock that comes before one that it has; another could wait for it the other way round.

    Facts: holders, in the order in which their locks are taken; what_to_do.
    """

    code = "locks-out-of-order"


class UnsafeDatabase(Misuse):
    """The ledger cannot rely on the database, or on Django's settings for it. Facts: what, why."""

    code = "unsafe-database"

    def __str__(self) -> str:
        return f"{self.facts['what']}: {self.facts['why']}"
