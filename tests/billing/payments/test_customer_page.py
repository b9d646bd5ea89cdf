"""What a customer does on the page: pays, buys, sets a top-up; and what the page refuses to a link without payments."""

import io
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.core.mail import EmailMultiAlternatives
from django.http import HttpResponse
from django.test import Client
from pypdf import PdfReader

from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printed_pages import epc_code
from billing.documents.printing import invoice_pdf
from billing.documents.sellers import record_seller
from billing.dunning.messages import message_of
from billing.dunning.models import Mail
from billing.models import Customer, Invoice, InvoicePayment
from billing.payments.advancing import advance
from billing.payments.customer_cards import method_name
from billing.payments.customer_page import pay_link
from billing.payments.customer_texts import smallest_units
from billing.payments.models import PaymentIntent, Purchase, TopUp
from billing.payments.providers.configured import provider
from billing.payments.providers.interface import Method
from billing.payments.providers.stripe_payments import StripeProvider
from billing.payments.saved_methods import start_saving_method
from billing.payments.testing import PackFactory
from ledger.errors import Invalid
from ledger.portal import links as customer_page
from ledger.typesetting.languages import ENGLISH, GERMAN
from ledger.units import CreditUnit
from tests.billing.documents.issued import SELLER, add_seller
from tests.billing.factories import CustomerFactory, transition
from tests.billing.payments.stripe_double import OK, SECRET, TWICE, StripeDouble, serving
from tests.billing.test_customer_page import billed
from tests.ledger.rest.conftest import ApiClient

# Stripe's package sends its forms in a way that httpx deprecates.
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]


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


class Browser:
    """A customer with a link, who sees pages and presses their buttons."""

    def __init__(self, client: Client, **link: Any) -> None:
        self.client = client
        self.shown = client.get(customer_page.link(**{"holder_id": "ada", "allow_payments": True, **link}).url)

    @property
    def html(self) -> str:
        return self.shown.content.decode()

    @property
    def buttons(self) -> dict[str, str]:
        """The addresses of the actions, by the texts of their buttons."""
        found = re.findall(r'<form method="post" action="([^"]*)"><button>([^<]*)</button>', self.html)
        return {text: address.replace("&amp;", "&") for address, text in found}

    def press(self, text: str, **fields: str) -> HttpResponse:
        return self.send(self.buttons[text], **fields)

    def send(self, address: str, **fields: str) -> HttpResponse:
        """Send a form, and follow where it leads, as a browser does."""
        self.shown = self.client.post(address, fields, follow=True)
        return self.shown

    def fill(self, **fields: str) -> HttpResponse:
        """Fill and send the form of a step."""
        address = re.search(r'<form method="post" action="([^"]*)">\s*<p>', self.html)
        assert address is not None
        return self.send(address[1].replace("&amp;", "&"), **fields)

    def reload(self) -> HttpResponse:
        self.shown = self.client.get(self.shown.redirect_chain[-1][0])
        return self.shown


def ask_stripe() -> PaymentIntent:
    """Do what the worker does with the last payment, and return it."""
    intent = PaymentIntent.objects.latest("pk")
    advance(intent.pk, now=True)
    intent.refresh_from_db()
    return intent


def comes_back(browser: Browser, intent: PaymentIntent) -> HttpResponse:
    """The customer comes back from the checkout."""
    browser.shown = browser.client.get(intent.return_url, follow=True)
    return browser.shown


