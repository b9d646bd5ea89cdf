"""The errors, grouped by what a caller does about them.

- `Refused`: the ledger refuses the request and records that; the same key gets the same refusal. It does not record
  a limit that passes.
- `Retryable`: nothing was written; the same key is safe to repeat.
- `Invalid`: the request itself is wrong; nothing was written, nothing is recorded.
- `Misuse`: a bug in the caller. Never catch it.

Each class declares its code, title, status and texts, and its facts: annotated attributes, which determine the arguments of its
constructor, the members of the problem, its schema in the OpenAPI document and the clients' classes. A fact with a default may be
left out. A subclass inherits what it does not define.
"""

from copyreg import __newobj__ as new_object  # type: ignore[attr-defined]
from typing import Annotated, Any, ClassVar, Final, NamedTuple, NotRequired, TypedDict, dataclass_transform

from ledger.values import (
    HOLD_STATES,
    LOT_STATES,
    MAX_REFERENCE_CHARACTERS,
    Amount,
    AppliesTo,
    BudgetName,
    Choice,
    Count,
    Credits,
    CreditType,
    EntryNumber,
    Holder,
    IdempotencyKey,
    ListOf,
    Members,
    RateCode,
    RecurringName,
    Text,
    Time,
)

NOT_EXECUTED = "not_executed"
UNKNOWN = "unknown"


class Answer(NamedTuple):
    """How the API answers an error: with which status, detail and outcome.

    The facts fill `detail`; `{rows:row|rows}` is the fact with its noun, "1 row" or "2 rows".
    """

    status: int
    detail: str
    outcome: str = NOT_EXECUTED
    retry_after_seconds: int | range | None = None
    """For Retry-After; from a range, a random value, so that many clients with the same error do not come back together."""


AGAIN = "Nothing was written. Send the same request again with the same key."


