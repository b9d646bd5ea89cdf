"""Stripe Tax, against a server that computes as it does."""

from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from billing import tax_asking
from billing.auditing import consistency
from billing.configured_tax_provider import tax_provider
from billing.documents.sellers import record_seller
from billing.errors import TaxesRefused, TaxesUnavailable
from billing.models import Tax
from billing.rating.tax_sales import Party, Sale, SaleLine, ensure_usable
from billing.rating.vat import VatStatus
from billing.tax_services.stripe_tax import StripeTax
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.billing.generator.run.test_generate import bill
from tests.billing.taxes.stand_in import StripeTaxDouble, serving

# Stripe's package sends its forms in a way that httpx deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

DAY = date(2026, 1, 31)
CODES = {"books": "txcd_35010000"}


@pytest.fixture(scope="module")
def served():
    """The double, and its address."""
    double = StripeTaxDouble()
    with serving(double) as address:
        yield double, address


@pytest.fixture
def double(served):
    """The double, which forgets what it was asked for."""
    double, _ = served
    double.__init__()
    return double


@pytest.fixture
def provider(served):
    """Stripe Tax at the double."""
    made = StripeTax(api_key="sk_test_x", tax_codes=CODES, api_base=served[1])
    yield made
    made.close()


def sale(country, *amounts, currency="EUR", includes_tax=False, tax_class="standard", status=VatStatus.TAXABLE, **buyer):
    """A sale of some lines."""
    lines = tuple(SaleLine(amount, includes_tax, "S", Decimal(0), tax_class) for amount in amounts)
    return Sale(currency, DAY, Party("DE"), Party(country, **buyer), status, lines)


def taxes(provider, asked):
    """By line: code, rate, category, amount of each tax; the answer is usable."""
    found = provider.taxes_of(asked)
    ensure_usable(asked, found)
    return [[(tax.code, str(tax.rate), tax.category, tax.amount_minor) for tax in line.taxes] for line in found]


def test_each_tax_of_each_line_is_named_by_its_place_and_type(double, provider):
    asked = sale("CA", 3333, 1001, subdivision="QC", postal_code="H2X 1Y4", city="Montréal", line1="1 rue X")
    gst, qst = "stripe-ca-country-canada-gst", "stripe-ca-qc-state-quebec-qst"
    assert taxes(provider, asked) == [
        [(gst, "5", "O", 167), (qst, "9.975", "O", 332)], [(gst, "5", "O", 50), (qst, "9.975", "O", 100)],
    ]  # fmt: skip
    [line, _] = provider.taxes_of(asked)
    assert [(tax.name, tax.country, tax.subdivision) for tax in line.taxes] == [("GST", "CA", ""), ("Quebec QST", "CA", "QC")]
    assert line.reference == "taxcalc_2"
    sent = double.asked[0]
    assert {name: value for name, value in sent.items() if name.startswith("customer_details")} == {
        "customer_details[address][country]": "CA", "customer_details[address][state]": "QC",
        "customer_details[address][city]": "Montréal", "customer_details[address][postal_code]": "H2X 1Y4",
        "customer_details[address][line1]": "1 rue X", "customer_details[address_source]": "billing",
        "customer_details[taxability_override]": "none",
    }  # fmt: skip
    assert (sent["currency"], sent["line_items[0][amount]"], sent["line_items[0][tax_behavior]"]) == ("eur", "3333", "exclusive")
    assert "line_items[0][tax_code]" not in sent


def test_two_taxes_of_one_type_have_two_codes(double, provider):
    assert taxes(provider, sale("US", 10_000)) == [
        [("stripe-us-ny-state-new-york-sales-tax", "4", "O", 400), ("stripe-us-ny-city-new-york-city-sales-tax", "4.5", "O", 450)]
    ]


@pytest.mark.parametrize(
    ("country", "currency", "amount", "sent", "tax"),
    [("JP", "JPY", 999, "999", 100), ("KW", "KWD", 1234, "1234", 62), ("DE", "ISK", 100, "10000", 19)],
)
def test_amounts_are_in_the_units_of_stripe(double, provider, country, currency, amount, sent, tax):
    [[(*_, minor)]] = taxes(provider, sale(country, amount, currency=currency))
    assert (double.asked[0]["line_items[0][amount]"], minor) == (sent, tax)


def test_an_amount_that_stripe_cannot_count_is_refused(double, provider):
    with pytest.raises(TaxesRefused, match="whole units of MGA"):
        provider.taxes_of(sale("DE", 150, currency="MGA"))
    assert double.asked == []


def test_amounts_with_tax_are_sent_as_such(double, provider):
    assert taxes(provider, sale("DE", 11_900, includes_tax=True)) == [[("stripe-de-country-germany-vat", "19", "S", 1900)]]
    assert double.asked[0]["line_items[0][tax_behavior]"] == "inclusive"


def test_a_tax_class_has_its_tax_code_or_the_sale_is_refused(double, provider):
    taxes(provider, sale("DE", 100, tax_class="books"))
    assert double.asked[0]["line_items[0][tax_code]"] == "txcd_35010000"
    with pytest.raises(TaxesRefused, match="tax class food"):
        provider.taxes_of(sale("DE", 100, tax_class="food"))


