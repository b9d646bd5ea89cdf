"""The bodies of writes, made from the requests, and the queries of reads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Final, NamedTuple

from ledger.reads import MOST_UPCOMING, RATE, FeedPosition
from ledger.records import OneOf, Record, RecordT, Shape, declared_fields, field_of
from ledger.rest.kit.queries import DryRunQuery, ListQuery, QueryBoolean, QueryInteger
from ledger.rest.kit.request_errors import InvalidRequest
from ledger.rules.budget_states import MAX_SUBJECT_CHARACTERS
from ledger.rules.kinds import KINDS
from ledger.rules.requests import REQUEST_OPTIONS, REQUESTS, CountedIn, Reason, Request
from ledger.values import (
    CREDIT_TYPE,
    EARLIEST_YEAR,
    HOLDER_ID,
    LATEST_YEAR,
    MAX_REFERENCE_CHARACTERS,
    MAX_SEQUENCE,
    Choice,
    Constant,
    CreditType,
    Day,
    FieldError,
    Holder,
    IdempotencyKey,
    InvalidValue,
    ListOf,
    RateCode,
    Text,
    Time,
    Zone,
)

MAX_OPERATIONS = 1_000
MODES = ("atomic", "each")
HOLDER: Final = "holder_id"
HOLD: Final = "hold"
BUDGET: Final = "budget"
RECURRING_GRANT: Final = "recurring_grant"
"""The fields that the path of a call about a hold, a budget or a recurring grant gives."""


def body_of(declared: type[RecordT]) -> Shape[RecordT]:
    """Return the body of a call: the fields of its request that neither the path nor a header gives."""
    return Shape(declared, name=_component(declared), without=REQUEST_OPTIONS | {HOLDER, HOLD, BUDGET, RECURRING_GRANT})


def _component(declared: type[Record]) -> str:
    noun: str = getattr(declared, "noun", "")
    return noun.partition(" ")[0].capitalize() or declared.__name__.removesuffix("Request")


def names_no_entry(shape: Shape[Any], fields: Mapping[str, Any]) -> bool:
    """Return whether a field has a sequence that no entry can have; it does not fit into the record of a refusal."""
    return any(fields.get(name, 0) > MAX_SEQUENCE for name in shape.entry_numbers)


# Batches ---------------------------------------------------------------------------------------------


def _operation_of(declared: type[Request]) -> Shape[Any]:
    """Return an operation of a batch: the body of its own call, with the holder and the kind of operation."""
    noun = declared.noun or declared.operation
    key = IdempotencyKey("By default the key of the batch, / and the index.")
    return Shape(
        declared,
        name=f"{_component(declared)}Operation",
        text=f"{'An' if noun[0] in 'aeio' else 'A'} {noun} in a batch.",
        without=REQUEST_OPTIONS | {HOLDER, HOLD},
        before=[
            field_of("holder", Holder("The holder of the credits."), required=True),
            field_of("idempotency_key", key, required=False),
        ],
        after=[
            field_of("operation", Constant(declared.operation, "The kind of operation."), required=True),
            *(field for field in declared_fields(declared) if field.name == HOLD),
        ],
    )


OPERATIONS: Final = {name: _operation_of(declared) for name, declared in REQUESTS.items() if declared.in_batches}


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
    """Operations that the ledger executes in their order, in one transaction."""

    mode: Annotated[str, Choice(MODES, "`atomic`: all or nothing. `each`: each operation independently.")]
    operations: Annotated[
        list[Any],
        ListOf(
            OneOf(by="operation", shapes=OPERATIONS, item_name="BatchOperation"),
            "The operations.",
            least=1,
            most=MAX_OPERATIONS,
        ),
    ]


# Reads -----------------------------------------------------------------------------------------------

OnlyCountedIn = Annotated[str | None, CreditType("Only this credit type; all by default.")]


@dataclass(frozen=True, kw_only=True)
class EntryQuery(Record):
    """Which account."""

    credit_type: CountedIn = "credits"


class MetadataPair(Text):
    """A key of the metadata and its value in a query: `order:7781`."""

    def __init__(self, text: str) -> None:
        super().__init__(text, most=565, least=2, pattern="[^:]{1,64}:[^\\n]{0,500}")

    def read(self, value: Any) -> Any:
        name, _, wanted = super().read(value).partition(":")
        return name, wanted


@dataclass(frozen=True, kw_only=True)
class BalanceQuery(EntryQuery):
    """The query of a balance: the account, and the instant."""

    at: Annotated[datetime | None, Time("As of this instant; now by default.")] = None
    by: Annotated[
        str,
        Choice(
            ("recorded", "effective"),
            "`recorded`: by the entries recorded by then. `effective`: by all entries recorded until now that count then.",
        ),
    ] = "recorded"
    rate: Annotated[
        str | None, RateCode("`available` counts what a spend by this rate can use; by default what every spend can use.")
    ] = None
    label: Annotated[
        tuple[str, str] | None, MetadataPair("The same for a spend with this label in its metadata: `member:ada`.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class EntriesQuery(ListQuery):
    """Which entries."""

    credit_type: OnlyCountedIn = None
    kind: Annotated[str | None, Choice(KINDS, "Only this kind; by default all except refusals.")] = None
    since: Annotated[datetime | None, Time("Recorded at or after this instant.")] = None
    until: Annotated[datetime | None, Time("Recorded before this instant.")] = None


MOST_ACCOUNTS = 50
ORDERS = ("newest", "oldest")
LONGEST_WAIT_SECONDS = 4
"""Shorter than what a web server gives its requests when it stops, so that a call that waits ends by itself."""
FEED_START, FEED_END = "start", "end"


class AccountRefs(Text):
    """Accounts in a query: `ada,bob/sms`, each a holder with a credit type, or of `credits`."""

    def __init__(self, text: str) -> None:
        account = f"{HOLDER_ID.pattern}(/{CREDIT_TYPE.pattern})?"
        super().__init__(text, most=MOST_ACCOUNTS * 98, least=1, pattern=f"{account}(,{account}){{0,{MOST_ACCOUNTS - 1}}}")

    def read(self, value: Any) -> Any:
        parts = [part.partition("/") for part in super().read(value).split(",")]
        return [(holder, credit_type or "credits") for holder, _, credit_type in parts]


class FeedPlace(Text):
    """A place in the feed, in a query."""

    def __init__(self, text: str) -> None:
        super().__init__(text, most=250, least=1)

    def read(self, value: Any) -> Any:
        given = super().read(value)
        if given in (FEED_START, FEED_END):
            return given
        if _IS_A_TIME.match(given):
            return FeedPosition.at(Time().read(given))
        try:
            return FeedPosition.read(given)
        except ValueError as error:
            raise InvalidValue("not-a-cursor", f"This must be {FEED_START}, {FEED_END}, a time, or come from `next`.") from error


_IS_A_TIME = re.compile(r"\d{4}-")


@dataclass(frozen=True, kw_only=True)
class AllEntriesQuery(EntriesQuery):
    """Which entries of all holders."""

    holder: Annotated[str | None, Holder("Only this holder; all by default.")] = None
    reference: Annotated[str | None, Text("Only entries with this reference.", least=1, most=200)] = None
    idempotency_key: Annotated[
        str | None, IdempotencyKey("Only the entry of this request; `holder` too, because keys are per holder.")
    ] = None
    actor: Annotated[str | None, Text("Only entries of this actor, such as `key:shop`.", least=1, most=200)] = None
    metadata: Annotated[
        tuple[str, str] | None, MetadataPair("Only entries whose metadata have this key with this value: `order:7781`.")
    ] = None
    order: Annotated[str, Choice(ORDERS, "Which entries come first.")] = "newest"
    refusals: Annotated[bool, QueryBoolean("Refusals too.")] = False
    after: Annotated[
        FeedPosition | str | None,
        FeedPlace(
            "Follow the entries from here, in the order of the feed: `start`, `end`, an instant, or as in `next`. Takes only "
            "`wait`, `limit`, `holder`, `credit_type`, `kind` and `refusals` beside it."
        ),
    ] = None
    wait: Annotated[
        int,
        QueryInteger("With `after`: how many seconds to wait for an entry at most.", least=0, most=LONGEST_WAIT_SECONDS),
    ] = 0


NOT_IN_THE_FEED: Final = ("cursor", "reference", "idempotency_key", "actor", "metadata", "since", "until", "order")


def ensure_fits(given: Mapping[str, str]) -> None:
    """Return if the parameters of an `AllEntriesQuery` go together, or raise `InvalidRequest` with all that do not."""
    wrong: list[FieldError] = []
    if "after" in given:
        wrong += [
            FieldError(f"/{name}", "not-with-after", "`after` does not take this.") for name in NOT_IN_THE_FEED if name in given
        ]
    elif "wait" in given:
        wrong.append(FieldError("/wait", "needs-after", "Only the feed waits: give `after`."))
    if "idempotency_key" in given and "holder" not in given:
        wrong.append(FieldError("/holder", "required", "A key is searched for one holder, because keys are per holder."))
    if wrong:
        raise InvalidRequest(wrong)


@dataclass(frozen=True, kw_only=True)
class WaitQuery(DryRunQuery):
    """The parameters of a write that can wait for a top-up."""

    wait: Annotated[
        int,
        QueryInteger(
            "If credits are missing and a top-up is under way: how many seconds to wait for it at most. A dry run does not wait.",
            least=0,
            most=LONGEST_WAIT_SECONDS,
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class BalancesQuery(Record):
    """Which accounts."""

    accounts: Annotated[
        list[tuple[str, str]],
        AccountRefs(
            f"Up to {MOST_ACCOUNTS} accounts: `ada,bob/sms` are the account of `ada` in `credits` and of `bob` in `sms`."
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class HoldsQuery(ListQuery):
    """Which account."""

    credit_type: CountedIn = "credits"


class Grouping(NamedTuple):
    """How use is grouped, as `reads.usage` takes it."""

    by: str = ""
    by_rate: bool = False
    by_day: bool = False


class GroupBy(Text):
    """What use is grouped by, in a query: `label:member`, `rate` and `day`, each of them at most once, in any order."""

    def __init__(self, text: str) -> None:
        super().__init__(text, most=80, least=1)

    def read(self, value: Any) -> Any:
        parts = super().read(value).split(",")
        if any(part not in (DAY, RATE) and not _IS_A_LABEL.fullmatch(part) for part in parts):
            raise InvalidValue("not-a-group", "This must be day, rate, or label: with the key of a label, with commas between.")
        if len(set(parts)) < len(parts):
            raise InvalidValue("too-many-groups", "This must name each group at most once.")
        labels = [part for part in parts if part not in (DAY, RATE)]
        if len(labels) > 1:
            raise InvalidValue(
                "too-many-labels", "This must name one label at most: use is not summed up by two labels together."
            )
        by = labels[0] if labels else RATE if RATE in parts else ""
        return Grouping(by, by_rate=bool(labels) and RATE in parts, by_day=DAY in parts)


DAY: Final = "day"
_IS_A_LABEL = re.compile(r"label:[^,]{1,64}")


class Start(Text):
    """A day or an instant in a query; a day begins in the zone that the query names."""

    def __init__(self, text: str, **options: Any) -> None:
        super().__init__(text, most=40, least=1, **options)

    def read(self, value: Any) -> Any:
        given = super().read(value)
        if len(given) != len("2026-01-31"):
            return Time().read(given)
        day = Day().read(given)
        if not EARLIEST_YEAR <= day.year <= LATEST_YEAR:
            raise InvalidValue("out-of-range", f"This must be in the years {EARLIEST_YEAR} to {LATEST_YEAR}.")
        return day


MOST_USAGE_DAYS: Final = 366


@dataclass(frozen=True, kw_only=True)
class UsageQuery(EntryQuery):
    """Which use, and how it is grouped."""

    since: Annotated[
        date | datetime | None,
        Start(
            "From this day on, or from the quarter of an hour with this instant; by default the last 30 days, today included.",
            named="from",
        ),
    ] = None
    until: Annotated[
        date | datetime | None,
        Start("Before this day, or up to the quarter of an hour with this instant; by default to the end of today.", named="to"),
    ] = None
    zone: Annotated[str, Zone("Whose days count.")] = "UTC"
    group_by: Annotated[
        Grouping | None,
        GroupBy(
            "`label:` with a key of the metadata such as `label:member`, `rate` and `day`, or some of these with commas between: "
            "`label:member,rate,day`. At most one label."
        ),
    ] = None
    limit: Annotated[
        int,
        QueryInteger(
            "How many values at most, or pairs of a value and a rate, those with the most; the others are one group.",
            least=1,
            most=200,
        ),
    ] = 50


@dataclass(frozen=True, kw_only=True)
class EndBudgetQuery(DryRunQuery):
    """Which account, and why."""

    credit_type: CountedIn = "credits"
    reason: Reason = ""


@dataclass(frozen=True, kw_only=True)
class EndOneBudgetQuery(EndBudgetQuery):
    """Which account, why, and when."""

    ends_at: Annotated[
        datetime | None, Time("Its last instant is the one before; nothing of its name begins later. By default now.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class EndOverageQuery(EndBudgetQuery):
    """Which account, why, and what the overage belongs to."""

    reference: Annotated[str, Text("What the overage belongs to, if it says so.", most=MAX_REFERENCE_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class RecurringGrantQuery(Record):
    """Which account, and how far to look ahead."""

    credit_type: CountedIn = "credits"
    upcoming: Annotated[int, QueryInteger("How many of its next grants to show.", least=0, most=MOST_UPCOMING)] = 3


@dataclass(frozen=True, kw_only=True)
class HoldersQuery(ListQuery):
    """Which holders."""

    prefix: Annotated[str, Text("Only holders whose id begins with this.", most=64, pattern=f"(?:{HOLDER_ID.pattern})?")] = ""
    credit_type: OnlyCountedIn = None


@dataclass(frozen=True, kw_only=True)
class RatesQuery(ListQuery):
    """Which rates."""

    credit_type: OnlyCountedIn = None


@dataclass(frozen=True, kw_only=True)
class BudgetUsageQuery(HoldsQuery):
    """Which account, and of which subject."""

    subject: Annotated[
        str | None,
        Text("Only this actor, reference or value of the label, with any parents.", most=MAX_SUBJECT_CHARACTERS, null=True),
    ] = None


BudgetsQuery = HoldsQuery
EndRecurringGrantQuery = EndBudgetQuery
RecurringGrantsQuery = HoldsQuery
RefusalsQuery = ListQuery
RateVersionsQuery = HoldsQuery
