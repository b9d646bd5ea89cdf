"""Payments by Stripe, against a double: each takes money once, and each that took money buys its credits once."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count, product
from typing import Any

import pytest
from django.utils import timezone

from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.models import Customer, Invoice, InvoicePayment
from billing.orders.erasure import erase_customer
from billing.payments.advancing import advance, refresh, send_refund
from billing.payments.due_intents import advance_due
from billing.payments.due_purchases import settle_due
from billing.payments.errors import EventRejected, InvoiceInCollection, NotPayable, PaymentIntentClosed, RefundExceedsIntent
from billing.payments.intent_orders import cancel_intent, order_payment, refund_intent
from billing.payments.models import PaymentIntent, ProviderEvent, ProviderRefund, Purchase, PurchaseReturn
from billing.payments.provider_events import handle, take_in
from billing.payments.providers import stripe_payments
from billing.payments.providers.configured import provider
from billing.payments.providers.stripe_payments import StripeProvider
from billing.payments.purchase_recording import record_return
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory
from ledger import reads as ledger_reads
from ledger.errors import Invalid
from ledger.testing import unique
from tests.billing.admin.test_order_forms import send_both_steps, send_first_step, text_of_response
from tests.billing.documents.test_one_off_invoices import issued
from tests.billing.payments.stripe_double import ASKS, DECLINED, OK, SECRET, StripeDouble, serving
from tests.ledger.staff.admin_site import operator

# Stripe's package sends its forms in a way that httpx deprecates.
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]

URL = "https://shop.example/credits"


@pytest.fixture
def stripe(settings: Any) -> Iterator[StripeDouble]:
    double = StripeDouble()
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
        adapter = provider("stripe")
        assert isinstance(adapter, StripeProvider)
        adapter.close()
    assert all(count == 1 for count in double.taken.values())


def checkout(holder: str = "ada", **fields: Any) -> PaymentIntent:
    made = order_payment(pack=PackFactory().code, holder_id=holder, return_url=URL, **fields)
    advance(made.pk)
    made.refresh_from_db()
    return made


def charge(method: str, holder: str = "ada", **fields: Any) -> PaymentIntent:
    made = order_payment(pack=PackFactory().code, holder_id=holder, customer=CustomerFactory().ref, method=method, **fields)
    advance(made.pk)
    made.refresh_from_db()
    return made


def event(double: StripeDouble, kind: str, about: str, **fields: Any) -> bool:
    """Send an event, and handle it."""
    body, signature = double.event(kind, about, **fields)
    is_new = take_in("stripe", body, {"stripe-signature": signature})
    for pk in ProviderEvent.objects.values_list("pk", flat=True):
        handle(pk)
    return is_new


def balance(holder: str = "ada") -> int:
    settle_due()
    return ledger_reads.balance(holder).balance


def again(payment: PaymentIntent) -> PaymentIntent:
    """Ask about a payment once more."""
    advance(payment.pk, now=True)
    payment.refresh_from_db()
    return payment


@pytest.mark.slow
@pytest.mark.check
def test_a_checkout_waits_for_the_customer_and_buys_the_pack_when_it_is_paid(stripe: StripeDouble) -> None:
    payment = checkout()
    assert (payment.state, payment.url) == ("waiting", f"https://checkout.example/{payment.checkout}")
    intent = stripe.pay(payment.checkout)
    assert event(stripe, "checkout.session.completed", payment.checkout)
    payment.refresh_from_db()
    assert (payment.state, payment.payment, payment.url, payment.due_at) == ("succeeded", intent, "", None)
    assert (Purchase.objects.get().payment, Purchase.objects.get().paid_minor, balance()) == (intent, 2000, 1100)
    assert consistency.check() == []


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("kinds", [("payment_intent.succeeded", "checkout.session.completed", "charge.succeeded")] * 2)
def test_events_twice_late_and_in_any_order_buy_once(stripe: StripeDouble, kinds: tuple[str, ...]) -> None:
    payment = checkout()
    intent = stripe.pay(payment.checkout)
    for kind in (*reversed(kinds), *kinds):
        event(stripe, kind, payment.checkout if kind.startswith("checkout") else intent)
    assert not event(stripe, "payment_intent.created", intent, event_id="evt_same") or not event(
        stripe, "payment_intent.created", intent, event_id="evt_same"
    )
    event(stripe, "payment_intent.payment_failed", intent)
    payment.refresh_from_db()
    assert (payment.state, Purchase.objects.count(), balance()) == ("succeeded", 1, 1100)


def test_a_checkout_that_expires_buys_nothing(stripe: StripeDouble) -> None:
    payment = checkout()
    stripe.expire(payment.checkout)
    assert (again(payment).state, Purchase.objects.count()) == ("canceled", 0)


def test_a_saved_method_is_charged_once(stripe: StripeDouble) -> None:
    payment = charge(OK)
    assert (payment.state, stripe.taken[payment.payment], balance()) == ("succeeded", 1, 1100)
    again(payment)
    assert (stripe.asked["POST payment_intents/confirm"], Purchase.objects.count()) == (1, 1)


def test_a_decline_buys_nothing_and_is_not_tried_again(stripe: StripeDouble) -> None:
    payment = charge(DECLINED)
    assert (payment.state, payment.error, payment.due_at) == ("failed", "card_declined: No.", None)
    assert (again(payment).state, stripe.taken.total(), Purchase.objects.count()) == ("failed", 0, 0)


def test_a_customer_is_one_buyer_at_stripe_which_has_its_ref(stripe: StripeDouble) -> None:
    payment = charge(OK)
    buyers = [row["metadata"] for row in stripe.rows.values() if row["object"] == "customer"]
    assert buyers == [{"credit_ledger_customer": Customer.objects.get(pk=payment.customer_id).ref}]


@pytest.mark.parametrize("is_present", [True, False])
def test_a_charge_that_the_bank_asks_about_waits_for_the_customer(stripe: StripeDouble, is_present: bool) -> None:
    payment = charge(ASKS, customer_present=is_present, return_url=URL)
    assert (payment.state, payment.url, balance()) == ("waiting", f"https://bank.example/{payment.payment}", 0)
    stripe.confirm_as_customer(payment.payment)
    event(stripe, "payment_intent.succeeded", payment.payment)
    payment.refresh_from_db()
    assert (payment.state, balance()) == ("succeeded", 1100)


@pytest.mark.products(most=3)
@pytest.mark.parametrize("how", ["lost", "slow", "down"])
@pytest.mark.parametrize("where", ["POST /v1/payment_intents", "/confirm", "GET /v1/payment_intents", "POST /v1/customers"])
def test_an_unknown_outcome_is_asked_again_and_takes_the_money_once(stripe: StripeDouble, where: str, how: str) -> None:
    stripe.fault = {where: how}
    payment = charge(OK)
    stripe.fault = {}
    for _ in range(3):
        PaymentIntent.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        advance_due()
    payment.refresh_from_db()
    assert (payment.state, stripe.taken.total(), Purchase.objects.count(), balance()) == ("succeeded", 1, 1, 1100)


def test_refunds_and_disputes_return_the_purchase_once(stripe: StripeDouble) -> None:
    payment = charge(OK)
    balance()
    made = refund_intent(intent=payment.pk, amount_minor=500, reason="Half", actor="key:shop")
    stripe.fault = {"POST /v1/refunds": "lost"}
    send_refund(made.pk)
    stripe.fault = {}
    for _ in range(2):
        ProviderRefund.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        send_refund(made.pk)
    made.refresh_from_db()
    assert (made.state, stripe.asked["POST refunds"], PurchaseReturn.objects.count(), balance()) == ("succeeded", 1, 1, 825)
    dispute = stripe.dispute(payment.payment, 1500)
    event(stripe, "charge.dispute.created", dispute)
    assert balance() == 0
    stripe.rows[dispute]["status"] = "won"
    event(stripe, "charge.dispute.closed", dispute)
    event(stripe, "charge.dispute.created", dispute)
    payment.refresh_from_db()
    assert (balance(), payment.returned_minor) == (825, 500)
    assert consistency.check() == []


def test_no_more_is_refunded_than_is_here(stripe: StripeDouble) -> None:
    payment = charge(OK)
    refund_intent(intent=payment.pk, amount_minor=1500)
    with pytest.raises(RefundExceedsIntent) as refused:
        refund_intent(intent=payment.pk, amount_minor=501)
    assert refused.value.facts == {"payment_intent": payment.pk, "refundable_minor": 500}
    assert ProviderRefund.objects.count() == 1


@pytest.mark.products(most=2)
@pytest.mark.parametrize(
    ("fields", "header"),
    [({"secret": "whsec_other"}, None), ({"at": 1_000_000}, None), ({}, ""), ({}, "t=1,v1=00"), ({}, "nonsense")],
)
def test_an_event_that_stripe_did_not_sign_now_is_refused(
    stripe: StripeDouble, fields: dict[str, Any], header: str | None
) -> None:
    payment = checkout()
    body, signature = stripe.event("checkout.session.completed", payment.checkout, **fields)
    with pytest.raises(EventRejected):
        take_in("stripe", body, {"stripe-signature": signature if header is None else header})
    assert not ProviderEvent.objects.exists()


def test_an_event_about_somebody_elses_payment_is_of_no_interest(stripe: StripeDouble) -> None:
    other = stripe._make("pi", object="payment_intent", status="succeeded", amount=5, currency="eur", metadata={})["id"]
    assert event(stripe, "payment_intent.succeeded", other)
    assert (ProviderEvent.objects.get().intent_id, ProviderEvent.objects.get().due_at) == (None, None)


def test_two_processes_ask_about_a_payment_one_after_the_other(stripe: StripeDouble) -> None:
    made = order_payment(pack=PackFactory().code, holder_id=unique("holder"), return_url=URL)
    assert PaymentIntent.objects.filter(pk=made.pk).update(due_at=timezone.now()) == 1
    advance(made.pk)
    advance(made.pk)
    assert stripe.asked["POST checkout/sessions"] == 1


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.check
def test_a_process_that_ends_before_or_after_any_request_leaves_one_charge_and_one_purchase(
    stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stripe_payments._ask
    for step, is_executed in product(range(1, 6), (False, True)):
        counter = count(1)

        def ask(send: Any, step: int = step, is_executed: bool = is_executed, counter: Any = counter) -> Any:
            number = next(counter)
            if number == step and not is_executed:
                raise Killed
            answer = asked(send)
            if number == step:
                raise Killed
            return answer

        made = order_payment(pack=PackFactory().code, holder_id="ada", customer=CustomerFactory().ref, method=OK)
        with monkeypatch.context() as patched:
            patched.setattr(stripe_payments, "_ask", ask)
            with pytest.raises(Killed):
                advance(made.pk)
        assert Purchase.objects.filter(provider="stripe", payment=again(made).payment).count() == 1
        assert (made.state, stripe.taken[made.payment]) == ("succeeded", 1), (step, is_executed)
    assert (stripe.taken.total(), Purchase.objects.count(), balance()) == (10, 10, 11000)


# Invoices --------------------------------------------------------------------------------------------


def open_invoice() -> Invoice:
    return issued(CustomerFactory(), "19.90")


def test_an_invoice_is_paid_by_its_intent_once_and_asked_for_once_at_a_time(stripe: StripeDouble) -> None:
    invoice = open_invoice()
    made = order_payment(invoice=invoice.pk, return_url=URL)
    with pytest.raises(InvoiceInCollection) as refused:
        order_payment(invoice=invoice.pk, method=OK)
    assert refused.value.facts == {"invoice": invoice.pk, "payment_intent": made.pk}
    advance(made.pk)
    made.refresh_from_db()
    stripe.pay(made.checkout)
    assert again(made).state == "succeeded"
    invoice.refresh_from_db()
    assert (invoice.state, InvoicePayment.objects.get().payment) == ("paid", made.payment)
    with pytest.raises(NotPayable):
        order_payment(invoice=invoice.pk, method=OK)
    assert PaymentIntent.objects.count() == 1
    assert consistency.check() == []


def test_what_an_invoice_does_not_need_any_more_is_a_deposit_of_the_customer(stripe: StripeDouble) -> None:
    invoice = open_invoice()
    made = order_payment(invoice=invoice.pk, method=OK)
    record_payment(invoice=invoice.pk, payment="transfer 7", amount_minor=1000)
    assert again(made).state == "succeeded"
    invoice.refresh_from_db()
    paid = InvoicePayment.objects.get(provider="stripe")
    assert (invoice.state, paid.amount_minor, paid.applied_minor) == ("paid", 2388, 1388)
    assert consistency.check() == []


@pytest.mark.slow
@pytest.mark.check
def test_refunds_and_disputes_of_an_invoice_let_it_be_due_again(stripe: StripeDouble) -> None:
    invoice = open_invoice()
    made = again(order_payment(invoice=invoice.pk, method=OK))
    refund = refund_intent(intent=made.pk, amount_minor=388)
    send_refund(refund.pk)
    dispute = stripe.dispute(made.payment, 2000)
    for _ in range(2):
        event(stripe, "charge.dispute.created", dispute)
    invoice.refresh_from_db()
    assert (invoice.state, invoice.amount_remaining_minor, again(made).returned_minor) == ("open", 2388, 2388)
    stripe.rows[dispute]["status"] = "won"
    for _ in range(2):
        event(stripe, "charge.dispute.closed", dispute)
    invoice.refresh_from_db()
    assert (invoice.state, invoice.amount_remaining_minor, again(made).returned_minor) == ("open", 388, 388)
    assert InvoicePayment.objects.count() == 2
    with pytest.raises(RefundExceedsIntent):
        refund_intent(intent=made.pk, amount_minor=2001)
    assert consistency.check() == []


def test_the_page_of_an_invoice_leads_to_the_refund_of_the_payment_that_has_money_left(stripe: StripeDouble) -> None:
    invoice = open_invoice()
    client, page = operator(), f"/admin/billing/invoice/{invoice.pk}"
    assert "refund-payment" not in client.get(f"{page}/change/").content.decode()
    assert client.get(f"{page}/refund-payment/").status_code == 404
    made = again(order_payment(invoice=invoice.pk, method=OK))
    assert f"{page}/refund-payment/" in client.get(f"{page}/change/").content.decode()
    form = client.get(f"{page}/refund-payment/")["Location"]
    assert form == f"/admin/billing_payments/paymentintent/{made.pk}/refund/"
    first = send_first_step(client, form, {"reason": "They left"})
    assert f"due again on {invoice}" in text_of_response(first)
    assert not ProviderRefund.objects.exists()
    assert send_both_steps(client, form, {"reason": "They left"}).status_code == 302
    assert ProviderRefund.objects.get().amount_minor == 2388
    assert "refund-payment" not in client.get(f"{page}/change/").content.decode()
    reader = operator("billing.view_invoice", name="reader")
    assert reader.get(f"{page}/refund-payment/").status_code == 403


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({"state": "succeeded"}, {"refund"}),
        ({"state": "succeeded", "returned_minor": 2000}, set()),
        ({"state": "failed"}, set()),
        ({"state": "waiting"}, {"cancel"}),
        ({"state": "waiting", "is_canceled": True}, set()),
        ({"state": "waiting", "provider": "manual"}, {"transfer", "cancel"}),
    ],
)
def test_the_page_of_a_payment_offers_what_its_state_allows(fields: dict[str, Any], offered: set[str]) -> None:
    common = {
        "key": "one",
        "provider": "stripe",
        "pack_id": PackFactory().pk,
        "holder_id": "ada",
        "customer_id": CustomerFactory().pk,
    }
    intent = PaymentIntent.objects.create(**{**common, "currency": "EUR", "amount_minor": 2000, "actor": "key:shop", **fields})
    page = f"/admin/billing_payments/paymentintent/{intent.pk}"
    shown = operator().get(f"{page}/change/").content.decode()
    assert {name for name in ("transfer", "refund", "cancel") if f"{page}/{name}/" in shown} == offered


# Giving up -------------------------------------------------------------------------------------------


def test_a_canceled_checkout_can_no_longer_be_paid(stripe: StripeDouble) -> None:
    payment = checkout()
    cancel_intent(intent=payment.pk)
    assert (again(payment).state, stripe.rows[payment.checkout]["status"]) == ("canceled", "expired")
    with pytest.raises(PaymentIntentClosed):
        cancel_intent(intent=payment.pk)


def test_a_customer_who_pays_before_the_cancellation_gets_the_credits(stripe: StripeDouble) -> None:
    payment = checkout()
    cancel_intent(intent=payment.pk)
    stripe.pay(payment.checkout)
    assert (again(payment).state, balance()) == ("succeeded", 1100)


def test_an_intent_that_is_canceled_before_the_provider_is_asked_takes_no_money(stripe: StripeDouble) -> None:
    made = order_payment(pack=PackFactory().code, holder_id="ada", customer=CustomerFactory().ref, method=OK)
    cancel_intent(intent=made.pk)
    assert (again(made).state, stripe.taken.total(), stripe.asked["POST payment_intents"]) == ("canceled", 0, 0)


def test_a_checkout_whose_direct_debit_fails_afterwards_has_failed(stripe: StripeDouble) -> None:
    payment = checkout()
    intent = stripe.pay(payment.checkout)
    stripe.taken.clear()
    stripe.rows[intent] |= {"status": "requires_payment_method", "amount_received": 0}
    assert (again(payment).state, Purchase.objects.count()) == ("failed", 0)


# What else Stripe may say ----------------------------------------------------------------------------


def test_a_refund_that_is_sent_later_stays_due_until_it_is_sent(stripe: StripeDouble) -> None:
    payment = charge(OK)
    stripe.refund_status = "pending"
    made = refund_intent(intent=payment.pk, amount_minor=500)
    send_refund(made.pk)
    made.refresh_from_db()
    assert (made.state, made.due_at is not None, PurchaseReturn.objects.count()) == ("processing", True, 0)
    [refund] = [row for row in stripe.rows.values() if row["object"] == "refund"]
    refund["status"] = "failed"
    ProviderRefund.objects.update(due_at=timezone.now())
    send_refund(made.pk)
    made.refresh_from_db()
    assert (made.state, made.due_at, stripe.asked["POST refunds"]) == ("failed", None, 1)
    refund_intent(intent=payment.pk)


def test_many_refunds_in_the_dashboard_are_all_found(stripe: StripeDouble) -> None:
    payment = charge(OK)
    for _ in range(5):
        refund = stripe.refund(payment.payment, 100)
    event(stripe, "refund.created", refund)
    assert (PurchaseReturn.objects.count(), balance()) == (5, 825)
    assert consistency.check() == []


def test_a_refund_beyond_what_is_left_of_the_payment_is_named_with_its_amount(stripe: StripeDouble) -> None:
    payment = charge(OK)
    record_return(purchase=Purchase.objects.get().pk, kind="refund", payment="by-hand", amount_minor=1950)
    refund = stripe.refund(payment.payment, 100)
    event(stripe, "refund.created", refund)
    payment.refresh_from_db()
    assert payment.error.startswith(f"refund {refund} of 1.00 EUR: ")
    assert PurchaseReturn.objects.count() == 1


def test_another_amount_than_was_asked_for_buys_nothing_and_is_named(stripe: StripeDouble) -> None:
    payment = checkout()
    intent = stripe.pay(payment.checkout)
    stripe.rows[intent]["amount_received"] = 1999
    assert (again(payment).state, Purchase.objects.count()) == ("processing", 0)
    assert payment.error == "the provider received 19.99 EUR"


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("currency", "minor", "units"),
    [("EUR", 2000, 2000), ("JPY", 1, 1), ("KWD", 2000, 2000), ("ISK", 300, 30000), ("MGA", 500, 5)],
)
def test_amounts_are_in_the_units_of_stripe(stripe: StripeDouble, currency: str, minor: int, units: int) -> None:
    pack = PackFactory(currency=currency, price_minor=minor)
    payment = order_payment(pack=pack.code, holder_id="ada", customer=CustomerFactory().ref, method=OK)
    advance(payment.pk)
    payment.refresh_from_db()
    assert (payment.state, stripe.rows[payment.payment]["amount"]) == ("succeeded", units)
    assert Purchase.objects.get().paid_minor == minor


def test_an_amount_that_stripe_has_no_units_for_is_refused_before_it_is_asked(stripe: StripeDouble) -> None:
    pack = PackFactory(currency="MGA", price_minor=510)
    payment = order_payment(pack=pack.code, holder_id="ada", return_url=URL)
    advance(payment.pk)
    payment.refresh_from_db()
    assert (payment.state, payment.error) == ("failed", "Stripe takes whole units of MGA only.")
    assert not stripe.asked


def test_a_saved_method_of_an_erased_customer_is_not_charged(stripe: StripeDouble) -> None:
    customer = CustomerFactory()
    erase_customer(ref=customer.ref)
    with pytest.raises(Invalid) as refused:
        order_payment(pack=PackFactory().code, holder_id="ada", customer=customer.ref, method=OK)
    assert (refused.value.facts["rule"], PaymentIntent.objects.count()) == ("erased", 0)


def test_a_reader_has_an_open_intent_asked_about_unless_the_answer_is_fresh(stripe: StripeDouble) -> None:
    payment = checkout()
    stripe.pay(payment.checkout)
    refresh(payment.pk)
    assert advance_due().intents == 0
    PaymentIntent.objects.update(asked_at=timezone.now() - timedelta(seconds=6))
    refresh(payment.pk)
    assert advance_due().intents == 1
    payment.refresh_from_db()
    assert payment.state == "succeeded"
    refresh(payment.pk)
    assert PaymentIntent.objects.get(pk=payment.pk).due_at is None


def test_secrets_are_in_no_log_and_no_row(stripe: StripeDouble, caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    caplog.set_level(0)
    stripe.fault = {"POST /v1/payment_intents": "down"}
    payment = charge(OK)
    assert "ProviderUnavailable" in caplog.text
    for secret in (settings.PAYMENT_PROVIDERS["stripe"]["api_key"], SECRET):
        assert secret not in caplog.text + payment.error + repr(provider("stripe"))