def test_an_invoice_is_paid_by_card(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    _, invoice = billed("ada")
    browser = Browser(client)
    assert "49.17" in browser.html
    browser.press("Pay")
    assert f"Pay invoice {invoice.number}" in browser.html
    shown = browser.press("By card")
    assert ("prepared" in browser.html, shown["Refresh"]) == (True, "1")
    waiting = ask_stripe()
    assert browser.reload()["Refresh"] == f"0; url={waiting.url}"
    assert f'href="{waiting.url}"' in browser.html
    # In a frame of a shop no checkout is shown; the customer presses the link, which leaves the frame.
    framed = client.get(shown.redirect_chain[-1][0], headers={"Sec-Fetch-Dest": "iframe"})
    assert ("Refresh" in framed, 'target="_top"' in framed.content.decode()) == (False, True)
    stripe.pay(waiting.checkout)
    assert comes_back(browser, waiting)["Refresh"] == "4", "the page asks on, and does not lead to the checkout again"
    ask_stripe()
    comes_back(browser, waiting)
    assert ("Thank you" in browser.html, "Refresh" in browser.shown) == (True, False)
    assert InvoicePayment.objects.get().amount_minor == invoice.total_minor
    assert "Pay" not in Browser(client).buttons


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("card_declined: insufficient_funds", "has not enough money"),
        ("card_declined: stolen_card", "The bank declined the card"),
        ("expired_card", "has expired"),
        ("payment_intent_authentication_failure", "confirm it in your banking app"),
    ],
)
def test_a_declined_card_is_said_and_a_retry_pays_once(client: Client, stripe: StripeDouble, code: str, said: str) -> None:
    add_seller()
    _, invoice = billed("ada")
    browser = Browser(client)
    browser.press("Pay")
    browser.press("By card")
    waiting = ask_stripe()
    stripe.decline(waiting.checkout, code)
    ask_stripe()
    comes_back(browser, waiting)
    assert (said in browser.html, "nothing was charged" in browser.html.lower()) == (True, True)
    assert f'href="{waiting.url}"' in browser.html
    assert (">Try again</a>" in browser.html, InvoicePayment.objects.count()) == (True, 0)
    stripe.pay(waiting.checkout)
    ask_stripe()
    comes_back(browser, waiting)
    assert "Thank you" in browser.html
    assert [payment.amount_minor for payment in InvoicePayment.objects.all()] == [invoice.total_minor]
    assert PaymentIntent.objects.get().error == ""


def test_who_comes_back_without_a_payment_is_told_so_once_the_provider_has_said_it(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    billed("ada")
    browser = Browser(client)
    browser.press("Pay")
    browser.press("By card")
    waiting = ask_stripe()
    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=10)):
        comes_back(browser, waiting)
        assert "We are asking whether your payment has arrived" in browser.html
        ask_stripe()
        comes_back(browser, waiting)
    assert "No payment has arrived so far" in browser.html
    assert (browser.shown["Refresh"], f'href="{waiting.url}"' in browser.html) == ("4", True)


