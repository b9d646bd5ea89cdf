"""The first payment of a subscription brings its credits in its transaction: beside runs, spends and a holder who is busy."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import transaction

from billing.documents.invoice_payments import record_payment
from billing.generator.activations import order_subscription
from billing.generator.difference import due_drafts
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Activation, Invoice, Subscription
from billing.orders import plans
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits, LedgerError
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, at, recurring, unique
from tests.billing.findings import findings_of
from tests.concurrency.meetings import Meeting

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    # The tests that commit have a separate database, in which other plans have the same ids.
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()


def waiting(holder: str) -> Subscription:
    """An order of 100 credits a month that waits for 10.00; for the holder it is January 2029."""
    services.set_clock(holder_id=holder, now=at(1, 1, year=2029), idempotency_key="january")
    plan = PlanFactory(prices=[recurring(unit_amount="10.00")], allowance={"amount": 100}).code
    customer = CustomerFactory(holder_id=holder).ref
    return order_subscription(
        ref=unique("SUB"), customer=customer, plan=plan, started_at=at(1, 1, year=2029), starts_when_paid=True
    )


def pay(subscription: Subscription) -> None:
    invoice = Activation.objects.get(subscription=subscription.pk).invoice_id
    record_payment(invoice=invoice, payment=unique("pay"), amount_minor=1000)


def run(subscription: Subscription) -> None:
    with suppress(LedgerError):
        generate.generate(ref=subscription.ref, options=Options(as_of=datetime.now(UTC)))


def meet(run_threads: Callable[..., list[Any]], holder: str, subscription: Subscription) -> list[Any]:
    """The payment, a run and spends at the same time, and the run once more; the results of all but the last run."""

    def act(thread: int) -> Any:
        if thread == 0:
            return pay(subscription)
        if thread == 1:
            return run(subscription)
        for number in range(5):
            with suppress(InsufficientCredits):
                services.spend(holder_id=holder, amount=3, idempotency_key=f"{thread}/{number}")
        return None

    results = run_threads(act, 4)
    run(subscription)
    return results


def granted(holder: str) -> list[int]:
    return list(Entry.objects.filter(holder_id=holder, kind="grant").order_by("sequence").values_list("amount", flat=True))


@pytest.mark.parametrize("round_", range(3))
def test_a_payment_that_meets_a_run_and_spends_grants_its_credits_once(
    run_threads: Callable[..., list[Any]],
    raw_connection: Callable[..., psycopg.Connection[Any]],
    new_holder: Callable[[], str],
    round_: int,
) -> None:
    holder = new_holder()
    subscription = waiting(holder)
    assert [found for found in meet(run_threads, holder, subscription) if isinstance(found, Exception)] == []
    assert granted(holder) == [100]
    assert [what for what in findings_of("credits of", "credits for", "subscription") if subscription.ref in what] == []
    assert audit([raw_connection("owner")], holder_id=holder).findings == []


def test_control_a_run_that_does_not_claim_what_the_payment_granted_grants_it_again(
    run_threads: Callable[..., list[Any]], new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    subscription = waiting(holder)
    with mock.patch.object(due_drafts, "has_terms", return_value=False):
        meet(run_threads, holder, subscription)
    assert granted(holder) == [100, 100]


def test_a_payment_waits_for_no_lock_of_the_holder_and_its_credits_come_when_that_is_free(
    run_threads: Callable[..., list[Any]], new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    subscription = waiting(holder)
    has_lock = Meeting()
    until_waited_for = Meeting(is_locked=True)

    def act(thread: int) -> str:
        if thread == 0:
            with transaction.atomic(), holder_lock(holder):
                has_lock.come()
                # Who waits then is what follows the payment, which has committed.
                until_waited_for.come()
                invoice = Invoice.objects.get(subscription=subscription.pk)
                assert reads.balance(holder).available == 0
                return str(invoice.state)
        has_lock.come()
        pay(subscription)
        return "done"

    assert run_threads(act, 2) == ["paid", "done"]
    assert reads.balance(holder).available == 100
