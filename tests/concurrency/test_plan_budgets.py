"""The budgets of a plan beside others: seats change while all of the limit is contested, and while somebody sets one by hand."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event
from typing import Any

import psycopg
import pytest

from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.state import plan_budgets
from billing.models import Subscription
from billing.orders import plans
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import holder_key
from ledger.errors import BudgetExceeded
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring
from tests.billing.findings import findings_of
from tests.concurrency.meetings import HANGS_S, LOCKED, meet
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")

SPENDERS = 6


@pytest.fixture(autouse=True)
def _plans() -> None:
    # The tests that commit have a separate database, in which other plans have the same ids.
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()


def ordered(holder: str) -> Subscription:
    """A subscription to 100 credits a month for each of three seats."""
    pool = {"budget": "pool", "credit_type": "credits", "limit": 100, "per_quantity_of": "seats", "window": "month"}
    plan = PlanFactory(prices=[recurring("seats", model="unit")], budgets=[pool]).code
    customer = CustomerFactory(holder_id=holder).ref
    subscription: Subscription = SubscriptionFactory(
        customer=customer, plan=plan, quantities={"seats": Decimal(3)}, started_at=at(1)
    )
    return subscription


def change_seats(subscription: Subscription, seats: int) -> None:
    amend(subscription, datetime.now(UTC), quantities={"seats": Decimal(seats)})


def limits(holder: str) -> dict[str, int]:
    return {budget.name: budget.settings.limit for budget in reads.budgets(holder)}


def test_spends_at_the_limit_take_exactly_that_of_the_new_seats(
    run_threads: Callable[..., list[Any]], raw_connection: Callable[..., psycopg.Connection[Any]], new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    subscription = ordered(holder)
    services.grant(holder_id=holder, amount=10_000, idempotency_key="grant")
    services.spend(holder_id=holder, amount=290, idempotency_key="before")

    def work(thread: int) -> int:
        if thread == SPENDERS:
            change_seats(subscription, 5)
            return 0
        taken = 0
        for number in range(25):
            with suppress(BudgetExceeded):
                taken -= services.spend(holder_id=holder, amount=7, partial=True, idempotency_key=f"{thread}/{number}").amount
        return taken

    taken = 290 + sum(run_threads(work, SPENDERS + 1))
    assert 300 <= taken <= 500
    with suppress(BudgetExceeded):  # all of it is spent already, if the seats came early
        services.spend(holder_id=holder, amount=500, partial=True, idempotency_key="rest")
    [pool] = reads.budgets(holder)
    assert (pool.settings.limit, pool.usage[0].used, reads.balance(holder).balance) == (500, 500, 9_500)
    generate.generate(ref=subscription.ref, options=Options(as_of=datetime.now(UTC)))
    assert [what for what in findings_of("budgets of a plan") if subscription.ref in what] == []
    assert audit([raw_connection("owner")], holder_id=holder).findings == []


@LOCKED
def test_a_change_of_seats_overwrites_no_budget_that_is_set_by_hand_meanwhile(
    monkeypatch: pytest.MonkeyPatch, run_threads: Callable[..., list[Any]], new_holder: Callable[[], str], is_locked: bool
) -> None:
    holder = new_holder()
    subscription = ordered(holder)
    assert limits(holder) == {"pool": 300}
    if not is_locked:
        monkeypatch.setattr(plan_budgets, "holder_lock", lambda name: no_lock(holder_key(name)))
    has_read, read = Event(), plan_budgets.budgets_under

    def read_and_say(*arguments: Any, **named: Any) -> Any:
        found = read(*arguments, **named)
        has_read.set()
        return found

    monkeypatch.setattr(plan_budgets, "budgets_under", read_and_say)
    # Billing has read whose the budget is.
    meeting = meet(monkeypatch, (plan_budgets, "budgets_under"), is_locked=is_locked, has_read=True)

    def act(thread: int) -> None:
        if thread == 0:
            change_seats(subscription, 5)
        else:
            assert has_read.wait(HANGS_S)
            services.set_budget(holder_id=holder, budget="pool", limit=7, window="month", actor="ada", idempotency_key="by-hand")
            meeting.come()

    assert [found for found in run_threads(act, 2) if isinstance(found, Exception)] == []
    assert limits(holder) == {"pool": 7 if is_locked else 500}
