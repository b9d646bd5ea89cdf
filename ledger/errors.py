"""What can go wrong, grouped by what a caller does about it. Imports nothing.

- `Refused`: the ledger refuses the request and records that; the same key gets the same refusal. It does not record
  a limit that passes.
- `Retryable`: nothing was written; the same key is safe to repeat.
- `Invalid`: the request itself is wrong; nothing was written, nothing is recorded.
- `Misuse`: a bug in the caller. Never catch it.

Each class is the one place of its code, title, status and texts; a subclass has those of its base that it does not say itself.
"""

from typing import Any, ClassVar, Final, NamedTuple

NOT_EXECUTED = "not_executed"
UNKNOWN = "unknown"


class FieldError(NamedTuple):
    """One thing that is wrong with a request.

    `pointer` is a JSON pointer into the body ("" is the body itself); for a query parameter or a header it is "/" and its name.
    """

    pointer: str
    code: str
    detail: str


class Problem(NamedTuple):
    """How the API answers an error: with which status, detail and outcome.

    The facts fill `detail`; `{rows:row|rows}` is the fact with its noun, "1 row" or "2 rows".
    """

    status: int
    detail: str
    outcome: str = NOT_EXECUTED
    retry_after_seconds: int | range | None = None
    """For Retry-After; of a range, one at random, so that many who got the error do not come back together."""


AGAIN = "Nothing was written. Send the same request again with the same key."


class LedgerError(Exception):
    """Base of all; carries a stable `code` and the facts of the case."""

    code: ClassVar[str] = "ledger-error"
    title: ClassVar[str] = "The ledger could not execute the request"
    problem: ClassVar[Problem] = Problem(500, "The log has the details under this request_id.", UNKNOWN)

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(", ".join(f"{name}={value!r}" for name, value in facts.items()))


# The ledger refuses, and records that ----------------------------------------------------------------


class Refused(LedgerError):
    """The ledger refused the request and recorded the refusal under the request's key, unless the limit `passes`."""

    code = "refused"
    title = "The ledger refused the request"
    problem = Problem(409, "")
    text: ClassVar[str] = ""
    """The sentence for operators, filled by `rules.texts.refusal_texts`; empty where that makes it of more than the facts."""
    text_if: ClassVar[tuple[tuple[str, Any, str], ...]] = ()
    """Other sentences, each for a fact with a value."""
    remedy: ClassVar[tuple[str, str, str] | None] = None
    """What would have helped: the action, its sentence, and the fact of its amount; nothing where that is 0."""

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
    problem = Problem(402, "The request needs {requested:credit|credits}; {available:is|are} available.")


class Shortfall(InsufficientCredits):
    """The account has fewer credits available than a dry run asks for, told to a key that may not read it. Facts: shortfall."""

    problem = Problem(402, "The account lacks {shortfall:credit|credits}.")

    stored_as = "shortfall"  # never stored: a dry run records nothing


class EntryNotFound(Refused):
    """The account has no entry of this sequence. Facts: sequence, credit_type."""

    code = "entry-not-found"
    title = "The entry does not exist"
    problem = Problem(404, "Entry {sequence} of {credit_type} does not exist.")
    text = "the account has no entry #{sequence} in {credit_type}."


class NotRefundable(Refused):
    """The entry is not a spend. Facts: sequence, kind."""

    code = "not-refundable"
    title = "Only a spend can be refunded"
    problem = Problem(409, "Entry {sequence} is of kind {kind}; only a spend can be refunded.")
    text = "entry #{sequence} is {kind:a kind}. Only a spend or a capture can be refunded."


class RefundExceedsSpend(Refused):
    """The refund asks for more than the unrefunded rest of the spend. Facts: sequence, refundable, requested."""

    code = "refund-exceeds-spend"
    title = "The refund exceeds the spend"
    problem = Problem(409, "Spend {sequence} has {refundable:credit|credits} left to refund; the request asks for {requested}.")
    text = "{requested:number} asked back, {refundable:number} {refundable:are} left of spend #{sequence}. Over by {over:number}."
    text_if = (("requested", None, "nothing is left of spend #{sequence}."),)
    remedy = ("refund", "Refund the {refundable:number} that {refundable:are} left", "refundable")


class NotRevocable(Refused):
    """The entry is not a grant. Facts: sequence, kind."""

    code = "not-revocable"
    title = "Only a grant can be revoked"
    problem = Problem(409, "Entry {sequence} is of kind {kind}; only a grant can be revoked.")
    text = "entry #{sequence} is {kind:a kind}. Only a grant can be revoked."


class RevocationExceedsGrant(Refused):
    """The revocation asks for more than the unspent rest of the grant. Facts: sequence, revocable, requested."""

    code = "revocation-exceeds-grant"
    title = "The revocation exceeds the rest of the grant"
    problem = Problem(409, "Grant {sequence} has {revocable:credit|credits} left to revoke; the request asks for {requested}.")
    text = (
        "{requested:number} to be revoked, {revocable:number} {revocable:are} left of grant #{sequence}. Over by {over:number}."
    )
    text_if = (("requested", None, "nothing is left of grant #{sequence}."),)


class LotLimit(Refused):
    """The account, or the receiver of a transfer, has no room for another lot. Not recorded. Facts: open_lots, limit."""

    code = "lot-limit"
    title = "The account has too many open lots"
    problem = Problem(409, "The account has {open_lots:open lot|open lots}; the limit is {limit}.")
    text = "the account has {open_lots} open lots; the limit is {limit}."
    passes = True


