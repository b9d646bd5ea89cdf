"""What the calls about signals take and return."""

from dataclasses import dataclass
from typing import Annotated, Final

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers

from ledger.records import Record, Shape
from ledger.rest.kit.queries import DryRunQuery
from ledger.rest.schemas.request_schemas import ListQuery, OnlyCountedIn, Reason, RecordT
from ledger.rest.schemas.response_schemas import Whole
from ledger.signals import webhooks
from ledger.signals.alert_declarations import REQUEST_OPTIONS as ALERT_OPTIONS
from ledger.signals.alert_declarations import AlertName, AlertRequest
from ledger.signals.reads import STATES
from ledger.signals.types import TypeName
from ledger.values import BUDGET_NAME, MAX_SEQUENCE, Choice, CreditType, Holder

WEBHOOK_PATH = OpenApiParameter(
    "webhook",
    {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_SEQUENCE},
    OpenApiParameter.PATH,
    description="The id of the webhook.",
    examples=[OpenApiExample("webhook", 1)],
)
ALERT_PATH = OpenApiParameter(
    "alert",
    {"type": "string", "pattern": f"^{BUDGET_NAME.pattern}$", "minLength": 1, "maxLength": 40},
    OpenApiParameter.PATH,
    description="The name of the alert.",
    examples=[OpenApiExample("alert", "low")],
)
SIGNAL_PATH = OpenApiParameter(
    "signal",
    {"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
    OpenApiParameter.PATH,
    description="The id of the signal, which receivers see as `webhook-id`.",
    examples=[OpenApiExample("signal", "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21")],
)


def _webhook_body(declared: type[RecordT], name: str) -> Shape[RecordT]:
    return Shape(declared, name=name, without=webhooks.REQUEST_OPTIONS | {"webhook", "signal"})


WEBHOOK: Final = _webhook_body(webhooks.WebhookRequest, "Webhook")
WEBHOOK_CHANGE: Final = _webhook_body(webhooks.WebhookChangeRequest, "WebhookChange")
WEBHOOK_ROTATION: Final = _webhook_body(webhooks.WebhookRotationRequest, "WebhookRotation")
WEBHOOK_NOTHING: Final = _webhook_body(webhooks.PingRequest, "WebhookNothing")


ALERT: Final = Shape(AlertRequest, name="Alert", without=ALERT_OPTIONS | {"alert"})


@dataclass(frozen=True, kw_only=True)
class DeliveriesQuery(ListQuery):
    """Which deliveries."""

    state: Annotated[str | None, Choice(STATES, "Only those in this state.")] = None
    type: Annotated[str | None, TypeName("Only signals of this type.")] = None
    holder: Annotated[str | None, Holder("Only signals of this holder.")] = None


@dataclass(frozen=True, kw_only=True)
class AlertsQuery(ListQuery):
    """Which alerts."""

    holder: Annotated[str | None, Holder("Only those of this holder.")] = None
    alert: Annotated[str | None, AlertName("Only those of this name.")] = None


@dataclass(frozen=True, kw_only=True)
class AlertAccountsQuery(ListQuery):
    """Which accounts."""

    holder: Annotated[str | None, Holder("Only those of this holder.")] = None
    credit_type: OnlyCountedIn = None


@dataclass(frozen=True, kw_only=True)
class AlertQuery(Record):
    """Of which holder and credit type the alert is."""

    holder_id: Annotated[str | None, Holder("Its holder; by default the alert is of all holders.")] = None
    credit_type: Annotated[str | None, CreditType("Its credit type; by default the alert is of all types.")] = None


@dataclass(frozen=True, kw_only=True)
class EndAlertQuery(DryRunQuery):
    """Of which holder and credit type the alert is, and why it ends."""

    holder_id: Annotated[str | None, Holder("Its holder; by default the alert is of all holders.")] = None
    credit_type: Annotated[str | None, CreditType("Its credit type; by default the alert is of all types.")] = None
    reason: Reason = ""


WebhooksQuery = ListQuery


class WebhookBodySerializer(serializers.Serializer):
    """Where signals are sent to."""

    id = Whole(min_value=1, help_text="Its id.")
    url = serializers.CharField(help_text="The address that signals are sent to.")
    types = serializers.ListField(child=serializers.CharField(), help_text="The types of signals that it gets.")
    holder_id = serializers.CharField(allow_null=True, help_text="The only holder whose signals it gets; null for all holders.")
    description = serializers.CharField(help_text="What it is for.")
    state = serializers.ChoiceField(
        choices=["enabled", "disabled", "removed"],
        help_text="`disabled`: signals are kept for it, but not sent. `removed`: it gets no more signals.",
    )
    disabled_at = serializers.DateTimeField(allow_null=True, help_text="When it was disabled; null if it is not disabled.")
    disabled_because = serializers.CharField(allow_null=True, help_text="Why it was disabled, for people.")
    created_at = serializers.DateTimeField(help_text="When it was made; it gets signals of what has happened since then.")
    created_by = serializers.CharField(help_text="Who made it.")
    rotated_at = serializers.DateTimeField(
        allow_null=True, help_text="When it got its current secret; null for its first secret."
    )
    former_until = serializers.DateTimeField(allow_null=True, help_text="Until when the former secret also signs requests.")
    failing_since = serializers.DateTimeField(
        required=False,
        allow_null=True,
        help_text="The first failed attempt since the last success; null if no attempt has failed since.",
    )
    secret = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Signs the requests. Only the response that creates it contains it; null in a dry run, and after a rotation.",
    )


