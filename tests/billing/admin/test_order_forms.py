"""Forms about orders: in two steps, by the services of the REST calls; nothing is written by the first, nor by a refusal."""

import html
import json
import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from billing.admin.order_forms.prices import fields_of_price, typed_of
from billing.models import (
    Amendment,
    Coupon,
    Customer,
    CustomerCoupon,
    Invoice,
    Plan,
    Price,
    RequestKey,
    Subscription,
)
from billing.orders import coupons, subscriptions, suspension
from billing.orders.overrides import PriceOverride
from billing.orders.subscriptions import Wish
from billing.rating.money import MINOR_DIGITS
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.prices.reading import MAX_PRICES, parse_price, price_dict
from ledger.models import CreditType, StaffEvent
from ledger.staff.kit.form_fields import as_typed
from ledger.staff.kit.money_fields import HasCurrency
from ledger.testing import api_key
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.rating.prices.test_models import BUCKETED, EXAMPLES, USAGE
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db

BILLING = "/admin/billing"
CUSTOMER = {
    "ref": "C-7", "name": "Ada Lovelace", "currency": "eur", "time_zone": "Europe/Berlin", "language": "en",
    "vat_status": "taxable", "terms_days": "14", "grace_days": "0", "credit_type": "credits",
}  # fmt: skip
PLAN = {
    "code": "team", "name": "Team", "currency": "EUR", "unit": "month", "count": "1", "credit_type": "credits",
    "price_count": "2", "price_0_key": "seats", "price_0_kind": "recurring", "price_0_model": "unit",
    "price_0_unit_amount": "9.90",
    "price_0_tax_rate": "19", "price_0_proration": "day", "price_0_tax_category": "S",
    "price_1_key": "tokens", "price_1_kind": "usage", "price_1_model": "graduated", "price_1_meter": "tokens",
    "price_1_aggregation": "sum", "price_1_tiers-0-up_to": "1000000", "price_1_tiers-0-unit_amount": "0",
    "price_1_tiers-1-unit_amount": "0.00002",
}  # fmt: skip
COUPON = {"code": "WELCOME", "kind": "percentage", "percent": "10", "duration": "recurring", "periods": "3"}
ROWS = (Customer, Plan, Price, Coupon, CustomerCoupon, Subscription, Amendment, Invoice)


def rows_typed(name, *rows):
    """The cells of a field's rows, as a browser sends them."""
    return {f"{name}-{number}-{column}": text for number, row in enumerate(rows) for column, text in row.items()}


def quantity(key, number):
    """One row of quantities."""
    return rows_typed("quantities", {"key": key, "quantity": number})


def amount(key, what, typed):
    """One row of negotiated amounts."""
    return rows_typed("prices", {"key": key, "what": what, "rate" if what == "rate" else "amount": typed})


def row_counts():
    """How many rows each table has that a form may write to."""
    return [model.objects.count() for model in ROWS]


def text_of_response(response):
    """The page without its tags, every run of spaces as one."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())))


def hidden_values(response):
    """The hidden fields of the second step's form, by name: what its button sends again."""
    page = response.content.decode()
    return {name: html.unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)}


def send_first_step(client, url, values):
    """Send the form filled in; the response says what would happen."""
    return client.post(url, {"idempotency_key": unique("key"), **values})


def field_errors(client, url, values):
    """Send the form, which must be refused without writing; return the message of each field."""
    before = row_counts()
    response = send_first_step(client, url, values)
    assert response.status_code == 422, (url, values)
    assert row_counts() == before
    return {field: " ".join(messages) for field, messages in response.context_data["form"].errors.items()}


def send_both_steps(client, url, values):
    """Send the form and confirm what the first step shows; return the second response."""
    first = send_first_step(client, url, values)
    assert first.status_code == 200, text_of_response(first)
    return client.post(url, hidden_values(first) | {"confirmed": "yes"})


def text_after_redirect(client, response):
    """The text of the page to which the response leads."""
    assert response.status_code == 302, text_of_response(response)
    return text_of_response(client.get(response["Location"]))


def test_a_customer_is_created_after_it_was_said_what_is_written(client):
    url = f"{BILLING}/customer/add/"
    before = row_counts()
    response = send_first_step(
        client, url, CUSTOMER | {"line1": "1 New St", "city": "Berlin", "holder_id": "ada", "unit_value": "0.01"}
    )
    text = text_of_response(response)
    assert "Ada Lovelace (C-7) is invoiced in EUR and pays within 14 days." in text
    assert "Documents say 1 New St, Berlin." in text
    assert "ada's credits pay first, 0.01 EUR for 1 credit." in text
    assert row_counts() == before
    assert not RequestKey.objects.exists()
    values = hidden_values(response) | {"confirmed": "yes", "reason": "ordered by phone"}
    first, second = client.post(url, values), client.post(url, values)
    assert (first.status_code, first["Location"]) == (302, second["Location"])
    text = text_after_redirect(client, second)
    assert "Customer C-7 is done: it pays in EUR." in text
    # The staff log is kept for good, and a customer can be erased (`erase_customer`).
    assert [event.details for event in StaffEvent.objects.all() if "C-7" in event.details]
    assert [event for event in StaffEvent.objects.all() if "Lovelace" in f"{event.object} {event.details}"] == []
    assert "Customer C-7 was already done by the first click" in text
    customer = Customer.objects.get()
    assert (customer.ref, customer.terms_days, customer.time_zone) == ("C-7", 14, "Europe/Berlin")
    assert customer.address == {"line1": "1 New St", "city": "Berlin"}
    assert (customer.holder_id, customer.credit_unit_value) == ("ada", Decimal("0.01"))
    noted = StaffEvent.objects.get(action="form")
    assert (noted.actor, noted.object) == ("admin:mara", "New customer")
    assert "ordered by phone" in noted.details


WRONG_CUSTOMERS = [
    ({"ref": "C 7"}, "ref", "This must be 1 to 64 characters of A-Z"),
    ({"ref": "TAKEN"}, "ref", "There is another customer TAKEN."),
    ({"name": ""}, "name", "This field is required."),
    ({"currency": "XXX"}, "currency", "This must be an active ISO 4217 code such as EUR."),
    ({"time_zone": "Berlin"}, "time_zone", "This must be a zone of the IANA database such as Europe/Berlin."),
    ({"vat_status": "reverse_charge"}, "vat_id", "Reverse charge needs a VAT id that begins with the two letters"),
    ({"terms_days": "4000"}, "terms_days", "This must be at most 3650."),
    ({"unit_value": "0.01"}, "unit_value", "A customer who pays with credits needs a “Holder”."),
    (
        {"unit_value": "1e5", "holder_id": "ada"},
        "unit_value",
        "Value of one credit: “1e5” is not an amount; write an amount such as 1234.50",
    ),
]


def test_an_invalid_customer_is_refused_at_its_fields_and_not_written(client):
    CustomerFactory(ref="TAKEN")
    for changed, field, said in WRONG_CUSTOMERS:
        assert said in field_errors(client, f"{BILLING}/customer/add/", CUSTOMER | changed).get(field, ""), changed


