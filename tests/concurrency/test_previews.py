"""A dry run stops nobody: no holder's lock is taken, and a subscription's only while that one is worked out."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import partial
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections, transaction

from billing.api.calls import previews as calls_of_previews
from billing.documents.invoice_locks import invoice_key
from billing.errors import InvoiceGenerationBusy
from billing.generator.options import Options
from billing.generator.run import generate as generator
from billing.generator.run import runs, steps
from billing.generator.run.outcomes import SubscriptionResult
from billing.models import Customer, Invoice, Subscription
from billing.orders import coupons
from billing.orders.customers import NewCredits
from ledger import previews, services
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import advisory_lock, holder_key, lock_number, try_advisory_lock, waits_bounded
from ledger.errors import HolderBusy, LockBusy, SequenceTaken
from tests import nodes
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use

HANGS_S = 60
AS_OF = at(2)
ADVISORY_LOCKS = """
    SELECT (classid::bigint << 32) | objid::bigint
    FROM pg_locks JOIN pg_database AS here ON here.oid = database
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND here.datname = current_database()
"""
OF_SESSION = f"{ADVISORY_LOCKS} AND pid = %s"


class Sharing:
    """A customer whose subscriptions share credits, which pay usage first and then invoices, and a coupon."""

    def __init__(self, subscriptions: int) -> None:
        self.holder = unique("holder")
        services.grant(holder_id=self.holder, amount=1_000, idempotency_key="grant")
        self.customer: Customer = CustomerFactory(
            holder_id=self.holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
        )
        code = coupons.create_coupon(code=unique("c"), kind="amount", value=Decimal(15), currency="EUR", duration="once").code
        coupons.give_coupon(customer_id=self.customer.pk, customer_ref=self.customer.ref, customer_currency="EUR", code=code)
        prices = [metered(credits={"per_unit": "1"}), recurring()]
        plan = PlanFactory(prices=prices, allowance={"credit_type": "credits", "amount": 10}).code
        self.subscriptions: list[Subscription] = [
            SubscriptionFactory(customer=self.customer.ref, plan=plan) for _ in range(subscriptions)
        ]
        for one in self.subscriptions:
            use(one, "60", at(1, 15))

    @property
    def refs(self) -> list[str]:
        """The subscriptions in the order of the run."""
        return [one.ref for one in self.subscriptions]

    def run(self, *, dry_run: bool) -> list[SubscriptionResult]:
        """What a run over the subscriptions says of each."""
        done: list[SubscriptionResult] = []
        job = runs.job_for(Options(as_of=AS_OF, dry_run=dry_run), subscriptions=tuple(self.refs), retry_wait_s=0.0)
        runs.run(job, on_done=done.append, on_tick=lambda summary: None, stop=lambda: False)
        return sorted(done, key=lambda one: self.refs.index(one.subscription))


def money_of(done: list[SubscriptionResult]) -> list[tuple[str, list[tuple[int, int, int]], Any]]:
    """Of each subscription: outcome, the sums of its invoices, credits spent on usage."""
    return [
        (one.outcome, [(i.total_minor, i.credits_applied_minor, i.amount_due_minor) for i in one.invoices], one.covered)
        for one in done
    ]


class StoppedDryRun:
    """A dry run in a separate thread, which stops in the middle of its second subscription until `go_on`."""

    def __init__(self, sharing: Sharing) -> None:
        self._stands, self._go = threading.Event(), threading.Event()
        self._calls = self.session = 0
        self._real = steps.finish_steps
        self._sharing = sharing

    def finish(self, *arguments: Any) -> Any:
        """What the second subscription calls once all of it is rated and written; it goes on when it may."""
        done = self._real(*arguments)
        if threading.current_thread() is not threading.main_thread():
            self._calls += 1
            if self._calls == 2:
                self.session = connection.connection.info.backend_pid
                self._stands.set()
                assert self._go.wait(HANGS_S)
        return done

    def run(self) -> list[SubscriptionResult]:
        """The dry run."""
        try:
            return self._sharing.run(dry_run=True)
        finally:
            self._stands.set()
            connections.close_all()

    @contextmanager
    def standing(self) -> Iterator[Future[list[SubscriptionResult]]]:
        """The block runs while it stands; then it goes on to its end."""
        with ThreadPoolExecutor(1) as pool, mock.patch.object(generator, "finish_steps", self.finish):
            running = pool.submit(self.run)
            try:
                assert self._stands.wait(HANGS_S)
                assert not running.done(), running.result()
                yield running
            finally:
                self._go.set()
            running.result(HANGS_S)


def locks_held(session: int | None = None) -> set[int]:
    """The numbers of all advisory locks that are held now, on all nodes; of a session, only its own at this one."""
    query, values = (ADVISORY_LOCKS, []) if session is None else (OF_SESSION, [session])
    if nodes.cluster and session is None:
        of_a_node = f"SELECT string_agg(number::text, ',') FROM ({ADVISORY_LOCKS}) AS held (number)"
        query = f"SELECT unnest(string_to_array(result, ','))::bigint FROM run_command_on_all_nodes($${of_a_node}$$)"
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return {number - 2**64 if number >= 2**63 else number for (number,) in cursor.fetchall()}


def entries_of(holder: str) -> list[tuple[str, int]]:
    """Kind and amount of all entries, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind, amount FROM ledger_entry WHERE holder_id = %s ORDER BY sequence", [holder])
        return cursor.fetchall()