class AlertBodySerializer(serializers.Serializer):
    """An alert."""

    id = Whole(min_value=1, allow_null=True, help_text="The number of the change that declared it; null in a dry run.")
    alert = serializers.CharField(help_text="Its name.")
    holder_id = serializers.CharField(allow_null=True, help_text="The only holder that it watches; null for all.")
    credit_type = serializers.CharField(allow_null=True, help_text="The only credit type that it watches; null for all.")
    state = serializers.ChoiceField(choices=["declared", "ended"], help_text="Whether it watches accounts.")
    below = Whole(allow_null=True, help_text="An account is low with fewer available credits than this.")
    below_percent = Whole(
        allow_null=True, help_text="… with fewer than this percentage of the most that were available since its last grant."
    )
    days_left = Whole(allow_null=True, help_text="… if what is available lasts for fewer days at the present rate.")
    rate_days = Whole(allow_null=True, help_text="The number of days over which the rate is measured.")
    expiring_days = Whole(allow_null=True, help_text="Credits that expire within this number of days are reported.")
    reason = serializers.CharField(help_text="Why it was declared.")
    declared_at = serializers.DateTimeField(allow_null=True, help_text="When; null in a dry run.")
    declared_by = serializers.CharField(help_text="Who declared it.")


class AlertAccountBodySerializer(serializers.Serializer):
    """An account that has crossed an alert and not recovered."""

    holder_id = serializers.CharField(help_text="Its holder.")
    credit_type = serializers.CharField(help_text="Its credit type.")
    crossed_at = serializers.DateTimeField(help_text="When it became low, or when credits that expire soon were last reported.")
    crossing = Whole(min_value=1, help_text="The number of the crossing, as in its signals.")
    is_depleted = serializers.BooleanField(help_text="Whether nothing has been available since it became low.")


class DeliveryBodySerializer(serializers.Serializer):
    """A signal for a webhook."""

    number = Whole(min_value=1, help_text="The order in which signals of one holder are sent.")
    signal = serializers.UUIDField(help_text="The signal's id, which receivers see as `webhook-id`.")
    type = serializers.CharField(help_text="Its type.")
    holder_id = serializers.CharField(allow_null=True, help_text="The holder that it concerns; null if it concerns no holder.")
    occurred_at = serializers.DateTimeField(help_text="When its cause happened.")
    state = serializers.ChoiceField(
        choices=STATES,
        help_text="`delivered`: the receiver accepted it. `given_up`: it refused each attempt, but accepted other signals.",
    )
    attempts = Whole(help_text="The number of attempts, since the last resend if there was one.")
    next_attempt_at = serializers.DateTimeField(
        allow_null=True, help_text="Of a pending delivery: when the holder's next signal is due; null if nothing is due."
    )
    ended_at = serializers.DateTimeField(allow_null=True, help_text="When it was delivered or given up.")


class AttemptBodySerializer(serializers.Serializer):
    """One request to a receiver."""

    started_at = serializers.DateTimeField(help_text="When it began.")
    took_ms = Whole(help_text="How many milliseconds it took.")
    status = serializers.IntegerField(allow_null=True, help_text="The status of the receiver's answer; null without an answer.")
    error = serializers.CharField(help_text="Why it failed; empty if the receiver accepted it.")
    response = serializers.CharField(help_text="The beginning of the answer.")
    url = serializers.CharField(help_text="The address that it was sent to.")


class DeliveryDetailsSerializer(DeliveryBodySerializer):
    """A signal for a webhook, with what is sent and what came of each attempt."""

    payload = serializers.DictField(help_text="The body of the request: type, timestamp and data.")
    tried = AttemptBodySerializer(many=True, help_text="The attempts, the newest first; up to 100.")