def test_a_name_that_is_taken_between_the_steps_is_refused_and_the_next_try_is_another_request(client):
    url = f"{BILLING}/customer/add/"
    values = hidden_values(send_first_step(client, url, CUSTOMER))
    CustomerFactory(ref="C-7")
    response = client.post(url, values | {"confirmed": "yes"})
    assert response.status_code == 422
    assert "There is another customer C-7." in text_of_response(response)
    again = values | {"ref": "C-8", "idempotency_key": hidden_key(response.content.decode())}
    assert client.post(url, again | {"confirmed": "yes"}).status_code == 302
    assert Customer.objects.filter(ref="C-8").exists()


def test_a_customer_is_changed_with_before_and_after(client):
    customer = CustomerFactory(ref="C-7", address={"line1": "Old St", "floor": "2", "city": "Berlin"})
    url = f"{BILLING}/customer/{customer.pk}/edit/"
    values = CUSTOMER | {"name": "Ada King", "line1": "New St", "city": "Berlin", "terms_days": "30"}
    response = send_first_step(client, url, values)
    assert "Name Ada Lovelace Ada King" in text_of_response(response)
    assert "Address Old St, Berlin, 2 New St, Berlin, 2" in text_of_response(response)
    customer.refresh_from_db()
    assert customer.name == "Ada Lovelace"
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    customer.refresh_from_db()
    assert (customer.name, customer.address) == ("Ada King", {"line1": "New St", "floor": "2", "city": "Berlin"})
    assert "The form changes nothing." in text_of_response(send_first_step(client, url, values))


def test_a_customer_whose_days_held_back_are_emptied_is_invoiced_when_due(client):
    customer = CustomerFactory(ref="C-7", hold_days=5)
    url = f"{BILLING}/customer/{customer.pk}/edit/"
    assert send_both_steps(client, url, CUSTOMER | {"hold_days": "7"}).status_code == 302
    customer.refresh_from_db()
    assert customer.hold_days == 7
    assert send_both_steps(client, url, CUSTOMER | {"hold_days": ""}).status_code == 302
    customer.refresh_from_db()
    assert customer.hold_days == 0


def test_the_amounts_of_a_plan_may_include_tax_and_its_next_version_keeps_that(client):
    text = text_of_response(send_first_step(client, f"{BILLING}/plan/add/", PLAN | {"tax_behavior": "inclusive", "minimum": "5"}))
    assert "At least 5.00 EUR a month, with tax. All amounts include tax." in text
    send_both_steps(client, f"{BILLING}/plan/add/", PLAN | {"tax_behavior": "inclusive"})
    plan = Plan.objects.get()
    assert plan.tax_behavior == "inclusive"
    page = client.get(f"{BILLING}/plan/{plan.pk}/new-version/").content.decode()
    assert '<option value="inclusive" selected>' in page
    assert "On the invoice, with tax:" in page


def test_a_plan_is_shown_in_sentences_before_it_is_written(client):
    url = f"{BILLING}/plan/add/"
    before = row_counts()
    response = send_first_step(client, url, PLAN | {"grants": "500", "minimum": "5"})
    text = text_of_response(response)
    assert "This is a new plan. Team is billed every month in EUR." in text
    assert "seats: 9.90 EUR per unit and month, in advance. 19 % tax." in text
    assert "tokens: per unit of tokens, each part at its own price: up to 1,000,000 at 0.00 EUR; beyond at 0.00002 EUR." in text
    assert "At least 5.00 EUR a month, before tax." in text
    assert "Grants 500 credits every month; the rest expires with its month." in text
    assert row_counts() == before
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    plan = Plan.objects.get()
    assert (plan.code, plan.version, plan.minimum, plan.allowance["amount"]) == ("team", 1, Decimal(5), 500)
    tokens = Price.objects.get(key="tokens").definition
    assert tokens["tiers"] == [{"up_to": "1000000", "unit_amount": "0"}, {"up_to": None, "unit_amount": "0.00002"}]


@pytest.mark.parametrize("granted", [{}, {"grants": "500"}])
def test_a_plan_is_made_by_a_form_whose_other_fields_are_sent_as_a_browser_shows_them(client, granted):
    url = f"{BILLING}/plan/add/"
    shown = client.get(url).context_data["form"].typed()
    assert shown["allowance_count"] == "1"
    response = send_both_steps(client, url, shown | PLAN | granted)
    assert response.status_code == 302, text_of_response(response)
    assert (Plan.objects.get().allowance or {}).get("amount") == (500 if granted else None)


def test_names_in_other_languages_are_typed_in_rows_and_fill_in_the_next_version(client):
    url = f"{BILLING}/plan/add/"
    named = rows_typed("names", {"language": "de", "name": "Teamtarif"}) | {"price_0_name": "Seats"}
    named |= rows_typed("price_0_names", {"language": "de", "name": "Plätze"}, {"language": "en", "name": "Chairs"})
    response = send_first_step(client, url, PLAN | named)
    assert "Seats (seats): 9.90 EUR per unit and month" in text_of_response(response)
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    first = Plan.objects.get()
    assert first.names == {"de": "Teamtarif"}
    assert Price.objects.get(key="seats").definition["names"] == {"de": "Plätze", "en": "Chairs"}
    url = f"{BILLING}/plan/{first.pk}/new-version/"
    form = client.get(url).context_data["form"]
    again = form.typed()
    assert send_both_steps(client, url, again).status_code == 302
    second = Plan.objects.get(version=2)
    assert second.names == first.names
    assert Price.objects.get(plan=second, key="seats").definition == Price.objects.get(plan=first, key="seats").definition

    url = f"{BILLING}/coupon/add/"
    typed = COUPON | {"name": "Launch offer"} | rows_typed("names", {"language": "de", "name": "Startrabatt"})
    assert send_both_steps(client, url, typed).status_code == 302
    coupon = Coupon.objects.get()
    assert (coupon.name, coupon.names) == ("Launch offer", {"de": "Startrabatt"})


def test_the_limit_of_an_overage_counts_for_each_unit_as_typed(client):
    seats = {"price_0_key": "seats", "price_0_model": "unit"}
    typed = PLAN | seats | {"grants": "10", "overage_amount": "0.02", "overage_limit": "5", "overage_per": "seats"}
    response = send_both_steps(client, f"{BILLING}/plan/add/", typed)
    assert response.status_code == 302, text_of_response(response)
    plan = Plan.objects.get()
    assert (plan.overage["per_quantity_of"], plan.overage["limit_credits"]) == ("seats", 5)


