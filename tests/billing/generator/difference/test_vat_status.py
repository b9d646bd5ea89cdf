"""What a customer's VAT status makes of the tax: worked examples, over REST and on the rows."""

from decimal import Decimal

import pytest

from billing.documents import credit_notes
from billing.models import Customer, Invoice, Line
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from billing.rating.vat import VatStatus, category_for, vat_status_of
from ledger.errors import Invalid
from ledger.keys import api_keys
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
REVERSE = {"vat_status": "reverse_charge", "vat_id": "ATU12345675"}
PRICES = (recurring(tax_rate="20"), recurring("books", "5.00", tax_category="Z"))


def subscribed(*prices, plan=None, **customer):
    """A subscription of a customer with this VAT status."""
    made = PlanFactory(prices=list(prices or PRICES), **(plan or {}))
    return SubscriptionFactory(plan=made.code, customer=CustomerFactory(**customer).ref)


def tax_row(category, rate, base, amount, **note):
    """A row of an invoice's taxes, as the REST contract has it."""
    return {"category": category, "rate": rate, "base_minor": base, "amount_minor": amount, **note}


@pytest.mark.parametrize(
    ("customer", "taxes", "total"),
    [
        # 10.00 + 20 % + 5.00
        ({}, [tax_row("S", "20", 1000, 200), tax_row("Z", "0", 500, 0)], 1700),
        (REVERSE, [tax_row("AE", "0", 1000, 0, note="Reverse charge"), tax_row("Z", "0", 500, 0)], 1500),
        ({"vat_status": "exempt"}, [tax_row("E", "0", 1000, 0, note="Exempt from VAT"), tax_row("Z", "0", 500, 0)], 1500),
    ],
)
def test_the_status_decides_what_becomes_of_what_is_standard_rated(customer, taxes, total):
    [invoice] = bill(subscribed(**customer), at(1, 1))
    assert (invoice["taxes"], invoice["tax_minor"], invoice["total_minor"]) == (taxes, total - 1500, total)
    categories = [one["category"] for one in taxes]
    assert [line["tax_category"] for line in invoice["lines"]] == categories
    buyer = Invoice.objects.get(pk=invoice["id"]).buyer
    assert (buyer["vat_status"], buyer["vat_id"]) == (customer.get("vat_status", "taxable"), customer.get("vat_id", ""))


def test_usage_minimums_one_off_charges_and_credits_follow():
    # January: 31.00 in advance, 100 calls at 0.02, lifted to 40.00; 5.00 once. All of it without tax.
    subscription = subscribed(
        recurring(unit_amount="31.00", tax_rate="20"), metered(tax_rate="20"), plan={"minimum": Decimal("40.00")}, **REVERSE
    )
    subscriptions.charge_once(ref=subscription.ref, amount_minor=500, description="Set-up", tax_rate=Decimal(20))
    [first] = bill(subscription, at(1, 1))
    assert (first["taxes"], first["total_minor"]) == ([tax_row("AE", "0", 3600, 0, note="Reverse charge")], 3600)
    use(subscription, "100", at(1, 5))
    [second] = bill(subscription, at(2, 1))
    assert sorted(line["amount_minor"] for line in second["lines"]) == [200, 700, 3100]
    assert second["taxes"] == [tax_row("AE", "0", 4000, 0, note="Reverse charge")]
    # 18 of 28 days of February come back: 19.93 of 31.00.
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(2, 11), wish=Wish(sets_end=True, ends_at=at(2, 11)))
    bill(subscription, at(2, 11))
    credited = Line.objects.get(invoice__subscription_ref=subscription.ref, kind="credit")
    assert (credited.amount_minor, credited.tax_category, credited.tax_rate) == (-1993, "AE", 0)


def test_a_credit_note_credits_in_the_category_of_the_invoice():
    [invoice] = bill(subscribed(**REVERSE), at(1, 1))
    note = credit_notes.issue_in(invoice_id=invoice["id"], reason="cancelled", actor="test")
    assert (note.tax_minor, note.amount_minor) == (0, 1500)
    assert sorted(note.taxes.values_list("category", flat=True)) == ["AE", "Z"]


def test_a_price_of_another_category_stays_as_it_is():
    [invoice] = bill(subscribed(recurring(tax_category="O"), **REVERSE), at(1, 1))
    assert invoice["taxes"] == [tax_row("O", "0", 1000, 0, note="Not subject to VAT")]


def test_the_pages_say_why_there_is_no_tax():
    [invoice] = bill(subscribed(**REVERSE), at(1, 1))
    page = operator().get(f"/admin/billing/invoice/{invoice['id']}/change/").content.decode()
    for words in ("Reverse charge: VAT is owed by the recipient.", "ATU12345675"):
        assert words in page


def test_the_vat_status_is_set_over_rest_and_validated():
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["billing:write"])
    api, body = ApiClient(secret), {"name": "Ada", "currency": "EUR"}
    response = api.post("/v1/customers", {**body, "ref": unique("CUST"), **REVERSE})
    created = response.json()
    assert (response.status_code, created["vat_status"], created["vat_id"]) == (201, "reverse_charge", "ATU12345675")
    assert api.post("/v1/customers", {**body, "ref": unique("CUST")}).json()["vat_status"] == "taxable"
    before = Customer.objects.count()
    for wrong, pointer in (
        ({"vat_status": "reverse_charge"}, "/vat_id"),
        ({"vat_status": "reverse_charge", "vat_id": "12345678"}, "/vat_id"),
        ({"vat_status": "reverse_charge", "vat_id": "atu12345678"}, "/vat_id"),
        ({"vat_status": "zero"}, "/vat_status"),
        ({"vat_status": None}, "/vat_status"),
    ):
        refused = api.post("/v1/customers", {**body, "ref": unique("CUST"), **wrong})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, pointer)
    with pytest.raises(Invalid):
        CustomerFactory(vat_status="zero")
    assert Customer.objects.count() == before


def test_reverse_charge_without_a_vat_id_is_taxed():
    assert vat_status_of("reverse_charge", "") == vat_status_of("unheard-of", "DE1") == VatStatus.TAXABLE
    assert vat_status_of("reverse_charge", "DE123456788") == VatStatus.REVERSE_CHARGE
    assert vat_status_of("exempt", "") == VatStatus.EXEMPT
    assert category_for(VatStatus.EXEMPT, "S", Decimal(20)) == ("E", Decimal(0))
    assert category_for(VatStatus.TAXABLE, "S", Decimal(20)) == ("S", Decimal(20))
    subscription = subscribed(recurring(tax_rate="20"))
    Customer.objects.filter(pk=subscription.customer_id).update(vat_status="reverse_charge")
    [invoice] = bill(subscription, at(1, 1))
    assert invoice["tax_minor"] == 200
