"""Requests to one account, each declared once: its fields, and all checks that do not need the account's state."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple

import orjson

from ledger.errors import Invalid
from ledger.records import Record, declared_fields
from ledger.rules.instants import to_us
from ledger.rules.lots import DEFAULT_PRIORITY, MAX_OPEN_LOTS, MAX_RECEIVED_LOTS, PURCHASED, SOURCES
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_AMOUNT,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCE_CHARACTERS,
    Amount,
    Boolean,
    Choice,
    CreditType,
    EntryNumber,
    Holder,
    IdempotencyKey,
    Integer,
    Metadata,
    RateCode,
    Text,
    Time,
    encode_json,
)

MAX_RECEIVED = MAX_RECEIVED_LOTS * MAX_AMOUNT
"""The largest number of credits in lots that transfers opened, held credits included."""
MAX_BALANCE = MAX_OPEN_LOTS * MAX_AMOUNT + MAX_RECEIVED
"""The largest balance, held credits included: 500 lots of MAX_AMOUNT, and what others sent. It is below 2^63."""
MAX_PRIORITY = 32_767
OVER_CAPTURES = ("refuse", "if_available")

CIRCUMSTANCES = frozenset({"idempotency_key", "actor", "request_id", "expected_sequence", "dry_run"})
"""The fields of a request that do not belong to its content: two requests that differ only in these are the same."""

Reason = Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)]
CountedIn = Annotated[str, CreditType()]


@dataclass(frozen=True, kw_only=True)
class Request(Record):
    """The fields of all requests. An invalid value raises `Invalid`, with the field and the rule."""

    operation: ClassVar[str]
    noun: ClassVar[str] = ""
    """What the request is called, where the operation's name is not a noun."""

    holder_id: Annotated[str, Holder()]
    idempotency_key: Annotated[str, IdempotencyKey()]
    """The request takes effect at most once per holder and key."""
    credit_type: CountedIn = "credits"
    reason: Reason = ""
    reference: Annotated[str, Text("What it belongs to in your books: an order, a message.", most=MAX_REFERENCE_CHARACTERS)] = ""
    metadata: Annotated[dict[str, Any], Metadata("Yours: at most 50 keys of at most 64 characters, 8 KiB in all.")] = field(
        default_factory=dict
    )
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    request_id: str = ""
    expected_sequence: int | None = None
    """Execute only if the account's last entry has this sequence; 0 for an account without entries."""
    dry_run: bool = False
    """Return the result without writing anything."""

    def asked(self) -> dict[str, Any]:
        """Return the content as plain JSON values. Requests with the same content are the same for every sender."""
        content = _content(type(self))  # type: ignore[arg-type]
        asked = dict(zip(content.names, content.values_of(self), strict=True))
        for name in content.times:
            if asked[name] is not None:
                asked[name] = to_us(asked[name])
        return asked

    def digest(self) -> bytes:
        """Return the first 16 bytes of SHA-256 over operation and content: equal for every JSON spelling of a request."""
        known: bytes | None = self.__dict__.get("_digest")
        if known is None:
            content = [self.operation, self.asked()]
            # orjson takes a sixth of the time, and spells texts and whole numbers alike. Metadata may have other numbers.
            text = encode_json(content).encode() if self.metadata else orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
            known = hashlib.sha256(text).digest()[:16]
            object.__setattr__(self, "_digest", known)
        return known


class _Content(NamedTuple):
    """The fields that are the content of a class of requests, and which of them are times."""

    names: tuple[str, ...]
    values_of: Callable[[Request], tuple[Any, ...]]
    times: tuple[str, ...]


@cache
def _content(kind: type[Request]) -> _Content:
    content = [item for item in declared_fields(kind) if item.name not in CIRCUMSTANCES]
    names = tuple(item.name for item in content)
    return _Content(names, attrgetter(*names), tuple(item.name for item in content if isinstance(item.value, Time)))


@dataclass(frozen=True, kw_only=True)
class GrantRequest(Request):
    """Credits to put in.

    Raises: LotLimit.
    """

    operation: ClassVar[str] = "grant"

    amount: Annotated[int, Amount("How many, in the smallest unit.")]
    source: Annotated[str, Choice(SOURCES, "Paid for, or given. Given ones are spent first.")] = PURCHASED
    effective_at: Annotated[datetime | None, Time("When they can be spent from; now by default.", null=True)] = None
    expires_at: Annotated[datetime | None, Time("When they expire; never by default.", null=True)] = None
    priority: Annotated[int, Integer("Lower ones are spent first.", least=0, most=MAX_PRIORITY)] = DEFAULT_PRIORITY


@dataclass(frozen=True, kw_only=True)
class PricedRequest(Request):
    """A request with an amount, or with a rate and a quantity that give the amount."""

    either = (("amount",), ("rate", "quantity"))

    amount: Annotated[int | None, Amount("How many, in the smallest unit.")] = None
    rate: Annotated[str | None, RateCode("Instead of the amount: the rate that it is priced by …")] = None
    quantity: Annotated[int | None, Amount("… and how much of what it prices was used.")] = None


@dataclass(frozen=True, kw_only=True)
class SpendRequest(PricedRequest):
    """Credits to take out: an amount, or a quantity of something that has a rate.

    Raises: InsufficientCredits if fewer credits are available now; UnknownRate, AmountLimit.
    """

    operation: ClassVar[str] = "spend"


