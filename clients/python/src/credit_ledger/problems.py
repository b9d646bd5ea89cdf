"""What can go wrong, as errors with their facts.

A class per problem that docs/API.md lists. A fact that the server left out is None; a problem that this version does not know
is a plain Problem with its `slug` and `facts`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final


class CreditLedgerError(Exception):
    """Anything that this package raises."""


class Unreachable(CreditLedgerError):
    """No answer came within the time, and nothing was written by this call."""


class OutcomeUnknown(CreditLedgerError):
    """A write may be stored or not: an answer was lost, and no repetition within the time has told.

    Send the same call with `idempotency_key` again, later: never with another key, because it could then take effect twice.
    """

    def __init__(self, *, idempotency_key: str, attempts: int, last: "Problem | None", reason: str) -> None:
        super().__init__(
            f"It is not known whether the request with the key {idempotency_key!r} is stored, after {attempts} attempts: {reason}"
        )
        self.idempotency_key = idempotency_key
        self.attempts = attempts
        self.last = last


class Problem(CreditLedgerError):
    """The server answered with an error.

    Args:
        status: as in the status line.
        body: problem+json, or anything else that came with the status.
    """

    SLUG: ClassVar[str] = ""

    def __init__(self, status: int, body: Any) -> None:
        facts = body if isinstance(body, Mapping) else {}
        self.status = status
        self.slug = str(facts.get("type") or "").rsplit("/", 1)[-1]
        self.title = str(facts.get("title") or f"HTTP {status}")
        self.detail = str(facts.get("detail") or "")
        self.request_id = str(facts.get("request_id") or "")
        self.outcome: str | None = facts.get("outcome")
        """`not_executed` or `unknown`; None where something else than the ledger answered."""
        self.errors: list[dict[str, str]] = facts.get("errors") or []
        self.facts = {name: value for name, value in facts.items() if name not in MEMBERS}
        for name in facts_of(type(self)):
            setattr(self, name, facts.get(name))
        super().__init__(f"{self.title}. {self.detail}".strip())


MEMBERS: Final = frozenset({"type", "title", "status", "detail", "request_id", "outcome", "errors"})


def facts_of(problem: type[Problem]) -> list[str]:
    """Return the names of the facts that a class of problems has."""
    return (
        []
        if problem is Problem
        else [
            name
            for base in problem.__mro__
            if base is not Problem
            for name in vars(base).get("__annotations__", {})
            if issubclass(base, Problem)
        ]
    )


def problem_of(status: int, body: Any) -> Problem:
    """Return the error for a response that is no success."""
    problem = Problem(status, body)
    known = BY_SLUG.get(problem.slug)
    return known(status, body) if known else problem


class MalformedRequest(Problem):
    SLUG = "malformed-request"


class InvalidRequest(Problem):
    """Fields are missing, unknown or out of bounds; `errors` has all of them: pointer, code, detail."""

    SLUG = "invalid-request"


class IdempotencyKeyMissing(Problem):
    SLUG = "idempotency-key-missing"


class IdempotencyKeyInvalid(Problem):
    SLUG = "idempotency-key-invalid"


class Unauthenticated(Problem):
    SLUG = "unauthenticated"


class InsufficientCredits(Problem):
    """Less is available than asked for. What is None, the API key may not see."""

    SLUG = "insufficient-credits"
    shortfall: int
    available: int | None
    balance: int | None
    requested: int | None
    held: int | None
    expired: int | None
    not_yet_effective: int | None
    lots: list[dict[str, Any]] | None
    holds: list[dict[str, Any]] | None
    earliest_sufficient_at: str | None


class ScopeMissing(Problem):
    SLUG = "scope-missing"
    scope: str


class Forbidden(Problem):
    SLUG = "forbidden"


class NotFound(Problem):
    SLUG = "not-found"


class EntryNotFound(Problem):
    SLUG = "entry-not-found"
    sequence: int
    credit_type: str


class MethodNotAllowed(Problem):
    SLUG = "method-not-allowed"
    method: str
    allowed: list[str]


class NotAcceptable(Problem):
    SLUG = "not-acceptable"
    served: Any


class NotRefundable(Problem):
    SLUG = "not-refundable"
    sequence: int
    kind: str


class RefundExceedsSpend(Problem):
    SLUG = "refund-exceeds-spend"
    sequence: int
    refundable: int
    requested: int


class NotRevocable(Problem):
    SLUG = "not-revocable"
    sequence: int
    kind: str


class RevocationExceedsGrant(Problem):
    SLUG = "revocation-exceeds-grant"
    sequence: int
    revocable: int
    requested: int


class LotLimit(Problem):
    SLUG = "lot-limit"
    open_lots: int | None
    limit: int


class BalanceLimit(Problem):
    SLUG = "balance-limit"
    limit: int


class HoldLimit(Problem):
    SLUG = "hold-limit"
    held_lots: int
    limit: int


class TransfersRefused(Problem):
    SLUG = "transfers-refused"
    to: str


class NotAHold(Problem):
    SLUG = "not-a-hold"
    sequence: int
    kind: str


class HoldClosed(Problem):
    """The hold was captured, released, or has expired: `how`, and by which entry."""

    SLUG = "hold-closed"
    sequence: int
    how: str
    closed_by: int | None


class CaptureExceedsHold(Problem):
    SLUG = "capture-exceeds-hold"
    sequence: int
    held: int
    requested: int


class UnknownRate(Problem):
    SLUG = "unknown-rate"
    rate: str
    credit_type: str


class AmountLimit(Problem):
    SLUG = "amount-limit"
    rate: str
    quantity: int
    limit: int


class BatchRejected(Problem):
    """One operation of an atomic batch was refused, and none was done."""

    SLUG = "batch-rejected"
    index: int
    problem: dict[str, Any]
    results: list[dict[str, Any]]


class LockBusy(Problem):
    SLUG = "lock-busy"
    key: str


class AlreadyExists(Problem):
    SLUG = "already-exists"
    resource: str
    ref: str


class InvalidTransition(Problem):
    SLUG = "invalid-transition"
    invoice: int
    state: str
    wanted: str
    by: int | None


class SellerMissing(Problem):
    SLUG = "seller-missing"


class DocumentTooLong(Problem):
    SLUG = "document-too-long"
    rows: int
    limit: int


class CreditExceedsInvoice(Problem):
    SLUG = "credit-exceeds-invoice"
    invoice: int
    creditable_minor: int
    lines: list[dict[str, Any]]


class CouponNotApplicable(Problem):
    SLUG = "coupon-not-applicable"
    coupon: str
    why: str


class CustomerStillBilled(Problem):
    SLUG = "customer-still-billed"
    customer: str
    subscription: str
    why: str


class BillingSuspended(Problem):
    SLUG = "billing-suspended"
    subscription: str
    reason: str


class BillingWouldBeSuspended(Problem):
    SLUG = "billing-would-be-suspended"
    subscription: str
    reason: str


class BillingNotSuspended(Problem):
    SLUG = "billing-not-suspended"
    subscription: str


class InvoiceGenerationBusy(Problem):
    SLUG = "invoice-generation-busy"
    key: str
    subscription: str


class PeriodAlreadyBilled(Problem):
    SLUG = "period-already-billed"
    subscription: str


class AccountMovedOn(Problem):
    """The account has a later entry than `if_match` says; nothing was written."""

    SLUG = "account-moved-on"
    expected: int
    sequence: int


class BodyTimeout(Problem):
    SLUG = "body-timeout"
    seconds: float


class BodyTooLarge(Problem):
    SLUG = "body-too-large"
    limit_bytes: int


class UnsupportedMediaType(Problem):
    SLUG = "unsupported-media-type"
    accepted: Any


class IdempotencyKeyReused(Problem):
    """The key belongs to another request."""

    SLUG = "idempotency-key-reused"
    idempotency_key: str


class Busy(Problem):
    """The server could not do it now, for longer than the client repeats it; nothing was written."""


class TooManyRequests(Busy):
    SLUG = "too-many-requests"
    retry_after_seconds: int | None


class InternalError(Problem):
    SLUG = "internal-error"


class HolderBusy(Busy):
    SLUG = "holder-busy"
    key: str
    retry_after_seconds: int | None


class ServerBusy(Busy):
    SLUG = "server-busy"
    retry_after_seconds: int | None


class SequenceTaken(Busy):
    SLUG = "sequence-taken"
    holder_id: str
    credit_type: str


class DatabaseBusy(Busy):
    SLUG = "database-busy"


class DatabaseUnavailable(Busy):
    SLUG = "database-unavailable"


class DiskFull(Busy):
    SLUG = "disk-full"


class UnsafeDatabase(Busy):
    SLUG = "unsafe-database"


class ServerUnavailable(Busy):
    SLUG = "server-unavailable"


class UnknownOutcome(Problem):
    """The server's own answer of an unknown outcome. The client repeats the call, and raises OutcomeUnknown in the end."""

    SLUG = "outcome-unknown"
    holder_id: str | None
    batch: str | None
    rate: str | None


def _with_slugs(base: type[Problem]) -> dict[str, type[Problem]]:
    found = {base.SLUG: base} if base.SLUG else {}
    for each in base.__subclasses__():
        found |= _with_slugs(each)
    return found


BY_SLUG: Final = _with_slugs(Problem)
