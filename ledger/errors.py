"""What can go wrong, told apart by what a caller does about it. Imports nothing.

- `Refused`: the answer is no. It is a recorded fact; the same key gets the same no.
- `Retryable`: nothing was written; the same key is safe to repeat.
- `Invalid`: the request itself is wrong; nothing was written, nothing is recorded.
- `Misuse`: a bug in the caller. Never catch it.

Statuses are given in `ledger_project.problems`, nowhere else.
"""

from typing import Any, ClassVar


class LedgerError(Exception):
    """Base of all; carries a stable `code` and the facts of the case."""

    code: ClassVar[str] = "ledger-error"
    title: ClassVar[str] = "The ledger could not do this"

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(", ".join(f"{name}={value!r}" for name, value in facts.items()))


# Answered no, and recorded ---------------------------------------------------------------------------


class Refused(LedgerError):
    """The ledger said no, and keeps that on record under the request's key."""

    code = "refused"
    title = "Refused"

    replayed: bool = False
    """True when this no was given before, to the same key."""
    request_id: str = ""
    """The request that was answered so first."""


class InsufficientCredits(Refused):
    """Less is available than was asked for.

    Facts: available, balance, requested, shortfall; what made it so: held, expired, not_yet_effective, and up to ten of the lots
    and of the holds; earliest_sufficient_at, the instant from which enough will be available if nobody does anything, or None.
    """

    code = "insufficient-credits"
    title = "Not enough credits"


class EntryNotFound(Refused):
    """The account has no entry of this sequence. Facts: sequence, credit_type."""

    code = "entry-not-found"
    title = "No such entry"


class NotRefundable(Refused):
    """The entry is not a spend. Facts: sequence, kind."""

    code = "not-refundable"
    title = "Only a spend can be refunded"


class RefundExceedsSpend(Refused):
    """More than what is left of the spend was asked back. Facts: sequence, refundable, requested."""

    code = "refund-exceeds-spend"
    title = "More than was spent"


class NotRevocable(Refused):
    """The entry is not a grant. Facts: sequence, kind."""

    code = "not-revocable"
    title = "Only a grant can be revoked"


class RevocationExceedsGrant(Refused):
    """More than the unspent rest of the grant was to be taken back. Facts: sequence, revocable, requested."""

    code = "revocation-exceeds-grant"
    title = "More than is left of the grant"


class LotLimit(Refused):
    """The account would have more open lots than it may. Facts: open_lots, limit."""

    code = "lot-limit"
    title = "Too many open lots"


class HoldLimit(Refused):
    """The open holds of the account would set aside too many lots. Facts: held_lots, limit."""

    code = "hold-limit"
    title = "Too many open holds"


class NotAHold(Refused):
    """The entry is not a hold. Facts: sequence, kind."""

    code = "not-a-hold"
    title = "Only a hold can be captured, released or extended"


class HoldClosed(Refused):
    """The hold sets nothing aside any more. Facts: sequence, how ("captured", "released", "expired"), closed_by."""

    code = "hold-closed"
    title = "The hold is closed"


class CaptureExceedsHold(Refused):
    """More than what is held was to be captured. Facts: sequence, held, requested."""

    code = "capture-exceeds-hold"
    title = "More than is held"


class UnknownRate(Refused):
    """There is no rate of this name. Facts: rate, credit_type."""

    code = "unknown-rate"
    title = "No such rate"


class AmountLimit(Refused):
    """Rate times quantity is more than one operation may move. Facts: rate, quantity, limit."""

    code = "amount-limit"
    title = "The amount would become too large"


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
        HoldLimit,
        NotAHold,
        HoldClosed,
        CaptureExceedsHold,
        UnknownRate,
        AmountLimit,
    )
}
"""By code, as they are found again on record."""


# Nothing was written, try again ----------------------------------------------------------------------


class Retryable(LedgerError):
    """Nothing was written. The same request with the same key may be sent again."""

    code = "retryable"
    title = "Try again"


class HolderBusy(Retryable):
    """The holder's lock was not to be had within `lock_timeout`. Facts: key."""

    code = "holder-busy"
    title = "The holder is busy"


class LockBusy(Retryable):
    """Somebody else holds a lock that is only tried for, never waited for. Facts: key."""

    code = "lock-busy"
    title = "Somebody else is at it"


class SequenceTaken(Retryable):
    """Another writer, without the lock, took the sequence number. Facts: holder_id, credit_type."""

    code = "sequence-taken"
    title = "The account moved on"


class ServerBusy(Retryable):
    """More requests wait in this process than it takes in, or it is stopping."""

    code = "server-busy"
    title = "The server is busy"


class OutcomeUnknown(LedgerError):
    """The connection was lost during COMMIT: written or not, only the same request with the same key can tell."""

    code = "outcome-unknown"
    title = "The outcome is not known"


# The request is wrong --------------------------------------------------------------------------------


class Invalid(LedgerError):
    """A value is outside what its field may be. Facts: pointer, rule."""

    code = "invalid-request"
    title = "The request is not valid"

    def __init__(self, *, pointer: str, rule: str, detail: str) -> None:
        super().__init__(pointer=pointer, rule=rule, detail=detail)


class IdempotencyKeyReused(LedgerError):
    """The key belongs to another request of this holder. Facts: idempotency_key."""

    code = "idempotency-key-reused"
    title = "The idempotency key was used for something else"


class BatchRejected(LedgerError):
    """An atomic batch was given up because of one of its operations. Facts: index, problem (of that operation), results."""

    code = "batch-rejected"
    title = "The batch was given up"

    replayed: bool = False
    request_id: str = ""


class AccountMovedOn(LedgerError):
    """The account is no longer at the sequence that the caller had seen; nothing was written. Facts: expected, sequence."""

    code = "account-moved-on"
    title = "The account has moved on"


REJECTIONS: dict[str, type[LedgerError]] = {error.code: error for error in (Invalid, IdempotencyKeyReused, AccountMovedOn)}
"""By code: what ends one operation without being put on record as a refusal."""


# Bugs ------------------------------------------------------------------------------------------------


class Misuse(LedgerError):
    """A bug in the calling code; never caught."""

    code = "misuse"
    title = "Misuse"


class LockNotHeld(Misuse):
    """A journal function was called with a lock that is not held here: leaked, rolled back, or another holder's."""

    code = "lock-not-held"


class NotInTransaction(Misuse):
    """A transaction-level lock was asked for outside a transaction: it would end with its own statement."""

    code = "not-in-transaction"


class UnsafeDatabase(Misuse):
    """The database, or the way Django is set up to use it, would let wrong balances through. Facts: what, why."""

    code = "unsafe-database"
