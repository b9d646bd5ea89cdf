"""Why an allowance that pays for usage of events or for invoices comes by a run: the account alone cannot say what is left.

Two customers with the same entries, of whom one has told usage that only billing reads. A run in time leaves them different
credits, so no first write that reads the account alone can decide as it would after that run.
"""

from decimal import Decimal
from typing import Any

import pytest

from billing.models import Subscription
from billing.orders.customers import NewCredits
from ledger import services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring, unique, use
from tests.billing.generator.state.test_allowance_changes import MONTH, available, day, move, run_at
from tests.billing.generator.state.test_allowance_terms import next_grant, spend

pytestmark = pytest.mark.django_db

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int]]] = {
    # Of the hundred of January, which usage may take until 1 March, all is left, or nothing; the hundred of February comes.
    "pays usage": ({"credits": {"per_unit": "1"}}, {}, (200, 100)),
    # The same, of which fifty may roll over.
    "pays usage and rolls over": ({"credits": {"per_unit": "1"}}, {"rollover_cap": 50}, (150, 100)),
    # A hundred that were bought: the invoice of January's usage takes nothing of them, or all; its allowance has expired.
    "pays invoices": ({"unit_amount": "0.01"}, {}, (200, 100)),
    # The hundred of January pays the invoice, and nothing is left that could roll over; or fifty of it stay.
    "pays invoices and rolls over": ({"unit_amount": "0.01"}, {"rollover_cap": 50}, (250, 200)),
}


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def on_the_last_of_january(name: str, *, calls: int) -> tuple[str, Subscription]:
    """A customer of a plan with 100 credits a month, who has told that many calls; January's allowance was granted in time."""
    price, terms, _ = KINDS[name]
    holder, pays_invoices = unique("holder"), NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    move(holder, day(1))
    customer = CustomerFactory(holder_id=holder, **({"credits": pays_invoices} if "invoices" in name else {}))
    plan = PlanFactory(
        prices=[recurring(unit_amount="0.00"), metered(**price)], interval=MONTH, allowance={"amount": 100} | terms
    )
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=day(1))
    run_at(holder, subscription, day(1))
    if "invoices" in name:
        services.grant(holder_id=holder, amount=100, source="purchased", idempotency_key="bought")
    if calls:
        use(subscription, str(calls), day(1, 20))
    return holder, subscription


def account(holder: str) -> list[Any]:
    """All that the ledger knows of it: what a first write reads."""
    rows = Entry.objects.filter(holder_id=holder).order_by("sequence")
    return [
        (row.kind, row.amount, row.effective_at, row.balance, row.next_grant_at, str(row.lots), str(row.holds)) for row in rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.check if name == "pays usage" else ()) for name in KINDS])
def test_two_accounts_that_are_the_same_have_other_credits_after_a_run_in_time(name: str) -> None:
    (quiet, without), (busy, with_usage) = (on_the_last_of_january(name, calls=calls) for calls in (0, 100))
    assert account(quiet) == account(busy)
    assert next_grant(quiet) is None
    for holder, subscription in ((quiet, without), (busy, with_usage)):
        run_at(holder, subscription, day(2))
    more, less = KINDS[name][2]
    assert (available(quiet), available(busy)) == (more, less)
    # One spend is right here, and wrong there.
    spend(quiet, more)
    with pytest.raises(InsufficientCredits):
        spend(busy, more)
