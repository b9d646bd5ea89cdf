"""Usage paid in credits while others are at the same ones: none covered twice, none spent twice, each race with its control."""

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import IntegrityError, connections

from billing.documents import invoices
from billing.errors import InvoiceGenerationBusy
from billing.generator.difference import drawdown
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Claim, Invoice, Subscription
from billing.orders import plans
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import lock_number
from ledger.errors import InsufficientCredits
from ledger.keys import api_keys
from ledger.rest.kit import authentication
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, unique, use
from tests.billing.findings import findings_of
from tests.concurrency.race_harness import no_lock
from tests.concurrency.test_invoices_races import HeldGeneration
from tests.ledger.rest.conftest import ApiClient
from tests.nodes import waiting_for_advisory_lock

Connect = Callable[..., psycopg.Connection[Any]]
FEB_1 = Options(as_of=at(2, 1))


@pytest.fixture(autouse=True)
def _forget() -> None:
    """The tests that commit have a separate database, in which other plans and keys have the same ids."""
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()
    authentication.forget_keys()


def of_one_customer(holder: str, count: int, used: str) -> list[Subscription]:
    """Subscriptions that share a holder, each with `used` calls in January at 1 credit or 0.02."""
    customer = CustomerFactory(holder_id=holder).ref
    plan = PlanFactory(prices=[metered(credits={"per_unit": "1"})]).code
    subscriptions = [SubscriptionFactory(customer=customer, plan=plan) for _ in range(count)]
    for one in subscriptions:
        use(one, used, at(1, 10))
    return subscriptions


def credits_taken(subscription: Subscription) -> int:
    """How many credits the subscription's usage has taken, less those returned."""
    claims = Claim.objects.filter(subscription=subscription.pk, released_at=None, snapshot__has_key="covered")
    return sum(spend[3] for claim in claims for spend in claim.snapshot["covered"]["spends"])


def audit_findings(raw_connection: Connect, holder: str) -> list[Any]:
    """What the audits of ledger and billing find about the holder."""
    of_credits = [what for what in findings_of("credits spent on usage") if holder in what]
    return [*of_credits, *audit([raw_connection("owner")], holder_id=holder).findings]


def test_two_subscriptions_of_a_customer_share_the_credits(
    committed_db: None, run_threads: Any, raw_connection: Connect, new_holder: Any
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=150, idempotency_key="bought")
    both = of_one_customer(holder, 2, "100")
    results = run_threads(lambda index: generate.generate(ref=both[index].ref, options=FEB_1), 2)
    # One has its 100 calls covered, the other 50 of them: 50 x 0.02 is 1.00.
    assert sorted(one.invoices[0].total_minor for one in results) == [0, 100]
    assert sorted(credits_taken(one) for one in both) == [50, 100]
    assert reads.balance(holder).balance == 0
    assert audit_findings(raw_connection, holder) == []


def test_the_control_who_decides_by_what_was_seen_before_the_lock_promises_the_same_credits_twice(
    committed_db: None, run_threads: Any, raw_connection: Connect, new_holder: Any
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=150, idempotency_key="bought")
    both = of_one_customer(holder, 2, "100")
    both_have_read = threading.Barrier(2)
    seen: list[int] = []

    def through_the_window(lock: Any, holder_id: str, credit_type: str) -> int:
        available: int = reads.balance(holder_id, credit_type).available
        seen.append(available)
        both_have_read.wait(30)
        return available

    unlocked = mock.patch.object(drawdown, "holder_lock", lambda *ids: no_lock(*(f"ledger/{one}" for one in ids)))
    with (
        unlocked,
        mock.patch.object(drawdown, "spendable", through_the_window),
        mock.patch.object(drawdown.coupon_uses, "wait_turn", return_value=None),
    ):
        results = run_threads(lambda index: generate.generate(ref=both[index].ref, options=FEB_1), 2)

    # Both saw 150 and decided on 100; only the ledger itself kept the second from being spent, by its rules or by its key.
    assert seen == [150, 150]
    [refused] = [one for one in results if isinstance(one, Exception)]
    assert isinstance(refused, InsufficientCredits | IntegrityError)
    assert reads.balance(holder).balance == 50
    assert audit_findings(raw_connection, holder) == []


def test_a_spend_over_rest_waits_for_the_generator_and_is_refused_by_the_balance_after_it(
    committed_db: None, raw_connection: Connect, new_holder: Any
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=150, idempotency_key="bought")
    [subscription] = of_one_customer(holder, 1, "100")
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["ledger:spend"])
    answers: list[Any] = []

    def spend() -> None:
        try:
            answers.append(ApiClient(secret).post(f"/v1/holders/{holder}/spends", {"amount": 120}))
        finally:
            connections.close_all()

    observer = raw_connection("owner", autocommit=True)
    number = lock_number(f"ledger/{holder}")
    spending = threading.Thread(target=spend)
    with HeldGeneration(subscription.ref):
        spending.start()
        while not waiting_for_advisory_lock(observer, number) and spending.is_alive():
            pass
        assert answers == []
    spending.join(30)
    assert answers[0].status_code == 402
    assert {name: answers[0].json()[name] for name in ("available", "requested", "shortfall")} == {
        "available": 50, "requested": 120, "shortfall": 70,
    }  # fmt: skip
    assert (credits_taken(subscription), reads.balance(holder).balance) == (100, 50)


@pytest.mark.slow
@pytest.mark.check
def test_a_crowd_of_generators_spends_and_deletions_moves_each_credit_once(
    committed_db: None, run_threads: Any, raw_connection: Connect, new_holder: Any
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=1000, idempotency_key="bought")
    many = of_one_customer(holder, 12, "100")
    spent: list[int] = []

    def work(index: int) -> None:
        if index == 3:
            for number in range(20):
                try:
                    spent.append(services.spend(holder_id=holder, amount=17, idempotency_key=f"elsewhere-{number}").amount)
                except InsufficientCredits:
                    continue
            return
        for one in many[index::3]:
            try:
                made = generate.generate(ref=one.ref, options=Options(as_of=at(2, 1), finalize=False)).invoices
            except InvoiceGenerationBusy:
                continue
            if index == 1:
                invoices.delete_draft(made[0].invoice_id)
                generate.generate(ref=one.ref, options=FEB_1)

    assert [one for one in run_threads(work, 4) if one is not None] == []
    credits_of_usage = sum(credits_taken(one) for one in many)
    assert 1000 + sum(spent) - credits_of_usage == reads.balance(holder).balance >= 0
    # What credits did not cover was invoiced: 0.02 for each other call, in whole.
    invoiced = sum(Invoice.objects.filter(subscription__in=[one.pk for one in many]).values_list("total_minor", flat=True))
    assert invoiced == 2 * (1200 - credits_of_usage)
    assert audit_findings(raw_connection, holder) == []
