"""Bodies, queries and examples of the calls about plan moves."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from rest_framework import serializers

from billing.models import MovedSubscription
from billing.orders.plan_move_orders import NewPlanMove
from billing.orders.plan_move_preview import MovesPreview
from billing.orders.plan_move_progress import MoveProgress
from billing.orders.plans import PlanSale
from billing.rating.values import Ref
from billing.reads.response_fields import minor, sum_of_minor, text, time, whole
from ledger.records import Record, Shape
from ledger.responses import ResponseSchema
from ledger.rest.kit.queries import ListQuery, QueryInteger
from ledger.values import Choice

PLAN_MOVE_BODY = Shape(NewPlanMove, without={"plan", "actor"})
PLAN_SALE_BODY = Shape(PlanSale, without={"plan"})


@dataclass(frozen=True, kw_only=True)
class MovePreviewQuery(Record):
    """Which subscriptions a preview shows."""

    after: Annotated[str | None, Ref("The subscription after which the page begins: `next` of an earlier response.")] = None
    limit: Annotated[int, QueryInteger("How many subscriptions.", least=1, most=200)] = 50


@dataclass(frozen=True, kw_only=True)
class MovedSubscriptionsQuery(ListQuery):
    """Which subscriptions of a plan move."""

    outcome: Annotated[str | None, Choice(MovedSubscription.Outcome.values, "Only with this outcome.")] = None


def _progress(name: str) -> Any:
    return attrgetter(f"row.{name}")


class PlanMoveSerializer(ResponseSchema):
    """Subscriptions that change to a version of their plan, and how far that is."""

    id = whole(_progress("pk"))
    plan = text(attrgetter("plan.code"))
    version = whole(attrgetter("plan.version"))
    from_versions = serializers.ListField(child=serializers.IntegerField())
    effective_at = time(_progress("effective_at"))
    reason = text(_progress("reason"))
    actor = text(_progress("actor"))
    recorded_at = time(_progress("recorded_at"))
    state = text(
        lambda move: "open" if move.is_open else "done", help_text="`open` while workers have subscriptions left to look at."
    )
    moved = whole(help_text="How many subscriptions were moved so far.")
    left_out = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="How many stay, by the reason: `ended`, `already-there`, `another-plan` (at that time).",
    )
    error = text(help_text="Why the last try of a subscription failed; workers try it again.")


def plan_move(progress: MoveProgress) -> dict[str, Any]:
    """Return a plan move and how far it is."""
    return PlanMoveSerializer.body(progress)


class MovedSubscriptionSerializer(ResponseSchema):
    """What became of a subscription."""

    subscription = text()
    outcome = text()
    amendments = serializers.ListField(child=serializers.IntegerField(), help_text="The sequences of its amendments.")
    recorded_at = time()


class MoveSumSerializer(ResponseSchema):
    """The sums of all moved subscriptions in a currency, a month."""

    currency = text()
    subscriptions = whole()
    before_minor = sum_of_minor()
    after_minor = sum_of_minor()
    difference_minor = sum_of_minor()


class MovePreviewSerializer(ResponseSchema):
    """What would change for a subscription."""

    subscription = text()
    customer = text()
    from_version = whole(attrgetter("from_plan.version"))
    takes_effect_at = time()
    currency_before = text()
    before_minor = minor(help_text="What its recurring prices cost a month so far, in minor units.")
    currency = text()
    after_minor = minor(help_text="What they cost a month then, in minor units.")
    notes = serializers.ListField(
        child=serializers.CharField(),
        help_text="What else concerns it: `incomplete`, `trial`, `paused`, `negotiated-prices`, `pending-amendments`, `coupons`.",
    )


class MovesPreviewSerializer(ResponseSchema):
    """What a plan move would change, per subscription and in sum."""

    plan = text(attrgetter("plan.code"))
    version = whole(attrgetter("plan.version"))
    from_versions = serializers.ListField(child=serializers.IntegerField())
    effective_at = time()
    sums = MoveSumSerializer(many=True, allow_null=True)
    left_out = serializers.DictField(child=serializers.IntegerField(), allow_null=True)
    subscriptions = MovePreviewSerializer(many=True)
    next = text("following", null=True, help_text="The `after` of the next page.")


def moves_preview(preview: MovesPreview) -> dict[str, Any]:
    """Return what a plan move would change."""
    return MovesPreviewSerializer.body(
        preview,
        sums=None if preview.sums is None else [MoveSumSerializer.body(each) for each in preview.sums],
        subscriptions=[MovePreviewSerializer.body(each) for each in preview.subscriptions],
    )


def moved_subscription(found: tuple[MovedSubscription, str], _: int) -> dict[str, Any]:
    """Return what became of a subscription."""
    row, ref = found
    return MovedSubscriptionSerializer.body(row, subscription=ref)


PLAN_MOVE_EXAMPLE_BODY: dict[str, Any] = {"effective_at": "2026-03-01T00:00:00Z", "reason": "New prices of 2026"}
PLAN_MOVE: dict[str, Any] = {
    "id": 1, "plan": "basic", "version": 2, "from_versions": [1], "effective_at": "2026-03-01T00:00:00.000000Z",
    "reason": "New prices of 2026", "actor": "key:shop", "recorded_at": "2026-02-03T09:30:00.123456Z", "state": "open",
    "moved": 0, "left_out": {}, "error": "",
}  # fmt: skip
DONE_PLAN_MOVE: dict[str, Any] = {**PLAN_MOVE, "state": "done", "moved": 118, "left_out": {"another-plan": 3, "ended": 7}}
MOVED_SUBSCRIPTION: dict[str, Any] = {
    "subscription": "SUB-1234", "outcome": "moved", "amendments": [2], "recorded_at": "2026-02-03T09:31:00.123456Z",
}  # fmt: skip
MOVES_PREVIEW: dict[str, Any] = {
    "plan": "basic", "version": 2, "from_versions": [1], "effective_at": "2026-03-01T00:00:00.000000Z",
    "sums": [
        {"currency": "EUR", "subscriptions": 118, "before_minor": 118000, "after_minor": 141600, "difference_minor": 23600},
    ],
    "left_out": {"another-plan": 3, "ended": 7},
    "subscriptions": [
        {"subscription": "SUB-1234", "customer": "CUST-7", "from_version": 1, "takes_effect_at": "2026-03-01T00:00:00.000000Z",
         "currency_before": "EUR", "before_minor": 1000, "currency": "EUR", "after_minor": 1200, "notes": ["coupons"]},
    ],
    "next": "SUB-1234",
}  # fmt: skip
