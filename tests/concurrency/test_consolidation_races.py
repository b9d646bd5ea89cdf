"""Consolidated invoices while others bill subscriptions of the customer; each race with its twin without the protection."""

import time
import tracemalloc
from decimal import Decimal
from functools import partial
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import transaction

from billing.auditing import consistency
from billing.documents import invoice_locks
from billing.errors import InvoiceGenerationBusy
from billing.generator.difference import store
from billing.generator.options import Options
from billing.generator.run import gathering
from billing.generator.run import generate as generator
from billing.generator.run.due import DueFilter
from billing.generator.run.gathering import Turns, consolidate_next
from billing.generator.run.steps import GenerationResult
from billing.models import Customer, Invoice, Line, Subscription
from ledger.database.transactions import own_or_joined
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, transition
from tests.concurrency.race_harness import no_lock
from tests.concurrency.test_invoices_races import HeldGeneration, generate

JAN_1 = Options(as_of=at(1, 1))


def shared() -> tuple[Customer, list[Subscription]]:
    """A customer with consolidated invoices and two subscriptions of 10.00."""
    customer = CustomerFactory(consolidated_invoicing=True)
    plan = PlanFactory(prices=[recurring()]).code
    return customer, [SubscriptionFactory(customer=customer.ref, plan=plan) for _ in range(2)]


def gathered(customer: Customer, options: Options = JAN_1) -> GenerationResult | None:
    """What one worker makes of the drafts that there are."""
    with own_or_joined():
        return consolidate_next(customer.ref, Turns(DueFilter(as_of=options.as_of)), options)


def numbered(customer: Customer) -> list[int]:
    """The totals of the customer's finalised invoices."""
    return list(
        Invoice.objects.filter(customer_id=customer.pk).exclude(number=None).order_by("id").values_list("total_minor", flat=True)
    )


def findings_of(customer: Customer) -> list[str]:
    """What the checks find about the customer's invoices."""
    refs = {
        customer.ref,
        *(f"invoice {pk}" for pk in Invoice.objects.filter(customer_id=customer.pk).values_list("pk", flat=True)),
    }
    return [one["what"] for one in consistency.check() if any(ref in one["what"] for ref in refs)]


@pytest.mark.parametrize("protected", [True, False])
def test_the_invoice_waits_for_a_subscription_that_another_worker_bills(committed_db: None, protected: bool) -> None:
    customer, [first, second] = shared()
    generate(first.ref, JAN_1)
    waits = partial(mock.patch.object, gathering, "is_waited_for")
    with HeldGeneration(second.ref, JAN_1):
        with waits(wraps=gathering.is_waited_for) if protected else waits(return_value=False):
            made = gathered(customer)
        assert (made is None) == protected
    gathered(customer)
    assert len(numbered(customer)) == (1 if protected else 2)
    assert findings_of(customer) == []


@pytest.mark.parametrize("protected", [True, False])
def test_a_draft_does_not_move_while_its_subscription_is_billed_again(
    committed_db: None, run_threads: Any, protected: bool
) -> None:
    customer, [first, second] = shared()
    for subscription in (first, second):
        generate(subscription.ref, JAN_1)
    amend(first, at(1, 16), quantities={"base": Decimal(2)})
    written, results = store.write_claims, list[Any]()

    def gathers_before(*arguments: Any) -> None:
        # The generation has read what is billed, and written the credit.
        with mock.patch.object(gathering, "try_advisory_lock", gathering.try_advisory_lock if protected else no_lock):
            results.extend(run_threads(lambda _: gathered(customer), 1))
        written(*arguments)

    with transaction.atomic():
        with mock.patch.object(store, "write_claims", gathers_before):
            generator.generate_in(ref=first.ref, options=Options(as_of=at(1, 16), finalize=False))
        drafts = Invoice.objects.filter(customer_id=customer.pk, subscription_id=first.pk)
        [credit] = Line.objects.filter(invoice__in=drafts, kind="credit")
        # Without the lock of the subscription, the credit names the line of a draft that is gone.
        assert Invoice.objects.filter(pk=credit.rating["credits"]["invoice"]).exists() == protected
        transaction.set_rollback(True)
    assert isinstance(results[0], InvoiceGenerationBusy) == protected
    assert numbered(customer) == ([] if protected else [2000])
    gathered(customer)
    assert (numbered(customer), findings_of(customer)) == ([2000], [])