@dataclass(frozen=True, kw_only=True)
class HoldRequest(PricedRequest):
    """Credits to set aside: an amount, or a quantity of something that has a rate.

    From `expires_at` on the hold withholds nothing; no job is needed for that.

    Raises: InsufficientCredits (an overdraft does not count), HoldLimit, UnknownRate, AmountLimit.
    """

    operation: ClassVar[str] = "hold"

    expires_at: Annotated[
        datetime | None, Time("When they are no longer held: within 31 days; in an hour by default.", null=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class CaptureRequest(Request):
    """How much of a hold is spent.

    The entry's amount is 0 or below: what it took from the balance beyond the hold.

    Raises: EntryNotFound, NotAHold, HoldClosed, CaptureExceedsHold, InsufficientCredits.
    """

    operation: ClassVar[str] = "capture"

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]
    amount: Annotated[int | None, Amount("How many; all that is held by default.")] = None
    final: Annotated[bool, Boolean("Release the rest; else it stays held, for more captures.")] = True
    over_capture: Annotated[
        str,
        Choice(
            OVER_CAPTURES,
            "For an amount above what is held: refuse it, or take the difference from the balance if it is available.",
        ),
    ] = "refuse"


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(Request):
    """A hold to give back.

    Raises: EntryNotFound, NotAHold, HoldClosed.
    """

    operation: ClassVar[str] = "release"

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]


@dataclass(frozen=True, kw_only=True)
class ExtendRequest(Request):
    """When a hold is to expire instead.

    Makes a `hold` entry of amount 0 that refers to the hold.

    Raises: EntryNotFound, NotAHold, HoldClosed.
    """

    operation: ClassVar[str] = "extend"
    noun: ClassVar[str] = "extension of a hold"

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]
    expires_at: Annotated[datetime, Time("Within 31 days from now; sooner than before is possible too.")]


@dataclass(frozen=True, kw_only=True)
class TransferRequest(Request):
    """Credits to move to another holder.

    Their lots keep expiry, priority and source. Both locks are taken in the order of their numbers, and both sides are written in
    one transaction. Makes a `transfer_out` entry, whose counterpart is the other holder.

    Raises: InsufficientCredits (an overdraft does not count); TransfersRefused, LotLimit, BalanceLimit of the other holder.
    """

    operation: ClassVar[str] = "transfer"

    to: Annotated[str, Holder("The holder who gets them.")]
    amount: Annotated[int, Amount("How many, in the smallest unit.")]

    def check_whole(self) -> None:
        if self.to == self.holder_id:
            raise Invalid(pointer="/to", rule="other", detail="must be another holder")


@dataclass(frozen=True, kw_only=True)
class IncomingTransfersRequest(Request):
    """Whether others may transfer credits into the account.

    Makes an `adjust` entry of amount 0 with the new `accepts_transfers`.
    """

    operation: ClassVar[str] = "incoming_transfers"

    accepted: Annotated[bool, Boolean("False refuses them from now on; accounts accept them until they are told otherwise.")]


@dataclass(frozen=True, kw_only=True)
class OverdraftRequest(Request):
    """How far below zero spends may take the balance.

    Makes an `adjust` entry of amount 0 with the new `overdraft`. A lower limit leaves an existing debt as it is; later grants
    repay it first.
    """

    operation: ClassVar[str] = "overdraft"

    limit: Annotated[int, Amount("0 for no overdraft. What is owed stays owed.", least=0)]


@dataclass(frozen=True, kw_only=True)
class RefundRequest(Request):
    """A spend to give back, whole or in part.

    The credits go to the lots that they came from. Those of an expired lot form a new lot for
    settings.LEDGER["REFUND_LOT_DAYS"] days, or expire at once, as settings.LEDGER["REFUND_TO_EXPIRED_LOT"] says. New lots with
    different terms need one entry each; the last one is returned, and its `refunded_total` covers all of them.

    Raises: EntryNotFound, NotRefundable, RefundExceedsSpend, LotLimit.
    """

    operation: ClassVar[str] = "refund"

    spend: Annotated[int, EntryNumber("The spend, by its sequence.")]
    amount: Annotated[int | None, Amount("How many; all that is left of the spend by default.")] = None


@dataclass(frozen=True, kw_only=True)
class RevokeRequest(Request):
    """A grant whose unspent rest is to be taken back, whole or in part.

    Raises: EntryNotFound, NotRevocable, RevocationExceedsGrant.
    """

    operation: ClassVar[str] = "revoke"
    noun: ClassVar[str] = "revocation"

    grant: Annotated[int, EntryNumber("The grant, by its sequence.")]
    amount: Annotated[int | None, Amount("How many; all that is unspent by default.")] = None


# Rates -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RateRequest(Record):
    """The next version of a rate."""

    code: Annotated[str, RateCode("Its name.")]
    price: Annotated[int, Amount("This many credits …")]
    per: Annotated[int, Amount("Units per price; the ledger rounds up to whole credits.")]
    credit_type: CountedIn = "credits"
    reason: Reason = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    idempotency_key: Annotated[str | None, IdempotencyKey()] = None
    """The request takes effect at most once per key, over all rates; without a key each call makes a version."""
    dry_run: bool = False
    """Return the version that would be published, and write nothing."""


@dataclass(frozen=True, kw_only=True)
class QuoteRequest(Record):
    """A quantity to be priced."""

    rate: Annotated[str, RateCode("The rate, by its name.")]
    quantity: Annotated[int, Amount("How much of what it prices.")]
    credit_type: CountedIn = "credits"