def test_what_has_failed_or_was_given_up_has_a_button_that_begins_again(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    billed("ada")
    PackFactory(name="Starter")
    for first, second in (("Pay", "By card"), ("Buy", "")):
        browser = Browser(client)
        browser.press(first)
        if second:
            browser.press(second)
        expired = ask_stripe()
        stripe.expire(expired.checkout)
        ask_stripe()
        comes_back(browser, expired)
        assert "nothing was charged" in browser.html
        browser.press("Try again")
        again = ask_stripe()
        assert (again.pk == expired.pk, again.state, again.amount_minor) == (False, "waiting", expired.amount_minor)
        stripe.pay(again.checkout)
        ask_stripe()
        comes_back(browser, again)
        assert "Thank you" in browser.html
        comes_back(browser, expired)
        assert ("Thank you" in browser.html, "Try again" in browser.buttons) == (True, False)
    assert (InvoicePayment.objects.count(), Purchase.objects.count()) == (1, 1)


def test_a_second_press_leads_to_the_payment_that_is_under_way(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    billed("ada")
    PackFactory(name="Starter")
    for text in ("Pay", "Buy"):
        first, second = Browser(client), Browser(client)
        if text == "Pay":
            first.press("Pay")
            pay = first.press("By card")
        else:
            pay = first.press("Buy")
        before = PaymentIntent.objects.count()
        assert second.press(text).redirect_chain[-1][0].split("?")[0] == pay.redirect_chain[-1][0].split("?")[0]
        assert PaymentIntent.objects.count() == before


def test_a_pack_is_bought_by_card(client: Client, stripe: StripeDouble) -> None:
    CustomerFactory(holder_id="ada", language="de")
    PackFactory(name="Starter", names={"de": "Einstieg"})
    PackFactory(currency="USD", name="Foreign")
    browser = Browser(client)
    assert ("Einstieg" in browser.html, "20,00 EUR" in browser.html, "Foreign" in browser.html) == (True, True, False)
    browser.press("Kaufen")
    intent = ask_stripe()
    assert (intent.holder_id, intent.amount_minor, intent.actor) == ("ada", 2000, "customer page")
    stripe.pay(intent.checkout)
    ask_stripe()
    comes_back(browser, intent)
    assert "Vielen Dank" in browser.html
    assert Purchase.objects.get().holder_id == "ada"


def test_what_a_pack_pays_for_stands_beside_its_price_and_no_top_up_offers_such_a_pack(
    client: Client, stripe: StripeDouble
) -> None:
    CustomerFactory(holder_id="ada")
    PackFactory(name="Starter")
    assert "Pays for" not in Browser(client).html
    PackFactory(name="Images", applies_to={"rates": ["image.large", "image.small"]})
    browser = Browser(client)
    rows = [row for row in browser.html.split("<tr") if "20.00 EUR" in row]
    assert [("Images" in row, "only image.large, image.small" in row, "everything" in row) for row in rows] == [
        (False, False, True), (True, True, False),
    ]  # fmt: skip
    browser.press("Turn on")
    assert ("Buy Starter and save" in browser.html, "Images" in browser.html) == (True, False)


def test_without_a_provider_the_page_says_where_to_transfer(client: Client, settings: Any) -> None:
    settings.PAYMENT_PROVIDERS = {}
    add_seller(iban="DE89370400440532013000", name="Nimbus GmbH")
    _, invoice = billed("ada")
    PackFactory(name="Starter")
    browser = Browser(client)
    assert "Turn on" not in browser.buttons, "nobody keeps cards here"
    browser.press("Pay")
    for text in ("Nimbus GmbH", "DE89 3704 0044 0532 0130 00", invoice.number, "<svg", "banking app"):
        assert text in browser.html
    assert not PaymentIntent.objects.exists()
    browser = Browser(client)
    browser.press("Buy")
    intent = PaymentIntent.objects.get()
    assert (intent.provider, "DE89 3704 0044 0532 0130 00" in browser.html) == ("manual", True)


@pytest.mark.parametrize(("currency", "has_code"), [("EUR", True), ("USD", False)])
def test_a_transfer_has_a_code_to_scan_where_it_is_in_euro(
    client: Client, stripe: StripeDouble, currency: str, has_code: bool
) -> None:
    """Beside the card. Banking apps read the code of the European Payments Council, which knows no other currency."""
    add_seller(name="Nimbus GmbH", iban="DE89370400440532013000", bic="COBADEFFXXX")
    customer = CustomerFactory(holder_id="ada", currency=currency)
    line = OneOffLine(description="Set-up", unit_amount=Decimal("49.17"))
    issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line]))
    invoice = Invoice.objects.get()
    browser = Browser(client)
    browser.press("Pay")
    code = epc_code(
        name="Nimbus GmbH",
        iban="DE89370400440532013000",
        bic="COBADEFFXXX",
        amount=Decimal("49.17"),
        reference=str(invoice.number),
    )
    assert code is not None
    assert ("By card" in browser.buttons, code in browser.html, "banking app" in browser.html) == (True, has_code, has_code)
    rows = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", browser.html))
    assert rows == {
        "To": "Nimbus GmbH", "IBAN": "DE89 3704 0044 0532 0130 00", "BIC": "COBADEFFXXX", "Amount": f"49.17 {currency}",
        "Reference": invoice.number,
    }  # fmt: skip


def test_a_seller_without_an_account_is_asked_for_it(client: Client, settings: Any) -> None:
    settings.PAYMENT_PROVIDERS = {}
    record_seller({name: text for name, text in SELLER.items() if name not in ("iban", "bic", "bank")}, actor="test")
    _, invoice = billed("ada")
    browser = Browser(client)
    browser.press("Pay")
    assert ("Please ask us for the account." in browser.html, str(invoice.number) in browser.html) == (True, True)


