"""Requests to one account, each declared once: its fields, and all checks that do not need the account's state."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import orjson

from ledger.errors import Invalid
from ledger.periods import MAX_INTERVAL_COUNT
from ledger.records import Nested, Record, declared_fields
from ledger.rules.budget_states import BY_HOLDER, BY_LABEL, BY_REFERENCE, HARD, MAX_SUBJECT_CHARACTERS, MODES, SCOPES
from ledger.rules.budget_windows import MAX_HOURS, ROLLING, WINDOWS
from ledger.rules.claims import MAX_CLAIMED_LOTS
from ledger.rules.cost_shares import Cost
from ledger.rules.instants import to_text, to_us
from ledger.rules.lots import (
    DEFAULT_PRIORITY,
    MAX_OPEN_LOTS,
    MAX_PRIORITY,
    MAX_RECEIVED_LOTS,
    PROMOTIONAL,
    PURCHASED,
    SOURCES,
)
from ledger.rules.overage import OVERAGE_UNITS
from ledger.rules.rates import as_text
from ledger.rules.recurring_terms import (
    AFTER_DAYS,
    CHANGES,
    EXPIRIES,
    MAX_COUNT,
    MAX_DAYS,
    MAX_PERIODS,
    PERIOD_END,
    PRORATE,
    ROLLOVER,
    UNITS,
    GrantPart,
)
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_AMOUNT,
    MAX_METADATA_KEY_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCE_CHARACTERS,
    Amount,
    AppliesTo,
    Boolean,
    BudgetName,
    ByComponent,
    Choice,
    CreditType,
    Currency,
    EntryNumber,
    Holder,
    IdempotencyKey,
    Integer,
    ListOf,
    Metadata,
    Quantity,
    RateCode,
    RecurringName,
    Text,
    Time,
    Zone,
    encode_json,
)

MAX_RECEIVED = MAX_RECEIVED_LOTS * MAX_AMOUNT
"""The largest number of credits in lots that transfers opened, held credits included."""
MAX_BALANCE = MAX_OPEN_LOTS * MAX_AMOUNT + MAX_RECEIVED
"""The largest balance, held credits included: 500 lots of MAX_AMOUNT, and what others sent. It is below 2^63."""
OVER_CAPTURES = ("refuse", "if_available")

REQUEST_OPTIONS = frozenset({"idempotency_key", "actor"})
"""The declared fields of a request that do not belong to its content, nor does a field without a type of value: two requests that
differ only in these are the same."""

Reason = Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)]
CountedIn = Annotated[str, CreditType()]
AppliesToThese = Annotated[
    dict[str, Any] | None,
    AppliesTo(
        "What the credits can pay for: spends and holds by one of the `rates`, and with one of the values of the label in their "
        "metadata. By default they can pay for everything.",
        null=True,
    ),
]
Quantities = Annotated[
    dict[str, Decimal] | None,
    ByComponent(Quantity(), "How much of each component of the rate was used; what is not named was not used. 0 costs nothing."),
]


@dataclass(frozen=True, kw_only=True)
class Request(Record):
    """The fields of all requests. An invalid value raises `Invalid`, with the field and the rule."""

    operation: ClassVar[str]
    noun: ClassVar[str] = ""
    """What the request is called, where the operation's name is not a noun."""
    in_batches: ClassVar[bool] = True
    """It can be an operation of a batch."""
    added_later: ClassVar[tuple[str, ...]] = ()
    """Fields that are part of the content only when they are set, so that earlier requests keep their digests."""
    decision: ClassVar[Callable[..., Any]]
    """The rule that makes entries of the account and the request; see `decides`."""
    earlier_entries: ClassVar[Mapping[str, str]] = {}
    """The arguments of that rule that are earlier entries, each with the field that names it."""

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
    is_tried: bool = False
    """Without enough credits, write nothing: first it is asked what is under way; see `ledger.services.coming_credits`."""
    facts_if_short: dict[str, Any] | None = None
    """Without enough credits, further facts of the refusal."""
    within_labels: Mapping[str, str] | None = None
    """The labels to which the key of the request is bound: earlier entries without them do not exist for it."""

    def content(self) -> dict[str, Any]:
        """Return the content as plain JSON values. Requests with the same content are the same for every sender."""
        declared = _content(type(self))  # type: ignore[arg-type]
        content = dict(zip(declared.names, declared.values_of(self), strict=True))
        for name in declared.times:
            if content[name] is not None:
                content[name] = to_us(content[name])
        for name in declared.quantities:
            if content[name] is not None:
                content[name] = {component: as_text(quantity) for component, quantity in content[name].items()}
        for name in self.added_later:
            # Not by its truth: a capture of a quantity of 0 is another request than one of all that is held.
            if content[name] is None or content[name] is False or content[name] == "":
                del content[name]
        return content

    def digest(self) -> bytes:
        """Return the first 16 bytes of SHA-256 over operation and content: equal for every JSON spelling of a request."""
        known: bytes | None = self.__dict__.get("_digest")
        if known is None:
            content = [self.operation, self.content()]
            # orjson takes a sixth of the time, and spells texts and whole numbers alike. Metadata may have other numbers.
            text = encode_json(content).encode() if self.metadata else orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
            known = hashlib.sha256(text).digest()[:16]
            object.__setattr__(self, "_digest", known)
        return known


