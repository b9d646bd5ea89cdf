"""`--check` finds budgets of a plan that are not what the plan and the quantities say."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from billing.generator.state import plan_budgets
from billing.models import Subscription
from ledger import services
from ledger.database.locks import holder_lock
from tests.billing.factories import amend, unique
from tests.billing.generator.state.test_allowance_changes import day, move, run_at
from tests.billing.generator.state.test_plan_budgets import MEMBER, POOL, findings, ordered, plan_of
from tests.tampering.owner import as_owner

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def sold() -> tuple[str, Subscription]:
    """Three seats, of which a run has looked at everything."""
    holder, subscription = ordered(plan_of(POOL, MEMBER))
    run_at(holder, subscription, day(1))
    assert findings() == []
    return holder, subscription


def tamper(subscription: Subscription, statement: str) -> None:
    as_owner(statement, subscription=subscription.pk)


def first_budget(changes: str) -> Callable[[str, Subscription], None]:
    """Change the first budget of the plan."""
    statement = f"""
        UPDATE billing_plan SET budgets = jsonb_set(budgets, '{{0}}', budgets -> 0 || '{changes}')
        WHERE id IN (SELECT plan_id FROM billing_itemversion WHERE subscription_id = %(subscription)s)
    """
    return lambda holder, one: tamper(one, statement)


def versions(changes: str) -> Callable[[str, Subscription], None]:
    """Change the versions of its items."""
    statement = f"UPDATE billing_itemversion SET {changes} WHERE subscription_id = %(subscription)s"
    return lambda holder, one: tamper(one, statement)


def as_billing(holder: str, subscription: Subscription, **terms: Any) -> None:
    """Set or end a budget as the generator does, with other terms."""
    named = {"holder_id": holder, "budget": "pool", "actor": plan_budgets.ACTOR, "reference": subscription.ref}
    with holder_lock(holder) as lock:
        if terms:
            services.set_budget_under(lock, **named, **terms, idempotency_key=unique("set"))
        else:
            services.end_budget_under(lock, **named, idempotency_key=unique("end"))


CHANGES: dict[str, Callable[[str, Subscription], object]] = {
    "another limit of the plan": first_budget('{"limit": 99}'),
    "another window of the plan": first_budget('{"window": "month"}'),
    "another mode of the plan": first_budget('{"mode": "soft"}'),
    "another label of the plan": first_budget('{"by": "label", "label": "member"}'),
    "another parent of the plan": first_budget('{"parent": "member"}'),
    "another name": first_budget('{"budget": "other"}'),
    "a limit for no price": first_budget('{"per_quantity_of": null}'),
    "a limit for another price": first_budget('{"per_quantity_of": "other"}'),
    "another quantity": versions("quantity = 4"),
    "an end that nobody saw": versions("ends_at = starts_at + interval '1 microsecond', is_termination = true"),
    "another zone": lambda holder, one: tamper(
        one, "UPDATE billing_subscription SET time_zone = 'Asia/Tokyo' WHERE id = %(subscription)s"
    ),
    "another limit of the account": lambda holder, one: as_billing(holder, one, limit=301, window="day"),
    "another subject of the account": lambda holder, one: as_billing(
        holder, one, limit=300, window="day", by="actor", subject="ann"
    ),
    "no budget of the account": as_billing,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_found(sold: tuple[str, Subscription], name: str) -> None:
    holder, subscription = sold
    if "that nobody saw" in name:
        move(holder, day(1, 2))
    CHANGES[name](holder, subscription)
    found = findings()
    assert found
    assert all(subscription.ref in each for each in found)


def test_a_budget_that_stands_after_the_plan_was_left_is_found(sold: tuple[str, Subscription]) -> None:
    holder, subscription = sold
    amend(subscription, day(1), plan=plan_of())
    run_at(holder, subscription, day(1))
    assert findings() == []
    as_billing(holder, subscription, limit=300, window="day")
    assert len(findings()) == 1


def test_an_end_in_a_pause_that_was_changed_is_found(sold: tuple[str, Subscription]) -> None:
    holder, subscription = sold
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), paused=True)
    amend(subscription, day(1, 10), ends_at=day(2), sets_end=True)
    run_at(holder, subscription, day(1, 12))
    assert findings() == []
    tamper(
        subscription,
        """UPDATE billing_amendment SET change = change || '{"ends_at": "2029-01-11T00:00:00Z"}'
        WHERE subscription_id = %(subscription)s AND sequence = 3""",
    )
    assert len(findings()) == 2


def test_what_no_run_has_looked_at_yet_is_not_held_to_it(sold: tuple[str, Subscription]) -> None:
    holder, subscription = sold
    amend(subscription, day(1, 10), quantities={"seats": Decimal(9)})
    assert findings() == []
    run_at(holder, subscription, day(1, 2))
    # A run is late: what is ordered for an instant needs none.
    move(holder, day(1, 10))
    assert findings() == []
    as_billing(holder, subscription, limit=300, window="day")
    assert len(findings()) == 1