def test_budgets_of_a_plan_are_typed_in_rows_in_the_unit_of_their_type_and_fill_in_the_next_version(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    url = f"{BILLING}/plan/add/"
    seats = {"price_0_key": "seats", "price_0_model": "unit"}
    pool = {"budget": "pool", "limit": "12.50", "credit_type": "usd_cents", "per_quantity_of": "seats", "window": "day"}
    member = {"budget": "member", "limit": "30", "window": "rolling", "hours": "24", "by": "label", "label": "member"}
    member |= {"mode": "soft"}
    wrong = rows_typed("budgets", pool | {"limit": "1.234"}, member | {"limit": "x", "parent": "pool"})
    response = send_first_step(client, url, PLAN | seats | wrong)
    assert [error.split(":")[0] for error in response.context_data["form"].errors["budgets"]] == ["Budget 1", "Budget 2"]
    assert not Plan.objects.exists()
    response = send_first_step(client, url, PLAN | seats | rows_typed("budgets", member | {"parent": "pool"}))
    assert response.context_data["form"].errors["budgets"] == [
        "Budget 1: Must be a budget of the same credit type that stands before this one."
    ]
    response = send_first_step(client, url, PLAN | seats | rows_typed("budgets", pool, member))
    text = text_of_response(response)
    assert "The budget pool: at most 12.50 USD for each seats a day for the account; more is refused." in text
    assert "The budget member: at most 30 credits in 24 hours for each member; more is spent and shown." in text
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    plan = Plan.objects.get()
    assert [(each["budget"], each["credit_type"], each["limit"], each["hours"]) for each in plan.budgets] == [
        ("pool", "usd_cents", 1_250, None),
        ("member", "credits", 30, 24),
    ]
    again = client.get(f"{BILLING}/plan/{plan.pk}/new-version/").context_data["form"].typed()
    assert send_both_steps(client, f"{BILLING}/plan/{plan.pk}/new-version/", again).status_code == 302
    assert Plan.objects.get(version=2).budgets == plan.budgets


@pytest.mark.slow
def test_credits_of_a_plan_and_a_customer_are_typed_in_the_unit_of_their_type(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    url = f"{BILLING}/plan/add/"
    paid = {"price_1_model": "unit", "price_1_tiers": "[]", "price_1_unit_amount": "0.02"}
    paid |= {"price_1_credits_per_unit": "0.015", "price_1_credits_type": "usd_cents"}
    granted = {"credit_type": "usd_cents", "grants": "12.50", "rollover_cap": "0.05"}
    granted |= rows_typed("allowance_applies_to", {"rate": "image.small"}, {"label": "member", "value": "ada"})
    response = send_first_step(client, url, PLAN | granted | paid)
    text = text_of_response(response)
    only = "only for the rate image.small with member ada"
    assert f"Grants 12.50 USD every month, {only}; up to 0.05 of the rest roll over into the next one." in text
    assert "Paid with 0.015 USD each first" in text
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    plan = Plan.objects.get()
    assert plan.allowance.items() >= {"credit_type": "usd_cents", "amount": 1_250, "rollover_cap": 5}.items()
    assert plan.allowance["applies_to"] == {"rates": ["image.small"], "labels": {"member": ["ada"]}}
    assert Price.objects.get(key="tokens").definition["credits"] == {"credit_type": "usd_cents", "per_unit": "1.5"}

    # The next version is filled in with the same, in the unit; sent as it is, it is the same plan.
    url = f"{BILLING}/plan/{plan.pk}/new-version/"
    form = client.get(url).context_data["form"]
    typed = {name: form[name].value() for name in ("grants", "rollover_cap", "price_1_credits_per_unit")}
    assert typed == {"grants": "12.50", "rollover_cap": "0.05", "price_1_credits_per_unit": "0.015"}
    again = form.typed()
    assert send_both_steps(client, url, again).status_code == 302
    newest = Plan.objects.get(version=2)
    assert newest.allowance == plan.allowance
    assert Price.objects.get(plan=newest, key="tokens").definition["credits"] == {"credit_type": "usd_cents", "per_unit": "1.5"}

    url = f"{BILLING}/customer/add/"
    values = CUSTOMER | {"holder_id": "ada", "credit_type": "usd_cents", "unit_value": "0.85"}
    response = send_first_step(client, url, values)
    assert "ada's USD pay first, 0.85 EUR for 1 USD." in text_of_response(response)
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    assert Customer.objects.get().credit_unit_value == Decimal("0.0085")


WRONG_CREDITS = [
    ({"grants": "12.505"}, "grants", "Credits granted each period has 3 decimals; an amount of USD has at most 2."),
    ({"grants": "0"}, "grants", "Credits granted each period must be at least 0.01 USD."),
    ({"grants": "1", "rollover_cap": "1.001"}, "rollover_cap", "Carried over at most has 3 decimals"),
    (
        {"price_1_credits_per_unit": "0.000000000000001"},
        "price_1_credits_per_unit",
        "Credits a unit has 15 decimals; USD can have 14",
    ),
    ({"price_1_credits_per_unit": "10000000000.01"}, "price_1_credits_per_unit", "must be at most 10000000000 USD."),
]


@pytest.mark.slow
def test_wrong_credits_of_a_plan_are_refused_at_their_fields_and_not_written(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    typed = PLAN | {"credit_type": "usd_cents", "price_1_credits_type": "usd_cents"}
    for changed, field, said in WRONG_CREDITS:
        assert said in field_errors(client, f"{BILLING}/plan/add/", typed | changed).get(field, ""), changed
    value = {"holder_id": "ada", "credit_type": "usd_cents", "unit_value": "0.00000000001"}
    [message] = field_errors(client, f"{BILLING}/customer/add/", CUSTOMER | value).values()
    assert message == "Value of one credit has 11 decimals; USD can have 10 here."


WRONG_PLANS = [
    (
        {"price_1_tiers-0-up_to": "10", "price_1_tiers-1-up_to": "5", "price_1_tiers-2-unit_amount": "1"},
        "price_1_tiers",
        "Tier 1 ends at 5, not above 10",
    ),
    ({"price_1_tiers-0-unit_amount": "x"}, "price_1_tiers", "Tier 1: Unit amount: “x” is not an amount"),
    ({"price_1_tiers-1-up_to": "2000000"}, "price_1_tiers", "No tier prices units above 2000000"),
    (
        {"price_1_tiers-1-rate": "5"},
        "price_1_tiers",
        "Tier 2: A tier of a price of model “per unit in tiers, each part at its own price” has no “Percent”.",
    ),
    ({"price_0_unit_amount": ""}, "price_0_unit_amount", "A price of model “per unit” needs “Price”."),
    ({"price_1_meter": ""}, "price_1_meter", "A usage price needs a meter."),
    ({"price_1_key": "seats"}, "price_1_key", "Another price has the key 'seats'."),
    ({"price_0_free_events": "5"}, "price_0_free_events", "A price of model “per unit” has no “Free events”."),
    ({"price_0_tax_category": "AE"}, "price_0_tax_rate", "Category AE needs a rate of 0."),
    ({"price_1_filters-0-property": "region"}, "price_1_filters", "text values"),
    ({"minimum": "9", "maximum": "5"}, "minimum", "The minimum must not exceed the maximum."),
    ({"currency": "nix"}, "currency", "This must be an active ISO 4217 code such as EUR."),
    (rows_typed("names", {"language": "xx", "name": "Team"}), "names", "Documents are in these languages: en, de."),
    ({"price_0_names-0-language": "de"}, "price_0_names", "at least 1 characters"),
    ({"count": "0"}, "count", "This must be at least 1."),
    ({"price_0_kind": "monthly"}, "price_0_kind", "Select a valid choice."),
]


@pytest.mark.slow
def test_an_invalid_plan_is_refused_at_its_fields_and_not_written(client):
    for changed, field, said in WRONG_PLANS:
        assert said in field_errors(client, f"{BILLING}/plan/add/", PLAN | changed).get(field, ""), changed


def test_more_prices_are_asked_for_without_losing_what_was_typed(client):
    url = f"{BILLING}/plan/add/"
    response = client.post(url, PLAN | {"idempotency_key": "k", "name": "", "more": "yes"})
    assert response.status_code == 200
    page = response.content.decode()
    assert re.search(r'name="price_0_unit_amount"[^>]*value="9.90"|value="9.90"[^>]*name="price_0_unit_amount"', page)
    assert 'name="price_2_key"' in page
    assert "This field is required" not in page
    three = PLAN | {"price_count": "3", "price_2_kind": "recurring", "price_2_model": "flat"}
    # What is left empty is left out.
    assert send_both_steps(client, url, three).status_code == 302
    assert Price.objects.count() == 2


@pytest.mark.slow
def test_a_count_of_prices_that_cannot_be_is_no_error(client):
    for count in ("0", "-1", "1000", "9" * 30, "x", ""):
        assert client.post(f"{BILLING}/plan/add/", {"price_count": count, "idempotency_key": "k"}).status_code == 422


def test_the_next_version_of_a_plan_begins_with_the_last(client):
    prices = [
        recurring("base", "49.00", minimum="10", tax_rate="19"),
        metered("calls", "0.02", free_units="100", filters={"region": ["eu", "us"]}, credits={"per_unit": "2.5"}),
        metered(
            "gb", None, model="volume", tiers=[{"up_to": "5", "unit_amount": "1", "flat_amount": "2"}, {"unit_amount": "0.5"}]
        ),
    ]
    plan = PlanFactory(code="team", prices=[{k: v for k, v in price.items() if v is not None} for price in prices])
    url = f"{BILLING}/plan/{plan.pk}/new-version/"
    form = client.get(url).context_data["form"]
    values = form.typed()
    response = send_both_steps(client, url, {**values, "idempotency_key": "another", "reason": ""})
    assert "Version 2 of team is done" in text_after_redirect(client, response)
    versions = [
        list(
            Price.objects.filter(plan__code="team", plan__version=number)
            .order_by("position")
            .values_list("definition", flat=True)
        )
        for number in (1, 2)
    ]
    assert versions[0] == versions[1]


@pytest.mark.parametrize("way", ["new-version", "copy"])
def test_negotiated_prices_of_a_subscription_are_not_those_of_the_next_version_or_a_copy(client, way):
    plan = PlanFactory(prices=[recurring("seats", "10.00")])
    amend(SubscriptionFactory(plan=plan.code), at(2), price_override=PriceOverride(percent_off=Decimal(20)))
    form = client.get(f"{BILLING}/plan/{plan.pk}/{way}/").context_data["form"]
    assert (form.initial["price_count"], form.initial["price_0_unit_amount"]) == (1, "10")


@pytest.mark.slow
def test_a_plan_of_as_many_prices_as_there_can_be_has_a_next_version(client):
    plan = PlanFactory(code="wide", prices=[recurring(f"p{number}", "1.00") for number in range(MAX_PRICES)])
    url = f"{BILLING}/plan/{plan.pk}/new-version/"
    form = client.get(url).context_data["form"]
    values = dict.fromkeys(form.fields, "") | form.typed()
    assert send_first_step(client, url, values).status_code == 200


@pytest.mark.slow
def test_values_in_the_address_that_no_field_can_have_are_no_error(client):
    for name in ("price_0_tiers", "price_0_buckets", "price_0_example", "price_0_free_events", "price_count", "names", "grants"):
        for value in ("abc", "NaN", "[1]", "{}"):
            assert client.get(f"{BILLING}/plan/add/?{name}={value}").status_code == 200, (name, value)


@pytest.mark.slow
def test_a_coupon_is_created_given_and_taken_away(client):
    for code in ("team", "solo"):
        PlanFactory(code=code)
    response = send_first_step(client, f"{BILLING}/coupon/add/", COUPON | rows_typed("plans", {"name": "team"}, {"name": "solo"}))
    assert "WELCOME: 10 % off, for 3 periods of each subscription, only on team and solo." in text_of_response(response)
    assert not Coupon.objects.exists()
    assert client.post(f"{BILLING}/coupon/add/", hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    assert Coupon.objects.get().plans == ["team", "solo"]
    customer = CustomerFactory(ref="C-7")
    give = f"{BILLING}/customer/{customer.pk}/give-coupon/"
    assert "There is" not in text_of_response(send_first_step(client, give, {"coupon": "WELCOME"}))
    assert not CustomerCoupon.objects.exists()
    assert "Coupon WELCOME is done: C-7 has it." in text_after_redirect(
        client, send_both_steps(client, give, {"coupon": "WELCOME"})
    )
    again = send_first_step(client, give, {"coupon": "WELCOME"})
    assert "The customer has it already." in again.context_data["form"].errors["coupon"][0]
    assert "does not exist" in send_first_step(client, give, {"coupon": "NOPE"}).context_data["form"].errors["coupon"][0]
    take = f"{BILLING}/customer/{customer.pk}/coupons/WELCOME/take/"
    assert take in client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
    assert "Later invoices of C-7 do not use WELCOME." in text_of_response(send_first_step(client, take, {}))
    assert CustomerCoupon.objects.get().taken_off_at is None
    assert send_both_steps(client, take, {}).status_code == 302
    assert CustomerCoupon.objects.get().taken_off_at is not None
    assert take not in client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
    assert send_first_step(client, take, {}).status_code == 422


WRONG_COUPONS = [
    ({"kind": "amount", "percent": "", "amount": "5"}, "amount"),
    ({"percent": "101"}, "percent"),
    ({"percent": "0"}, "percent"),
    ({"periods": ""}, "periods"),
    ({"duration": "once", "periods": "", "per": "customer"}, "per"),
    ({"prices-0-name": "a b"}, "prices"),
    ({"prices-0-name": "nothing"}, "prices"),
    ({"plans-0-name": "nothing"}, "plans"),
    ({"code": "TAKEN"}, "code"),
]


@pytest.mark.slow
def test_an_invalid_coupon_is_refused_at_its_fields_and_not_written(client):
    coupons.create_coupon(code="TAKEN", kind="percentage", value=Decimal(10), duration="once")
    for changed, field in WRONG_COUPONS:
        assert list(field_errors(client, f"{BILLING}/coupon/add/", COUPON | changed)) == [field], changed


def new_order(**changed):
    """A form that orders a subscription to a new plan of 10.00 a seat for a new customer."""
    plan = PlanFactory(prices=[recurring(model="unit", tax_rate="20")])
    order = {"ref": "SUB-9", "customer": CustomerFactory().ref, "plan": plan.code, "started_at": "2026-01-01T00:00"}
    return order | {"time_zone": "UTC", **quantity("base", "3")} | changed


def test_a_subscription_shows_its_first_invoice_before_it_is_created(client):
    url = f"{BILLING}/subscription/add/"
    values = new_order(ends_at="2026-02-01T00:00")
    before = row_counts()
    response = send_first_step(client, url, values)
    text = text_of_response(response)
    assert "It ends 1 Feb 2026, 00:00 UTC." in text
    assert "1 Jan 2026 – 31 Jan 2026 30.00 Tax 6.00 Total 36.00" in text
    assert row_counts() == before
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    subscription = Subscription.objects.get(ref="SUB-9")
    order = Amendment.objects.get()
    assert (order.subscription_id, order.actor, order.change["quantities"]) == (subscription.pk, "admin:mara", {"base": "3"})
    assert not Invoice.objects.exists()


WRONG_SUBSCRIPTIONS = [
    ({"customer": "NOBODY"}, "customer"),
    ({"plan": "nothing"}, "plan"),
    ({"started_at": ""}, "started_at"),
    ({"started_at": "1999-01-01T00:00"}, "started_at"),
    ({"ends_at": "2025-01-01T00:00"}, "ends_at"),
    (quantity("seats", "5"), "quantities"),
    (quantity("base", "five"), "quantities"),
    (quantity("base", "1e99"), "quantities"),
    (quantity("base", "-1"), "quantities"),
    (quantity("base", ""), "quantities"),
    ({"ref": "TAKEN"}, "ref"),
]


@pytest.mark.slow
def test_an_invalid_subscription_is_refused_at_its_fields_and_not_written(client):
    SubscriptionFactory(ref="TAKEN")
    values = new_order()
    for changed, field in WRONG_SUBSCRIPTIONS:
        assert list(field_errors(client, f"{BILLING}/subscription/add/", values | changed)) == [field], changed


def test_a_subscription_shows_the_credits_that_its_first_run_grants_in_their_unit(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    granting = send_both_steps(client, f"{BILLING}/plan/add/", PLAN | {"credit_type": "usd_cents", "grants": "12.50"})
    assert granting.status_code == 302
    customer = CustomerFactory(holder_id="ada").ref
    response = send_first_step(
        client, f"{BILLING}/subscription/add/", new_order(plan="team", customer=customer, **quantity("", ""))
    )
    assert "It would also grant 12.50 USD to the customer's holder." in text_of_response(response)
    assert not Subscription.objects.exists()


def test_an_amendment_of_a_subscription_whose_billing_is_suspended_says_so(client):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    address = f"{BILLING}/subscription/{subscription.pk}/pause/"
    shown = text_of_response(send_first_step(client, address, {"effective_at": "2026-02-01T00:00"}))
    assert "Its billing is suspended (looks-odd): no run makes an invoice until a person resumes it." in shown
    assert "would suspend" not in shown


def test_a_subscription_that_a_run_would_suspend_shows_a_warning(client):
    days = PlanFactory(interval=Interval(IntervalUnit.DAY), prices=[recurring()]).code
    values = new_order(started_at="2001-01-01T00:00", plan=days, **quantity("", ""))
    response = send_first_step(client, f"{BILLING}/subscription/add/", values)
    assert "would suspend its billing: too-many-periods." in text_of_response(response)
    assert not Subscription.objects.exists()


@pytest.fixture
def subscription():
    """A subscription from January to the end of February at 10.00 a month, without tax."""
    plan = PlanFactory(code="solo", prices=[recurring(model="unit", tax_rate="0")])
    return SubscriptionFactory(plan=plan.code, started_at=at(1, 1), ends_at=at(3, 1))


@pytest.mark.products(most=4)
@pytest.mark.parametrize(
    ("way", "values", "shown", "change"),
    [
        (
            "change-quantities",
            {**quantity("base", "4"), "effective_at": "2026-01-01T00:00"},
            ": base: 4, from 1 Jan 2026, 00:00 UTC on.",
            {"quantities": {"base": "4"}},
        ),
        (
            "negotiate",
            {"percent_off": "10", **amount("base", "unit_amount", "9.00"), "effective_at": "2026-01-01T00:00"},
            ": negotiated prices: base with unit amount 9, 10 % off the other prices, from 1 Jan 2026, 00:00 UTC on.",
            {"price_override": {"plan": "solo", "prices": {"base": {"unit_amount": "9"}}, "percent_off": "10"}},
        ),
        (
            "list-prices",
            {"effective_at": "2026-02-01T00:00"},
            ": pays the plan's prices again, from 1 Feb 2026, 00:00 UTC on.",
            {"price_override": None},
        ),
        ("pause", {"effective_at": "2026-02-01T00:00"}, ": is paused, from 1 Feb 2026, 00:00 UTC on.", {"paused": True}),
        ("cancel", {"ends_at": "2026-02-01T00:00"}, ": ends 1 Feb 2026, 00:00 UTC, ", {"ends_at": "2026-02-01T00:00:00+00:00"}),
        (
            "cancel",
            {"ends_at": "2026-02-01T00:00", "unused_time": "skip"},
            ": ends 1 Feb 2026, 00:00 UTC, and what is charged in advance stays charged, ",
            {"ends_at": "2026-02-01T00:00:00+00:00", "unused_time": "skip"},
        ),
        (
            "cancel",
            {"ends_at": "2026-02-01T00:00", "unused_time": "refund"},
            ": ends 1 Feb 2026, 00:00 UTC, and unused time that was paid in money is paid out, ",
            {"ends_at": "2026-02-01T00:00:00+00:00", "unused_time": "refund"},
        ),
        (
            "pause",
            {"charges_while_paused": "yes", "effective_at": "2026-02-01T00:00"},
            ": is paused, and fees are charged in the pause, from 1 Feb 2026",
            {"paused": True, "charges_while_paused": True},
        ),
        (
            "move-billing-day",
            {"anchor_at": "2026-01-15T00:00", "effective_at": "2026-01-11T00:00"},
            ": periods count from 15 Jan 2026, 00:00 UTC, beginning 15 Jan 2026, 00:00 UTC, from 11 Jan 2026",
            {"anchor_at": "2026-01-15T00:00:00+00:00", "moves_at": "2026-01-15T00:00:00+00:00"},
        ),
        ("hold-back", {"hold_days": "5"}, ": invoices 5 days after they are due, ", {"hold_days": 5}),
        ("consolidate", {"consolidated_invoicing": "no"}, ": its invoices are separate, ", {"consolidated_invoicing": False}),
        ("consolidate", {}, ": it shares invoices as the customer says, ", {"consolidated_invoicing": None}),
        (
            "withdraw-cancellation",
            {"effective_at": "2026-02-15T00:00"},
            ": continues without an end, from 15 Feb 2026, 00:00 UTC on.",
            {"ends_at": None},
        ),
    ],
)
def test_a_subscription_is_amended_after_its_effect_was_shown(client, subscription, way, values, shown, change):
    url = f"{BILLING}/subscription/{subscription.pk}/{way}/"
    before = row_counts()
    response = send_first_step(client, url, values)
    assert response.status_code == 200, text_of_response(response)
    assert shown in text_of_response(response)
    assert "The invoice of a run at" in text_of_response(response)
    assert row_counts() == before
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    amendment = Amendment.objects.order_by("-sequence").first()
    assert (amendment.sequence, amendment.change, amendment.actor) == (2, change, "admin:mara")
    page = text_of_response(client.get(f"{BILLING}/subscription/{subscription.pk}/change/"))
    assert "ordered Basic (solo v1), ends 1 Mar 2026, 00:00 UTC" in page


@pytest.mark.slow
def test_the_next_three_invoices_are_shown_beside_a_form_and_on_a_page_of_their_own(client):
    far = {"year": 2099}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, started_at=at(1, 1, **far))
    typed = {**quantity("base", "2"), "effective_at": "2099-02-01T00:00"}
    before = row_counts()
    text = text_of_response(send_first_step(client, f"{BILLING}/subscription/{subscription.pk}/change-quantities/", typed))
    assert "The next three invoices" in text
    assert "1 Mar 2099" in text
    assert row_counts() == before
    subscriptions.amend_subscription(
        ref=subscription.ref, effective_at=at(2, 1, **far), wish=Wish(quantities={"base": Decimal(2)})
    )
    page = f"{BILLING}/subscription/{subscription.pk}"
    assert f'href="{page}/next-invoices/"' in client.get(f"{page}/change/").content.decode()
    text = text_of_response(client.get(f"{page}/next-invoices/"))
    assert "31.00 62.00 another quantity" in text
    assert "all lines as the invoice before" in text
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    assert client.get(f"{page}/next-invoices/").status_code == 200
    assert client.get(f"{BILLING}/subscription/0/next-invoices/").status_code == 404


def test_the_plan_of_a_subscription_is_changed_to_its_newest_version(client, subscription):
    PlanFactory(code="solo", name="Solo plus", prices=[recurring(unit_amount="12", model="unit")])
    url = f"{BILLING}/subscription/{subscription.pk}/change-plan/"
    response = send_first_step(client, url, {"plan": "solo", "effective_at": "2026-01-01T00:00"})
    assert "plan becomes Solo plus (solo v2), from 1 Jan 2026, 00:00 UTC on." in text_of_response(response)
    assert "12.00" in text_of_response(response)
    assert client.post(url, hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    assert Amendment.objects.count() == 2


WRONG_AMENDMENTS = [
    ("change-plan", {"plan": "nothing", "effective_at": "2026-02-01T00:00"}, "plan"),
    ("change-plan", {"plan": "solo", "effective_at": "2025-12-01T00:00"}, "effective_at"),
    ("change-quantities", {**quantity("seats", "4"), "effective_at": "2026-02-01T00:00"}, "quantities"),
    ("change-quantities", {**quantity("", ""), "effective_at": "2026-02-01T00:00"}, "quantities"),
    ("negotiate", {"percent_off": "101", "effective_at": "2026-02-01T00:00"}, "percent_off"),
    ("negotiate", {"percent_off": "0", "effective_at": "2026-02-01T00:00"}, "percent_off"),
    ("negotiate", {**amount("seats", "unit_amount", "9"), "effective_at": "2026-02-01T00:00"}, "prices"),
    ("negotiate", {**amount("base", "rate", "9"), "effective_at": "2026-02-01T00:00"}, "prices"),
    ("negotiate", {**amount("base", "", "9"), "effective_at": "2026-02-01T00:00"}, "prices"),
    ("negotiate", {**amount("base", "key", "other"), "effective_at": "2026-02-01T00:00"}, "prices"),
    ("negotiate", {**amount("base", "unit_amount", "-1"), "effective_at": "2026-02-01T00:00"}, "prices"),
    ("cancel", {"ends_at": "2025-02-01T00:00"}, "ends_at"),
    ("hold-back", {"hold_days": "400"}, "hold_days"),
    ("move-billing-day", {"anchor_at": "", "effective_at": "2026-02-01T00:00"}, "anchor_at"),
    ("move-trial", {"trial_end": "2026-03-01T00:00"}, "trial_end"),
]


def test_tiers_are_negotiated_and_shown_with_the_subscription(client):
    tiers = [{"up_to": "10", "unit_amount": "1", "flat_amount": "2"}, {"up_to": None, "unit_amount": "0.5"}]
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=[recurring(), metered("calls", None, model="graduated", tiers=tiers)]).code
    )
    url = f"{BILLING}/subscription/{subscription.pk}"
    typed = {"effective_at": "2026-01-01T00:00"} | rows_typed(
        "prices",
        {"key": "calls", "what": "tiers", "up_to": "100", "amount": "0.4", "flat_amount": "1"},
        {"key": "calls", "what": "tiers", "amount": "0.1"},
        {"key": "calls", "what": "minimum", "amount": "3"},
    )
    response = send_first_step(client, f"{url}/negotiate/", typed)
    assert client.post(f"{url}/negotiate/", hidden_values(response) | {"confirmed": "yes"}).status_code == 302
    page = text_of_response(client.get(f"{url}/change/"))
    assert "up to 100 at 0.40 EUR plus 1.00 EUR once; beyond at 0.10 EUR" in page
    assert "negotiated prices: calls with its own tiers and minimum 3" in page
    assert f'href="{url}/list-prices/"' in client.get(f"{url}/change/").content.decode()


@pytest.mark.slow
def test_an_invalid_amendment_is_refused_at_its_fields_and_not_written(client, subscription):
    for way, values, field in WRONG_AMENDMENTS:
        assert list(field_errors(client, f"{BILLING}/subscription/{subscription.pk}/{way}/", values)) == [field], (way, values)


def test_usage_so_far_is_shown_and_then_invoiced_once(client):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code, started_at=timezone.now() - timedelta(days=2))
    use(subscription, "150", timezone.now() - timedelta(days=1))
    url = f"{BILLING}/subscription/{subscription.pk}/invoice-usage/"
    first = send_first_step(client, url, {"reason": "asked for"})
    assert "Amount due 3.00" in text_of_response(first)
    assert not Invoice.objects.exists()
    confirmed = hidden_values(first) | {"confirmed": "yes"}
    assert f"what {subscription.ref} owes now is invoiced" in text_after_redirect(client, client.post(url, confirmed))
    client.post(url, confirmed)
    assert [invoice.total_minor for invoice in Invoice.objects.all()] == [300]
    again = send_first_step(client, url, {"reason": "asked for"})
    assert "Nothing is to be invoiced now." in text_of_response(again)


def test_only_amendments_that_change_something_are_offered(client):
    subscription = SubscriptionFactory(started_at=at(1, 1))
    url = f"{BILLING}/subscription/{subscription.pk}"

    def offered():
        page = client.get(f"{url}/change/").content.decode()
        return set(re.findall(rf'href="{url}/([a-z-]+)/"', page)) - {"usage", "change", "next-invoices"}

    always = {
        "change-plan",
        "change-quantities",
        "negotiate",
        "move-billing-day",
        "hold-back",
        "consolidate",
        "cancel",
        "give-coupon",
    }
    always |= {"invoice-usage", "change-phases"}
    assert offered() == always | {"pause"}
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 2), wish=Wish(paused=True))
    assert offered() == always | {"go-on"}
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 3), wish=Wish(sets_end=True, ends_at=at(1, 4)))
    assert offered() == {"withdraw-cancellation", "give-coupon"}