RuleT = TypeVar("RuleT", bound=Callable[..., Any])


def decides(declared: type[Request], **earlier: str) -> Callable[[RuleT], RuleT]:
    """Make the function below the decision of these requests: so a request is executed that needs the account's state alone.

    Args:
        earlier: arguments of the function that are earlier entries of the account, each with the request's field that names it.
    """

    def name(rule: RuleT) -> RuleT:
        declared.decision = staticmethod(rule)
        declared.earlier_entries = earlier
        return rule

    return name


class _Content(NamedTuple):
    """The fields that are the content of a class of requests, and which of them are times and quantities."""

    names: tuple[str, ...]
    values_of: Callable[[Request], tuple[Any, ...]]
    times: tuple[str, ...]
    quantities: tuple[str, ...]


@cache
def _content(kind: type[Request]) -> _Content:
    content = [item for item in declared_fields(kind) if item.name not in REQUEST_OPTIONS]
    names = tuple(item.name for item in content)
    times, quantities = [tuple(each.name for each in content if isinstance(each.value, kind)) for kind in (Time, ByComponent)]
    return _Content(names, attrgetter(*names), times, quantities)


@dataclass(frozen=True, kw_only=True)
class GrantRequest(Request):
    """Credits to put in.

    Raises: LotLimit.
    """

    operation: ClassVar[str] = "grant"
    added_later: ClassVar[tuple[str, ...]] = ("paid_minor", "currency", "sold_at", "document", "applies_to")

    amount: Annotated[int, Amount("How many, in the smallest unit.")]
    source: Annotated[
        str,
        Choice(
            SOURCES, "Purchased: the holder paid for the credits. Promotional: they were given; spent first among equal terms."
        ),
    ] = PURCHASED
    effective_at: Annotated[datetime | None, Time("When they can be spent from; now by default.", null=True)] = None
    expires_at: Annotated[datetime | None, Time("When they expire; never by default.", null=True)] = None
    priority: Annotated[int, Integer("Lots with a lower number are spent first.", least=0, most=MAX_PRIORITY)] = DEFAULT_PRIORITY
    applies_to: AppliesToThese = None
    paid_minor: Annotated[
        int | None,
        Integer(
            "What was paid for them, without tax, in minor units of the currency. Entries that use the credits recognise their "
            "share of it.",
            least=0,
            most=MAX_AMOUNT,
            null=True,
        ),
    ] = None
    currency: Annotated[str | None, Currency("The currency of `paid_minor`, by ISO 4217.", null=True)] = None
    sold_at: Annotated[datetime | None, Time("When they were sold; now by default.", null=True)] = None
    document: Annotated[
        str, Text("What the sale is in your books, such as an invoice's number.", most=MAX_REFERENCE_CHARACTERS)
    ] = ""

    def check_whole(self) -> None:
        if (self.paid_minor is None) != (self.currency is None):
            missing = "paid_minor" if self.paid_minor is None else "currency"
            raise Invalid(pointer=f"/{missing}", rule="required", detail="give both paid_minor and currency, or neither")
        for name in ("sold_at", "document"):
            if self.paid_minor is None and getattr(self, name):
                raise Invalid(pointer=f"/{name}", rule="without-paid", detail="needs paid_minor and currency")
        if self.paid_minor and self.source == PROMOTIONAL:
            raise Invalid(pointer="/paid_minor", rule="promotional", detail="must be 0 or absent for promotional credits")

    @property
    def cost(self) -> Cost | None:
        """What was paid, if the request says so."""
        return None if self.paid_minor is None or self.currency is None else Cost(self.paid_minor, self.currency)

    @property
    def sale(self) -> dict[str, Any] | None:
        """The sale as its entry keeps it, if the request says what was paid."""
        if self.cost is None:
            return None
        sale: dict[str, Any] = {"currency": self.currency, "paid_minor": self.paid_minor}
        if self.sold_at is not None:
            sale["sold_at"] = to_text(to_us(self.sold_at))
        return sale | ({"document": self.document} if self.document else {})