@dataclass_transform(kw_only_default=True)
class LedgerError(Exception):
    """Base of all; carries a stable `code` and the facts of the case, as attributes and together as `facts`."""

    code: ClassVar[str] = "ledger-error"
    title: ClassVar[str] = "The ledger could not execute the request"
    answer: ClassVar[Answer] = Answer(500, "The log has the details under this request_id.", UNKNOWN)

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        vars(self).update(facts)
        super().__init__(", ".join(f"{name}={value!r}" for name, value in facts.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy it with its attributes, without the constructor, so that other processes get it whole."""
        return new_object, (type(self), *self.args), vars(self)

    def __str__(self) -> str:
        """Return one sentence, with the facts that are no lists."""
        known = [f"{name} {value!r}" for name, value in self.facts.items() if isinstance(value, str | int) and value != ""]
        return f"{self.title}: {', '.join(known)}." if known else f"{self.title}."


def describe_failure(error: Exception) -> str:
    """Return what failed, for a summary: the sentence of an error of the ledger, of others the class and the text."""
    return str(error) if isinstance(error, LedgerError) else f"{type(error).__name__}: {str(error).strip()}"


# The ledger refuses, and records that ----------------------------------------------------------------


class Refused(LedgerError):
    """The ledger refused the request and recorded the refusal under the request's key, unless the limit `passes`."""

    code = "refused"
    title = "The ledger refused the request"
    answer = Answer(409, "")
    text: ClassVar[str] = ""
    """The sentence for operators, filled by `rules.refusal_texts`; empty if `refusal_texts` needs more than the facts."""
    text_if: ClassVar[tuple[tuple[str, Any, str], ...]] = ()
    """Other sentences, each for a fact with a value."""
    remedy: ClassVar[tuple[str, str, str] | None] = None
    """A remedy: the action, its sentence, and the fact with its amount; no remedy if the amount is 0."""

    stored_as: ClassVar[str] = ""
    """The name of a stored refusal, if another class has the same code; empty: the code."""
    passes: ClassVar[bool] = False
    """True for a limit that passes: such a refusal is not recorded, and the same key may succeed later."""
    replayed = False
    """True when the same key got this refusal before."""
    request_id = ""
    """The request that was refused first."""
    is_recorded = True
    """False: the request was only tried, and nobody gets the refusal."""
    last_sequence = 0
    """Of a request that was only tried: the last entry of the account that refused it."""


class InsufficientCreditsLot(TypedDict):
    """A lot of the account that has too few credits."""

    grant: Annotated[int, EntryNumber("The grant, by sequence.")]
    remaining: Annotated[int, Credits("Credits left in it.")]
    state: Annotated[str, Choice(LOT_STATES, "Whether it can be spent.")]
    effective_at: Annotated[str | None, Time("When it can be spent from.", null=True)]
    expires_at: Annotated[str | None, Time("When it expires; null for never.", null=True)]
    applies_to: NotRequired[Annotated[dict[str, Any], AppliesTo("What its credits can pay for; absent for everything.")]]


class CreditsForOtherThings(TypedDict):
    """Credits that can be spent now, but not for this request."""

    applies_to: Annotated[dict[str, Any], AppliesTo("What they can pay for.")]
    available: Annotated[int, Credits("How many there are.")]


class InsufficientCreditsHold(TypedDict):
    """An open hold of the account that has too few credits."""

    hold: Annotated[int, EntryNumber("The hold, by the sequence of its entry.")]
    amount: Annotated[int, Credits("What it still sets aside.")]
    state: Annotated[str, Choice(HOLD_STATES, "Whether it still holds them.")]
    expires_at: Annotated[str, Time("When it expires.")]


class OverageFacts(TypedDict):
    """How many credits the account may use beyond those that it has; they are invoiced."""

    limit: Annotated[int | None, Amount("How many in the period; null for no limit.", least=0, null=True)]
    used: Annotated[int, Amount("How many of them are used.", least=0)]
    until: Annotated[str, Time("When the period ends, or the agreement.")]


TOP_UP_STATES: Final = ("due", "requested", "waiting", "processing", "granting", "paused")


class InsufficientCreditsTopUp(TypedDict):
    """The automatic top-up of the account that has too few credits, as it stood when the request was refused."""

    id: Annotated[int, EntryNumber("The top-up, by its id.")]
    state: Annotated[
        str,
        Choice(
            TOP_UP_STATES,
            "`due`: a payment will be started; `requested`: it was started, and the provider is asked now; `waiting`: it waits "
            "for the customer; `processing`: the bank has not decided; `granting`: the money is in, and the credits are being "
            "added; `paused`: after declines, it waits for a person.",
        ),
    ]
    credits: Annotated[int, Credits("How many credits it will add; 0 while it is paused.")]


class InsufficientCredits(Refused):
    """The account has fewer credits available than the request needs.

    A key without `ledger:read` gets no causes and, of a dry run, only the shortfall.
    """

    code = "insufficient-credits"
    title = "The account has too few credits"
    answer = Answer(402, "The request needs {requested:credit|credits}; {available:is|are} available.")

    shortfall: Annotated[int, Credits("How many credits are missing.")]
    available: Annotated[int, Credits("How many credits can be used for the request.")]
    balance: Annotated[int, Credits("The sum of all entries; below zero only where an overdraft was agreed.")]
    requested: Annotated[int, Credits("How many credits the request needs.")]
    held: Annotated[int | None, Credits("Credits set aside.")] = None
    expired: Annotated[int | None, Credits("Credits that have expired and are not booked yet.")] = None
    not_yet_effective: Annotated[int | None, Credits("Credits that cannot be spent yet.")] = None
    lots: Annotated[
        list[InsufficientCreditsLot] | None,
        ListOf(Members(InsufficientCreditsLot), "Up to ten lots; those that cannot be spent come first.", most=10),
    ] = None
    holds: Annotated[
        list[InsufficientCreditsHold] | None,
        ListOf(Members(InsufficientCreditsHold), "Up to ten open holds, the oldest first.", most=10),
    ] = None
    earliest_sufficient_at: Annotated[
        str | None,
        Time("The instant from which enough credits will be available if nothing else happens; null for never.", null=True),
    ] = None
    overage: Annotated[
        OverageFacts | None,
        Members(OverageFacts, "The overage that the request could use, which `available` includes; absent without one."),
    ] = None
    for_other_things: Annotated[
        list[CreditsForOtherThings] | None,
        ListOf(
            Members(CreditsForOtherThings),
            "Credits that can be spent now on other rates or labels only, by what they can pay for; absent without any.",
            most=10,
        ),
    ] = None
    top_up: Annotated[
        InsufficientCreditsTopUp | None,
        Members(InsufficientCreditsTopUp, "The automatic top-up that is under way; absent without one."),
    ] = None
    retry_after_seconds: Annotated[
        int | None, Count("After how many seconds to ask again, with another key; absent if nobody knows.")
    ] = None


class BudgetExceeded(Refused):
    """A hard budget has less left in its window than the request needs.

    A dry run tells a key without `ledger:read` neither the limit nor what is used.
    """

    code = "budget-exceeded"
    title = "The budget is used up"
    answer = Answer(402, "The request needs {requested:credit|credits} within the budget {budget}.")
    text = "{requested} requested, {remaining} left of the budget {budget}{subject:of}: {used} of {limit} used{resets_at:until}."
    remedy = ("", "Wait until the budget {budget} has room{resets_at:at}, or raise its limit", "")

    budget: Annotated[str, BudgetName("The budget; if several are exceeded, the one that has room again last.")]
    subject: Annotated[
        str | None,
        Text("The actor, reference or label value that the limit is for; null for the whole account.", most=200, null=True),
    ]
    requested: Annotated[int, Credits("How many credits the request needs.")]
    resets_at: Annotated[
        str | None,
        Time(
            "When the budget will have room for the request if nothing else is spent. If the limit is below the request: when "
            "nothing of it will be used any more; null if nothing is used now.",
            null=True,
        ),
    ]
    limit: Annotated[int | None, Credits("The limit of the budget.")] = None
    used: Annotated[int | None, Credits("How much of it is used in the current window, holds included.")] = None
    remaining: Annotated[int | None, Credits("What is left.")] = None


class BudgetLimit(Refused):
    """The account would have too many budgets, or they would nest too deep. Not recorded."""

    code = "budget-limit"
    title = "The account has too many budgets"
    answer = Answer(409, "The account can have at most {limit} {what}.")
    text = "an account can have at most {limit} {what}."
    passes = True

    what: Annotated[
        str, Choice(("budgets", "levels of budgets", "settings of budgets for later"), "What there would be too many of.")
    ]
    limit: Annotated[int, Count("How many it may have.")]


class BudgetNotFound(Refused):
    """The account has no budget of this name."""

    code = "budget-not-found"
    title = "The budget does not exist"
    answer = Answer(404, "The account has no budget {budget}.")
    text = "the account has no budget {budget}."

    budget: Annotated[str, BudgetName("The budget that the request names.")]


class OverageNotFound(Refused):
    """The account has no overage, or it has ended."""

    code = "overage-not-found"
    title = "The account has no overage"
    answer = Answer(404, "The account of {credit_type} has no overage.")
    text = "the account of {credit_type} has no overage."

    credit_type: Annotated[str, CreditType("The credit type of the account.")]


class OverageTaken(Refused):
    """The account has an overage that belongs to something else, such as a subscription; an account has one at a time."""

    code = "overage-taken"
    title = "The account has another overage"
    answer = Answer(409, "The account has an overage of {reference}.")
    text = "the account has an overage of {reference}."
    remedy = ("", "End the overage of {reference} first", "")

    reference: Annotated[str, Text("What the present overage belongs to.", most=MAX_REFERENCE_CHARACTERS)]


class RecurringGrantNotFound(Refused):
    """The account has no recurring grant of this name, or it has ended."""

    code = "recurring-grant-not-found"
    title = "The recurring grant does not exist"
    answer = Answer(404, "The account has no recurring grant {recurring_grant}.")
    text = "the account has no recurring grant {recurring_grant}."

    recurring_grant: Annotated[str, RecurringName("The recurring grant that the request names.")]


class RecurringGrantLimit(Refused):
    """The account has as many recurring grants as it may have. Not recorded: one that ends makes room."""

    code = "recurring-grant-limit"
    title = "The account has too many recurring grants"
    answer = Answer(409, "The account can have at most {limit} recurring grants.")
    text = "an account can have at most {limit} recurring grants."
    passes = True

    limit: Annotated[int, Count("How many it may have.")]


class RecurringGrantDue(Refused):
    """A grant by the present terms is due and was not made yet, so other terms cannot begin. Not recorded."""

    code = "recurring-grant-due"
    title = "A grant is due by the present terms"
    answer = Answer(409, "The recurring grant {recurring_grant} has a grant due since {due_at}. Repeat the request later.")
    text = "the recurring grant {recurring_grant} has a grant due since {due_at}, which has to be made first."
    passes = True

    recurring_grant: Annotated[str, RecurringName("The recurring grant that the request names.")]
    due_at: Annotated[str, Time("Since when.")]


class EntryNotFound(Refused):
    """The account has no entry of this sequence."""

    code = "entry-not-found"
    title = "The entry does not exist"
    answer = Answer(404, "Entry {sequence} of {credit_type} does not exist.")
    text = "the account has no entry #{sequence} in {credit_type}."

    sequence: Annotated[int, EntryNumber("The entry that the request names.")]
    credit_type: Annotated[str, CreditType("What is counted.")]


class NotRefundable(Refused):
    """The entry is not a spend."""

    code = "not-refundable"
    title = "Only a spend can be refunded"
    answer = Answer(409, "Entry {sequence} is of kind {kind}; only a spend can be refunded.")
    text = "entry #{sequence} is {kind:a kind}. Only a spend or a capture can be refunded."

    sequence: Annotated[int, EntryNumber("The entry that the request names.")]
    kind: Annotated[str, Text("The kind of the entry.", most=32)]


class RefundExceedsSpend(Refused):
    """The refund asks for more than the unrefunded rest of the spend."""

    code = "refund-exceeds-spend"
    title = "The refund exceeds the spend"
    answer = Answer(409, "Spend {sequence} has {refundable:credit|credits} left to refund; the request asks for {requested}.")
    text = "{requested} requested, {refundable} {refundable:are} left of spend #{sequence}. Over by {over}."
    text_if = (("requested", None, "nothing is left of spend #{sequence}."),)
    remedy = ("refund", "Refund the {refundable} that {refundable:are} left", "refundable")

    sequence: Annotated[int, EntryNumber("The spend.")]
    refundable: Annotated[int, Credits("What is left to refund.")]
    requested: Annotated[int | None, Credits("What the request asks for; null for all that is left.", null=True)]


class NotRevocable(Refused):
    """The entry is not a grant."""

    code = "not-revocable"
    title = "Only a grant can be revoked"
    answer = Answer(409, "Entry {sequence} is of kind {kind}; only a grant can be revoked.")
    text = "entry #{sequence} is {kind:a kind}. Only a grant can be revoked."

    sequence: Annotated[int, EntryNumber("The entry that the request names.")]
    kind: Annotated[str, Text("The kind of the entry.", most=32)]


class RevocationExceedsGrant(Refused):
    """The revocation asks for more than the unspent rest of the grant."""

    code = "revocation-exceeds-grant"
    title = "The revocation exceeds the rest of the grant"
    answer = Answer(409, "Grant {sequence} has {revocable:credit|credits} left to revoke; the request asks for {requested}.")
    text = "{requested} to be revoked, {revocable} {revocable:are} left of grant #{sequence}. Over by {over}."
    text_if = (("requested", None, "nothing is left of grant #{sequence}."),)

    sequence: Annotated[int, EntryNumber("The grant.")]
    revocable: Annotated[int, Credits("What is left to revoke.")]
    requested: Annotated[int | None, Credits("What the request asks for; null for all that is left.", null=True)]


class LotClosed(Refused):
    """The lot is not open: its credits were used, are held, or expired, or the entry opened no lot."""

    code = "lot-closed"
    title = "The lot is not open"
    answer = Answer(409, "Lot {sequence} has no credits left outside holds.")
    text = "lot #{sequence} has no credits left outside holds."

    sequence: Annotated[int, EntryNumber("The lot, by the entry that the request names.")]


class NotReversible(Refused):
    """The entry is not a transfer to another holder, or it is itself a reversal."""

    code = "not-reversible"
    title = "Only a transfer to another holder can be reversed"
    answer = Answer(409, "Entry {sequence} is of kind {kind}; only a transfer to another holder can be reversed.")
    text = "entry #{sequence} is {kind:a kind}. Only a transfer to another holder can be reversed; a reversal cannot."

    sequence: Annotated[int, EntryNumber("The entry that the request names.")]
    kind: Annotated[str, Text("The kind of the entry.", most=32)]


class ReversalExceedsTransfer(Refused):
    """The reversal asks for more than the other holder still has of the transfer."""

    code = "reversal-exceeds-transfer"
    title = "The reversal exceeds the rest of the transfer"
    answer = Answer(
        409, "The other holder has {reversible:credit|credits} left of transfer {sequence}; the request asks for {requested}."
    )
    text = "{requested} requested, the other holder has {reversible} left of transfer #{sequence}. Over by {over}."
    text_if = (("requested", None, "the other holder has nothing left of transfer #{sequence}."),)

    sequence: Annotated[int, EntryNumber("The transfer.")]
    reversible: Annotated[int, Credits("What the other holder has left of it, unspent, unexpired and not held.")]
    requested: Annotated[int | None, Credits("What the request asks for; null for all that is left.", null=True)]


class NothingToVoid(Refused):
    """The account has no unspent credits outside holds."""

    code = "nothing-to-void"
    title = "The account has no unspent credits"
    answer = Answer(409, "The account has no unspent credits to take back; open holds set aside {held:credit|credits}.")
    text = "the account has no unspent credits. Open holds set aside {held:credits}."

    held: Annotated[int, Credits("What open holds set aside.")]


class HolderFrozen(Refused):
    """The holder is frozen: no credits leave it, and others cannot transfer credits to it."""

    code = "holder-frozen"
    title = "The holder is frozen"
    answer = Answer(409, "{holder_id} is frozen: nothing can be spent, held or transferred until an operator ends the freeze.")
    text = "{holder_id} is frozen."

    holder_id: Annotated[str, Holder("The frozen holder; in a transfer, the sender or the receiver.")]


class ClocksOff(Refused):
    """The deployment is not for tests, so its holders have no test clocks. Not recorded."""

    code = "test-clocks-off"
    title = "This deployment has no test clocks"
    answer = Answer(409, "Only a deployment for tests, with LEDGER_TEST_CLOCKS, has test clocks; here time is the server's.")
    text = "this deployment has no test clocks."
    passes = True


class ClocksDiffer(Refused):
    """The two holders of a transfer do not have the same time, because one of them has a test clock. Not recorded."""

    code = "test-clocks-differ"
    title = "The holders' test clocks differ"
    answer = Answer(409, "{holder_id} and {to} do not have the same time. Move their test clocks to the same time first.")
    text = "{holder_id} and {to} do not have the same time."
    passes = True

    holder_id: Annotated[str, Holder("The holder that the request names.")]
    to: Annotated[str, Holder("The other holder.")]


class LotLimit(Refused):
    """The account, or the receiver of a transfer, cannot have another open lot. Not recorded.

    Grants can open at most 500 lots of an account, transfers from others 100 more. For a transfer the response does not tell how
    many lots the receiver has.
    """

    code = "lot-limit"
    title = "The account has too many open lots"
    answer = Answer(409, "The account has {open_lots:open lot|open lots}; the limit is {limit}.")
    text = "the account has {open_lots} open lots; the limit is {limit}."
    passes = True

    open_lots: Annotated[int, Count("How many open lots the account has.")]
    limit: Annotated[int, Count("How many it may have.")]


class BalanceLimit(Refused):
    """The account would have more credits from others than the limit. Not recorded."""

    code = "balance-limit"
    title = "The account has too many credits"
    answer = Answer(409, "The account can have at most {limit:credit|credits} that others sent.")
    text = "an account can have at most {limit:credits} that others sent."
    passes = True

    limit: Annotated[int, Credits("The limit of credits that an account can have from others.")]


class HoldLimit(Refused):
    """The open holds of the account would exceed the limit of held lots. Not recorded."""

    code = "hold-limit"
    title = "The open holds of the account hold too many lots"
    answer = Answer(409, "The open holds would hold {held_lots:lot|lots}; the limit is {limit}.")
    text = "the open holds set aside {held_lots} lots; the limit is {limit}."
    passes = True

    held_lots: Annotated[int, Count("How many lots the open holds would hold.")]
    limit: Annotated[int, Count("How many they may hold.")]


class TransfersRefused(Refused):
    """The holder who would receive the credits refuses transfers."""

    code = "transfers-refused"
    title = "The other holder refuses transfers"
    answer = Answer(409, "{to} refuses transfers from others.")
    text = "{to} refuses transfers from others."

    to: Annotated[str, Holder("The holder who refuses transfers.")]


class NotAHold(Refused):
    """The entry is not a hold."""

    code = "not-a-hold"
    title = "Only a hold can be captured, released or extended"
    answer = Answer(409, "Entry {sequence} is of kind {kind}; only a hold can be captured, released or extended.")
    text = "entry #{sequence} is {kind:a kind}. Only a hold can be captured, released or extended."

    sequence: Annotated[int, EntryNumber("The entry that the request names.")]
    kind: Annotated[str, Text("The kind of the entry.", most=32)]


class HoldClosed(Refused):
    """The hold was captured or released, or has expired."""

    code = "hold-closed"
    title = "The hold is closed"
    answer = Answer(409, "Hold {sequence} is closed: {how}.")
    text = "hold #{sequence} was already {how} by entry #{closed_by}."
    text_if = (("how", "expired", "hold #{sequence} had expired."),)

    sequence: Annotated[int, EntryNumber("The hold.")]
    how: Annotated[str, Choice(("captured", "released", "expired"), "What ended it.")]
    closed_by: Annotated[int | None, EntryNumber("The entry that ended it; null if no entry is booked yet.", null=True)]


class CaptureExceedsHold(Refused):
    """The capture asks for more than the hold still holds."""

    code = "capture-exceeds-hold"
    title = "The capture exceeds the hold"
    answer = Answer(409, "Hold {sequence} holds {held:credit|credits}; the request asks for {requested}.")
    text = "{requested} to be captured, {held} {held:are} left of hold #{sequence}. Over by {over}."
    remedy = ("", "The caller can capture up to {held}, or allow the rest to come from the balance", "held")

    sequence: Annotated[int, EntryNumber("The hold.")]
    held: Annotated[int, Credits("What the hold still holds.")]
    requested: Annotated[int, Credits("What the request asks for.")]


class UnknownRate(Refused):
    """No rate has this name. Not recorded: the same request succeeds once the rate is published."""

    code = "unknown-rate"
    title = "The rate does not exist"
    answer = Answer(409, "Rate {rate} of {credit_type} does not exist.")
    text = "no rate for {credit_type} is called {rate}."
    passes = True

    rate: Annotated[str, RateCode("The rate that the request names.")]
    credit_type: Annotated[str, CreditType("What is counted.")]


class AmountLimit(Refused):
    """What the rate gives for the quantities exceeds the largest amount of one operation."""

    code = "amount-limit"
    title = "The amount is too large"
    answer = Answer(409, "One operation moves at most {limit:credit|credits}.")
    text = "{quantity:,} of {rate} cost more than {limit:credits}, the limit of one operation."
    text_if = (("quantity", None, "the quantities of {rate} cost more than {limit:credits}, the limit of one operation."),)

    rate: Annotated[str, RateCode("The rate that gives the amount.")]
    quantity: Annotated[int | None, Count("How much of it the request asks for; null if it gives quantities.", null=True)]
    limit: Annotated[int, Credits("The most that one operation moves.")]


REFUSALS: Final[dict[str, type[Refused]]] = {
    refusal.code: refusal for refusal in Refused.__subclasses__() if not refusal.stored_as
}
"""By code, as recorded refusals and the outcomes of batches name them."""

RECORDED: Final = tuple(code for code, refusal in REFUSALS.items() if not refusal.passes)
"""The codes that a recorded refusal can have."""


# Nothing was written, try again ----------------------------------------------------------------------


class Retryable(LedgerError):
    """Nothing was written. The same request with the same key may be sent again."""

    code = "retryable"
    title = "The request can be sent again"
    answer = Answer(503, AGAIN, retry_after_seconds=1)


class HolderBusy(Retryable):
    """The holder's lock was not free within `lock_timeout`, 2 s by default, or too many requests wait for it.

    `Retry-After` is random, so that the clients do not return together: 1 to 4 s. For a holder that has been busy for 4 s or
    longer, it is between 1 s and twice that time, at most 30 s, and also a fact.
    """

    code = "holder-busy"
    title = "The holder is busy"
    answer = Answer(503, AGAIN, retry_after_seconds=range(1, 5))

    key: Annotated[str, Text("The name of the lock.", most=400)] = ""
    retry_after_seconds: Annotated[int | None, Count("As in Retry-After.")] = None
    what_to_do: str = ""
    """For a caller whose transaction the write joined."""


class LockBusy(Retryable):
    """Another process holds a lock that this request does not wait for."""

    code = "lock-busy"
    title = "Another process holds this lock"
    answer = Answer(
        409, "Another process holds this lock. Nothing was written; try again later.", retry_after_seconds=range(1, 5)
    )

    key: Annotated[str, Text("The name of the lock.", most=400)]


class SequenceTaken(Retryable):
    """Another writer, without the lock, took the sequence number, three times in a row."""

    code = "sequence-taken"
    title = "Another writer added an entry first"

    holder_id: Annotated[str, Holder("The holder of the account.")] = ""
    batch: Annotated[str, IdempotencyKey("The batch, by its key.")] = ""
    rate: Annotated[str, RateCode("The rate that the request names.")] = ""
    what_to_do: str = ""


class ServerBusy(Retryable):
    """The process has too many requests, or is stopping. It tried no lock.

    A queue is full, or the request did not get its turn within 2.5 s, or would not get it. `Retry-After` is 1 to 30 s: each
    refused request gets a time behind the queue.
    """

    code = "server-busy"
    title = "The server is busy"

    retry_after_seconds: Annotated[int | None, Count("As in Retry-After.")] = None


class OutcomeUnknown(LedgerError):
    """The connection broke during COMMIT. Send the same request with the same key to learn whether it was written."""

    code = "outcome-unknown"
    title = "The outcome is unknown"
    answer = Answer(
        503, "The connection broke during COMMIT. Send the same request with the same key to learn the outcome.", UNKNOWN, 1
    )

    holder_id: Annotated[str, Holder("The holder of the account.")] = ""
    batch: Annotated[str, IdempotencyKey("The batch, by its key.")] = ""
    rate: Annotated[str, RateCode("The rate that the request names.")] = ""
    subscription: Annotated[str, Text("The subscription that the request names.", most=64)] = ""


# The request is wrong --------------------------------------------------------------------------------


class Invalid(LedgerError):
    """A field or parameter is missing or unknown, or has a value that its rule does not allow. `errors` lists every fault."""

    code = "invalid-request"
    title = "The request is not valid"
    answer = Answer(400, "`errors` lists every fault.")

    def __init__(self, *, pointer: str, rule: str, detail: str) -> None:
        super().__init__(pointer=pointer, rule=rule, detail=detail)

    def __str__(self) -> str:
        """Return one sentence, with field and rule."""
        field = self.facts["pointer"].lstrip("/").replace("/", ".") or "the request"
        return f"{field}: {self.facts['detail'].rstrip('.')} ({self.facts['rule']})."


class IdempotencyKeyReused(LedgerError):
    """The key belongs to another request of this holder."""

    code = "idempotency-key-reused"
    title = "Another request has used this idempotency key"
    answer = Answer(422, "Another request has used this Idempotency-Key. A new request needs a new key.")

    idempotency_key: Annotated[str, IdempotencyKey("The key that the request has.")]


class AccountMovedOn(LedgerError):
    """The account has a later entry than the request expects; nothing was written."""

    code = "account-moved-on"
    title = "The account has a later entry"
    answer = Answer(412, "The last entry is {sequence}, not {expected}. Read the account again before you retry.")

    expected: Annotated[int, Count("The last entry that the request expects.")]
    sequence: Annotated[int, Count("The last entry of the account.")]


class FeedPositionLost(LedgerError):
    """The ledger lacks the last entry before the position: it was restored from an earlier state, or is another ledger."""

    code = "feed-position-lost"
    title = "The ledger does not know this position in the feed"
    answer = Answer(
        410,
        "This ledger does not have entry {sequence} of {holder_id} in {credit_type} as the position knows it. It was probably "
        "restored from an earlier state. Compare your records with it, and continue from an instant before {recorded_at}.",
    )

    holder_id: Annotated[str, Holder("The holder of the last entry before the position.")]
    credit_type: Annotated[str, CreditType("What is counted.")]
    sequence: Annotated[int, EntryNumber("The sequence of that entry.")]
    recorded_at: Annotated[str, Time("When that entry was recorded.")]


class FeedUnavailable(LedgerError):
    """This server cannot tell which entries can still appear, so it has no feed: a standby, or a ledger on several nodes."""

    code = "feed-unavailable"
    title = "This server has no feed"
    answer = Answer(
        421, "A {reason} cannot tell which entries can still appear. Only a primary server that has the whole ledger can."
    )

    reason: Annotated[str, Choice(("standby", "cluster"), "What the server is.")]


class DocumentTooLong(LedgerError):
    """The document has more rows than a PDF can have. Nothing was written."""

    code = "document-too-long"
    title = "The document is too long for a PDF"
    answer = Answer(409, "The document would have {rows:row|rows}; a PDF has at most {limit}.")

    rows: Annotated[int, Count("How many rows the document would have.")]
    limit: Annotated[int, Count("The most rows that a PDF can have.")]


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

    names: object
    why: str
    name: object = None


class NotInTransaction(Misuse):
    """A transaction-level lock was requested outside a transaction, where it would end with its own statement."""

    code = "not-in-transaction"

    using: str = ""
    key: object = None


class LocksOutOfOrder(Misuse):
    """A transaction asks for a lock that comes before one that it has; another could wait for it the other way round."""

    code = "locks-out-of-order"

    locks: list[str]
    """Their names, in the order in which they are taken."""
    what_to_do: str


class UnsafeDatabase(Misuse):
    """The ledger cannot rely on the database, or on Django's settings for it."""

    code = "unsafe-database"
    title = "The database is not safe for the ledger"
    answer = Answer(
        503,
        "The database does not give the guarantees that the ledger needs; the ledger does not use it.",
        retry_after_seconds=60,
    )

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"
