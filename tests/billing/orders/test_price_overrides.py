"""Negotiated prices: rows of one subscription in place of the plan's, from an instant on until they are withdrawn."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from billing.auditing import consistency
from billing.models import Amendment, ItemVersion, Line, Price
from billing.orders.overrides import PriceOverride, lowered
from billing.orders.subscriptions import Invalid
from billing.rating.prices.reading import parse_price, price_dict
from tests.billing.factories import PlanFactory, SubscriptionFactory, amend, at, metered, recurring
from tests.billing.generator.run.test_generate import bill
from tests.billing.orders.test_amendments import lines_of

pytestmark = pytest.mark.django_db
TEN_OFF = {"percent_off": "10"}


def override(**fields):
    return PriceOverride(**fields)


def test_a_negotiated_price_is_a_row_of_the_subscription_that_its_lines_name():
    plan = PlanFactory(prices=[recurring(unit_amount="31.00"), metered()])
    subscription = SubscriptionFactory(plan=plan.code)
    other = SubscriptionFactory(plan=plan.code)
    amend(subscription, at(1, 1), price_override=override(prices={"base": {"unit_amount": "25.00"}}))
    [made] = bill(subscription, at(1, 1))
    [listed] = bill(other, at(1, 1))
    assert (made["total_minor"], listed["total_minor"]) == (2500, 3100)
    row = Price.objects.get(subscription_id=subscription.pk)
    assert (row.key, row.list_price.plan_id, row.definition["unit_amount"]) == ("base", plan.pk, "25")
    assert Line.objects.get(invoice_id=made["id"]).price_id == row.pk
    assert made["lines"][0]["rating"]["list_price"] == {"unit_amount": "31"}
    assert "list_price" not in listed["lines"][0]["rating"]
    assert consistency.check() == []


def test_a_percentage_holds_on_every_plan_and_a_named_amount_on_every_version_of_its_plan():
    plan = PlanFactory(prices=[recurring(unit_amount="31.00"), recurring("support", "10.00")])
    subscription = SubscriptionFactory(plan=plan.code)
    amend(subscription, at(1, 1), price_override=override(prices={"base": {"unit_amount": "25.00"}}, percent_off=10))
    PlanFactory(code=plan.code, prices=[recurring(unit_amount="35.00"), recurring("support", "20.00")])
    amend(subscription, at(2, 1), plan=plan.code)
    amend(subscription, at(3, 1), plan=PlanFactory(prices=[recurring(unit_amount="40.00")]).code)
    made = [lines_of(bill(subscription, at(month, 1)))[0] for month in (1, 2, 3)]
    assert [[amount for _, _, amount, *_ in lines] for lines in made] == [[2500, 900], [2500, 1800], [3600]]


def test_a_version_that_gives_the_key_another_model_keeps_its_own_price():
    plan = PlanFactory(prices=[metered(unit_amount="0.02")])
    subscription = SubscriptionFactory(plan=plan.code)
    amend(subscription, at(1, 1), price_override=override(prices={"calls": {"unit_amount": "0.01"}}))
    tiers = [{"up_to": None, "unit_amount": "0.05"}]
    PlanFactory(code=plan.code, prices=[{**metered(model="volume", tiers=tiers), "unit_amount": None}])
    amend(subscription, at(2, 1), plan=plan.code)
    february = ItemVersion.objects.get(subscription=subscription, superseded_at=None, starts_at=at(2, 1), price__isnull=False)
    assert (february.price.list_price_id, february.price.model) == (None, "volume")


def test_the_same_terms_again_are_the_same_row_and_bill_nothing():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    amend(subscription, at(1, 1), price_override=override(percent_off=10))
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), price_override=override(prices={"base": {"unit_amount": "27.90"}}))
    assert bill(subscription, at(1, 11)) == []
    assert Price.objects.filter(subscription_id=subscription.pk).count() == 1


def test_a_percentage_lowers_what_is_charged_and_nothing_else():
    price = parse_price(
        metered(
            "fees", None, model="percentage", rate="1.5", fixed_amount="0.25", free_amount="40", minimum="5", aggregation="sum"
        )
        | {"unit_amount": None}
    )
    less = price_dict(lowered(price, 20))
    assert {name: less[name] for name in ("rate", "fixed_amount", "free_amount", "minimum")} == {
        "rate": "1.2", "fixed_amount": "0.2", "free_amount": "40", "minimum": "5",
    }  # fmt: skip
    # A third of the last decimal is rounded half up.
    assert price_dict(lowered(parse_price(recurring(unit_amount="0.000000000001")), 50))["unit_amount"] == "0.000000000001"


@pytest.mark.parametrize(
    ("given", "pointer", "rule"),
    [
        ({}, "/price_override", "required"),
        ({"percent_off": "0"}, "/price_override/percent_off", "not-positive"),
        ({"percent_off": "100.1"}, "/price_override/percent_off", "too-large"),
        ({"prices": {"seats": {"unit_amount": "1"}}}, "/price_override/prices/seats", "price"),
        ({"prices": {"base": {}}}, "/price_override/prices/base", "not-an-object"),
        ({"prices": {"base": {"tax_rate": "1"}}}, "/price_override/prices/base/tax_rate", "unknown-field"),
        ({"prices": {"base": {"unit_amount": "-1"}}}, "/price_override/prices/base/unit_amount", "negative"),
        ({"prices": {"base": {"rate": "1"}}}, "/price_override/prices/base/rate", "not-used"),
        ({"prices": {"base": {"minimum": "9", "maximum": "5"}}}, "/price_override/prices/base/maximum", "below-minimum"),
        ({"prices": {"base": {"unit_amount": None}}}, "/price_override/prices/base/unit_amount", "required"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_not_written(api, given, pointer, rule):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    before = Amendment.objects.count(), Price.objects.count()
    body = {"effective_at": "2026-01-01T00:00:00Z", "price_override": given}
    response = api.post(f"/v1/subscriptions/{subscription.ref}/amendments", body)
    assert response.status_code == 400, response.content
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, rule)
    assert (Amendment.objects.count(), Price.objects.count()) == before


def test_a_subscription_shows_what_it_pays_over_rest(api):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    body = {"effective_at": "2026-01-01T00:00:00Z", "price_override": TEN_OFF}
    path = f"/v1/subscriptions/{subscription.ref}/amendments"
    dry = api.post(f"{path}?dry_run=true", body)
    assert dry.status_code == 200
    assert dry.json()["invoices"][0]["subtotal_minor"] % 2790 == 0
    assert not Price.objects.filter(subscription_id=subscription.pk).exists()
    assert api.post(path, body).status_code == 201
    shown = api.get(f"/v1/subscriptions/{subscription.ref}").json()
    assert [item["negotiated_price"]["unit_amount"] for item in shown["items"]] == ["27.9"]
    assert shown["amendments"][-1]["change"]["price_override"]["percent_off"] == "10"
    assert api.post(path, {"effective_at": "2026-01-01T00:00:00Z", "price_override": None}).status_code == 201
    assert [item["negotiated_price"] for item in api.get(f"/v1/subscriptions/{subscription.ref}").json()["items"]] == [None]


def test_the_database_refuses_a_changed_price_and_the_check_names_a_forged_one():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    amend(subscription, at(1, 1), price_override=override(percent_off=10))
    row = Price.objects.get(subscription_id=subscription.pk)
    with pytest.raises(DatabaseError), transaction.atomic():
        Price.objects.filter(pk=row.pk).update(definition={**row.definition, "unit_amount": "1"})
    with pytest.raises(IntegrityError), transaction.atomic():
        Price.objects.create(plan_id=row.plan_id, key="x", position=9, subscription_id=subscription.pk, definition={})
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_price DISABLE TRIGGER ALL")
        cursor.execute('UPDATE billing_price SET definition = definition || \'{"unit_amount": "1"}\' WHERE id = %s', [row.pk])
        cursor.execute("ALTER TABLE billing_price ENABLE TRIGGER ALL")
    found = [finding for finding in consistency.check() if subscription.ref in str(finding) or "price" in str(finding)]
    assert any("follow from the amendments" in str(finding) for finding in found), found


def test_an_order_with_negotiated_prices_is_refused_whole_if_they_do_not_fit():
    plan = PlanFactory(prices=[recurring()])
    with pytest.raises(Invalid):
        SubscriptionFactory(plan=plan.code, price_override=override(prices={"seats": {"unit_amount": "1"}}))
    assert not Amendment.objects.exists()
