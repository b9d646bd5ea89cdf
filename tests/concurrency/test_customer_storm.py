"""Customers whose subscriptions share invoices and wait for their payment, in a storm; afterwards all is as if it had been calm.

Eight commands bill them at once, three expire orders, others amend and pay, and commands are killed in the middle. All the time
somebody has locked every row of what was ordered: nobody waits for one.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.errors import InvoiceGenerationBusy, SubscriptionNotIncomplete
from billing.generator.activations import cancel_order, expire, order_subscription
from billing.models import Activation, Claim, CreditNote, Customer, Invoice, InvoicePayment, Line, Subscription
from billing.orders import subscriptions
from billing.orders.customers import NewCredits
from billing.testing import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.testing import unique
from tests.billing.factories import amend, at, use
from tests.concurrency.test_invoice_scale import children_of
from tests.concurrency.test_invoices_races import HANGS_S, numbers_are_gapless
from tests.conftest import database_url
from tests.nodes import pause

Connect = Callable[..., psycopg.Connection[Any]]
AS_OF = "2026-02-01"
COMMANDS = 8
ORDERED = ("billing_subscription", "billing_customer", "billing_plan", "billing_price", "billing_item")
BLOCKED = "SELECT pid, query FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
FIRST_MINOR = 3100


@dataclass
class Household:
    """A customer with three subscriptions that share invoices, and one that waits for its payment; some have prepaid credits.

    Args:
        kind: what becomes of that one: paid in two parts, paid when its time is over, paid in part, not paid, or canceled.
    """

    kind: str
    plan: str
    customer: Customer = field(init=False)
    shared: list[Subscription] = field(init=False)
    waiting: Subscription = field(init=False)

    def __post_init__(self) -> None:
        self.holder = unique("holder")
        terms: dict[str, Any] = {}
        if self.kind in ("late", "never", "canceled"):
            services.grant(holder_id=self.holder, amount=500, idempotency_key="first")
            terms = {"holder_id": self.holder, "credits": NewCredits(unit_value=Decimal("0.01"))}
        self.customer = CustomerFactory(consolidated_invoicing=True, **terms)
        self.shared = [SubscriptionFactory(customer=self.customer.ref, plan=self.plan) for _ in range(3)]
        order = {"ref": unique("SUB"), "customer": self.customer.ref, "plan": self.plan, "started_at": at(1)}
        # Only the first kind has time left to be paid.
        early = timedelta(hours=0 if self.kind == "paid" else 24)
        with mock.patch.object(subscriptions, "present", return_value=timezone.now() - early):
            self.waiting = order_subscription(**order, starts_when_paid=True)
        for one in (*self.shared, self.waiting):
            use(one, "50", at(1, 5))

    @property
    def activation(self) -> Activation:
        """Of the subscription that waits."""
        return Activation.objects.get(subscription_id=self.waiting.pk)

    def pay(self, minor: int) -> None:
        record_payment(invoice=self.activation.invoice_id, payment=unique("pay"), amount_minor=minor)

    def cancel(self) -> None:
        """Cancel the order, unless it has expired."""
        with suppress(SubscriptionNotIncomplete):
            while True:
                with suppress(InvoiceGenerationBusy):
                    cancel_order(ref=self.waiting.ref)
                    return

    @property
    def expired_first(self) -> bool:
        """Whether the order expired before anything was paid."""
        payments = InvoicePayment.objects.filter(invoice_id=self.activation.invoice_id, applied_minor__gt=0)
        return self.activation.state == "expired" and not payments.exists()

    def acts(self) -> list[Callable[[], Any]]:
        """What others do; the payments and the cancellation may come before or after the time of the order is over."""
        changes = [
            partial(amend, self.shared[0], at(1, 17), quantities={"base": Decimal(2)}),
            partial(amend, self.shared[1], at(1, 11), sets_end=True, ends_at=at(1, 11)),
        ]
        half = partial(self.pay, FIRST_MINOR // 2)
        return {
            "paid": [half, half],
            "late": [partial(self.pay, FIRST_MINOR), *changes],
            "part": [partial(self.pay, 1000)],
            "never": changes,
            "canceled": [self.cancel],
        }[self.kind]

    # Afterwards ----------------------------------------------------------------------------------------

    def claimed(self) -> Counter[Any]:
        """What is billed of each subscription, by its place."""
        places = {one.pk: place for place, one in enumerate((*self.shared, self.waiting))}
        claims = Claim.objects.filter(subscription_id__in=places, released_at=None)
        return Counter((places[one.subscription_id], one.kind, one.starts_at, one.ends_at, one.amount_minor) for one in claims)

    def owes_minor(self) -> int:
        """What the customer has to pay, less its credit in money and its prepaid credits."""
        invoices = Invoice.objects.filter(customer_id=self.customer.pk).exclude(state__in=("void", "draft"))
        notes = CreditNote.objects.filter(customer_id=self.customer.pk, released_at=None)
        due = sum(one.amount_due_minor - one.amount_paid_minor for one in invoices)
        return due - sum(note.left_minor for note in notes) - reads.balance(self.holder).available

    def findings(self, connect: Connect, found: list[Any]) -> list[Any]:
        """What the checks of billing have found about the customer, and what the audit of the ledger finds."""
        invoices = Invoice.objects.filter(customer_id=self.customer.pk).values_list("pk", flat=True)
        refs = {self.customer.ref, self.waiting.ref, *(one.ref for one in self.shared), *(f"invoice {pk} " for pk in invoices)}
        of_billing = [one for one in found if any(ref in f"{one['what']} " for ref in refs)]
        return [*of_billing, *audit([connect("owner")], holder_id=self.holder).findings]

    def documents(self) -> list[Any]:
        """The documents with their lines, without those of the order that waited."""
        first = self.activation.invoice_id
        found = Invoice.objects.filter(customer_id=self.customer.pk).exclude(pk=first).order_by("id")
        lines = Line.objects.order_by("position").values_list("kind", "starts_at", "amount_minor")
        return [(one.state, one.total_minor, list(lines.filter(invoice_id=one.pk))) for one in found]


KINDS = ("paid", "late", "part", "never", "canceled")


def households(plan: str, count: int) -> list[Household]:
    """As many of each kind."""
    return [Household(KINDS[index % len(KINDS)], plan) for index in range(count)]


def start(command: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start a command of `manage.py` in a process."""
    environment = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "manage.py", command, *arguments],
        cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def generate(plan: str, *more: str) -> "subprocess.Popen[str]":
    """Start a command that bills the subscriptions to a plan."""
    return start("generate_invoices", "--as-of", AS_OF, "--plan", plan, "--no-progress", *more)


