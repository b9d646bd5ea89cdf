"""How far plan moves are, and what became of each subscription. For display only, without a lock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from django.db.models import Count, Q

from billing.errors import NotFound
from billing.models import MovedSubscription, OpenPlanMove, Plan, PlanMove, Subscription
from billing.orders import plans
from billing.orders.plan_move_walk import Outcome
from billing.reads.pages import page


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """A plan move and how far it is.

    Args:
        outcomes: how many subscriptions it has looked at, by what became of them.
        is_open: workers have subscriptions left to look at.
        error: why the last try of a subscription failed.
    """

    row: PlanMove
    plan: Plan
    from_versions: list[int]
    outcomes: dict[str, int] = field(default_factory=dict)
    is_open: bool = False
    error: str = ""

    @property
    def moved(self) -> int:
        """How many subscriptions were moved."""
        return self.outcomes.get(Outcome.MOVED.value, 0)

    @property
    def left_out(self) -> dict[str, int]:
        """How many subscriptions stay, by the reason."""
        return {name: number for name, number in self.outcomes.items() if name != Outcome.MOVED}


def plan_move(move_id: int) -> MoveProgress:
    """Return a plan move and how far it is.

    Raises:
        NotFound: it does not exist.
    """
    row = PlanMove.objects.filter(pk=move_id).first()
    if row is None:
        raise NotFound(resource="plan move", ref=move_id)
    return _progress([row])[0]


def plan_moves(ref: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[MoveProgress]:
    """Return the moves to versions of a plan, the newest first, by keyset on the id.

    Raises:
        NotFound: the plan does not exist.
    """
    plans.plan_of(ref)
    rows = PlanMove.objects.filter(plan_id__in=Plan.objects.filter(code=ref).values("pk"))
    return _progress(page(rows, before=before, after=after, limit=limit))


def moved_subscriptions(
    move_id: int, *, outcome: str | None = None, before: int | None = None, after: int | None = None, limit: int
) -> list[tuple[MovedSubscription, str]]:
    """Return what became of the subscriptions of a move, with their refs, the newest first, by keyset on the id.

    Raises:
        NotFound: the move does not exist.
    """
    plan_move(move_id)
    fits = Q() if outcome is None else Q(outcome=outcome)
    rows = page(MovedSubscription.objects.filter(fits, move_id=move_id), before=before, after=after, limit=limit)
    refs = dict(Subscription.objects.filter(pk__in=[row.subscription_id for row in rows]).values_list("pk", "ref"))
    return [(row, refs[row.subscription_id]) for row in rows]


def _progress(rows: Sequence[PlanMove]) -> list[MoveProgress]:
    ids = [row.pk for row in rows]
    counted = MovedSubscription.objects.filter(move_id__in=ids).values_list("move_id", "outcome")
    numbers = counted.annotate(number=Count("pk")).order_by("move_id", "outcome")
    outcomes: dict[int, dict[str, int]] = {
        move_id: {outcome: number for _, outcome, number in numbers_of_move}
        for move_id, numbers_of_move in groupby(numbers, key=lambda each: each[0])
    }
    left = {row.move_id: row.error for row in OpenPlanMove.objects.filter(move_id__in=ids)}
    known = Plan.objects.in_bulk({row.plan_id for row in rows} | {pk for row in rows for pk in row.from_plans})
    return [
        MoveProgress(
            row=row,
            plan=known[row.plan_id],
            from_versions=sorted(known[pk].version for pk in row.from_plans),
            outcomes=outcomes.get(row.pk, {}),
            is_open=row.pk in left,
            error=left.get(row.pk, ""),
        )
        for row in rows
    ]