PERMISSIONS = {
    "add_customer": ["customer/add/"],
    "change_customer": ["customer/{customer}/edit/"],
    "add_customercoupon": ["customer/{customer}/give-coupon/"],
    "refund_credit": ["customer/{customer}/pay-out/"],
    "change_customercoupon": ["customer/{customer}/coupons/X/take/"],
    "add_plan": ["plan/add/", "plan/{plan}/new-version/"],
    "add_coupon": ["coupon/add/"],
    "add_subscription": ["subscription/add/", "customer/{customer}/subscribe/"],
    "issue_invoice": ["subscription/{subscription}/invoice-usage/"],
    "add_amendment": ["subscription/{subscription}/cancel/", "subscription/{subscription}/change-plan/"],
}


@pytest.mark.slow
@pytest.mark.check
def test_each_form_asks_for_its_permission_and_a_viewer_sees_no_button():
    subscription = SubscriptionFactory(started_at=at(1, 1))
    rows = {"subscription": subscription.pk, "customer": subscription.customer_id, "plan": Plan.objects.get().pk}
    addresses = {name: [f"{BILLING}/{url.format(**rows)}" for url in urls] for name, urls in PERMISSIONS.items()}
    views = [f"billing.view_{name}" for name in ("customer", "plan", "coupon", "subscription")]
    pages = [f"{BILLING}/{name}/" for name in ("customer", "plan", "coupon", "subscription")]
    pages += [f"{BILLING}/{name}/{pk}/change/" for name, pk in rows.items()]
    viewer = operator(*views, name="viewer")
    seen = "".join(viewer.get(page).content.decode() for page in pages)
    before, before_it = row_counts(), addresses["add_amendment"][0]
    for name, urls in addresses.items():
        may = operator(*views, f"billing.{name}", name=name)
        for url in urls:
            assert url not in seen
            assert viewer.get(url).status_code == viewer.post(url, {"confirmed": "yes"}).status_code == 403, url
            assert may.get(url).status_code in (200, 302), url
        # One that somebody else may; the last of all for the first.
        assert may.get(before_it).status_code == 403, (name, before_it)
        before_it = urls[0]
    assert row_counts() == before