@dataclass(frozen=True, kw_only=True)
class PricedRequest(Request):
    """A request with an amount, or with a rate and quantities that give the amount, which may then be 0."""

    either = (("amount",), ("rate", "quantity"), ("rate", "quantities"))
    added_later: ClassVar[tuple[str, ...]] = ("quantities",)

    amount: Annotated[int | None, Amount("How many, in the smallest unit.")] = None
    rate: Annotated[str | None, RateCode("Instead of the amount: the rate that it is priced by …")] = None
    quantity: Annotated[int | None, Amount("… and how much of what it prices was used; 0 costs 0 credits.", least=0)] = None
    quantities: Quantities = None
    wait_s: float = 0
    """How long to wait at most if credits are missing and a top-up is under way. A dry run does not wait."""


@dataclass(frozen=True, kw_only=True)
class SpendRequest(PricedRequest):
    """Credits to take out: an amount, or a quantity of something that has a rate.

    Raises: InsufficientCredits if fewer credits are available now, of a partial spend only if none are; BudgetExceeded,
        UnknownRate, AmountLimit.
    """

    operation: ClassVar[str] = "spend"
    added_later: ClassVar[tuple[str, ...]] = ("partial", "quantities")

    partial: Annotated[
        bool,
        Boolean("Spend what is available if that is less; the entry's `requested` says how many credits the request asked for."),
    ] = False


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


@dataclass(frozen=True, kw_only=True)
class VoidRequest(Request):
    """All unspent credits, to be taken back from every lot, also from lots that are not yet effective.

    Makes a `revoke` entry that refers to no grant; `drawn` names each lot. Credits of open holds remain held. One request takes
    back at most 9007199254740991 credits, the first ones in burn order.

    Raises: NothingToVoid.
    """

    operation: ClassVar[str] = "void"


@dataclass(frozen=True, kw_only=True)
class ReissueRequest(Request):
    """Another expiry or priority for what is left of a lot.

    A lot's terms never change: the lot closes, and its credits form a new lot with the new terms, which has the number of the
    entry. Source and effective time stay. Makes a `reissue` entry of amount 0 that refers to the entry that opened the lot.

    Raises: EntryNotFound, LotClosed, LotLimit.
    """

    operation: ClassVar[str] = "reissue"

    lot: Annotated[int, EntryNumber("The lot, by the sequence of the entry that opened it.")]
    expires_at: Annotated[datetime | None, Time("The new expiry; by default it does not change.", null=True)] = None
    never_expires: Annotated[bool, Boolean("The new lot never expires.")] = False
    priority: Annotated[
        int | None, Integer("The new priority; by default it does not change.", least=0, most=MAX_PRIORITY, null=True)
    ] = None

    def check_whole(self) -> None:
        if self.expires_at is not None and self.never_expires:
            raise Invalid(pointer="/never_expires", rule="not-both", detail="give either this or expires_at")
        if self.expires_at is None and not self.never_expires and self.priority is None:
            raise Invalid(pointer="/expires_at", rule="required", detail="give expires_at, never_expires or priority")


