"""A period of an allowance begins: spends and a run meet, and its credits are granted once. The control does not claim them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import psycopg
import pytest

from billing.generator.difference import due_drafts
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Claim, Subscription
from billing.orders import plans
from ledger import services
from ledger.audit.auditing import audit
from ledger.errors import HolderBusy
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring
from tests.billing.findings import findings_of

ROLLS_OVER: dict[str, dict[str, Any]] = {"what rolls over": {"rollover_cap": 30}}
Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    # The tests that commit have a separate database, in which other plans have the same ids.
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()


def at_the_boundary(holder: str, what: str) -> Subscription:
    """A subscription to 100 credits a month, of which those of January are granted and claimed; it is 1 February.

    With a change, it is 15 January, when 310 credits a month begin: 55 go back, and 170 come. What rolls over is cut to 30.
    """
    services.set_clock(holder_id=holder, now=at(1, 1, year=2029), idempotency_key="january")
    plan = PlanFactory(prices=[recurring()], allowance={"amount": 100} | ROLLS_OVER.get(what, {})).code
    subscription: Subscription = SubscriptionFactory(
        customer=CustomerFactory(holder_id=holder).ref, plan=plan, started_at=at(1, 1, year=2029)
    )
    run(subscription)
    then = at(2, 1, year=2029)
    if what == "a change":
        then = at(1, 15, year=2029)
        amend(subscription, then, plan=PlanFactory(prices=[recurring()], allowance={"amount": 310}).code)
    services.set_clock(holder_id=holder, now=then, idempotency_key="then")
    return subscription


def run(subscription: Subscription) -> None:
    """What a worker does."""
    generate.generate(ref=subscription.ref, options=Options(as_of=datetime.now(UTC)))


def meet(run_threads: Any, holder: str, subscription: Subscription) -> list[Any]:
    """Two spends and a run at the same time, and the run once more."""

    def act(index: int) -> Any:
        if index == 1:
            return run(subscription)
        return services.spend(holder_id=holder, amount=30, idempotency_key=f"spend-{index}")

    results: list[Any] = run_threads(act, 3)
    run(subscription)
    return results


def granted(holder: str) -> list[int]:
    """The credits of each grant."""
    return list(Entry.objects.filter(holder_id=holder, kind="grant").order_by("sequence").values_list("amount", flat=True))


def taken_back(holder: str) -> int:
    """The credits that went back."""
    return -sum(Entry.objects.filter(holder_id=holder, kind="revoke").values_list("amount", flat=True))


BOUNDARIES = [("a period", 100, 0), ("a change", 170, 55), ("what rolls over", 100, 70)]


@pytest.mark.parametrize(("what", "new", "back"), BOUNDARIES)
def test_spends_and_a_run_that_meet_at_the_start_of_a_period_grant_it_once(
    committed_db: None, run_threads: Any, raw_connection: Connect, new_holder: Any, what: str, new: int, back: int
) -> None:
    holder = new_holder()
    subscription = at_the_boundary(holder, what)
    results = meet(run_threads, holder, subscription)
    assert not [one for one in results if isinstance(one, Exception) and not isinstance(one, HolderBusy)]
    assert (granted(holder), taken_back(holder)) == ([100, new], back)
    assert Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None).count() == 2
    assert [what for what in findings_of("credits of", "credits for") if subscription.ref in what] == []
    assert audit([raw_connection("owner")], holder_id=holder).findings == []


@pytest.mark.parametrize(("what", "new", "back"), BOUNDARIES)
def test_control_a_run_that_does_not_claim_what_the_ledger_granted_grants_it_again(
    committed_db: None, run_threads: Any, new_holder: Any, what: str, new: int, back: int
) -> None:
    holder = new_holder()
    subscription = at_the_boundary(holder, what)
    with mock.patch.object(due_drafts, "has_terms", return_value=False):
        meet(run_threads, holder, subscription)
    assert granted(holder) == [100, new, new]