def test_a_top_up_is_turned_on_with_a_saved_card_and_off(client: Client, stripe: StripeDouble) -> None:
    CustomerFactory(holder_id="ada")
    pack = PackFactory(name="Starter")
    browser = Browser(client)
    browser.press("Turn on")
    assert "no saved card" in browser.html
    browser.press("Buy Starter and save the card")
    intent = ask_stripe()
    assert intent.saves_method
    stripe.pay(intent.checkout)
    ask_stripe()
    browser = Browser(client)
    browser.press("Turn on")
    [method] = re.findall(r'<option value="(pm_[^"]*)">', browser.html)
    assert browser.fill(threshold="0", pack=str(pack.pk), method=method).status_code == 409
    assert not TopUp.objects.exists()
    browser = Browser(client)
    browser.press("Turn on")
    assert browser.fill(threshold="1,000", pack=str(pack.pk), method="pm_of_others").status_code == 409
    assert not TopUp.objects.exists()
    browser = Browser(client)
    browser.press("Turn on")
    browser.fill(threshold="1,000", pack=str(pack.pk), method=method)
    top_up = TopUp.objects.get()
    assert (top_up.threshold, top_up.pack_ref, top_up.method, top_up.packs) == (1000, pack.code, method, 1)
    assert "When fewer than 1,000 credits are left, Starter is bought" in browser.html
    browser.press("Turn off")
    top_up.refresh_from_db()
    assert (top_up.ended_at is not None, "It is off." in browser.html) == (True, True)


VISA, MASTERCARD = "Visa …4242, 8/2030", "Mastercard …4444, 1/2031"


def saved_card(browser: Browser, stripe: StripeDouble) -> None:
    """The customer saves a card, and comes back."""
    leads_to = browser.press("Save a card")["Refresh"]
    checkout = leads_to.rpartition("/")[2]
    assert leads_to == f"0; url=https://checkout.example/{checkout}"
    stripe.save_card(checkout)
    browser.shown = browser.client.get(stripe.rows[checkout]["success_url"])


def test_a_card_is_saved_charged_from_then_on_and_the_old_one_removed(client: Client, stripe: StripeDouble) -> None:
    CustomerFactory(holder_id="ada")
    pack = PackFactory(name="Starter")
    visa = stripe.cards.pop(OK)
    browser = Browser(client)
    browser.press("Show and change")
    assert ("There is no saved card." in browser.html, list(browser.buttons)) == (True, ["Save a card"])
    saved_card(browser, stripe)
    assert list(browser.buttons) == [f"Remove {MASTERCARD}", "Save a card"]
    browser = Browser(client)
    browser.press("Turn on")
    browser.fill(threshold="300", pack=str(pack.pk), method=TWICE)
    stripe.cards[OK] = visa
    browser.press("Show and change")
    assert list(browser.buttons) == [f"Pay automatic top-ups with {VISA}", f"Remove {VISA}", "Save a card"]
    assert re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", browser.html) == [
        (MASTERCARD, "pays the automatic top-up"), (VISA, "saved"),
    ]  # fmt: skip
    removes_visa = browser.buttons[f"Remove {VISA}"]
    browser.press(f"Pay automatic top-ups with {VISA}")
    first, second = TopUp.objects.order_by("pk")
    assert (first.ended_at is not None, second.method, second.threshold, second.pack_ref, second.actor) == (
        True, OK, 300, pack.code, "customer page",
    )  # fmt: skip
    assert browser.send(removes_visa).status_code == 409
    assert set(stripe.cards) == {OK, TWICE}
    browser = Browser(client)
    browser.press("Show and change")
    browser.press(f"Remove {MASTERCARD}")
    assert (set(stripe.cards), list(browser.buttons)) == ({OK}, ["Save a card"])
    assert not PaymentIntent.objects.exists()


def test_the_page_waits_for_no_provider_and_says_if_cards_cannot_be_read(client: Client, stripe: StripeDouble) -> None:
    customer = CustomerFactory(holder_id="ada")
    start_saving_method(customer.ref, "stripe", "https://shop.example")
    stripe.fault = {"payment_methods": "down"}
    browser = Browser(client)
    assert (browser.shown.status_code, "Your saved cards" in browser.html) == (200, True)
    assert browser.press("Show and change").status_code == 503
    assert "Nothing has changed" in browser.html


