"""Prices that are billed by entries, in the plan form, in sentences and on the page of a subscription's usage."""

from typing import Any

import pytest
from django.urls import reverse

from billing.admin.order_forms import prices
from billing.admin.prose import price_sentence
from billing.rating.prices.reading import parse_price, price_dict
from ledger import services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, unique

BY_ENTRIES: dict[str, Any] = {"billed_by": "entries", "entries": {"rate": "answers", "component": "output"}}


@pytest.mark.parametrize("terms", [BY_ENTRIES, {"credits": {"per_unit": "2", "also_spent": True}}, {"billed_by": "events"}])
def test_a_price_survives_its_form(terms: dict[str, Any]) -> None:
    price = parse_price(metered(unit_amount="0.02") | terms)
    typed = prices.typed_of(0, price_dict(price))
    again = price_dict(parse_price(prices.price_typed(0, typed)))
    # Events are what a price is billed by if it does not say so.
    assert again == {name: value for name, value in price_dict(price).items() if value != "events"}


def test_the_sentence_says_what_is_measured_and_who_spends() -> None:
    by_entries = price_sentence(
        parse_price(metered(unit_amount="0.02") | BY_ENTRIES | {"filters": {"team": ["a"]}}), "EUR", "month"
    )
    assert "Measured by spends and holds: the output of the rate answers. Usage events are refused." in by_entries
    assert "Only spends and holds whose team is a." in by_entries


@pytest.mark.django_db
def test_the_page_of_usage_says_whose_spends_are_the_usage(client: Any) -> None:
    rate, holder = unique("rate").lower(), unique("holder")
    services.publish_rate(code=rate, price=1, per=1)
    plan = PlanFactory(prices=[metered(billed_by="entries", entries={"rate": rate}, unit_amount="0.02")])
    subscription = SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan.code)
    page = client.get(reverse("admin:billing_usage", args=[subscription.pk])).content.decode()
    assert f"The spends and captures of {holder} by the rate {rate} are this usage; events are refused." in page