def test_django_saves_nothing_beside_the_forms(client):
    """Who may add rows could have Django copy one: `_saveasnew` on a row's own page."""
    customer = CustomerFactory(ref="C-7")
    values = {"_saveasnew": "1", "ref": "C-8", "name": "x", "currency": "EUR", "time_zone": "UTC", "language": "en"}
    assert client.post(f"{BILLING}/customer/{customer.pk}/change/", values).status_code == 403
    assert Customer.objects.count() == 1


@pytest.mark.slow
def test_an_empty_list_says_how_to_start(client):
    viewer = operator(*(f"billing.view_{name}" for name in ("customer", "plan", "coupon", "subscription")), name="ben")
    for name in ("customer", "plan", "coupon", "subscription"):
        url = f"{BILLING}/{name}/"
        assert "yet" in text_of_response(client.get(url))
        assert f'href="{url}add/"' in client.get(url).content.decode()
        assert "Nothing fits" in client.get(f"{url}?q=zzz").content.decode()
        assert f'href="{url}add/"' not in viewer.get(url).content.decode()


# The form of a plan ----------------------------------------------------------------------------------


def parts_of(page, index=0):
    """Of the fields of a price that depend on its model or kind: whether each is hidden, by name."""
    found = re.findall(
        r'<div data-models="[^"]*" data-kinds="[^"]*"(?: class="whole-row")?( hidden)?>(.*?)name="(\w+)', page, re.DOTALL
    )
    names = {name: bool(hidden) for hidden, _, name in found if name.startswith(f"price_{index}_")}
    return {name.removeprefix(f"price_{index}_"): is_hidden for name, is_hidden in names.items()}


