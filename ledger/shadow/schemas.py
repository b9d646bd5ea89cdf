"""What the calls of the shadow take and return."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from rest_framework import serializers

from ledger.records import Nested, Record, Shape
from ledger.rest.kit.queries import QueryBoolean
from ledger.rest.schemas.request_schemas import ListQuery, OnlyCountedIn
from ledger.rest.schemas.response_schemas import Whole
from ledger.rules.requests import Reason
from ledger.shadow.deciding import DIFFERENCES
from ledger.shadow.observing import RESULTS
from ledger.shadow.promoting import MAX_HOLDERS
from ledger.shadow.promoting import RESULTS as MOVES
from ledger.shadow.reads import STATES
from ledger.shadow.requests import MAX_OBSERVATIONS, OPERATIONS, OPTIONS, ObservationRequest
from ledger.values import MAX_AMOUNT, Choice, Holder, Integer, ListOf, MapOf, Value

OBSERVATION: Final = Shape(ObservationRequest, name="NewObservation", without=OPTIONS)
OUTCOMES: Final = "; ".join(f"`{name}`: {text}" for name, text in RESULTS.items())


class RawObservation(Value):
    """An observation that is validated separately, so that a bad one does not reject the others."""

    def take(self, value: Any, pointer: str, field_errors: Any) -> Any:
        return value

    def openapi(self) -> Any:
        return OBSERVATION


@dataclass(frozen=True, kw_only=True)
class ObservationBatch(Record):
    """What another system of balances decided, in the order in which it did."""

    observations: Annotated[list[Any], ListOf(RawObservation(), "Each is validated separately.", least=1, most=MAX_OBSERVATIONS)]


@dataclass(frozen=True, kw_only=True)
class PromotedHolder(Record):
    """A holder to promote."""

    holder: Annotated[str, Holder("Whose credits move.")]
    balances: Annotated[
        dict[str, int] | None,
        MapOf(
            Integer(least=-MAX_AMOUNT, most=MAX_AMOUNT),
            "What the other system has, by credit type. Nothing moves if the last observation has another balance.",
            max_keys=50,
            null=True,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Promotions(Record):
    """Holders whose credits move into the ledger."""

    holders: Annotated[Sequence[Any], ListOf(Nested(PromotedHolder), "The holders, each once.", least=1, most=MAX_HOLDERS)]
    reason: Reason = ""


@dataclass(frozen=True, kw_only=True)
class Returns(Record):
    """Holders whose credits go back to the other system."""

    holders: Annotated[Sequence[str], ListOf(Holder(), "The holders, each once.", least=1, most=MAX_HOLDERS)]
    reason: Reason = ""


@dataclass(frozen=True, kw_only=True)
class ObservationsQuery(ListQuery):
    """Which observations."""

    holder: Annotated[str | None, Holder("Only those of this holder.")] = None
    credit_type: OnlyCountedIn = None
    different: Annotated[bool | None, QueryBoolean("Only those that differ, or only the others.")] = None


@dataclass(frozen=True, kw_only=True)
class ObservedAccountsQuery(ListQuery):
    """Which accounts."""

    state: Annotated[str | None, Choice(STATES, "Only those in this state.")] = None
    holder: Annotated[str | None, Holder("Only those of this holder.")] = None


class ObservationResultSerializer(serializers.Serializer):
    """What became of an observation."""

    idempotency_key = serializers.CharField(allow_null=True, help_text="Its key; null if it has none that can be read.")
    result = serializers.ChoiceField(choices=list(RESULTS), help_text=OUTCOMES)
    id = Whole(allow_null=True, help_text="Its id; null if it is not on record.")
    ledger_allows = serializers.BooleanField(
        allow_null=True, help_text="Whether the ledger would have done it; null if it was not decided."
    )
    ledger_balance = Whole(allow_null=True, help_text="What could be spent in the ledger after its own decision.")
    difference = serializers.ChoiceField(
        choices=DIFFERENCES, allow_null=True, help_text="How both differ; null if they do not, or nothing was compared."
    )
    detail = serializers.CharField(help_text="How both differ, or why nothing was recorded; otherwise empty.")


class ObservationResultsSerializer(serializers.Serializer):
    """One result per observation, in order."""

    results = ObservationResultSerializer(many=True)


class ObservationSerializer(serializers.Serializer):
    """What another system decided, beside what the ledger would have decided."""

    id = Whole(min_value=1, help_text="Its id.")
    holder_id = serializers.CharField(help_text="Whose credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    number = Whole(min_value=1, help_text="Its number in the account.")
    idempotency_key = serializers.CharField(allow_null=True, help_text="Its key; null of a return.")
    operation = serializers.ChoiceField(
        choices=[*OPERATIONS, "return"], help_text="What was asked for. `return`: the credits came back from the ledger."
    )
    amount = Whole(allow_null=True, help_text="How many credits; null of a balance or return.")
    allowed = serializers.BooleanField(help_text="Whether the other system did it.")
    balance = Whole(help_text="What could be spent there after it.")
    of = serializers.CharField(allow_null=True, help_text="The key of the observation that it is about.")
    reference = serializers.CharField(help_text="What it belongs to in your books.")
    occurred_at = serializers.DateTimeField(help_text="When it was decided there.")
    ledger_allows = serializers.BooleanField(
        allow_null=True, help_text="Whether the ledger would have done it; null if it was not decided."
    )
    ledger_balance = Whole(allow_null=True, help_text="What could be spent in the ledger after its own decision.")
    ledger_refusal = serializers.CharField(allow_null=True, help_text="Why the ledger would have refused it.")
    difference = serializers.ChoiceField(choices=DIFFERENCES, allow_null=True, help_text="How both differ; null if they do not.")
    detail = serializers.CharField(help_text="How both differ, in a sentence; otherwise empty.")
    recorded_at = serializers.DateTimeField(help_text="When it was recorded.")
    recorded_by = serializers.CharField(help_text="Who sent it.")


class ObservedAccountSerializer(serializers.Serializer):
    """An observed account, with its first difference."""

    holder_id = serializers.CharField(help_text="Its holder.")
    credit_type = serializers.CharField(help_text="Its credit type.")
    state = serializers.ChoiceField(
        choices=STATES,
        help_text="`same`: no decision differs. `different`: at least one does. `promoted`: its credits are in the ledger.",
    )
    observations = Whole(help_text="How many observations it has.")
    differences = Whole(help_text="How many of them differ, since the first one or since its credits came back.")
    balance = Whole(help_text="What could be spent in the other system after the last one.")
    last_seen_at = serializers.DateTimeField(help_text="When the last one was recorded.")
    first_difference = ObservationSerializer(allow_null=True, help_text="The first one that differs; null if there is none.")


class MovedSinceSerializer(serializers.Serializer):
    """Entries of a kind."""

    entries = Whole(help_text="How many.")
    amount = Whole(min_value=-(2**63 - 1), max_value=2**63 - 1, help_text="What they changed of the balance, signed.")


class MovedLotSerializer(serializers.Serializer):
    """Credits of equal terms that went back."""

    amount = Whole(min_value=1, help_text="How many.")
    effective_at = serializers.DateTimeField(allow_null=True, help_text="When they can be spent from; null: already.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="When they expire; null for never.")
    priority = Whole(help_text="Lower is spent first.")
    source = serializers.CharField(help_text="Where they came from.")  # type: ignore[assignment]
    applies_to = serializers.DictField(allow_null=True, help_text="What they can pay for; null for everything.")


class MovedAccountSerializer(serializers.Serializer):
    """What moved of an account."""

    credit_type = serializers.CharField(help_text="Its credit type.")
    balance = Whole(help_text="What could be spent when it moved.")
    sequence = Whole(help_text="The last entry of the account in the ledger.")
    since = serializers.DictField(
        child=MovedSinceSerializer(), required=False, help_text="Of a return: the entries since the promotion, by kind."
    )
    lots = MovedLotSerializer(many=True, required=False, help_text="Of a return: the credits with their terms.")


class MoveResultSerializer(serializers.Serializer):
    """What became of a holder."""

    holder_id = serializers.CharField(help_text="The holder.")
    result = serializers.ChoiceField(
        choices=list(MOVES), help_text="; ".join(f"`{name}`: {text}" for name, text in MOVES.items())
    )
    accounts = MovedAccountSerializer(many=True, help_text="What moved, now or before.")
    detail = serializers.CharField(help_text="Why nothing moved; otherwise empty.")


class MoveResultsSerializer(serializers.Serializer):
    """One result per holder, in order."""

    results = MoveResultSerializer(many=True)