@pytest.mark.parametrize(
    ("vat_id", "kind"),
    [("ATU12345675", "eu_vat"), ("EL123456783", "eu_vat"), ("GB980780684", "gb_vat"), ("CHE123456788", "ch_vat"), ("US1", None)],
)
def test_vat_ids_are_sent_with_their_type(double, provider, vat_id, kind):
    provider.taxes_of(sale("DE", 100, vat_id=vat_id))
    sent = double.asked[0]
    assert sent.get("customer_details[tax_ids][0][type]") == kind
    assert sent.get("customer_details[tax_ids][0][value]") == (vat_id if kind else None)


@pytest.mark.parametrize(
    ("reason", "category"),
    [("reverse_charge", "AE"), ("zero_rated", "Z"), ("customer_exempt", "E"), ("not_collecting", "O"), ("something_new", "O")],
)
def test_without_a_tax_the_reason_gives_the_category(double, provider, reason, category):
    double.reason = reason
    asked = sale("DE", 100, vat_id="ATU12345675")
    [line] = provider.taxes_of(asked)
    ensure_usable(asked, [line])
    assert (line.taxes, line.category) == ((), category)


@pytest.mark.parametrize(("status", "override"), [("exempt", "customer_exempt"), ("reverse_charge", "reverse_charge")])
def test_the_status_of_a_customer_overrides(double, provider, status, override):
    provider.taxes_of(sale("DE", 100, status=VatStatus(status), vat_id="ATU12345675"))
    assert double.asked[0]["customer_details[taxability_override]"] == override


def test_a_tax_on_a_part_of_a_line_is_refused(double, provider):
    double.part = 80
    with pytest.raises(TaxesRefused, match=r"GST is due on a part of a line only \(standard_rated\)"):
        provider.taxes_of(sale("CA", 10_000))


def test_a_tax_that_is_no_percentage_is_refused(double, provider):
    double.fee = 29
    with pytest.raises(TaxesRefused, match="Colorado Retail Delivery Fee is no percentage"):
        provider.taxes_of(sale("CA", 10_000))


def test_a_tax_of_which_nothing_is_due_is_none(double, provider):
    double.part = 0
    assert taxes(provider, sale("CA", 10_000)) == [[]]
    assert [len(line) for line in taxes(provider, sale("CA", 0))] == [2]


@pytest.mark.parametrize(("days", "sent"), [(-400, -30), (-3, -3), (0, 0), (20, 20), (360, 30), (2_000_000, 30)])
def test_a_day_that_stripe_does_not_compute_is_asked_for_as_the_nearest_one(double, provider, days, sent):
    today = datetime.now(UTC).date()
    wanted = date.max if days > 1_000_000 else today + timedelta(days=days)
    provider.taxes_of(sale("DE", 100)._replace(day=wanted))
    at_noon = datetime.fromtimestamp(int(double.asked[0]["tax_date"]), UTC)
    assert abs((at_noon.date() - today).days - sent) <= 1
    assert at_noon.hour == 12


def test_many_lines_are_several_calculations(double, provider):
    found = provider.taxes_of(sale("DE", *range(100, 350)))
    assert [line.taxes[0].amount_minor for line in found] == [
        int(Decimal(n) * 19 / 100 + Decimal("0.5")) for n in range(100, 350)
    ]
    assert sorted({line.reference for line in found}) == ["taxcalc_1", "taxcalc_2", "taxcalc_3"]


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("down", TaxesUnavailable, "APIError"), ("key", TaxesUnavailable, "AuthenticationError"),
        ("refused", TaxesRefused, "location isn't recognized"), ("garbage", Exception, ""),
    ],
)  # fmt: skip
def test_faults_are_told_apart(double, provider, fault, error, text):
    double.fault = fault
    with pytest.raises(error) as raised:
        provider.taxes_of(sale("DE", 100))
    assert text in str(getattr(raised.value, "facts", {}).get("why", ""))


def test_nobody_there_is_no_answer():
    gone = StripeTax(api_key="sk_test_x", api_base="http://127.0.0.1:9")
    with closing(gone), pytest.raises(TaxesUnavailable, match="APIConnectionError"):
        gone.taxes_of(sale("DE", 100))


@pytest.mark.django_db
def test_an_invoice_with_the_taxes_of_stripe(double, served, settings):
    settings.TAX_PROVIDER = {
        "class": "billing.tax_services.stripe_tax.StripeTax", "api_key": "sk_test_x", "api_base": served[1],
    }  # fmt: skip
    tax_asking.ask_again_now()
    record_seller({**SELLER, "tax_rules": "provider"}, actor="test")
    plan = PlanFactory(prices=[recurring(unit_amount="100.00")])
    customer = CustomerFactory(address={"country": "US", "subdivision": "NY", "postal_code": "10001"})
    subscription = SubscriptionFactory(plan=plan.code, customer=customer.ref)
    with closing(tax_provider()):
        double.fault = "garbage"
        with pytest.raises(TaxesUnavailable, match="KeyError"):
            bill(subscription, at(1, 1))
        double.fault = ""
        [made] = bill(subscription, at(1, 1))
    assert sorted((row["name"], row["rate"], row["amount_minor"]) for row in made["taxes"]) == [
        ("New York City Sales Tax", "4.5", 450), ("New York Sales Tax", "4", 400),
    ]  # fmt: skip
    assert {tax.provider for tax in Tax.objects.all()} == {"stripe"}
    assert consistency.check() == []