def test_a_price_shows_the_fields_of_its_model_and_kind_only(client):
    page = client.get(f"{BILLING}/plan/add/").content.decode()
    shown = {name for name, is_hidden in parts_of(page).items() if not is_hidden}
    assert {"unit_amount", "minimum", "timing"} <= shown
    assert not shown & {"tiers", "free_units", "package_size", "rate", "meter", "aggregation", "filters", "credits_per_unit"}
    usage = {name for name, is_hidden in parts_of(page, 1).items() if not is_hidden}
    assert {"unit_amount", "free_units", "meter", "aggregation", "filters", "credits_per_unit"} <= usage
    assert not usage & {"tiers", "package_size", "rate"}
    # Without scripts a button shows the fields of the chosen model.
    chosen = PLAN | {"price_0_model": "percentage", "price_0_kind": "usage", "more": "fields", "idempotency_key": "k"}
    again = client.post(f"{BILLING}/plan/add/", chosen).content.decode()
    percent = {name for name, is_hidden in parts_of(again).items() if not is_hidden}
    assert {"rate", "fixed_amount", "free_events", "free_amount", "meter"} <= percent
    assert "unit_amount" not in percent
    assert 'name="price_2_key"' not in again
    assert 'value="1000000"' in again


def test_the_currency_of_a_plan_is_searched_among_those_that_billing_supports_by_code_or_name(client):
    page = client.get(f"{BILLING}/plan/add/?currency=eur")
    assert 'value="EUR"' in str(page.context_data["form"]["currency"])
    offered = re.search(r'<datalist id="references-currency".*?</datalist>', page.content.decode(), re.DOTALL)
    assert offered is not None
    assert sorted(re.findall(r'value="(\w+)"', offered[0])) == sorted(MINOR_DIGITS)
    coupon = {"kind": "amount", "amount": "10", "duration": "forever", "confirmed": "yes"}
    for code, typed in (("a", "Euro"), ("b", " eur "), ("c", "EUR")):
        send_first_step(client, f"{BILLING}/coupon/add/", {**coupon, "code": code, "currency": typed})
        assert Coupon.objects.get(code=code).currency == "EUR"