def spend_at_once(holder: str, seconds: float = 10) -> None:
    """Spend a credit, or raise HolderBusy after this number of seconds: far more than a spend takes that finds the lock free."""
    with waits_bounded(seconds):
        services.spend(holder_id=holder, amount=1, idempotency_key=unique("spend"))


def test_spends_pass_a_dry_run_of_the_holders_subscriptions(committed_db: None) -> None:
    sharing = Sharing(4)
    dry_run = StoppedDryRun(sharing)
    with dry_run.standing() as running:
        spend_at_once(sharing.holder)
        # Only that of the subscription that is worked out now; the first one can be billed.
        assert locks_held(dry_run.session) == {lock_number(invoice_key(sharing.refs[1]))}
        held = locks_held()
        assert lock_number(holder_key(sharing.holder)) not in held
        assert not {lock_number(invoice_key(ref)) for ref in (sharing.refs[0], *sharing.refs[2:])} & held
        with pytest.raises(LockBusy), transaction.atomic(), try_advisory_lock(invoice_key(sharing.refs[1])):
            pass
    assert {one.outcome for one in running.result()} == {"finalised"}
    assert lock_number(invoice_key(sharing.refs[1])) not in locks_held()
    assert entries_of(sharing.holder) == [("grant", 1_000), ("spend", -1)]
    assert not Invoice.objects.filter(subscription_ref__in=sharing.refs).exists()


def test_a_dry_run_that_took_the_holders_lock_would_refuse_them(committed_db: None) -> None:
    """The control: the same spend beside a preview that takes the locks which a run takes."""
    sharing = Sharing(4)
    dry_run = StoppedDryRun(sharing)
    with mock.patch.object(previews, "previewing", nullcontext), dry_run.standing():
        with pytest.raises(HolderBusy):
            spend_at_once(sharing.holder, 0.3)
        assert lock_number(holder_key(sharing.holder)) in locks_held()
        if not nodes.cluster:
            assert len(locks_held(dry_run.session)) > 1
    assert entries_of(sharing.holder) == [("grant", 1_000)]


def test_a_dry_run_over_a_customer_is_the_run(committed_db: None) -> None:
    sharing = Sharing(5)
    shown = money_of(sharing.run(dry_run=True))
    assert entries_of(sharing.holder) == [("grant", 1_000)]
    assert shown == money_of(sharing.run(dry_run=False))