def test_the_cards_of_others_are_not_there(client: Client, stripe: StripeDouble) -> None:
    for holder in ("ada", "eve"):
        start_saving_method(CustomerFactory(holder_id=holder).ref, "stripe", "https://shop.example")
    stripe.cards = {}
    link = customer_page.link(holder_id="eve", allow_payments=True).url
    name = method_name(Method(id=OK, provider="stripe", text=""))
    for verb in ("card_remove", "card_charge"):
        assert client.post(link.replace("/c/?", f"/c/actions/{verb}-{name}?")).status_code == 410
    assert stripe.asked["POST payment_methods/detach"] == 0


def test_without_a_provider_that_keeps_cards_there_is_no_list_of_them(client: Client, settings: Any) -> None:
    settings.PAYMENT_PROVIDERS = {}
    CustomerFactory(holder_id="ada")
    link = customer_page.link(holder_id="ada", allow_payments=True).url
    assert "Your saved cards" not in client.get(link).content.decode()
    assert client.post(link.replace("/c/?", "/c/actions/card_add-new?")).status_code == 410
    assert client.get(link.replace("/c/?", "/c/steps/cards-all?")).status_code == 410


def test_a_link_without_payments_has_no_button_and_does_nothing(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    _, invoice = billed("ada")
    pack = PackFactory()
    browser = Browser(client, allow_payments=False)
    assert (browser.buttons, "Buy credits" in browser.html) == ({}, False)
    link = customer_page.link(holder_id="ada").url
    for name in (f"pay-{invoice.pk}", f"card-{invoice.pk}", f"buy-{pack.pk}", "top_up-new"):
        assert client.post(link.replace("/c/?", f"/c/actions/{name}?")).status_code == 410
        assert client.get(link.replace("/c/?", f"/c/steps/{name}?")).status_code == 410
    assert not PaymentIntent.objects.exists()


def test_what_is_another_customers_or_nothing_is_not_there(client: Client, stripe: StripeDouble) -> None:
    add_seller()
    _, invoice = billed("ada")
    _, other = billed("ben")
    CustomerFactory(holder_id="eve")
    PackFactory()
    Browser(client, holder_id="eve").press("Buy")
    [others] = PaymentIntent.objects.all()
    link = customer_page.link(holder_id="ada", allow_payments=True).url
    names = [f"pay-{other.pk}", f"card-{other.pk}", f"buy-{'9' * 18}", "buy-", "pay-x", "top_up_off-1", "sell-1", "pay"]
    for name in names:
        assert client.post(link.replace("/c/?", f"/c/actions/{name}?")).status_code == 410, name
    for name in [f"payment-{others.pk}", f"transfer-{other.pk}", "payment-x", "nothing"]:
        assert client.get(link.replace("/c/?", f"/c/steps/{name}?")).status_code == 410, name
    assert PaymentIntent.objects.count() == 1
    assert client.get(link.replace("/c/?", f"/c/actions/pay-{invoice.pk}?")).status_code == 405


def test_a_refusal_says_that_nothing_has_changed(client: Client, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    add_seller()
    billed("ada")
    browser = Browser(client)
    browser.press("Pay")
    monkeypatch.setattr("billing.payments.customer_page.order_payment", refuse)
    assert browser.press("By card").status_code == 409
    assert "Nothing has changed" in browser.html
    assert not PaymentIntent.objects.exists()


def refuse(**fields: Any) -> Any:
    raise Invalid(pointer="/invoice", rule="exists", detail="is gone")


def test_overdue_is_said_in_red(client: Client) -> None:
    add_seller()
    _, invoice = billed("ada")
    assert invoice.due_date is not None
    red = '<strong class="urgent">Overdue</strong>'
    for days, is_overdue in ((0, False), (1, True)):
        with time_machine.travel(datetime.combine(invoice.due_date, time(12), UTC) + timedelta(days=days)):
            browser, data = Browser(client), client.get(customer_page.link(holder_id="ada").data_url).json()
        assert (red in browser.html, data["invoices"][0]["is_overdue"]) == (is_overdue, is_overdue)
        assert data["notices"] == (["1 invoice is overdue: 49.17 EUR."] if is_overdue else [])


def test_what_is_overdue_is_said_above_all_with_its_sum_and_leads_to_the_invoices(client: Client) -> None:
    add_seller()
    customer, invoice = billed("ada")
    issue_one_off_in(
        customer_ref=customer.ref,
        request=NewOneOffInvoice(lines=[OneOffLine(description="Set-up", unit_amount=Decimal("1000.00"))]),
    )
    assert invoice.due_date is not None
    with time_machine.travel(datetime.now(UTC) + timedelta(days=99)):
        html = Browser(client).html
        above, _, rest = html.partition('<nav class="accounts"') if "accounts" in html else html.partition("<section")
        assert "2 invoices are overdue, 1,049.17 EUR in all." in above
        assert ('<a href="#invoices">See and pay</a>' in above, 'id="invoices"' in rest) == (True, True)
        unpaying = Browser(client, allow_payments=False, hide_amounts=True).html
        assert ("2 invoices are overdue." in unpaying, "See invoices" in unpaying, "1,049.17" in unpaying) == (True, True, False)
    assert re.findall(r'<a href="#(\w+)"', html)[-5:] == [
        "invoices", "packs", "subscriptions", "credit_notes", "contact",
    ], "each list is one click away"  # fmt: skip


def test_the_page_says_whom_to_ask(client: Client) -> None:
    add_seller(email="billing@nimbus.example", phone="+49 30 1234")
    CustomerFactory(holder_id="ada")
    html = Browser(client).html
    assert 'href="mailto:billing@nimbus.example"' in html
    assert 'href="tel:+49301234"' in html


def test_a_key_that_may_not_bill_makes_no_link_that_pays(db: None, make_api: Callable[..., ApiClient]) -> None:
    fields, path = {"allow_payments": True}, "/v1/holders/ada/page-links"
    api = make_api("pages:write", "billing:write")
    assert api.post(path, fields, key=None).status_code == 200
    refused = make_api("pages:write").post(path, fields, key=None)
    assert (refused.status_code, "billing:write" in refused.json()["detail"]) == (403, True)
    both = api.post(path, fields | {"hide_amounts": True}, key=None)
    assert (both.status_code, both.json()["errors"][0]["pointer"]) == (400, "/allow_payments")


@pytest.mark.parametrize(
    ("text", "scale", "language", "amount"),
    [
        ("1000", 0, ENGLISH, 1000), ("1,000", 0, ENGLISH, 1000), ("1.000", 0, GERMAN, 1000), ("12.5", 2, ENGLISH, 1250),
        ("1.234,56", 2, GERMAN, 123456), (" 7 ", 0, ENGLISH, 7),
    ],
)  # fmt: skip
def test_credits_are_typed_as_the_language_writes_them(text: str, scale: int, language: Any, amount: int) -> None:
    assert smallest_units(text, CreditUnit("t", "T", "t", scale), language) == amount


@pytest.mark.parametrize("text", ["", "1,00", "1.5", "-1", "x", "1e3", "10,0000", "9" * 40, "１"])
def test_what_is_no_number_of_credits_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="threshold"):
        smallest_units(text, CreditUnit("t", "T", "t", 0), ENGLISH)


def test_the_data_has_what_is_on_sale(client: Client, stripe: StripeDouble) -> None:
    CustomerFactory(holder_id="ada")
    pack = PackFactory(name="Starter", credits=1000, bonus=100)
    data = client.get(customer_page.link(holder_id="ada", allow_payments=True).data_url).json()
    assert data["packs"] == [
        {"ref": pack.code, "name": "Starter", "credit_type": "credits", "credits": 1100, "currency": "EUR", "price_minor": 2000,
         "applies_to": None}
    ]  # fmt: skip
    assert data["top_ups"] == []
    assert "packs" not in client.get(customer_page.link(holder_id="ada").data_url).json()


# By the link of a mail -------------------------------------------------------------------------------


@pytest.fixture
def mailed(settings: Any) -> tuple[Invoice, EmailMultiAlternatives]:
    """An invoice, and its mail where the page is served at shop.example."""
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_URL": "https://shop.example/c/"}
    add_seller(iban="DE89370400440532013000", mails_invoices=True)
    _, invoice = billed("ada", email="ada@example.com")
    return invoice, message_of(Mail.objects.get(invoice_id=invoice.pk))


def link_in(mail: EmailMultiAlternatives) -> str:
    [html, _] = [part for part, kind in mail.alternatives if kind == "text/html"] + [mail.body]
    [address] = re.findall(r'<a href="([^"]*)"', str(html))
    assert address.replace("&amp;", "&") in mail.body
    return address.replace("&amp;", "&").removeprefix("https://shop.example")


def test_a_mail_has_the_amount_the_account_and_a_button(mailed: tuple[Invoice, EmailMultiAlternatives]) -> None:
    invoice, mail = mailed
    [(html, kind)] = [(str(part), kind) for part, kind in mail.alternatives]
    assert kind == "text/html"
    for text in (str(invoice.number), "49.17 EUR", "DE89 3704 0044 0532 0130 00", "Due", "Account holder"):
        assert text in html
        assert text in mail.body
    assert ("Pay now" in html, "Pay here: https://shop.example/c/steps/pay-" in mail.body) == (True, True)


def test_the_button_of_a_mail_pays_this_invoice_and_opens_nothing_else(
    mailed: tuple[Invoice, EmailMultiAlternatives], client: Client, stripe: StripeDouble
) -> None:
    invoice, mail = mailed
    _, other = billed("ada2", draft=False)
    pack, address = PackFactory(), link_in(mail)
    step = f"/c/steps/pay-{invoice.pk}?"
    assert address.startswith(step)
    for path in (
        "/c/?",
        "/c/data?",
        f"/c/documents/invoice-{invoice.pk}.pdf?",
        f"/c/steps/pay-{other.pk}?",
        "/c/steps/top_up-new?",
    ):
        assert client.get(address.replace(step, path)).status_code == 410, path
    for name in (f"buy-{pack.pk}", "top_up-new", f"card-{other.pk}"):
        assert client.post(address.replace(step, f"/c/actions/{name}?")).status_code == 410, name
    assert not PaymentIntent.objects.exists()
    browser = Browser.__new__(Browser)
    browser.client, browser.shown = client, client.get(address)
    browser.press("By card")
    intent = ask_stripe()
    stripe.pay(intent.checkout)
    ask_stripe()
    comes_back(browser, intent)
    assert "Thank you" in browser.html
    assert "The invoice is paid" in client.get(address).content.decode()


def test_a_mail_has_no_button_where_nobody_could_press_it(settings: Any) -> None:
    add_seller(mails_invoices=True)
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_URL": "https://shop.example/c/"}
    _, shared = billed("ada", email="ada@example.com")
    CustomerFactory(holder_id="ada")
    _, without_credits = billed(None, email="eve@example.com")
    _, without_address = billed("ben", email="ben@example.com")
    assert [pay_link(Customer.objects.get(pk=each.customer_id), each) for each in (shared, without_credits)] == [None, None]
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_URL": ""}
    mail = message_of(Mail.objects.get(invoice_id=without_address.pk))
    assert "Pay here" not in mail.body


def links_of(pdf: bytes) -> list[str]:
    """The addresses to which a PDF leads."""
    notes = [each.get_object() for page in PdfReader(io.BytesIO(pdf)).pages for each in page.get("/Annots") or ()]
    return [note["/A"]["/URI"] for note in notes if "/A" in note]


def test_the_pdf_leads_to_the_same_payment_and_stays_the_same_when_it_is_paid(
    mailed: tuple[Invoice, EmailMultiAlternatives], settings: Any
) -> None:
    invoice, mail = mailed
    pdf = invoice_pdf(invoice.pk)
    [address] = links_of(pdf.content)
    assert address == f"https://shop.example{link_in(mail)}"
    shown = " ".join(PdfReader(io.BytesIO(pdf.content)).pages[0].extract_text().split())
    assert ("Pay online" in shown, "Scan to pay online" in shown) == (True, True)
    transition(invoice.pk, "pay")
    assert invoice_pdf(invoice.pk).content == pdf.content
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_URL": ""}
    assert links_of(invoice_pdf(invoice.pk).content) == []


def test_the_pdf_of_a_void_invoice_or_a_draft_leads_nowhere(mailed: tuple[Invoice, EmailMultiAlternatives]) -> None:
    invoice, _ = mailed
    draft = Invoice.objects.get(customer_id=invoice.customer_id, state="draft")
    transition(invoice.pk, "void")
    assert [links_of(invoice_pdf(each.pk).content) for each in (invoice, draft)] == [[], []]