EXAMPLE_PRICES = [
    ({"kind": "recurring", "model": "flat", "unit_amount": "49"}, "1 p: 49.00 EUR, because 1 × 49.00 = 49.00."),
    (
        {"kind": "usage", "model": "unit", "unit_amount": "0.02", "free_units": "100"},
        "1,500 m: 28.00 EUR, because 1,500 − 100 free = 1,400 × 0.02 = 28.00.",
    ),
    (
        {"kind": "usage", "model": "unit", "unit_amount": "0.02", "free_units": "2000"},
        "3,000 m: 20.00 EUR, because 3,000 − 2,000 free = 1,000 × 0.02 = 20.00.",
    ),
    (
        {"kind": "usage", "model": "package", "unit_amount": "5", "package_size": "100", "example": "250"},
        "250 m: 15.00 EUR, because 3 × 5.00 = 15.00.",
    ),
    (
        {"kind": "usage", "model": "percentage", "rate": "2.5", "fixed_amount": "0.1", "minimum": "50"},
        "1,500 EUR of m: 50.00 EUR, because 1,500 × 0.025 + 0.10 = 37.60; at least 50.00 EUR.",
    ),
    (
        {
            "kind": "usage", "model": "graduated", "tiers-0-up_to": "1000", "tiers-0-unit_amount": "0.02",
            "tiers-1-unit_amount": "0.01",
        },
        "1,500 m: 25.00 EUR, because 0 to 1,000: 1,000 × 0.02 = 20.00; 1,000 to 1,500: 500 × 0.01 = 5.00.",
    ),
    ({"kind": "usage", "model": "unit"}, "No example yet: a price of model “per unit” needs “Price”."),
    ({"kind": "recurring", "model": "flat", "unit_amount": "x"}, "No example yet: Price: “x” is not an amount"),
    ({"kind": "usage", "model": "unit", "unit_amount": "1", "example": "NaN"}, "No example yet: Enter a number."),
    ({"kind": "usage", "model": "unit", "unit_amount": "1", "example": "Infinity"}, "No example yet: Enter a number."),
    ({"kind": "usage", "model": "unit", "unit_amount": "1", "example": "1e9999"}, "No example yet: Ensure this value is less"),
    ({"kind": "usage", "model": "unit", "unit_amount": "1", "example": "-1"}, "No example yet: Ensure this value is greater"),
    ({"kind": "usage", "model": "unit", "unit_amount": "NaN"}, "No example yet: Price: “NaN” is not an amount"),
    ({"kind": "usage", "model": "unit", "unit_amount": "1e9999"}, "No example yet: Price: “1e9999” is not an amount"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "sentence"), EXAMPLE_PRICES, ids=[sentence for _, sentence in EXAMPLE_PRICES])