@pytest.mark.parametrize("protected", [True, False])
def test_a_shared_invoice_is_not_voided_with_another_one_while_a_subscription_of_it_is_billed(
    committed_db: None, protected: bool
) -> None:
    customer = CustomerFactory(consolidated_invoicing=True)
    plans = [PlanFactory(prices=[recurring(unit_amount=amount)]).code for amount in ("31", "21")]
    ends = SubscriptionFactory(customer=customer.ref, plan=plans[0])
    [first] = generate(ends.ref, JAN_1).invoices
    gathered(customer)
    amend(ends, at(1, 11), sets_end=True, ends_at=at(1, 11))
    starts = SubscriptionFactory(customer=customer.ref, plan=plans[1], started_at=at(2, 1))
    feb_1 = Options(as_of=at(2, 1))
    for subscription in (ends, starts):
        generate(subscription.ref, feb_1)
    gathered(customer, feb_1)
    # The credit of 21.00 and the fee came to nothing, and that invoice corrects the first one.
    with HeldGeneration(starts.ref, Options(as_of=at(3, 1))):
        if protected:
            with pytest.raises(InvoiceGenerationBusy):
                transition(first.invoice_id, "void")
        else:
            with mock.patch.object(invoice_locks, "try_advisory_lock", no_lock):
                transition(first.invoice_id, "void")
    states = list(Invoice.objects.filter(customer_id=customer.pk).order_by("id").values_list("state", flat=True)[:2])
    assert states == (["open", "paid"] if protected else ["void", "void"])


def test_two_that_gather_at_once_make_one_invoice(committed_db: None, run_threads: Any) -> None:
    customer, subscriptions = shared()
    for subscription in subscriptions:
        generate(subscription.ref, JAN_1)

    def gather(_: int) -> int:
        return len(getattr(gathered(customer), "invoices", []))

    assert sorted(run_threads(gather, 4)) == [0, 0, 0, 1]
    assert len(numbered(customer)) == 1


@pytest.mark.slow
def test_the_workers_of_a_run_make_one_invoice_of_a_customer(committed_db: None) -> None:
    customer = CustomerFactory(consolidated_invoicing=True)
    plan = PlanFactory(prices=[recurring()]).code
    for _ in range(9):
        SubscriptionFactory(customer=customer.ref, plan=plan)
    call_command(
        "generate_invoices", "--as-of", "2026-01-01T00:00:00Z", "--customer", customer.ref, "--workers", "3", "--no-progress",
        stdout=StringIO(), stderr=StringIO(),
    )  # fmt: skip
    assert (numbered(customer), findings_of(customer)) == ([9000], [])


@pytest.mark.slow
@pytest.mark.deployment
def test_a_thousand_subscriptions_share_an_invoice(committed_db: None) -> None:
    customer = CustomerFactory(consolidated_invoicing=True)
    plan = PlanFactory(prices=[recurring(), recurring("seats"), recurring("support")]).code
    for _ in range(gathering.MOST_SUBSCRIPTIONS + 1):
        generate(SubscriptionFactory(customer=customer.ref, plan=plan).ref, JAN_1)
    tracemalloc.start()
    began_s = time.process_time()
    while gathered(customer) is not None:
        pass
    cpu_s, (_, peak) = time.process_time() - began_s, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{cpu_s:.1f} s of CPU, {peak / 2**20:.0f} MiB")
    # The limit of a document is its first thousand; what is left is the document of its subscription.
    assert sorted(numbered(customer)) == [3000, 3_000_000]
    assert cpu_s < 60
    assert peak < 200 * 2**20
