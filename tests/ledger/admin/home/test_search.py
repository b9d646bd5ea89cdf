"""Ctrl+K finds anything by a word, each operator what the permissions allow, by index only; and says when there is nothing."""

import html
import re

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from billing.documents.credit_notes import issue_in
from billing.generator.run.generate import Options, generate_in
from billing.models import Invoice
from ledger import services
from ledger.errors import InsufficientCredits
from ledger.rules import GrantRequest
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at
from tests.ledger.admin.admin_site import cost_of, load_history, operator

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
    assert "Nothing is called" in page
    assert "Search by: Holder, reference" in page


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
        assert len(cost.statements) <= 24
        assert cost.plans
        for plan in cost.plans:
            assert "Seq Scan on ledger_entry" not in plan, f"{word}:\n{plan}"
