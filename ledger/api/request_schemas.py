"""What the ledger's calls take: bodies of writes, made from the requests, and queries of reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from ledger.api.kit.reading.queries import ListQuery
from ledger.records import OneOf, Record, RecordT, Shape, declared_fields, field_of
from ledger.rules import (
    KINDS,
    CaptureRequest,
    ExtendRequest,
    GrantRequest,
    HoldRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from ledger.rules.requests import CIRCUMSTANCES, CountedIn
from ledger.values import HOLDER_ID, MAX_SEQUENCE, Choice, Constant, CreditType, Holder, IdempotencyKey, Text, Time

MAX_OPERATIONS = 1_000
MODES = ("atomic", "each")
HOLDER: Final = "holder_id"
HOLD: Final = "hold"
"""The field that the path of a call about a hold gives."""


def body_of(declared: type[RecordT]) -> Shape[RecordT]:
    """Return the body of a call: the fields of its request that neither the path nor a header gives."""
    return Shape(declared, name=_component(declared), without=CIRCUMSTANCES | {HOLDER, HOLD})


def _component(declared: type[Record]) -> str:
    noun: str = getattr(declared, "noun", "")
    return noun.partition(" ")[0].capitalize() or declared.__name__.removesuffix("Request")


def names_no_entry(shape: Shape[Any], fields: Mapping[str, Any]) -> bool:
    """Return whether a field has a sequence that no entry can have; it does not fit into the record of a refusal."""
    return any(fields.get(name, 0) > MAX_SEQUENCE for name in shape.entry_numbers)


# Batches ---------------------------------------------------------------------------------------------


def _operation_of(declared: type[Request]) -> Shape[Any]:
    """Return an operation of a batch: the body of its own call, with what says whose credits and which operation."""
    noun = declared.noun or declared.operation
    key = IdempotencyKey("By default the key of the batch, / and the index.")
    return Shape(
        declared,
        name=f"{_component(declared)}Operation",
        text=f"{'An' if noun[0] in 'aeio' else 'A'} {noun} in a batch.",
        without=CIRCUMSTANCES | {HOLDER, HOLD},
        before=[field_of("holder", Holder("Whose credits."), required=True), field_of("idempotency_key", key, required=False)],
        after=[
            field_of("operation", Constant(declared.operation, "What is asked."), required=True),
            *(field for field in declared_fields(declared) if field.name == HOLD),
        ],
    )


OPERATIONS: Final = {
    declared.operation: _operation_of(declared)
    for declared in (
        GrantRequest, SpendRequest, RefundRequest, RevokeRequest, HoldRequest, CaptureRequest, ReleaseRequest, ExtendRequest,
        TransferRequest,
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
    """Operations to be done in their order, in one transaction."""

    mode: Annotated[str, Choice(MODES, "`atomic`: all or nothing. `each`: each operation independently.")]
    operations: Annotated[
        list[Any],
        OneOf("What is asked.", by="operation", shapes=OPERATIONS, item_name="BatchOperation", least=1, most=MAX_OPERATIONS),
    ]


# Reads -----------------------------------------------------------------------------------------------

OnlyCountedIn = Annotated[str | None, CreditType("Only this credit type; all by default.")]


@dataclass(frozen=True, kw_only=True)
class EntryQuery(Record):
    """Which account."""

    credit_type: CountedIn = "credits"


@dataclass(frozen=True, kw_only=True)
class BalanceQuery(EntryQuery):
    """Which account, and as of when."""

    at: Annotated[datetime | None, Time("As of this instant; now by default.")] = None
    by: Annotated[
        str,
        Choice(
            ("recorded", "effective"),
            "What was on record by then, or what counts from then on by all that is on record now.",
        ),
    ] = "recorded"


@dataclass(frozen=True, kw_only=True)
class EntriesQuery(ListQuery):
    """Which entries."""

    credit_type: OnlyCountedIn = None
    kind: Annotated[str | None, Choice(KINDS, "Only this kind; all but refusals by default.")] = None
    since: Annotated[datetime | None, Time("Recorded at or after this instant.")] = None
    until: Annotated[datetime | None, Time("Recorded before this instant.")] = None


@dataclass(frozen=True, kw_only=True)
class HoldsQuery(ListQuery):
    """Which account."""

    credit_type: CountedIn = "credits"


@dataclass(frozen=True, kw_only=True)
class HoldersQuery(ListQuery):
    """Which holders."""

    prefix: Annotated[str, Text("Only holders whose id begins so.", most=64, pattern=f"(?:{HOLDER_ID.pattern})?")] = ""
    credit_type: OnlyCountedIn = None


@dataclass(frozen=True, kw_only=True)
class RatesQuery(ListQuery):
    """Which rates."""

    credit_type: OnlyCountedIn = None


RefusalsQuery = ListQuery
RateVersionsQuery = HoldsQuery