class BalanceLimit(Refused):
    """Received credits would exceed the most that an account can have of them. Not recorded. Facts: limit."""

    code = "balance-limit"
    title = "The account has too many credits"
    problem = Problem(409, "The account can have at most {limit:credit|credits} that others sent.")
    text = "an account can have at most {limit:credits} that others sent."
    passes = True


class HoldLimit(Refused):
    """The open holds of the account would exceed the limit of held lots. Not recorded. Facts: held_lots, limit."""

    code = "hold-limit"
    title = "The open holds of the account hold too many lots"
    problem = Problem(409, "The open holds would hold {held_lots:lot|lots}; the limit is {limit}.")
    text = "the open holds set aside {held_lots} lots; the limit is {limit}."
    passes = True


class TransfersRefused(Refused):
    """The holder who would receive the credits refuses transfers. Facts: to."""

    code = "transfers-refused"
    title = "The other holder refuses transfers"
    problem = Problem(409, "{to} refuses transfers from others.")
    text = "{to} refuses transfers from others."


class NotAHold(Refused):
    """The entry is not a hold. Facts: sequence, kind."""

    code = "not-a-hold"
    title = "Only a hold can be captured, released or extended"
    problem = Problem(409, "Entry {sequence} is of kind {kind}; only a hold can be captured, released or extended.")
    text = "entry #{sequence} is {kind:a kind}. Only a hold can be captured, released or extended."


class HoldClosed(Refused):
    """The hold was captured or released, or has expired. Facts: sequence, how ("captured", "released", "expired"), closed_by."""

    code = "hold-closed"
    title = "The hold is closed"
    problem = Problem(409, "Hold {sequence} is closed: {how}.")
    text = "hold #{sequence} was already {how} by entry #{closed_by}."
    text_if = (("how", "expired", "hold #{sequence} had expired."),)


class CaptureExceedsHold(Refused):
    """The capture asks for more than the hold still holds. Facts: sequence, held, requested."""

    code = "capture-exceeds-hold"
    title = "The capture exceeds the hold"
    problem = Problem(409, "Hold {sequence} holds {held:credit|credits}; the request asks for {requested}.")
    text = "{requested:number} to be captured, {held:number} {held:are} left of hold #{sequence}. Over by {over:number}."
    remedy = ("", "The caller can capture up to {held:number}, or allow the rest to come from the balance", "held")


class UnknownRate(Refused):
    """No rate has this name. Facts: rate, credit_type."""

    code = "unknown-rate"
    title = "The rate does not exist"
    problem = Problem(409, "Rate {rate} of {credit_type} does not exist.")
    text = "no rate for {credit_type} is called {rate}."
    remedy = ("publish", "Publish the rate {rate}", "")


class AmountLimit(Refused):
    """Rate times quantity exceeds the largest amount of one operation. Facts: rate, quantity, limit."""

    code = "amount-limit"
    title = "The amount is too large"
    problem = Problem(409, "One operation moves at most {limit:credit|credits}.")
    text = "{quantity:,} of {rate} cost more than {limit:credits}, the limit of one operation."


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
    problem = Problem(503, AGAIN, retry_after_seconds=1)


class HolderBusy(Retryable):
    """The holder's lock was not free within `lock_timeout`. Facts: key; retry_after_seconds if it has been busy for long."""

    code = "holder-busy"
    title = "The holder is busy"
    problem = Problem(503, AGAIN, retry_after_seconds=range(1, 5))


class LockBusy(Retryable):
    """Another process holds a lock that this request does not wait for. Facts: key."""

    code = "lock-busy"
    title = "Another process holds this lock"
    problem = Problem(409, "Another process holds this lock. Nothing was written; try again later.")


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
    problem = Problem(
        503, "The connection broke during COMMIT. Send the same request with the same key to learn the outcome.", UNKNOWN, 1
    )


# The request is wrong --------------------------------------------------------------------------------


class Invalid(LedgerError):
    """A field has a value that its rule does not allow. Facts: pointer, rule."""

    code = "invalid-request"
    title = "The request is not valid"
    problem = Problem(400, "`errors` lists every fault.")

    def __init__(self, *, pointer: str, rule: str, detail: str) -> None:
        super().__init__(pointer=pointer, rule=rule, detail=detail)


class IdempotencyKeyReused(LedgerError):
    """The key belongs to another request of this holder. Facts: idempotency_key."""

    code = "idempotency-key-reused"
    title = "Another request has used this idempotency key"
    problem = Problem(422, "Another request has used this Idempotency-Key. A new request needs a new key.")


class BatchRejected(LedgerError):
    """One operation of an atomic batch failed; the ledger executed none. Facts: index, problem (of that operation), results."""

    code = "batch-rejected"
    title = "The ledger rejected the batch"
    problem = Problem(409, "Operation {index} failed, so the ledger executed no operation of the batch.")

    replayed: bool = False
    request_id: str = ""


class AccountMovedOn(LedgerError):
    """The account has a later entry than the request expects; nothing was written. Facts: expected, sequence."""

    code = "account-moved-on"
    title = "The account has a later entry"
    problem = Problem(412, "The last entry is {sequence}, not {expected}. Read the account again before you retry.")


class DocumentTooLong(LedgerError):
    """The document has more rows than a PDF is made of. Nothing was written. Facts: rows, limit."""

    code = "document-too-long"
    title = "The document is too long for a PDF"
    problem = Problem(409, "The document would have {rows:row|rows}; a PDF has at most {limit}.")


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
    problem = Problem(
        503,
        "The database does not give the guarantees that the ledger needs; the ledger does not use it.",
        retry_after_seconds=60,
    )

    def __str__(self) -> str:
        return f"{self.facts['what']}: {self.facts['why']}"
