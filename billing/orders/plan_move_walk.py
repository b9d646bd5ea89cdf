"""Carries plan moves out, subscription by subscription, by any number of workers.

The amendments of a subscription and what became of it are written in one transaction, under the lock of its amendments, so a
stopped worker leaves nothing half done.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from django.db import Error

from billing.models import MovedSubscription as Moved
from billing.models import OpenPlanMove, PlanMove, Subscription
from billing.orders.item_versions import AmendmentChange, instants_on, is_over, terms_at
from billing.orders.stored_versions import changes_of
from billing.orders.subscriptions import move_to_plan, tell_followers
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import LedgerError, Misuse

log = logging.getLogger(__name__)

PAGE_ROWS: Final = 500
Outcome = Moved.Outcome

# Subscriptions that were ever ordered on or amended to one of the plans; those that the move has looked at are left out.
CANDIDATES = """
    SELECT s.id, s.ref FROM billing_subscription AS s
    WHERE s.id > %(after)s AND (%(refs)s::text[] IS NULL OR s.ref = ANY(%(refs)s))
        AND s.id IN (
            SELECT a.subscription_id FROM billing_amendment AS a
            WHERE a.change ? 'plan' AND (a.change ->> 'plan')::bigint = ANY(%(plans)s) AND a.subscription_id > %(after)s
        )
        AND NOT EXISTS (
            SELECT FROM billing_movedsubscription AS m WHERE m.move_id = %(move)s AND m.subscription_id = s.id
        )
    ORDER BY s.id
    LIMIT %(limit)s
"""


class MoveCandidate(NamedTuple):
    """A row of CANDIDATES."""

    id: int
    ref: str


@dataclass(frozen=True, slots=True)
class MoveDecision:
    """What a move does to a subscription: an amendment at each of these instants, or nothing."""

    outcome: Outcome
    instants: tuple[datetime, ...] = ()


@dataclass(slots=True)
class MoveCounts:
    """The counts of one run."""

    looked_at: int = 0
    moved: int = 0
    failed: int = 0


def decide(
    changes: Sequence[AmendmentChange], *, to_plan: int, from_plans: Sequence[int], effective_at: datetime
) -> MoveDecision:
    """Return what a move does to a subscription with these amendments. Pure.

    A planned amendment to one of the earlier versions is followed by one to the new version, at the same time.
    """
    instants = instants_on(changes, from_plans, effective_at)
    if is_over(changes, max(effective_at, changes[0].effective_at)):
        return MoveDecision(Outcome.ENDED)
    if instants:
        return MoveDecision(Outcome.MOVED, tuple(instants))
    is_there = terms_at(changes, effective_at).plan_id == to_plan
    return MoveDecision(Outcome.ALREADY_THERE if is_there else Outcome.ANOTHER_PLAN)


def candidates(
    *, from_plans: Sequence[int], refs: Sequence[str] | None, move_id: int = 0, after: int = 0, limit: int = PAGE_ROWS
) -> list[MoveCandidate]:
    """Return subscriptions that a move has to look at, by their ids from `after` on.

    Args:
        move_id: the move; 0: one that is not ordered yet.
    """
    parameters = {"plans": list(from_plans), "refs": refs, "move": move_id, "after": after, "limit": limit}
    return fetch_rows(MoveCandidate, CANDIDATES, parameters)


def carry_out(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> MoveCounts:
    """Look at each subscription of each open move, each in a short transaction. Any number of workers may do so at the same time.

    A move is done when a walk over its subscriptions leaves none. A subscription that fails is tried again by the next call.

    Args:
        dry_run: count what is left, and write nothing.
        stop: called before each subscription; True ends the call.
    """
    counts = MoveCounts()
    for open_move in OpenPlanMove.objects.order_by("pk"):
        move = PlanMove.objects.get(pk=open_move.move_id)
        failed_before = counts.failed
        for candidate in _walk(move):
            if stop():
                return counts
            counts.looked_at += 1
            if not dry_run:
                _attempt(move, candidate.ref, counts)
        if not dry_run and counts.failed == failed_before:
            OpenPlanMove.objects.filter(pk=open_move.pk).delete()
    return counts


def _walk(move: PlanMove) -> Iterator[MoveCandidate]:
    last = 0
    while page := candidates(from_plans=move.from_plans, refs=move.subscriptions, move_id=move.pk, after=last):
        yield from page
        last = page[-1].id


def _attempt(move: PlanMove, ref: str, counts: MoveCounts) -> None:
    try:
        counts.moved += move_one(move, ref) == Outcome.MOVED
    except Misuse:
        raise
    except (LedgerError, Error) as error:
        counts.failed += 1
        log.warning("plan move %s, subscription %s: %s: %s", move.pk, ref, type(error).__name__, error)
        why = f"{ref}: {getattr(error, 'code', type(error).__name__)}"[:500]
        OpenPlanMove.objects.filter(move_id=move.pk).update(error=why)


def move_one(move: PlanMove, ref: str) -> Outcome | None:
    """Write the amendments that move a subscription, and what became of it, once; or raise and write nothing.

    Returns:
        The outcome; None: another worker has looked at the subscription.

    Raises:
        HolderBusy: somebody amends the subscription, for longer than lock_timeout.
    """
    with locked_transaction(SUBSCRIPTION_INTENT(ref)) as lock:
        subscription = Subscription.objects.get(ref=ref)
        if Moved.objects.filter(move_id=move.pk, subscription_id=subscription.pk).exists():
            return None
        decision = decide(
            changes_of([subscription.pk])[subscription.pk],
            to_plan=move.plan_id,
            from_plans=move.from_plans,
            effective_at=move.effective_at,
        )
        made: list[int] = []
        if decision.instants:
            change = {"plan": move.plan_id, "plan_move": move.pk}
            made = move_to_plan(lock, subscription, decision.instants, change, move.actor)
        Moved.objects.create(move_id=move.pk, subscription_id=subscription.pk, outcome=decision.outcome, amendments=made)
    if made:
        tell_followers(subscription)
    return decision.outcome