@dataclass(frozen=True, kw_only=True)
class HoldRequest(PricedRequest):
    """Credits to set aside: an amount, or a quantity of something that has a rate.

    From `expires_at` on the hold withholds nothing; no job is needed for that.

    Raises: InsufficientCredits (an overdraft does not count), BudgetExceeded, HoldLimit, UnknownRate, AmountLimit.
    """

    operation: ClassVar[str] = "hold"

    expires_at: Annotated[datetime | None, Time("When the hold expires: within 31 days; by default in an hour.", null=True)] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class CaptureRequest(Request):
    """How much of a hold is spent: an amount, or quantities of something that has a rate.

    The entry's amount is 0 or below: what it took from the balance beyond the hold. A capture of 0 is on record as a capture; a
    final one gives back all that is held. Quantities are priced by the version of the rate that priced the hold.

    Raises: EntryNotFound, NotAHold, HoldClosed, CaptureExceedsHold, InsufficientCredits; BudgetExceeded for
        what is taken beyond the hold; UnknownRate, AmountLimit.
    """

    operation: ClassVar[str] = "capture"
    added_later: ClassVar[tuple[str, ...]] = ("rate", "quantity", "quantities", "newest_version")

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]
    amount: Annotated[int | None, Amount("How many; 0 if it cost nothing; all that is held by default.", least=0)] = None
    rate: Annotated[
        str | None,
        RateCode("The rate that prices the quantities; by default the rate of the hold. Another rate has its newest version."),
    ] = None
    quantity: Annotated[int | None, Amount("Instead of the amount: how much of what the rate prices was used.", least=0)] = None
    quantities: Quantities = None
    newest_version: Annotated[
        bool, Boolean("Price by the newest version of the rate instead of the version that priced the hold.")
    ] = False
    final: Annotated[bool, Boolean("Release the rest; otherwise it stays held, for more captures.")] = True
    over_capture: Annotated[
        str,
        Choice(
            OVER_CAPTURES,
            "For an amount above what is held: refuse it, or take the difference from the balance if it is available.",
        ),
    ] = "refuse"

    def check_whole(self) -> None:
        given = [name for name in ("amount", "quantity", "quantities") if getattr(self, name) is not None]
        if len(given) > 1:
            raise Invalid(pointer=f"/{given[1]}", rule="not-both", detail=f"give either this or {given[0]}, not both")
        if (self.rate is not None or self.newest_version) and given not in (["quantity"], ["quantities"]):
            raise Invalid(
                pointer="/quantities", rule="required", detail="give `quantities`, or leave out `rate` and `newest_version`"
            )


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(Request):
    """A hold to give back.

    Raises: EntryNotFound, NotAHold, HoldClosed.
    """

    operation: ClassVar[str] = "release"

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]


@dataclass(frozen=True, kw_only=True)
class ExtendRequest(Request):
    """The new expiry of a hold.

    Makes a `hold` entry of amount 0 that refers to the hold.

    Raises: EntryNotFound, NotAHold, HoldClosed.
    """

    operation: ClassVar[str] = "extend"
    noun: ClassVar[str] = "extension of a hold"

    hold: Annotated[int, EntryNumber("The hold, by its sequence.")]
    expires_at: Annotated[datetime, Time("Within 31 days from now; it may be earlier than the current expiry.")]


@dataclass(frozen=True, kw_only=True)
class TransferRequest(Request):
    """Credits to move to another holder.

    Their lots keep expiry, priority and source. Both locks are taken in the order of their numbers, and both sides are written in
    one transaction. Makes a `transfer_out` entry, whose counterpart is the other holder.

    Raises: InsufficientCredits (an overdraft does not count), BudgetExceeded; TransfersRefused,
        LotLimit, BalanceLimit of the other holder.
    """

    operation: ClassVar[str] = "transfer"

    to: Annotated[str, Holder("The holder who gets them.")]
    amount: Annotated[int, Amount("How many, in the smallest unit.")]

    def check_whole(self) -> None:
        if self.to == self.holder_id:
            raise Invalid(pointer="/to", rule="other", detail="must be another holder")


