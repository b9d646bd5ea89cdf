"""Two requests about one payment at the same time, and processes that are killed while Stripe is asked: it is charged once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import IntegrityError
from django.utils import timezone

from billing.payments import advancing, intent_orders, packs, provider_events, topup_checks, topup_declarations, transfers
from billing.payments.advancing import advance
from billing.payments.due_purchases import settle_due
from billing.payments.errors import InvoiceInCollection, PaymentIntentClosed, RefundExceedsIntent
from billing.payments.intent_orders import cancel_intent, order_payment, refund_intent
from billing.payments.models import Pack, PaymentIntent, ProviderEvent, ProviderRefund, Purchase, TopUp
from billing.payments.providers.configured import provider
from billing.payments.testing import PackFactory
from billing.payments.topup_declarations import set_top_up
from billing.payments.transfers import book_transfer
from billing.testing import CustomerFactory
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.testing import unique
from tests.billing.documents.test_one_off_invoices import issued
from tests.billing.payments.stripe_double import OK, SECRET, StripeDouble, serving
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.test_purchases import _unlocked, grants
from tests.conftest import database_url

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

URL = "https://shop.example/credits"
ADVANCE = """
import sys
import django
django.setup()
from billing.payments.advancing import advance
print(advance(int(sys.argv[1])))
"""


@pytest.fixture
def stripe(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    """A double; what is recorded is not asked about at once, not even of the provider `manual`, so that each test says when."""
    double = StripeDouble()
    monkeypatch.setattr(advancing, "is_local", lambda name: False)
    with serving(double) as address:
        settings.PAYMENT_PROVIDERS = {
            "stripe": {
                "class": "billing.payments.providers.stripe_payments.StripeProvider",
                "api_key": "sk_test_x",
                "event_secret": SECRET,
                "api_base": address,
            }
        }
        yield double
        provider("stripe").close()  # type: ignore[attr-defined]
    assert all(count == 1 for count in double.taken.values())


def charge() -> PaymentIntent:
    """A recorded charge about which nobody was asked."""
    return order_payment(pack=PackFactory(bonus=0).code, holder_id=unique("holder"), customer=CustomerFactory().ref, method=OK)


def test_two_processes_that_ask_at_the_same_time_charge_and_grant_once(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = charge()
    meet(monkeypatch, (advancing, "apply"), is_locked=True)
    run_threads(lambda _: advance(made.pk, now=True), 2)
    made.refresh_from_db()
    assert (made.state, stripe.taken.total(), grants(made.holder_id or "")) == ("succeeded", 1, [1000])
    assert Purchase.objects.filter(provider="stripe", payment=made.payment).count() == 1


@LOCKED
def test_two_refunds_at_the_same_time_ask_back_no_more_than_was_paid(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    made = charge()
    advance(made.pk)
    if not is_locked:
        monkeypatch.setattr(intent_orders, "locked_transaction", _unlocked)
    meet(monkeypatch, (intent_orders, "refundable_minor"), is_locked=is_locked, has_read=True)
    results = run_threads(lambda _: refund_intent(intent=made.pk, amount_minor=1500), 2)
    assert {type(each) for each in results} == ({ProviderRefund, RefundExceedsIntent} if is_locked else {ProviderRefund})
    assert ProviderRefund.objects.filter(intent_id=made.pk).count() == (1 if is_locked else 2)
    ProviderRefund.objects.filter(intent_id=made.pk).delete()


def test_two_intents_for_one_invoice_at_the_same_time_are_one(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoice = issued(CustomerFactory(), "19.90")
    meet(monkeypatch, (intent_orders, "_of_invoice"), is_locked=False, has_read=True)
    results = run_threads(lambda _: order_payment(invoice=invoice.pk, return_url=URL), 2)
    assert {type(each) for each in results} == {PaymentIntent, InvoiceInCollection}
    assert PaymentIntent.objects.filter(invoice_id=invoice.pk).count() == 1


def test_control_two_plain_inserts_collide_in_the_index(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoice = issued(CustomerFactory(), "19.90")
    insert = PaymentIntent.objects.bulk_create
    monkeypatch.setattr(intent_orders.PaymentIntent.objects, "bulk_create", lambda rows, **_: insert(rows))
    meet(monkeypatch, (intent_orders, "_of_invoice"), is_locked=False, has_read=True)
    results = run_threads(lambda _: order_payment(invoice=invoice.pk, return_url=URL), 2)
    assert {type(each) for each in results} == {PaymentIntent, IntegrityError}
    assert PaymentIntent.objects.filter(invoice_id=invoice.pk).count() == 1


def test_one_event_that_comes_twice_at_the_same_time_is_on_record_once(
    committed_db: None, run_threads: Any, stripe: StripeDouble
) -> None:
    made = order_payment(pack=PackFactory(bonus=0).code, holder_id=unique("holder"), return_url=URL)
    advance(made.pk)
    made.refresh_from_db()
    stripe.pay(made.checkout)
    body, signature = stripe.event("checkout.session.completed", made.checkout, event_id=(name := unique("evt")))
    results = run_threads(lambda _: provider_events.take_in("stripe", body, {"stripe-signature": signature}), 2)
    assert sorted(results) == [False, True]
    recorded = ProviderEvent.objects.get(event=name).pk
    assert run_threads(lambda _: provider_events.handle(recorded), 2) == [False, False]
    assert ProviderEvent.objects.filter(intent_id=made.pk).count() == 1
    assert grants(made.holder_id or "") == [1000]


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        "POST /v1/payment_intents/",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("POST /v1/customers", "POST /v1/payment_intents", "GET /v1/refunds", "GET /v1/disputes")
        ),
    ],
)
def test_a_process_that_is_killed_after_stripe_was_asked_leaves_one_charge_and_its_credits(
    committed_db: None, stripe: StripeDouble, where: str
) -> None:
    made = charge()
    address = django_settings.PAYMENT_PROVIDERS["stripe"]["api_base"]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ADVANCE, str(made.pk)],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests", "STRIPE_DOUBLE": address,
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "tests.concurrency.settings_of_payments",
        },
        cwd=django_settings.BASE_DIR, stderr=subprocess.PIPE,
    )  # fmt: skip
    stripe.executed[where] = lambda: os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    stripe.executed.clear()
    made.refresh_from_db()
    assert (made.state, grants(made.holder_id or "")) == ("requested", [])
    PaymentIntent.objects.filter(pk=made.pk).update(due_at=timezone.now())
    advance(made.pk)
    settle_due()
    made.refresh_from_db()
    assert (made.state, stripe.taken[made.payment], grants(made.holder_id or "")) == ("succeeded", 1, [1000])


@LOCKED
def test_two_workers_top_an_account_up_once(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    customer, holder = CustomerFactory(), unique("holder")
    made = set_top_up(holder_id=holder, threshold=200, pack=PackFactory(bonus=0).code, packs=1, customer=customer.ref, method=OK)
    if not is_locked:
        monkeypatch.setattr(topup_checks, "locked_transaction", _unlocked)
    meet(monkeypatch, (topup_checks, "_credits_are_coming"), is_locked=is_locked, has_read=True)
    results = run_threads(lambda _: topup_checks.top_up(made.pk), 2)
    # Without the lock, only the index on open payments is left between the two.
    expected = {PaymentIntent, type(None)} if is_locked else {PaymentIntent, InvoiceInCollection}
    assert {type(each) for each in results} == expected
    assert PaymentIntent.objects.filter(top_up_id=made.pk).count() == 1


@LOCKED
def test_a_top_up_and_a_version_of_its_pack_for_some_things_only_at_the_same_time_are_one_or_the_other(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    customer, holder, pack = CustomerFactory(), unique("holder"), PackFactory()
    if not is_locked:
        for module in (topup_declarations, packs):
            monkeypatch.setattr(module, "locked_transaction", lambda *names: own_or_joined())
    places = ((packs, "_ensure_no_top_up"), (topup_declarations, "ensure_pays_for_everything"))
    meet(monkeypatch, *places, is_locked=is_locked, has_read=True)

    def write(number: int) -> Any:
        if number:
            return PackFactory(code=pack.code, applies_to={"rates": ["image.small"]})
        return set_top_up(holder_id=holder, threshold=200, pack=pack.code, packs=1, customer=customer.ref, method=OK)

    results = run_threads(write, 2)
    top_ups, versions = TopUp.objects.filter(holder_id=holder).count(), Pack.objects.filter(code=pack.code).count()
    assert sum(isinstance(each, Invalid) for each in results) == (1 if is_locked else 0)
    assert top_ups + versions == (2 if is_locked else 3)


# Transfers -------------------------------------------------------------------------------------------


def waiting_for_a_transfer() -> PaymentIntent:
    """A recorded order of a pack that is paid by a transfer."""
    pack, customer = PackFactory(bonus=0).code, CustomerFactory().ref
    return order_payment(pack=pack, holder_id=unique("holder"), customer=customer, provider="manual")


@LOCKED
def test_two_transfers_for_one_order_at_the_same_time_buy_one_pack(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    made, names = waiting_for_a_transfer(), [unique("transfer"), unique("transfer")]
    if not is_locked:
        monkeypatch.setattr(transfers, "locked_transaction", lambda *names: own_or_joined())
        monkeypatch.setattr(transfers, "apply_under", lambda lock, intent, found: bought_without_lock(intent, found))
    meet(monkeypatch, (transfers, "ensure_buys"), is_locked=is_locked, has_read=True)
    results = run_threads(lambda number: book_transfer(intent=made.pk, payment=names[number], amount_minor=2000), 2)
    assert {type(each) for each in results} == ({PaymentIntent, PaymentIntentClosed} if is_locked else {PaymentIntent})
    assert Purchase.objects.filter(provider="manual", payment__in=names).count() == (1 if is_locked else 2)


@LOCKED
def test_a_transfer_and_the_cancellation_of_its_order_at_the_same_time_are_one_or_the_other(
    committed_db: None, run_threads: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    made, name = waiting_for_a_transfer(), unique("transfer")
    if not is_locked:
        monkeypatch.setattr(transfers, "locked_transaction", lambda *names: own_or_joined())
        monkeypatch.setattr(transfers, "apply_under", lambda lock, intent, found: bought_without_lock(intent, found))
        monkeypatch.setattr(intent_orders, "locked_transaction", lambda *names: own_or_joined())
    # One has read that the order is open; the other has written that it is given up, and not committed it.
    meet(monkeypatch, (transfers, "ensure_buys"), (intent_orders, "advance_soon"), is_locked=is_locked, has_read=True)
    acts = (
        lambda: book_transfer(intent=made.pk, payment=name, amount_minor=2000),
        lambda: cancel_intent(intent=made.pk),
    )
    results = run_threads(lambda number: acts[number](), 2)
    made.refresh_from_db()
    is_bought = Purchase.objects.filter(provider="manual", payment=name).exists()
    if is_locked:
        assert {type(each) for each in results} == {PaymentIntent, PaymentIntentClosed}
        assert is_bought is (type(results[0]) is PaymentIntent) is not made.is_canceled
    else:
        assert (is_bought, made.is_canceled) == (True, True)


def bought_without_lock(intent: PaymentIntent, found: Any) -> None:
    """What booking does without its lock."""
    intent.state, intent.payment = "succeeded", found.payment
    advancing._collect(intent, found)
    intent.save(update_fields=["state", "payment", "settled_at"])