def change_of_the_last(sharing: Sharing) -> list[Any]:
    """The dry run's last subscription, for which usage and credits have come while the second one was worked out."""
    with StoppedDryRun(sharing).standing() as running:
        use(sharing.subscriptions[-1], "1000", at(1, 16))
        services.grant(holder_id=sharing.holder, amount=7, idempotency_key="more")
    return money_of(running.result())[-1:]


def test_a_dry_run_works_on_one_snapshot(committed_db: None) -> None:
    sharing = Sharing(3)
    before = money_of(sharing.run(dry_run=True))[-1:]
    assert change_of_the_last(sharing) == before


def test_without_one_snapshot_it_would_see_what_comes_meanwhile(committed_db: None) -> None:
    """The control."""
    sharing = Sharing(3)
    before = money_of(sharing.run(dry_run=True))[-1:]
    with mock.patch.object(previews, "ONE_SNAPSHOT", "SELECT 1"):
        assert change_of_the_last(sharing) != before


@pytest.mark.parametrize("billed", [0, 3])
def test_a_subscription_that_is_billed_beside_the_dry_run_fails_none_of_it(committed_db: None, billed: int) -> None:
    sharing = Sharing(4)
    with StoppedDryRun(sharing).standing() as running:
        made = generator.generate(ref=sharing.refs[billed], options=Options(as_of=AS_OF))
        assert made.invoices
    outcomes = [one.outcome for one in running.result()]
    # What was billed after the snapshot and before its turn is worked out again with the others, on a new snapshot.
    assert outcomes == ["finalised" if ref != sharing.refs[billed] or not billed else "nothing_due" for ref in sharing.refs]


def spends_beside_a_dry_run(subscriptions: int, run_threads: Callable[..., list[Any]], *, least: int) -> tuple[int, float]:
    """How many spends a holder makes while a dry run of the subscriptions goes on, and how long it takes.

    Two threads make them. The dry run stands in its second subscription until they have made `least`, half of them each.
    """
    sharing = Sharing(subscriptions)
    services.grant(holder_id=sharing.holder, amount=10**9, idempotency_key="plenty")
    is_over, meeting = threading.Event(), threading.Barrier(3, timeout=HANGS_S)
    real, calls = generator.finish_steps, itertools.count(1)
    began = time.monotonic()

    def finish(*arguments: Any) -> Any:
        done = real(*arguments)
        if next(calls) == 2:
            meeting.wait()
            meeting.wait()
        return done

    def work(index: int) -> int:
        if index == 0:
            try:
                outcomes = {one.outcome for one in sharing.run(dry_run=True)}
            finally:
                is_over.set()
                meeting.abort()
            assert outcomes == {"finalised"}
            return 0
        meeting.wait()
        made = least // 2
        for _ in range(made):
            spend_at_once(sharing.holder)
        meeting.wait()
        while not is_over.is_set():
            spend_at_once(sharing.holder)
            made += 1
        return made

    with mock.patch.object(generator, "finish_steps", finish):
        results = run_threads(work, 3)
    errors = [one for one in results if isinstance(one, BaseException)]
    assert not errors, errors
    return sum(results), time.monotonic() - began


@pytest.mark.slow
def test_no_spend_is_refused_beside_a_dry_run_of_many_subscriptions(run_threads: Callable[..., list[Any]]) -> None:
    spends, _ = spends_beside_a_dry_run(30, run_threads, least=2)
    assert spends >= 2


@pytest.mark.slow
@pytest.mark.deployment
def test_no_spend_is_refused_beside_a_dry_run_of_a_thousand(run_threads: Callable[..., list[Any]]) -> None:
    spends, seconds = spends_beside_a_dry_run(1_000, run_threads, least=1_000)
    print(f"{spends} spends, none refused, in {seconds:.1f} s beside a dry run of 1,000 subscriptions")
    assert spends >= 1_000


# The preview of the next invoices --------------------------------------------------------------------


def elsewhere(act: Callable[[], Any]) -> Any:
    """Act in another session, and return what it returns."""

    def apart() -> Any:
        try:
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(apart).result(HANGS_S)


