"""What a plan brings to an account comes in one transaction: a session that ends in between leaves nothing of it half set."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.state import plan_terms
from billing.generator.state.subscription_state import read_items, read_subscription
from billing.models import Subscription
from billing.orders import plans, subscriptions
from ledger import reads
from ledger.database.transactions import locked_transaction
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring
from tests.billing.findings import findings_of

pytestmark = pytest.mark.usefixtures("committed_db")

END_OF_SESSION = "SELECT pg_terminate_backend(pg_backend_pid())"
ALL, MORE = (100, 50, {"pool": 400}), (300, 70, {"pool": 900})
NOTHING = (0, None, {})


@pytest.fixture(autouse=True)
def _plans() -> None:
    # The tests that commit have a separate database, in which other plans have the same ids.
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()


def plan_with(allowance: int, overage: int, budget: int) -> str:
    code: str = PlanFactory(
        prices=[recurring("fee")],
        allowance={"amount": allowance},
        overage={"price": {"model": "unit", "unit_amount": "0.02"}, "limit_credits": overage},
        budgets=[{"budget": "pool", "credit_type": "credits", "limit": budget, "window": "month"}],
    ).code
    return code


def order(holder: str) -> Subscription:
    customer = CustomerFactory(holder_id=holder).ref
    now = datetime.now(UTC)
    subscription: Subscription = SubscriptionFactory(
        customer=customer, plan=plan_with(100, 50, 400), started_at=at(1, year=now.year)
    )
    return subscription


def state(holder: str) -> tuple[int, int | None, dict[str, int]]:
    """The credits, the limit of the overage, and the limits of budgets."""
    balance = reads.balance(holder)
    return (
        balance.balance,
        None if balance.overage is None else balance.overage.limit,
        {each.name: each.settings.limit for each in reads.budgets(holder)},
    )


def run(subscription: Subscription) -> None:
    generate.generate(ref=subscription.ref, options=Options(as_of=datetime.now(UTC)))


def in_three_transactions(ref: str) -> None:
    """As before: each of the three reads the subscription again, in a transaction of its own."""
    for name in ("set_overage", "set_budgets", "set_allowance_terms"):
        with locked_transaction(plan_terms.invoice_key(ref)) as lock:
            subscription = read_subscription(lock, ref)
            getattr(plan_terms, name)(lock, subscription, read_items(lock, subscription))


@pytest.fixture
def ends_the_session(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ends the session before the allowance that comes next; the list gets the reference of the subscription."""
    ended: list[str] = []
    real = plan_terms.set_allowance_terms

    def end_once(lock: Any, subscription: Any, *arguments: Any, **named: Any) -> None:
        if not ended:
            ended.append(subscription.ref)
            with connection.cursor() as cursor:
                cursor.execute(END_OF_SESSION)
        real(lock, subscription, *arguments, **named)

    monkeypatch.setattr(plan_terms, "set_allowance_terms", end_once)
    return ended


@pytest.mark.parametrize(
    ("follow", "left"),
    [
        pytest.param(plan_terms.set_terms_of, NOTHING, id="one transaction"),
        pytest.param(in_three_transactions, (0, 50, {"pool": 400}), id="control: three transactions"),
    ],
)
def test_a_session_that_ends_in_between_leaves_nothing_half_set(
    monkeypatch: pytest.MonkeyPatch,
    new_holder: Callable[[], str],
    ends_the_session: list[str],
    follow: Callable[[str], None],
    left: tuple[int, int | None, dict[str, int]],
) -> None:
    holder = new_holder()
    monkeypatch.setattr(subscriptions, "FOLLOWERS", [follow])
    subscription = order(holder)  # the order is there: what follows it has failed
    connection.close()
    assert (ends_the_session, state(holder)) == ([subscription.ref], left)
    run(subscription)
    assert state(holder) == ALL


def test_an_amendment_brings_the_next_plan_in_one_transaction(new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    subscription = order(holder)
    assert state(holder) == ALL
    before = reads.balance(holder).sequence
    amend(subscription, subscription.anchor_at, plan=plan_with(300, 70, 900), allowance_change="full")
    assert state(holder) == MORE
    written = Entry.objects.filter(holder_id=holder, sequence__gt=before).extra(select={"transaction": "xmin::text"})
    assert len({entry.transaction for entry in written}) == 1
    assert {"overage", "budget", "recurring_grant"} <= {name for entry in written for name in entry.counterpart or ()}
    run(subscription)
    assert state(holder) == MORE
    assert [what for what in findings_of("credits", "budgets", "overage") if subscription.ref in what] == []
