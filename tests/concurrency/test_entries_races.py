"""Two subscriptions of a holder that are ordered at once, with prices that bill the entries of the same rate: one is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from billing.models import Subscription
from billing.orders import subscriptions
from ledger import services
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, unique
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")


@LOCKED
def test_of_two_orders_at_once_that_would_bill_an_entry_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, run_threads: Callable[..., list[Any]], is_locked: bool
) -> None:
    holder, rate = unique("holder"), unique("rate").lower()
    services.publish_rate(code=rate, price=1, per=1)
    plan = PlanFactory(prices=[metered(billed_by="entries", entries={"rate": rate})]).code
    customers = [CustomerFactory(holder_id=holder).ref for _ in range(2)]
    if not is_locked:
        monkeypatch.setattr(subscriptions, "holder_lock", no_lock)
    meet(monkeypatch, (subscriptions, "_ensure_entries_billed_once"), is_locked=is_locked, has_read=True)

    def order(number: int) -> str:
        try:
            SubscriptionFactory(customer=customers[number], plan=plan)
        except Invalid as refused:
            return str(refused.facts["rule"])
        return "ordered"

    wanted = ["entries-taken", "ordered"] if is_locked else ["ordered", "ordered"]
    assert sorted(run_threads(order, 2)) == wanted
    assert Subscription.objects.filter(customer__ref__in=customers).count() == wanted.count("ordered")