@contextmanager
def once_the_snapshot_is_taken(act: Callable[[], Any]) -> Iterator[list[Any]]:
    """Another session acts once, after the first preview in the block has read its customer. Yields the reads."""
    real, calls = calls_of_previews.reads.customer, list[Any]()

    def read(ref: str) -> Customer:
        customer = real(ref)
        calls.append(ref)
        if len(calls) == 1:
            elsewhere(act)
        return customer

    with mock.patch.object(calls_of_previews.reads, "customer", read):
        yield calls


def monthly() -> Subscription:
    """A subscription of 10.00 a month from January on."""
    return SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)


def two_units(subscription: Subscription) -> dict[str, Any]:
    """The body of a preview: another quantity."""
    wish = {"subscription": subscription.ref, "effective_at": at(1), "quantities": {"base": Decimal(2)}}
    return {"amendment": wish, "invoices": 1}


def test_a_preview_whose_amendment_was_overtaken_is_computed_again(committed_db: None) -> None:
    subscription = monthly()
    end = partial(amend, subscription, at(2), sets_end=True, ends_at=at(3))
    with once_the_snapshot_is_taken(end) as computed:
        shown = calls_of_previews._show_preview(subscription.customer.ref, two_units(subscription))
    # 20.00 for January and for February, with the end that came in between.
    assert [one["invoice"]["subtotal_minor"] for one in shown["invoices"]] == [4000]
    assert len(computed) == 2


def test_without_another_try_the_number_of_the_amendment_is_taken(committed_db: None) -> None:
    """The control."""
    subscription = monthly()
    with (
        mock.patch.object(calls_of_previews, "TRIES", 1),
        once_the_snapshot_is_taken(partial(amend, subscription, at(2), paused=True)),
        pytest.raises(SequenceTaken),
    ):
        calls_of_previews._show_preview(subscription.customer.ref, two_units(subscription))


def test_a_subscription_that_is_billed_beside_the_preview_is_busy(committed_db: None) -> None:
    subscription = monthly()
    bill = partial(generator.generate, ref=subscription.ref, options=Options(as_of=AS_OF))
    with once_the_snapshot_is_taken(bill), pytest.raises(InvoiceGenerationBusy):
        calls_of_previews._show_preview(subscription.customer.ref, {"invoices": 1})
    assert calls_of_previews._show_preview(subscription.customer.ref, {"invoices": 1})["invoices"]


@contextmanager
def ordered_in_another_preview(own: str) -> Iterator[None]:
    """A preview that stands has ordered a subscription of this ref."""
    names = (SUBSCRIPTION_INTENT(own), invoice_key(own))
    with transaction.atomic(), advisory_lock(*names):
        yield


def new_order() -> tuple[str, dict[str, Any]]:
    """A customer, and the body of a preview of an order."""
    order = {"plan": PlanFactory(prices=[recurring()]).code, "started_at": at(1)}
    return CustomerFactory().ref, {"subscription": order, "invoices": 1}


def test_two_previews_of_orders_do_not_wait_for_each_other(committed_db: None) -> None:
    customer, body = new_order()
    with ordered_in_another_preview(calls_of_previews.NOT_ORDERED), waits_bounded(0.3):
        shown = elsewhere(lambda: calls_of_previews._show_preview(customer, body))
    assert [one["invoice"]["subscription"] for one in shown["invoices"]] == [calls_of_previews.NOT_ORDERED]


@pytest.mark.slow
@pytest.mark.check
def test_with_one_name_for_all_they_would_wait(committed_db: None) -> None:
    """The control."""
    customer, body = new_order()

    def shown() -> Any:
        with waits_bounded(0.3):
            return calls_of_previews._show_preview(customer, body)

    same = mock.Mock(hex="same")
    with (
        mock.patch.object(calls_of_previews, "uuid4", return_value=same),
        ordered_in_another_preview(f"{calls_of_previews.NOT_ORDERED}:same"),
        pytest.raises(HolderBusy),
    ):
        elsewhere(shown)