@dataclass(frozen=True, kw_only=True)
class ReversalRequest(Request):
    """A transfer to take back, whole or in part, from the holder who got it.

    The credits leave the lots in which they arrived, the last part first, and go back to the lots that they came from. What the
    other holder has spent, holds, or lost by expiry is not taken back. Makes a `transfer_in` entry that refers to the transfer,
    one for each part; the last one is returned.

    Raises: EntryNotFound, NotReversible, ReversalExceedsTransfer, LotLimit.
    """

    operation: ClassVar[str] = "reverse"
    noun: ClassVar[str] = "reversal"
    in_batches: ClassVar[bool] = False

    transfer: Annotated[int, EntryNumber("The transfer, by the sequence of its `transfer_out` entry.")]
    to: Annotated[str, Holder("The holder who got the credits, as in the transfer.")]
    amount: Annotated[int | None, Amount("How many; all that the other holder has left of it by default.")] = None

    def check_whole(self) -> None:
        if self.to == self.holder_id:
            raise Invalid(pointer="/to", rule="other", detail="must be another holder")


@dataclass(frozen=True, kw_only=True)
class OverdraftRequest(Request):
    """How far below zero spends may take the balance.

    Makes an `adjust` entry of amount 0 with the new `overdraft`. A lower limit leaves an existing debt as it is; later grants
    repay it first.
    """

    operation: ClassVar[str] = "overdraft"
    in_batches: ClassVar[bool] = False

    limit: Annotated[int, Amount("0 for no overdraft. An existing debt stays.", least=0)]


