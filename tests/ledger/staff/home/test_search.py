"""Ctrl+K finds anything by a word, each operator what the permissions allow, by index only; and says when there is nothing."""

import html
import re
from decimal import Decimal

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from billing.admin.search import BY_EMAIL, BY_VAT_ID, SIMILAR
from billing.documents.credit_notes import issue_in
from billing.documents.invoice_payments import record_payment
from billing.generator.run.generate import Options, generate_in
from billing.models import Invoice, InvoicePayment
from billing.orders.coupons import create_coupon
from billing.payments.testing import PackFactory
from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import InsufficientCredits
from ledger.keys.api_keys import create_api_key
from ledger.rules.requests import GrantRequest
from ledger.staff.history import never_reading_whole_tables
from ledger_project.operators.destinations import ACTIONS, _url
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at
from tests.ledger.staff.admin_site import cost_of, load_history, operator

pytestmark = pytest.mark.django_db

SEARCH = "/admin/search/"


def search_results(client, word):
    """Title, description and address of each result."""
    page = client.get(SEARCH, {"s": word, "extended": 1}).content.decode()
    items = re.findall(r'<a class="[^"]*" href="([^"]+)" data-title="([^"]*)" data-description="([^"]*)"', page)
    return [(html.unescape(title), html.unescape(description), html.unescape(url)) for url, title, description in items]


def found_addresses(client, word):
    """The addresses of the results."""
    return [url for _, _, url in search_results(client, word)]


@pytest.fixture
def ada():
    """Two credit types of Ada, another holder whose id begins like hers, and a refusal."""
    services.grant(holder_id="Ada", amount=100, idempotency_key="g-1", reference="pay_1")
    services.grant(holder_id="Ada", amount=100, idempotency_key="g-2", credit_type="sms")
    services.grant(holder_id="adam", amount=1, idempotency_key="g-3")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="Ada", amount=500, idempotency_key="no-1", reference="job-19", request_id="req-4711")


def test_a_holder_is_found_once_by_the_beginning_of_the_id_as_it_is_written(client, ada):
    assert search_results(client, "Ad") == [("Ada", "holder", "/admin/ledger/account/holders/Ada/")]
    assert found_addresses(client, "ad") == ["/admin/ledger/account/holders/adam/"]


@pytest.mark.slow
def test_entries_and_refusals_are_found_by_reference_key_request_and_number(client, ada):
    grant = f"/admin/ledger/entrylisting/{quote('Ada/credits/1')}/change/"
    refusal = f"/admin/ledger/refusallisting/{quote('Ada/credits/2')}/change/"
    for word in ("pay_1", "g-1", "Ada/credits/1"):
        assert found_addresses(client, word) == [grant], word
    for word in ("job-19", "no-1", "req-4711", "Ada/credits/2"):
        assert found_addresses(client, word) == [refusal], word
    assert all(client.get(url).status_code == 200 for url in (grant, refusal))
    [(title, description, _)] = search_results(client, "req-4711")
    assert (title, description.startswith("Ada, credits: "), description.endswith("by request")) == ("Refusal #2", True, True)


def test_a_batch_is_found_by_its_key_and_its_request(client):
    request = GrantRequest(holder_id="ada", amount=5, idempotency_key="b1")
    services.batch([request], mode="atomic", idempotency_key="batch-7", actor="key:shop", request_id="req-b")
    assert found_addresses(client, "batch-7") == found_addresses(client, "req-b") != []


def test_documents_and_orders_of_billing_are_found(client):
    customer = CustomerFactory(ref="CUST-ACME", name="Jörg Müller")
    plan = PlanFactory(code="team-plan", name="Équipe")
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    note = issue_in(invoice_id=invoice.pk, reason="a mistake", actor="admin:mara")
    base = "/admin/billing"
    assert (
        found_addresses(client, invoice.number)
        == found_addresses(client, invoice.number.lower())
        == [f"{base}/invoice/{invoice.pk}/change/"]
    )
    assert found_addresses(client, note.number.lower()) == [f"{base}/creditnote/{note.pk}/change/"]
    of_the_customer = [
        f"{base}/{row}/change/"
        for row in (
            f"customer/{customer.pk}", f"subscription/{subscription.pk}", f"invoice/{invoice.pk}", f"creditnote/{note.pk}",
        )
    ]  # fmt: skip
    for word in ("cust-a", "Müller", "mull", "MUELLER jorg"):
        assert found_addresses(client, word) == of_the_customer, word
    assert f"{base}/subscription/{subscription.pk}/change/" in found_addresses(client, subscription.ref)
    assert found_addresses(client, "team-pl") == found_addresses(client, "equipe") == [f"{base}/plan/{plan.pk}/change/"]


def test_a_name_shows_an_operator_only_what_the_permissions_allow():
    customer = CustomerFactory(name="Jörg Müller")
    SubscriptionFactory(customer=customer.ref)
    for permission, descriptions in (
        ("billing.view_customer", ["customer"]),
        ("billing.view_subscription", [f"subscription of {customer.ref}: Jörg Müller"]),
        ("billing.view_plan", []),
    ):
        client = operator(permission, name=permission)
        assert [description for _, description, _ in search_results(client, "muller")] == descriptions


@pytest.mark.parametrize("word", ["nobody", "a\x00b", "x" * 300, "%", "_"])
def test_the_search_says_when_nothing_is_found_and_what_can_be_searched(client, ada, word):
    page = client.get(SEARCH, {"s": word, "extended": 1}).content.decode()
    assert "No results for" in page
    assert "Search by: Page, action, customer" in page