def test_the_form_says_what_an_example_costs_and_why(client, typed, sentence):
    before = row_counts()
    usage = {"price_0_meter": "m", "price_0_aggregation": "sum"} if typed["kind"] == "usage" else {}
    price = {"price_0_key": "p"} | usage | {f"price_0_{name}": value for name, value in typed.items()}
    plan = {"code": "team", "name": "Team", "currency": "EUR", "price_count": "1"}
    plan |= rows_typed("names", {"language": "de", "name": "Gruppe"})
    response = client.post(f"{BILLING}/plan/examples/", plan | price)
    assert response.status_code == 200
    shown = text_of_response(response).replace("\u00a0", " ")
    assert sentence in shown
    assert ("Team: p" in shown and "Gruppe: p (in German)" in shown) == (not sentence.startswith("No example"))
    assert row_counts() == before


def test_the_form_shows_how_the_line_of_a_group_reads(client):
    price = {
        "kind": "usage",
        "model": "unit",
        "unit_amount": "1",
        "meter": "m",
        "aggregation": "sum",
        **rows_typed("group_by", {"name": "region"}, {"name": "a, b"}),
    }
    plan = {"code": "team", "name": "Team", "currency": "EUR", "price_count": "1", "price_0_key": "calls"}
    response = client.post(f"{BILLING}/plan/examples/", plan | {f"price_0_{name}": value for name, value in price.items()})
    assert "Team: calls: region …, a, b …" in text_of_response(response).replace("\u00a0", " ")


def test_the_example_is_that_of_the_ratings_call(client):
    price = {"key": "p", "kind": "usage", "model": "volume", "meter": "m", "aggregation": "sum",
             "tiers": [{"up_to": "1000", "unit_amount": "0.02"}, {"unit_amount": "0.013", "flat_amount": "1"}]}  # fmt: skip
    api = ApiClient(api_key("billing:read", name="shop"))
    rated = api.post("/v1/ratings", {"price": price, "quantity": 1500, "currency": "EUR"}, key=None).json()
    typed = {"currency": "EUR", "price_count": "1", "price_0_tiers": json.dumps(price.pop("tiers"))}
    response = client.post(f"{BILLING}/plan/examples/", typed | {f"price_0_{name}": value for name, value in price.items()})
    assert f"1,500 m: {rated['amount_minor'] / 100:.2f} EUR" in text_of_response(response)


@pytest.mark.parametrize("model", [*EXAMPLES, *(f"{model} in buckets" for model in BUCKETED)])
def test_every_model_has_an_example_of_the_ratings_call(client, model):
    name = model.removesuffix(" in buckets")
    price = {"key": "p", "model": name, **USAGE, **(EXAMPLES if name == model else BUCKETED)[name]}
    api = ApiClient(api_key("billing:read", name="shop"))
    rated = api.post("/v1/ratings", {"price": price, "quantity": 250, "currency": "EUR"}, key=None).json()
    definition = price_dict(parse_price(price))
    fields = fields_of_price(0)
    for each in fields.values():
        if isinstance(each, HasCurrency):
            each.set_currency("EUR")
    typed = {field: as_typed(fields[field].prepare_value(value)) for field, value in typed_of(0, definition).items() if value}
    sent = {"currency": "EUR", "price_count": "1", "price_0_example": "250"} | typed
    shown = text_of_response(client.post(f"{BILLING}/plan/examples/", sent))
    assert f": {rated['amount_minor'] / 100:,.2f} EUR, because" in shown, shown


def test_examples_are_for_those_who_may_create_plans(client):
    assert client.get(f"{BILLING}/plan/examples/").status_code == 405
    assert operator("billing.view_plan", name="ann").post(f"{BILLING}/plan/examples/", PLAN).status_code == 403


def test_a_plan_is_copied_under_another_ref(client):
    plan = PlanFactory(code="team", prices=[
        recurring("base", "49.00", minimum="10", tax_rate="19"),
        metered("gb", None, model="volume", tiers=[{"up_to": "5", "unit_amount": "1"}, {"unit_amount": "0.5"}]),
    ])  # fmt: skip
    url = f"{BILLING}/plan/{plan.pk}/copy/"
    typed = client.get(url).context_data["form"].typed()
    assert "code" not in typed
    assert typed["name"] == f"Copy of {plan.name}"
    before = row_counts()
    missing = send_first_step(client, url, typed)
    assert (missing.status_code, row_counts()) == (422, before)
    assert send_both_steps(client, url, typed | {"code": "team-2"}).status_code == 302
    copy = Plan.objects.get(code="team-2")
    assert (copy.version, Plan.objects.filter(code="team").count()) == (1, 1)
    definitions = [
        list(Price.objects.filter(plan=each).order_by("position").values_list("definition", flat=True)) for each in (plan, copy)
    ]
    assert definitions[0] == definitions[1]