@dataclass(frozen=True, kw_only=True)
class OverageRequest(Request):
    """How many credits may be used in each period beyond those of the account: invoiced, and repaid by no later grant.

    A spend or hold that finds too few credits in lots gets the rest as postpaid credits, up to the limit. Makes an `adjust` entry
    of amount 0. Other terms of the same `reference` whose present period ends at the same instant go on counting; all others
    begin with nothing used.

    Raises: OverageTaken.
    """

    operation: ClassVar[str] = "overage"
    in_batches: ClassVar[bool] = False

    limit: Annotated[int | None, Amount("How many credits per period; by default there is no limit.", least=0, null=True)] = None
    interval: Annotated[str, Choice(OVERAGE_UNITS, "The unit of a period.")] = "month"
    interval_count: Annotated[int, Integer("How many units a period has.", least=1, most=MAX_INTERVAL_COUNT)] = 1
    anchor_at: Annotated[
        datetime | None,
        Time(
            "An instant at which a period begins; each other one begins at the same local time. By default the present instant, "
            "and for an overage that exists, its anchor.",
            null=True,
        ),
    ] = None
    time_zone: Annotated[str, Zone("The zone whose days, months and clocks count.")] = "UTC"
    ends_at: Annotated[
        datetime | None, Time("From then on nothing more can be used on overage; by default it has no end.", null=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class EndOverageRequest(Request):
    """The end of an overage: from now on nothing more can be used beyond the credits of the account.

    Makes an `adjust` entry of amount 0. What was used stays used.

    Raises: OverageNotFound, OverageTaken.
    """

    operation: ClassVar[str] = "end_overage"
    noun: ClassVar[str] = "end of an overage"
    in_batches: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class IncomingTransfersRequest(Request):
    """Whether others may transfer credits into the account.

    Makes an `adjust` entry of amount 0 with the new `accepts_transfers`.
    """

    operation: ClassVar[str] = "incoming_transfers"
    in_batches: ClassVar[bool] = False

    accepted: Annotated[
        bool, Boolean("False refuses transfers from now on; by default an account accepts them.", named="accepts_transfers")
    ]


@dataclass(frozen=True, kw_only=True)
class FreezeRequest(Request):
    """Whether the holder is frozen, in all credit types.

    The ledger refuses spends and holds of a frozen holder, transfers from and to it, and captures beyond what is held. Grants,
    refunds, captures of what is held, releases, revocations and expiries go on. Makes an `adjust` entry of amount 0 with the new
    `frozen`, in the account of the credit type that is named.
    """

    operation: ClassVar[str] = "freeze"
    in_batches: ClassVar[bool] = False

    frozen: Annotated[bool, Boolean("True freezes the holder; false unfreezes it.")]


@dataclass(frozen=True, kw_only=True)
class ClockRequest(Request):
    """The time of the holder's test clock, in a deployment for tests.

    From then on it is that time for the holder, in all credit types, until the clock is moved again. It only goes forward. Makes
    an `adjust` entry of amount 0, in the account of the credit type that is named.

    Raises: ClocksOff.
    """

    operation: ClassVar[str] = "test_clock"
    in_batches: ClassVar[bool] = False

    now: Annotated[
        datetime, Time("The time of the holder from then on: after the present one, by at most 10 years, and before 2150.")
    ]


BETWEEN_HOLDERS: Final = (TransferRequest, ReversalRequest)
"""The requests that change the accounts of two holders; `to` names the other one."""


@dataclass(frozen=True, kw_only=True)
class ClaimRequest(Request):
    """Credits of a purchase that are gone although its money was returned: those that come back are taken back.

    Makes an `adjust` entry of amount 0.
    """

    operation: ClassVar[str] = "claim"
    in_batches: ClassVar[bool] = False

    lots: Annotated[
        list[int],
        ListOf(EntryNumber(), "The lots of the purchase, by the sequences that opened them.", least=1, most=MAX_CLAIMED_LOTS),
    ]
    amount: Annotated[int, Amount("How many credits are claimed.")]


@dataclass(frozen=True, kw_only=True)
class EndClaimRequest(Request):
    """The end of a claim: what was settled of it stays settled.

    Makes an `adjust` entry of amount 0, whose `counterpart` says how much was left.
    """

    operation: ClassVar[str] = "end_claim"
    noun: ClassVar[str] = "withdrawal of a claim"
    in_batches: ClassVar[bool] = False

    claim: Annotated[int, EntryNumber("The claim, by the sequence of the entry that took it.")]


@dataclass(frozen=True, kw_only=True)
class BudgetRequest(Request):
    """How much may be spent in a window of time: by the whole account, or by each member, API key or reference.

    Makes an `adjust` entry of amount 0. From `starts_at` on it replaces a budget of that name, which goes on counting if window
    and scope are the same.

    Raises: BudgetLimit, BudgetNotFound.
    """

    operation: ClassVar[str] = "budget"
    added_later: ClassVar[tuple[str, ...]] = ("parent", "starts_at", "ends_at")
    in_batches: ClassVar[bool] = False

    budget: Annotated[str, BudgetName("Its name, unique in the account.")]
    limit: Annotated[int, Amount("How many credits may be spent in the window; 0 for none.", least=0)]
    window: Annotated[
        str, Choice(WINDOWS, "A calendar day, week (from Monday) or month of the time zone; or `rolling`: the last `hours`.")
    ]
    hours: Annotated[
        int | None,
        Integer("Of a rolling window: its length. It moves in 24 steps.", least=1, most=MAX_HOURS, null=True),
    ] = None
    time_zone: Annotated[str, Zone("The zone whose days, weeks and months count.")] = "UTC"
    by: Annotated[
        str,
        Choice(
            SCOPES,
            "Whose spending is counted together: everything of the account, or what has the same actor (an API key is `key:` and "
            "its name), reference, or value of a label in the metadata.",
        ),
    ] = BY_HOLDER
    label: Annotated[
        str | None,
        Text("By label: the key in the metadata, such as member.", least=1, most=MAX_METADATA_KEY_CHARACTERS, null=True),
    ] = None
    subject: Annotated[
        str | None,
        Text(
            "The only actor, reference or value of the label that the budget counts, instead of the budgets of the same window "
            "that count each one. By default each has the whole limit; a budget by reference needs one.",
            most=MAX_SUBJECT_CHARACTERS,
            null=True,
        ),
    ] = None
    mode: Annotated[
        str, Choice(MODES, "`hard`: what exceeds the limit is refused. `soft`: it is spent, and the budget shows it.")
    ] = HARD
    parent: Annotated[
        str | None,
        BudgetName(
            "The budget in which this one nests: an agent within its member. It counts what the parent counts, and each subject "
            "once for each subject of the parent.",
            null=True,
        ),
    ] = None
    starts_at: Annotated[
        datetime | None,
        Time("From when on it counts and limits: until then, the present one of this name stays. By default now.", null=True),
    ] = None
    ends_at: Annotated[
        datetime | None,
        Time("Until when. What begins at this instant or later stays; by default this budget replaces that too.", null=True),
    ] = None

    def check_whole(self) -> None:
        check_budget(self)
        if self.ends_at is not None and self.starts_at is not None and self.ends_at <= self.starts_at:
            raise Invalid(pointer="/ends_at", rule="order", detail="must be after starts_at")


class BudgetTerms(Protocol):
    """What a budget counts: a request, or what somebody keeps to set it later."""

    @property
    def budget(self) -> str: ...
    @property
    def window(self) -> str: ...
    @property
    def hours(self) -> int | None: ...
    @property
    def by(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def parent(self) -> str | None: ...


def check_budget(terms: BudgetTerms, *, at: str = "") -> None:
    """Return, or raise if the fields of a budget contradict each other.

    Args:
        at: the pointer of the object with the fields.
    """
    if (terms.window == ROLLING) != (terms.hours is not None):
        raise Invalid(pointer=f"{at}/hours", rule="with-rolling", detail="must be given for a rolling window, and for no other")
    if (terms.by == BY_LABEL) != (terms.label is not None):
        raise Invalid(pointer=f"{at}/label", rule="with-label", detail="must be given for a budget by label, and for no other")
    if terms.by == BY_HOLDER and terms.subject is not None:
        raise Invalid(pointer=f"{at}/subject", rule="with-scope", detail="must be left out for a budget of the whole account")
    if terms.by == BY_REFERENCE and terms.subject is None:
        raise Invalid(pointer=f"{at}/subject", rule="with-scope", detail="must be given for a budget by reference")


@dataclass(frozen=True, kw_only=True)
class EndBudgetRequest(Request):
    """The end of a budget.

    Makes an `adjust` entry of amount 0.

    Raises: BudgetNotFound.
    """

    operation: ClassVar[str] = "end_budget"
    noun: ClassVar[str] = "end of a budget"
    in_batches: ClassVar[bool] = False
    added_later: ClassVar[tuple[str, ...]] = ("ends_at",)

    budget: Annotated[str, BudgetName("Its name, unique in the account.")]
    ends_at: Annotated[
        datetime | None, Time("Its last instant is the one before; nothing of its name begins later. By default now.", null=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class RecurringGrantRequest(Request):
    """A grant that recurs every day, week, month or year, without a subscription.

    Makes an `adjust` entry of amount 0; a worker makes each grant when its period begins. The first period is the one of this
    instant, or the first one if the start is later. Other terms of a recurring grant that exists begin at once, as `change` says.

    Raises: RecurringGrantDue, RecurringGrantLimit.
    """

    operation: ClassVar[str] = "recurring_grant"
    noun: ClassVar[str] = "recurring grant"
    in_batches: ClassVar[bool] = False
    either = (("amount",), ("up_to",))
    added_later: ClassVar[tuple[str, ...]] = ("applies_to",)

    recurring_grant: Annotated[str, RecurringName("Its name, unique in the account.")]
    interval: Annotated[str, Choice(UNITS, "The unit of a period.")]
    amount: Annotated[int | None, Amount("How many credits each period, in the smallest unit.")] = None
    up_to: Annotated[
        int | None,
        Amount(
            "Instead of the amount: fills what the recurring grant's earlier lots have left, held credits included, up to this."
        ),
    ] = None
    interval_count: Annotated[int, Integer("How many units a period has.", least=1, most=MAX_COUNT)] = 1
    starts_at: Annotated[
        datetime | None,
        Time(
            "When the first period begins; each following one at the same local time. By default now, and for a recurring grant "
            "that exists, its present start.",
            null=True,
        ),
    ] = None
    time_zone: Annotated[str, Zone("The zone whose days, months and clocks count.")] = "UTC"
    source: Annotated[
        str, Choice(SOURCES, "Purchased: the holder paid for the credits. Promotional: they were given, and are spent first.")
    ] = PROMOTIONAL
    priority: Annotated[int, Integer("Lots with a lower number are spent first.", least=0, most=MAX_PRIORITY)] = DEFAULT_PRIORITY
    applies_to: AppliesToThese = None
    expiry: Annotated[
        str,
        Choice(
            EXPIRIES,
            "When the credits of a period expire: at its end, some days after its start, never, or by `rollover`: they stay, and "
            "when the next period begins, what is unspent beyond `rollover_cap` is revoked, the oldest first.",
        ),
    ] = PERIOD_END
    expires_after_days: Annotated[
        int | None, Integer("With `after_days`: how many days after the period's start.", least=1, most=MAX_DAYS, null=True)
    ] = None
    rollover_cap: Annotated[
        int | None, Amount("With `rollover`: how many unspent credits the next period keeps.", least=0, null=True)
    ] = None
    ends_at: Annotated[datetime | None, Time("No period begins from then on; by default it has no end.", null=True)] = None
    periods: Annotated[
        int | None, Integer("How many periods there are, from the start on.", least=1, most=MAX_PERIODS, null=True)
    ] = None
    change: Annotated[
        str,
        Choice(
            CHANGES,
            "Of a recurring grant that exists, what another amount or other periods do with the credits of the running period. "
            "`prorate` takes back those of the time that is left, as far as they are unspent, and grants the new share at once; "
            "`keep` leaves them, and the new terms begin where they end; `full` grants all of the new period at once.",
        ),
    ] = PRORATE
    first_at: datetime | None = None
    """The first period that is granted is the one that begins then, and grants have the request's reason and reference."""
    parts: tuple[GrantPart, ...] = ()
    """Stretches of time with credits of their own; with them and without `first_at`, no period is granted."""
    known_as: str = ""
    """What the caller knows the periods by."""

    def check_whole(self) -> None:
        if (self.expiry == AFTER_DAYS) != (self.expires_after_days is not None):
            raise Invalid(
                pointer="/expires_after_days", rule="with-after-days", detail="must be given for after_days, and for nothing else"
            )
        if (self.expiry == ROLLOVER) != (self.rollover_cap is not None):
            raise Invalid(
                pointer="/rollover_cap", rule="with-rollover", detail="must be given for rollover, and for nothing else"
            )
        if self.ends_at is not None and self.starts_at is not None and self.ends_at <= self.starts_at:
            raise Invalid(pointer="/ends_at", rule="order", detail="must be after starts_at")


@dataclass(frozen=True, kw_only=True)
class EndRecurringGrantRequest(Request):
    """The end of a recurring grant. What it granted stays.

    Makes an `adjust` entry of amount 0.

    Raises: RecurringGrantNotFound, RecurringGrantDue.
    """

    operation: ClassVar[str] = "end_recurring_grant"
    noun: ClassVar[str] = "end of a recurring grant"
    in_batches: ClassVar[bool] = False

    recurring_grant: Annotated[str, RecurringName("Its name, unique in the account.")]
    drops_due: bool = False
    """End it although a grant is due: one that cannot be made."""


REQUESTS: Final[dict[str, type[Request]]] = {
    each.operation: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, Request) and hasattr(each, "operation")
}
"""All requests to one account, by operation."""


# Rates -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RateComponent(Record):
    """The price of one component of a rate."""

    price: Annotated[int, Amount("The price of `per` units, in credits; 0 if they are free.", least=0)]
    per: Annotated[int, Amount("Units per price.")]


@dataclass(frozen=True, kw_only=True)
class RateRequest(Record):
    """The next version of a rate: one price, or a price for each of its components."""

    either = (("price", "per"), ("components",))

    code: Annotated[str, RateCode("Its name.", named="ref")]
    price: Annotated[int | None, Amount("The price of `per` units, in credits; 0 if they are free.", least=0)] = None
    per: Annotated[int | None, Amount("Units per price; the ledger rounds up to whole credits.")] = None
    components: Annotated[
        dict[str, RateComponent] | None,
        ByComponent(
            Nested(RateComponent),
            "Instead of one price: a price for each component, such as `input` and `output`. The ledger adds up the exact "
            "costs of "
            "all components, and rounds the sum up once to whole credits.",
        ),
    ] = None
    credit_type: CountedIn = "credits"
    reason: Reason = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    idempotency_key: Annotated[str | None, IdempotencyKey()] = None
    """The request takes effect at most once per key, over all rates; without a key each call makes a version."""
    dry_run: bool = False
    """Return the version that would be published, and write nothing."""


@dataclass(frozen=True, kw_only=True)
class QuoteRequest(Record):
    """Quantities to be priced."""

    either = (("quantity",), ("quantities",))

    rate: Annotated[str, RateCode("The rate, by its name.")]
    quantity: Annotated[int | None, Amount("The quantity to price, of a rate without components.", least=0)] = None
    quantities: Quantities = None
    credit_type: CountedIn = "credits"
