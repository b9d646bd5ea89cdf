"""Several sellers: which one a document names, and how each numbers its documents, without gaps and in a chain of its own."""

from datetime import UTC, datetime

import pytest
from django.db import transaction

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.printing import invoice_source
from billing.documents.sellers import current_seller, record_seller
from billing.models import Customer, Invoice, NumberSeries, Seller
from billing.orders.customers import change_customer
from ledger.audit.auditing import audit
from ledger.errors import Invalid
from tests.billing.documents.issued import SELLER, add_seller, invoice_up_to, subscribed
from tests.billing.documents.test_chain import session
from tests.billing.factories import CustomerFactory, recurring
from tests.tampering.owner import as_owner

pytestmark = pytest.mark.django_db

OCTOBER, NOVEMBER = datetime(2026, 10, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, 12, tzinfo=UTC)


def invoice_of(seller: str = "default", *, as_of: datetime = OCTOBER, **customer: str) -> Invoice:
    """An invoice for a new customer of this seller."""
    return invoice_up_to(subscribed(recurring("seats", "31.00", tax_rate="19"), seller=seller, **customer), as_of=as_of)


def year_of(invoice: Invoice) -> int:
    """The year of its issue."""
    assert invoice.issue_date is not None
    return invoice.issue_date.year


def test_each_seller_has_its_own_numbers_and_chain():
    add_seller()
    us = record_seller(
        {**SELLER, "ref": "us", "name": "Nimbus Inc", "invoice_prefix": "US", "credit_note_prefix": "USC"}, actor="test"
    )
    numbers = [invoice_of(seller).number for seller in ("default", "us", "us", "default")]
    assert numbers == ["INV-000001", "US-000001", "US-000002", "INV-000002"]
    second = Invoice.objects.get(number="US-000002")
    assert (second.seller_id, invoice_source(second.pk).seller["name"]) == (us.pk, "Nimbus Inc")
    note = credit_notes.issue_in(invoice_id=second.pk, reason="All of it", actor="test")
    assert (note.number, note.seller_id) == ("USC-000001", us.pk)
    assert consistency.check() == []
    report = audit([session()])
    assert (report.is_clean, report.chains["documents"]) == (True, 3)


def test_numbers_begin_again_each_year_and_for_each_customer_by_choice():
    add_seller(numbers_per_year=True)
    yearly = invoice_of()
    assert yearly.number == f"INV-{year_of(yearly)}-000001"
    add_seller(numbers_per_year=True, numbers_per_customer=True)
    subscription = subscribed(recurring("seats", "31.00"))
    both = [invoice_up_to(subscription, as_of=as_of) for as_of in (OCTOBER, NOVEMBER)]
    series = f"INV-{year_of(yearly)}-{both[0].customer_ref}"
    assert [invoice.number for invoice in both] == [f"{series}-000001", f"{series}-000002"]
    add_seller()
    assert invoice_of().number == "INV-000001"
    assert consistency.check() == []


@pytest.mark.parametrize("choice", ["numbers_per_year", "numbers_per_customer"])
def test_a_rolled_back_finalisation_leaves_no_gap(choice):
    add_seller(**{choice: True})
    subscription = subscribed(recurring("seats", "31.00"))
    with transaction.atomic():
        lost = invoice_up_to(subscription, as_of=OCTOBER).number
        transaction.set_rollback(True)
    assert not NumberSeries.objects.exists()
    assert invoice_up_to(subscription, as_of=OCTOBER).number == lost


def test_a_draft_shows_the_seller_of_its_customer_and_later_documents_the_new_one():
    add_seller()
    record_seller(
        {**SELLER, "ref": "us", "name": "Nimbus Inc", "invoice_prefix": "US", "credit_note_prefix": "USC"}, actor="test"
    )
    draft = invoice_up_to(subscribed(recurring("seats", "31.00")), finalize=False)
    assert invoice_source(draft.pk).seller["name"] == SELLER["name"]
    change_customer(ref=draft.customer_ref, seller="us")
    assert invoice_source(draft.pk).seller["name"] == "Nimbus Inc"


@pytest.mark.parametrize(
    ("given", "pointer", "rule"),
    [
        ({"ref": "us"}, "/invoice_prefix", "taken-by-another-seller"),
        ({"ref": "us", "invoice_prefix": "US"}, "/credit_note_prefix", "taken-by-another-seller"),
        ({"invoice_prefix": "CN"}, "/credit_note_prefix", "same-prefix"),
        ({"invoice_prefix": "inv"}, "/invoice_prefix", "pattern"),
        ({"invoice_prefix": "A-B"}, "/invoice_prefix", "pattern"),
        ({"invoice_prefix": ""}, "/invoice_prefix", "too-short"),
        ({"numbers_per_year": "yes"}, "/numbers_per_year", "not-a-boolean"),
        ({"ref": "a b"}, "/ref", "pattern"),
    ],
)
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_prefix_of_another_seller_and_bad_numbers_are_refused(given, pointer, rule, is_recorded):
    if is_recorded:
        add_seller()
    before = Seller.objects.count()
    with pytest.raises(Invalid) as refused:
        record_seller({**SELLER, **given}, actor="test")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert Seller.objects.count() == before


def test_a_prefix_that_a_seller_had_stays_its_own():
    add_seller(invoice_prefix="OLD")
    add_seller()
    with pytest.raises(Invalid, match="prefix"):
        record_seller({**SELLER, "ref": "us", "invoice_prefix": "OLD", "credit_note_prefix": "X"}, actor="test")
    assert current_seller("us") is None


def test_a_series_from_before_the_first_seller_stays_that_of_the_default_one():
    assert invoice_of().number == "INV-000001"
    record_seller({**SELLER, "invoice_prefix": "ACME", "credit_note_prefix": "ACMEC"}, actor="test")
    with pytest.raises(Invalid) as refused:
        record_seller({**SELLER, "ref": "us", "credit_note_prefix": "USC"}, actor="test")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/invoice_prefix", "taken-by-another-seller")
    assert not Seller.objects.filter(ref="us").exists()
    record_seller({**SELLER, "ref": "us", "invoice_prefix": "US"}, actor="test")
    assert [invoice_of(seller).number for seller in ("default", "us")] == ["ACME-000001", "US-000001"]
    assert consistency.check() == []


def test_a_customer_of_an_unknown_seller_is_refused_and_nothing_written():
    with pytest.raises(Invalid) as refused:
        CustomerFactory(seller="us")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/seller", "unknown-seller")
    assert not Customer.objects.exists()
    customer = CustomerFactory()
    with pytest.raises(Invalid):
        change_customer(ref=customer.ref, seller="us")
    customer.refresh_from_db()
    assert customer.seller == "default"


def test_the_check_finds_a_document_in_the_series_of_another_seller():
    add_seller()
    invoice_of()
    as_owner("UPDATE billing_invoice SET series = 'US', number = 'US-000001'", "UPDATE billing_numberseries SET name = 'US'")
    assert "series is not its seller's" in {found["finding"] for found in consistency.check()}
