"""Two workers carry out one plan move at the same time: each subscription is moved once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from django.db import IntegrityError

from billing.models import Amendment, MovedSubscription, PlanMove, Subscription
from billing.orders import plan_move_walk as plan_moves
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_walk import move_one
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import lock_number
from ledger.database.transactions import own_or_joined
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.concurrency.race_harness import no_lock
from tests.concurrency.test_customer_credit_races import IS_WAITED_FOR

Connect = Callable[..., psycopg.Connection[Any]]


def a_move() -> tuple[PlanMove, Subscription]:
    """The order of a move that concerns one subscription."""
    code = unique("plan")
    PlanFactory(code=code, prices=[recurring(unit_amount="31.00")])
    subscription = SubscriptionFactory(plan=code)
    PlanFactory(code=code, prices=[recurring(unit_amount="62.00")])
    return start_plan_move.execute(NewPlanMove(plan=code, effective_at=at(1, 11), actor="test")), subscription


@contextmanager
def first_stops_until(has_met: Callable[[], bool]) -> Iterator[threading.Event]:
    """Stop the first worker after it has read the amendments, until the second one is where it has to be."""
    has_read, real = threading.Event(), plan_moves.changes_of

    def slowly(*arguments: Any) -> Any:
        found = real(*arguments)
        if not has_read.is_set():
            has_read.set()
            while not has_met():
                pass
        return found

    with mock.patch.object(plan_moves, "changes_of", slowly):
        yield has_read


def amendments(subscription: Subscription) -> int:
    return Amendment.objects.filter(subscription_id=subscription.pk).count()


def test_the_second_worker_waits_and_finds_the_subscription_moved(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    move, subscription = a_move()
    looker, number = raw_connection(autocommit=True), lock_number(SUBSCRIPTION_INTENT(subscription.ref))
    with first_stops_until(lambda: looker.execute(IS_WAITED_FOR, [number]).fetchone() is not None) as has_read:

        def one(index: int) -> Any:
            if index:
                assert has_read.wait(30)
            return move_one(move, subscription.ref)

        assert run_threads(one, 2) == ["moved", None]
    assert (amendments(subscription), MovedSubscription.objects.filter(move_id=move.pk).count()) == (2, 1)


def test_control_without_the_lock_both_decide_and_the_database_refuses_the_second(committed_db: None, run_threads: Any) -> None:
    move, subscription = a_move()
    both = threading.Barrier(2)
    real = plan_moves.changes_of

    def together(*arguments: Any) -> Any:
        found = real(*arguments)
        both.wait(30)
        return found

    @contextmanager
    def unlocked(*names: str, **more: Any) -> Iterator[Any]:
        with own_or_joined(), no_lock(*names) as lock:
            yield lock

    with mock.patch.object(plan_moves, "locked_transaction", unlocked), mock.patch.object(plan_moves, "changes_of", together):
        results = run_threads(lambda _: move_one(move, subscription.ref), 2)
    assert sorted(type(each).__name__ for each in results) == ["IntegrityError", "Outcome"], results
    assert any(isinstance(each, IntegrityError) for each in results)
    assert (amendments(subscription), MovedSubscription.objects.filter(move_id=move.pk).count()) == (2, 1)