def kill(process: "subprocess.Popen[str]") -> None:
    """Kill a command with its workers."""
    for pid in [*children_of(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=HANGS_S)


@contextmanager
def ordered_rows_locked(connect: Connect) -> Iterator[list[tuple[int, str]]]:
    """Hold every row of what is ordered; yields the sessions that were seen to wait for one of them."""
    holder, observer = connect("owner"), connect("owner", autocommit=True)
    holder.execute("SET idle_in_transaction_session_timeout = 0")
    for table in ORDERED:
        holder.execute(f"SELECT FROM {table} FOR UPDATE")
    waited: list[tuple[int, str]] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            waited.extend(observer.execute(BLOCKED, [holder.info.backend_pid]).fetchall())
            pause()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield waited
    finally:
        is_over.set()
        watching.join()
        holder.rollback()


def wait_for_lines(plan: str, wanted: int, process: "subprocess.Popen[str]") -> None:
    """Return when this number of lines is written, or the process has ended."""
    while Line.objects.filter(price__plan__code=plan).count() < wanted and process.poll() is None:
        pause()


def storm(plan: str, found: list[Household], run_threads: Callable[..., list[Any]]) -> None:
    """All at once; four of the commands that bill, and one that expires orders, are killed in the middle."""
    before = Line.objects.filter(price__plan__code=plan).count()
    billing = [generate(plan, "--workers", "2") for _ in range(COMMANDS)]
    expiring = [start("expire_subscriptions") for _ in range(3)]
    acts = [act for one in found for act in one.acts()]

    def act(index: int) -> None:
        for one in acts[index::4]:
            one()

    def end(_: int) -> int:
        killed = 0
        for number, process in enumerate(billing[: COMMANDS // 2]):
            wait_for_lines(plan, before + len(found) * (number + 1), process)
            if process.poll() is None:
                kill(process)
                killed += 1
        while Activation.objects.filter(subscription_id__in=[one.waiting.pk for one in found], state="expired").count() == 0:
            if expiring[0].poll() is not None:
                break
            pause()
        if expiring[0].poll() is None:
            kill(expiring[0])
        return killed

    done = run_threads(lambda index: end(index) if index == 4 else act(index), 5)
    assert [one for one in done if isinstance(one, Exception)] == []
    assert done[-1] > 0, "no command was killed"
    for process in [*billing[COMMANDS // 2 :], *expiring[1:]]:
        _, err = process.communicate(timeout=HANGS_S)
        # 4: some were busy, and the next run does them.
        assert process.returncode in (0, 4), err


def last_runs(plan: str) -> None:
    """One run of each command, to its end."""
    for begin in (partial(start, "expire_subscriptions"), partial(generate, plan)):
        process = begin()
        _, err = process.communicate(timeout=HANGS_S)
        assert process.returncode == 0, err


def calm(plan: str, found: list[Household]) -> list[Household]:
    """The same customers without a storm; what became of each order is as in the storm."""
    same = [Household(one.kind, plan) for one in found]
    for one, was in zip(same, found, strict=True):
        if was.expired_first:
            expire(one.waiting.ref)
        for act in one.acts():
            act()
        if was.activation.state == "expired":
            expire(one.waiting.ref)
    return same


@pytest.mark.slow
@pytest.mark.parametrize("count", [15, 60])
def test_after_a_storm_all_is_as_if_it_had_been_calm(
    committed_db: None, raw_connection: Connect, run_threads: Callable[..., list[Any]], count: int
) -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="31.00", model="unit"), metered()]).code
    found = households(plan, count)
    with ordered_rows_locked(raw_connection) as waited:
        storm(plan, found, run_threads)
        last_runs(plan)
    assert waited == []
    same = calm(plan, found)
    last_runs(plan)
    for one, other in zip(found, same, strict=True):
        assert one.activation.state == other.activation.state
        assert one.claimed() == other.claimed(), one.kind
        assert one.owes_minor() == other.owes_minor(), one.kind
        if one.kind in ("part", "canceled"):
            # Nobody changed what was billed, so the documents are the same, too.
            assert one.documents() == other.documents(), one.kind
    assert {one.activation.state for one in found if one.kind == "paid"} == {"started"}
    assert {one.activation.state for one in found if one.kind in ("part", "never")} == {"expired"}
    assert not Invoice.objects.filter(customer_id__in=[one.customer.pk for one in found], state="draft").exists()
    assert numbers_are_gapless(raw_connection(autocommit=True))
    wrong = consistency.check()
    assert [finding for one in found for finding in one.findings(raw_connection, wrong)] == []


@pytest.mark.slow
def test_control_who_locks_an_ordered_row_is_seen_to_wait(committed_db: None, raw_connection: Connect) -> None:
    """What a foreign key of the database would do: the measure of the storm finds it."""
    subscription = SubscriptionFactory()
    other = raw_connection("owner")
    with ordered_rows_locked(raw_connection) as waited:
        other.execute("SET lock_timeout = '500ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT FROM billing_subscription WHERE id = %s FOR KEY SHARE", [subscription.pk])
    assert "FOR KEY SHARE" in waited[0][1]