def test_what_was_made_since_is_found_at_once(client):
    assert found_addresses(client, "newcomer") == []
    services.grant(holder_id="newcomer", amount=1, idempotency_key="g")
    assert found_addresses(client, "newcomer") == ["/admin/ledger/account/holders/newcomer/"]


def test_each_operator_finds_what_the_permissions_allow_and_a_stranger_nothing(ada):
    looking = operator("ledger.view_account")
    assert len(found_addresses(looking, "Ada")) == 1
    assert found_addresses(looking, "pay_1") == found_addresses(looking, "job-19") == []
    assert Client().get(SEARCH, {"s": "Ada"}).status_code == 302


@pytest.mark.slow
def test_a_search_reads_no_whole_table(client):
    made = load_history(holders=30, entries=5_000)
    spend = next(entry for entry in made if entry.kind == "spend")
    for word in (spend.reference, spend.idempotency_key, spend.holder_id, "nothing-at-all"):
        cost = cost_of(client, f"{SEARCH}?s={word}&extended=1")
        assert len(cost.statements) <= 60, "each noun is asked once, those that people mistype once more"
        assert cost.plans
        for plan in cost.plans:
            assert "Seq Scan on ledger_entry" not in plan, f"{word}:\n{plan}"


# What people type ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("refund", "Refund a spend"),
        ("close the month", "Close the month"),
        ("clsoe month", "Close the month"),
        ("overdue", "See overdue invoices"),
        ("new customer", "Create a customer"),
        ("invoices", "Invoices"),
        ("invocies", "Invoices"),
        ("upgrade", "Upgrade, downgrade, pause or cancel a subscription"),
        ("api key", "API keys"),
        ("who did", None),
    ],
)
def test_pages_and_actions_are_found_by_what_people_call_them(client, words, title):
    found = search_results(client, words)
    assert (found[0][0] if found else None) == title
    assert all(client.get(url).status_code == 200 for _, _, url in found)


def test_each_action_leads_to_a_page_and_only_those_who_may_open_it_find_it(client):
    for each in ACTIONS:
        assert client.get(_url(each)).status_code == 200, each
    nobody = operator("ledger.view_ratelisting", name="ben")
    assert search_results(nobody, "customer") == search_results(nobody, "refund") == []
    assert [title for title, *_ in search_results(nobody, "rates")] == ["Rates"]


def test_a_customer_is_found_by_email_and_vat_id_and_by_a_name_with_a_typo(client):
    customer = CustomerFactory(ref="C-1", name="Brightwater Bank", email="Billing@Brightwater.example", vat_id="DE136695976")
    CustomerFactory(ref="C-2", name="Other", email="other@brightwater.example")
    page = f"/admin/billing/customer/{customer.pk}/change/"
    for word in ("billing@bright", "BILLING@BRIGHTWATER.EXAMPLE", "DE136695976", "DE 136 695 976", "Brightwater", "Brigthwater",
                 "brightwter bank", "bank brihtwater"):  # fmt: skip
        assert found_addresses(client, word) == [page], word
    assert found_addresses(client, "billing_bright") == found_addresses(client, "%@nobody") == []
    assert found_addresses(operator("billing.view_plan", name="ben"), "billing@bright") == []


def test_documents_are_found_by_the_number_without_prefix_and_payments_by_their_id(client):
    subscription = SubscriptionFactory()
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    page = f"/admin/billing/invoice/{invoice.pk}/change/"
    assert page in found_addresses(client, str(invoice.series_value))
    payment = record_payment(invoice=invoice.pk, payment="8AC21", amount_minor=100)
    assert found_addresses(client, "8AC21") == found_addresses(client, "8ac21") != []
    assert payment.pk == InvoicePayment.objects.get().pk


def test_packs_coupons_rates_and_keys_are_found_by_words_of_their_names(client):
    PackFactory(code="calls-1000", name="A thousand calls")
    create_coupon(code="SPRING-25", kind="percentage", value=Decimal(25), duration="forever")
    services.publish_rate(code="gpt.out", price=3, per=1_000, actor="admin:mara")
    create_api_key(name="web shop", scopes=["ledger:read"])
    for words, title in (
        ("thousand", "A thousand calls (calls-1000)"), ("thousnad", "A thousand calls (calls-1000)"),
        ("spring", "SPRING-25"), ("gpt", "gpt.out"), ("web shop", "web shop"), ("web shpo", "web shop"),
    ):  # fmt: skip
        assert title in [found[0] for found in search_results(client, words)], words


def test_a_holder_with_a_typo_is_found_and_enter_opens_the_first_result(client):
    services.grant(holder_id="brightwater", amount=1, idempotency_key="g")
    page = "/admin/ledger/account/holders/brightwater/"
    assert found_addresses(client, "brihgtwater") == [page]
    assert client.get(SEARCH, {"s": "brightwater", "go": 1}).headers["Location"] == page
    response = client.get(SEARCH, {"s": "xyzzy-nothing", "go": 1}, follow=True)
    assert "No results for “xyzzy-nothing”." in response.content.decode()


def test_customers_are_searched_by_indexes():
    with never_reading_whole_tables():
        for sql, value, index in (
            (BY_EMAIL, "billing@%", "billing_customer_email"),
            (BY_VAT_ID, "DE136695976", "billing_customer_plain_vat_id"),
            (SIMILAR, "acme | amce", "billing_customer_name"),
        ):
            plan = "\n".join(fetch_rows(str, f"EXPLAIN {sql}", [value]))
            assert index in plan, plan
