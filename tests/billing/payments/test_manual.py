"""The provider `manual`: the customer transfers the money; a person or a bank's file books it, once."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.documents.sellers import record_seller
from billing.errors import AlreadyExists
from billing.models import CreditNote, InvoicePayment
from billing.payments.advancing import advance
from billing.payments.errors import PaymentIntentClosed, TransferTooSmall
from billing.payments.intent_orders import cancel_intent, order_payment, refund_intent
from billing.payments.intent_reads import intent_rows
from billing.payments.models import PaymentIntent, ProviderRefund, Purchase, TopUp
from billing.payments.providers.manual_transfers import intents_in, reference_of
from billing.payments.testing import PackFactory
from billing.payments.topup_declarations import set_top_up
from billing.payments.transfers import book_transfer
from billing.testing import CustomerFactory
from ledger.errors import Invalid
from ledger.staff.models import Approval
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import send_both_steps, send_first_step, text_of_response
from tests.billing.documents.test_one_off_invoices import issued
from tests.billing.statements_in.test_booking import booked
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db
__all__ = ["client"]

INTENTS = "/v1/payment-intents"
DAY = datetime(2026, 1, 5, tzinfo=UTC)


def ordered(**fields: Any) -> PaymentIntent:
    """An intent for a pack of 20.00 EUR, which waits for a transfer."""
    made = order_payment(
        **{"pack": PackFactory(bonus=0).code, "holder_id": "ada", "customer": CustomerFactory().ref, "provider": "manual"}
        | fields
    )
    advance(made.pk, now=True)
    made.refresh_from_db()
    return made


def state(intent: PaymentIntent) -> str:
    """The state now."""
    intent.refresh_from_db()
    return intent.state


def nothing_booked() -> bool:
    """Whether no money is on record."""
    return not (Purchase.objects.exists() or InvoicePayment.objects.exists() or CreditNote.objects.exists())


@pytest.mark.parametrize("intent_id", [1, 97, 2**39, 999_999_999_999])
def test_a_reference_is_found_in_a_text_with_any_signs_and_only_if_its_check_digits_are_right(intent_id: int) -> None:
    reference = reference_of(intent_id)
    assert int("".join(str(int(one, 36)) for one in reference[4:] + reference[:4])) % 97 == 1
    grouped = " ".join(reference[at : at + 4] for at in range(0, 16, 4)).lower()
    for text in (reference, f"EREF+{reference}", f"{grouped} 2026-01-05", f"order {reference}, thanks"):
        assert intents_in(text) == [intent_id], text
    wrong = reference[:-1] + str((int(reference[-1]) + 1) % 10)
    for text in (wrong, f"{reference}7", f"A{reference}", reference[:-1], ""):
        assert intents_in(text) == [], text


def test_an_order_says_what_to_transfer_and_a_transfer_buys_the_pack_once(api: ApiClient) -> None:
    address = {"name": "Ada GmbH", "line1": "Weg 1", "postal_code": "10115", "city": "Berlin", "country": "DE"}
    record_seller(address | {"iban": "DE89370400440532013000"}, actor="t")
    pack, customer = PackFactory(bonus=0), CustomerFactory()
    made = api.post(INTENTS, {"pack": pack.code, "holder_id": "ada", "customer": customer.ref, "provider": "manual"})
    assert made.status_code == 201
    url = made["Location"]
    read = api.get(url).json()
    assert (read["state"], read["url"], read["checkout"]) == ("waiting", None, reference_of(read["id"]))
    assert read["transfer"] == {
        "reference": reference_of(read["id"]), "amount_minor": 2000, "currency": "EUR", "account_holder": "Ada GmbH",
        "iban": "DE89370400440532013000", "bic": None, "bank": None, "due_date": None,
    }  # fmt: skip
    body = {"payment": "t-1", "amount_minor": 2500, "currency": "EUR", "paid_at": "2026-01-05T00:00:00Z"}
    assert api.post(f"{url}/transfers?dry_run=true", body).json()["state"] == "succeeded"
    assert nothing_booked()
    for _ in range(2):
        paid = api.post(f"{url}/transfers", body)
        assert (paid.status_code, paid.json()["state"], paid.json()["transfer"]) == (200, "succeeded", None)
    purchase = Purchase.objects.get(pk=paid.json()["purchase"])
    assert (purchase.provider, purchase.payment, purchase.paid_minor, purchase.paid_at) == ("manual", "t-1", 2000, DAY)
    assert [(note.kind, note.amount_minor, note.customer_id) for note in CreditNote.objects.all()] == [
        ("deposit", 500, customer.pk)
    ]
    for change in ({"amount_minor": 2000}, {"paid_at": "2026-01-06T00:00:00Z"}):
        assert api.post(f"{url}/transfers", body | change).status_code == 409
    assert (Purchase.objects.count(), CreditNote.objects.count(), consistency.check()) == (1, 1, [])


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"customer": None}, "/customer"),
        ({"return_url": "https://shop.example/"}, "/return_url"),
        ({"customer_present": True}, "/customer_present"),
        ({"method": "pm_1"}, "/provider"),
        ({"saves_method": True}, "/provider"),
    ],
)
def test_what_a_transfer_cannot_do_is_refused_by_field(api: ApiClient, change: dict[str, Any], pointer: str) -> None:
    body = {"pack": PackFactory().code, "holder_id": "ada", "customer": CustomerFactory().ref, "provider": "manual"} | change
    response = api.post(INTENTS, body)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)
    assert PaymentIntent.objects.count() == 0


def test_other_providers_parts_are_not_asked_of_a_transfer(api: ApiClient) -> None:
    intent = ordered()
    book_transfer(intent=intent.pk, payment="t-1", amount_minor=2000)
    with pytest.raises(Invalid, match="sends no money"):
        refund_intent(intent=intent.pk)
    with pytest.raises(Invalid, match="charges no methods"):
        set_top_up(
            holder_id="ada", threshold=1, pack=PackFactory().code, packs=1, customer=CustomerFactory().ref, method="x",
            provider="manual",
        )  # fmt: skip
    assert api.post("/v1/providers/manual/events", {}).status_code == 404
    assert (ProviderRefund.objects.count(), TopUp.objects.count()) == (0, 0)


def test_a_transfer_for_a_pack_that_does_not_fit_is_refused_and_nothing_is_written() -> None:
    intent, other = ordered(), ordered()
    with pytest.raises(TransferTooSmall) as refused:
        book_transfer(intent=intent.pk, payment="t-1", amount_minor=1999)
    assert refused.value.facts == {"payment_intent": intent.pk, "asked_minor": 2000, "received_minor": 1999}
    with pytest.raises(Invalid):
        book_transfer(intent=intent.pk, payment="t-1", amount_minor=2000, currency="USD")
    cancel_intent(intent=intent.pk)
    with pytest.raises(PaymentIntentClosed):
        book_transfer(intent=intent.pk, payment="t-1", amount_minor=2000)
    advance(intent.pk, now=True)
    assert (state(intent), nothing_booked()) == ("canceled", True)
    with pytest.raises(PaymentIntentClosed):
        book_transfer(intent=intent.pk, payment="t-1", amount_minor=2000)
    assert nothing_booked()
    book_transfer(intent=other.pk, payment="t-1", amount_minor=2000)
    third = ordered()
    with pytest.raises(AlreadyExists):
        book_transfer(intent=third.pk, payment="t-1", amount_minor=2000)
    with pytest.raises(PaymentIntentClosed):
        book_transfer(intent=other.pk, payment="t-2", amount_minor=2000)
    assert (state(third), Purchase.objects.count(), CreditNote.objects.count(), consistency.check()) == ("waiting", 1, 0, [])


def test_transfers_pay_an_invoice_in_parts_and_what_is_more_is_credit() -> None:
    invoice = issued(CustomerFactory(), "10")  # 12.00 with tax
    intent = ordered(pack=None, holder_id=None, customer=None, invoice=invoice.pk)
    for payment in ("t-1", "t-1"):
        book_transfer(intent=intent.pk, payment=payment, amount_minor=500, paid_at=DAY)
    assert (state(intent), InvoicePayment.objects.count()) == ("waiting", 1)
    book_transfer(intent=intent.pk, payment="t-2", amount_minor=900)
    assert (state(intent), intent.payment, intent.settled_at is not None) == ("succeeded", "t-2", True)
    book_transfer(intent=intent.pk, payment="t-3", amount_minor=100)
    invoice.refresh_from_db()
    assert (invoice.state, sorted(note.amount_minor for note in CreditNote.objects.filter(kind="deposit"))) == (
        "paid",
        [100, 200],
    )
    assert consistency.check() == []


def test_an_invoice_that_is_paid_by_other_means_ends_the_waiting_and_a_cancelled_order_still_pays_its_invoice() -> None:
    invoice, other = issued(CustomerFactory(), "10"), issued(CustomerFactory(), "10")
    intent = ordered(pack=None, holder_id=None, customer=None, invoice=invoice.pk)
    record_payment(invoice=invoice.pk, provider="paypal", payment="p-1", amount_minor=1200)
    advance(intent.pk, now=True)
    assert (state(intent), intent.payment) == ("succeeded", "")
    canceled = ordered(pack=None, holder_id=None, customer=None, invoice=other.pk)
    cancel_intent(intent=canceled.pk)
    advance(canceled.pk, now=True)
    book_transfer(intent=canceled.pk, payment="t-1", amount_minor=1200)
    other.refresh_from_db()
    assert (state(canceled), other.state, consistency.check()) == ("canceled", "paid", [])
    PaymentIntent.objects.filter(pk=canceled.pk).update(state="succeeded", payment="t-9")
    assert [found["finding"] for found in consistency.check()] == [
        "payment by transfer that succeeded although its invoice was not paid"
    ]


def test_a_file_books_the_orders_that_it_names_once(tmp_path: Path) -> None:
    pack, small, closed, other = ordered(), ordered(), ordered(), ordered()
    cancel_intent(intent=closed.pk)
    invoice = issued(CustomerFactory(), "10")
    of_invoice = ordered(pack=None, holder_id=None, customer=None, invoice=invoice.pk)
    lines = [
        f"2026-01-05,20.00,{pack.checkout},EUR",
        f"2026-01-05,12.00,{invoice.number} {of_invoice.checkout},EUR",
        f"2026-01-05,19.99,{small.checkout},EUR",
        f"2026-01-05,20.00,{closed.checkout},EUR",
        f"2026-01-05,40.00,{small.checkout} {other.checkout},EUR",
        f"2026-01-05,20.00,{other.checkout},USD",
    ]
    tried = booked(tmp_path / "a.csv", *lines, dry_run=True)
    assert nothing_booked()
    found = booked(tmp_path / "a.csv", *lines)
    assert [(one["payment_intent"], one["invoice"]) for one in found["booked"]] == [(pack.pk, None), (None, invoice.pk)]
    assert (tried["booked"], tried["left"]) == (found["booked"], found["left"])
    assert [one["why"] for one in found["left"]] == [
        f"it is less than the pack of {small} costs", f"{closed} is canceled", f"it names several: {small}, {other}",
        f"{other} is in EUR",
    ]  # fmt: skip
    again = booked(tmp_path / "a.csv", *lines)
    assert (again["known"], len(again["left"]), Purchase.objects.count(), InvoicePayment.objects.count()) == (2, 4, 1, 1)
    advance(of_invoice.pk, now=True)
    assert (state(pack), state(of_invoice), consistency.check()) == ("succeeded", "succeeded", [])


def test_the_admin_books_a_transfer_and_a_large_one_waits_for_a_second_operator(settings: Any, client: Any) -> None:
    intent = ordered()
    url = f"/admin/billing_payments/paymentintent/{intent.pk}/transfer/"
    assert reference_of(intent.pk) in client.get(f"/admin/billing_payments/paymentintent/{intent.pk}/change/").content.decode()
    send_both_steps(client, url, {"payment": "t-1", "amount": "20.00", "reason": "seen"})
    assert (state(intent), Purchase.objects.count()) == ("succeeded", 1)
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["credits=500"]}
    large = ordered()
    send_both_steps(
        client, f"/admin/billing_payments/paymentintent/{large.pk}/transfer/", {"payment": "t-2", "amount": "20", "reason": "x"}
    )
    assert (state(large), Approval.objects.count(), Purchase.objects.count()) == ("waiting", 1, 1)


def test_a_list_of_orders_costs_as_many_queries_as_one() -> None:
    made = [ordered().pk for _ in range(3)]
    made += [order_payment(invoice=issued(CustomerFactory(), "19.90").pk, provider="manual").pk for _ in range(3)]
    with CaptureQueriesContext(connection) as of_two:
        intent_rows(PaymentIntent.objects.filter(pk__in=(made[0], made[-1])))
    with CaptureQueriesContext(connection) as of_all:
        found = intent_rows(PaymentIntent.objects.filter(pk__in=made))
    assert all(row.transfer is not None and row.transfer.reference == reference_of(row.pk) for row in found)
    assert len(of_all) == len(of_two)


def test_the_admin_says_what_the_provider_of_an_intent_cannot_do(client: Any) -> None:
    manual, other = ordered(), ordered()
    PaymentIntent.objects.filter(pk=other.pk).update(provider="stripe", due_at=None)
    pages = "/admin/billing_payments/paymentintent"
    first = send_first_step(client, f"{pages}/{other.pk}/transfer/", {"payment": "t-1", "amount": "20.00", "reason": "x"})
    assert "Stripe takes the money" in text_of_response(first)
    first = send_first_step(client, f"{pages}/{manual.pk}/refund/", {"amount": "1.00", "reason": "x"})
    assert "sends no money" in text_of_response(first)
    assert (nothing_booked(), ProviderRefund.objects.count()) == (True, 0)
