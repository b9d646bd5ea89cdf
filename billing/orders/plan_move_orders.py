"""The order of a plan move: one row, which workers carry out."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from billing.models import OpenPlanMove, Plan, PlanMove, Subscription
from billing.orders import plans
from billing.rating.limits import check_instant
from billing.rating.values import Ref
from ledger.database.lock_names import PLAN
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_REASON_CHARACTERS, Integer, ListOf, Text, Time

MAX_NAMED: Final = 500
"""How many refs of 64 characters fit into a body of 64 KiB."""


@dataclass(frozen=True, kw_only=True)
class NewPlanMove(Record):
    """Subscriptions that change to the newest version of their plan."""

    plan: Annotated[str, Ref("The plan.")]
    effective_at: Annotated[datetime, Time("When the new version takes effect, in the past or the future.")]
    versions: Annotated[
        list[int] | None,
        ListOf(
            Integer("A version.", least=1, most=2**31 - 1), "Only subscriptions on these versions; by default all earlier ones.",
            least=1, most=100, null=True,
        ),
    ] = None  # fmt: skip
    subscriptions: Annotated[
        list[str] | None,
        ListOf(Ref("A subscription."), "Only these subscriptions; by default all.", least=1, most=MAX_NAMED, null=True),
    ] = None
    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS)] = ""
    actor: str = ""

    def check_whole(self) -> None:
        check_instant("/effective_at", self.effective_at)


def _start(request: NewPlanMove) -> PlanMove:
    """Write the order of a plan move, which workers then carry out; or raise and write nothing.

    Raises:
        Invalid: the plan has no such earlier version, or one with another tax behavior; or a subscription does not exist.
    """
    with locked_transaction(PLAN(request.plan)):
        target, from_plans = versions_of(request)
        move = PlanMove.objects.create(
            plan_id=target.pk,
            from_plans=from_plans,
            subscriptions=request.subscriptions,
            effective_at=request.effective_at,
            reason=request.reason,
            actor=request.actor,
        )
        OpenPlanMove.objects.create(move_id=move.pk)
    move.refresh_from_db()
    return move


start_plan_move = UseCase(NewPlanMove, _start)


def versions_of(request: NewPlanMove) -> tuple[Plan, list[int]]:
    """Return the newest version of the plan, and the ids of the versions that subscriptions leave. Raises: as `_start`."""
    target = plans.plan_of(request.plan)
    earlier = dict(Plan.objects.filter(code=request.plan, version__lt=target.version).values_list("version", "pk"))
    if not earlier:
        raise Invalid(pointer="", rule="no-earlier-version", detail="the plan has only one version")
    for index, version in enumerate(request.versions or ()):
        if version not in earlier:
            raise Invalid(pointer=f"/versions/{index}", rule="exists", detail="the plan has no such earlier version")
    known = set(Subscription.objects.filter(ref__in=request.subscriptions or ()).values_list("ref", flat=True))
    for index, ref in enumerate(request.subscriptions or ()):
        if ref not in known:
            raise Invalid(pointer=f"/subscriptions/{index}", rule="exists", detail=f"subscription {ref!r} does not exist")
    left = sorted(earlier[version] for version in (request.versions or earlier))
    if Plan.objects.filter(pk__in=left).exclude(tax_behavior=target.tax_behavior).exists():
        detail = f"the amounts of the newest version are {target.tax_behavior} of tax, those of an earlier one are not"
        raise Invalid(pointer="/versions", rule="other-tax-behavior", detail=detail)
    return target, left
