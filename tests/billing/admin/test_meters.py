"""Pages of meters: the form with its trial, and the versions."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from billing.admin.meters import PropertiesField
from billing.metering.meters import create_meter
from billing.metering.usage import NewEvent, take_in
from billing.models import Meter
from ledger.staff.kit.rows import TypedRows
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import hidden_values, rows_typed, send_both_steps, send_first_step, text_of_response
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, unique
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

__all__ = ["client"]

METERS = "/admin/billing/meter"
TOKENS = "round(properties.input_tokens * 1.5 + properties.output_tokens, 2)"
PROPERTIES = {"input_tokens": 8, "output_tokens": "15"}


def properties_typed(**properties: str) -> dict[str, str]:
    """The rows of properties for a trial, as a browser sends them."""
    return rows_typed("properties", *({"name": name, "value": value} for name, value in properties.items()))


TRIAL = properties_typed(input_tokens="8", output_tokens="15")


def test_the_first_step_tries_the_expression_and_writes_nothing(client: Any) -> None:
    values = {"code": unique("tokens"), "expression": TOKENS} | TRIAL
    first = send_first_step(client, f"{METERS}/add/", values)
    shown = text_of_response(first)
    assert f"The value of an event of {values['code']} is {TOKENS}." in shown
    assert "An event without one of the properties input_tokens, output_tokens is refused." in shown
    assert "With these properties (input_tokens 8, output_tokens 15): 27." in shown
    assert not Meter.objects.filter(code=values["code"]).exists()
    assert client.post(f"{METERS}/add/", hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    [row] = Meter.objects.filter(code=values["code"])
    assert (row.version, row.expression) == (1, TOKENS)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"input_tokens": "8"}, "/properties/output_tokens: the expression of the meter needs this property."),
        (
            {"input_tokens": "8", "output_tokens": "many"},
            "is refused: /properties/output_tokens: the expression of the meter",
        ),
        ({}, "Recorded events keep their value."),
    ],
)
def test_a_trial_that_has_no_value_says_why(client: Any, properties: dict[str, str], sentence: str) -> None:
    values = {"code": "tokens", "expression": TOKENS} | properties_typed(**properties)
    first = send_first_step(client, f"{METERS}/add/", values)
    assert first.status_code == 200
    assert sentence in text_of_response(first)
    assert "With these properties" not in text_of_response(first)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"expression": "properties.a +"}, "expression"),
        ({"expression": "1" * 501}, "expression"),
        ({"code": "to kens"}, "code"),
        ({"properties-0-name": "", "properties-0-value": "8"}, "properties"),
    ],
)
def test_a_bad_value_is_refused_at_its_field_and_nothing_is_written(client: Any, change: dict[str, str], field: str) -> None:
    before = Meter.objects.count()
    response = send_first_step(client, f"{METERS}/add/", {"code": "tokens", "expression": TOKENS} | TRIAL | change)
    assert (response.status_code, list(response.context_data["form"].errors)) == (422, [field])
    assert Meter.objects.count() == before


@pytest.mark.parametrize(
    "row",
    [
        {"name": "a" * 65, "value": "1"}, {"name": "a", "value": "1" * 20_000}, {"name": "a", "value": "x\x00"},
        {"name": "", "value": "8"},
    ],
)  # fmt: skip
def test_properties_that_no_event_may_have_are_refused(row: dict[str, str]) -> None:
    assert PropertiesField().clean(TypedRows([{"name": "a", "value": "1" * 5_000}])) == {"a": "1" * 5_000}
    with pytest.raises(ValidationError):
        PropertiesField().clean(TypedRows([row]))


def test_the_page_of_usage_names_the_version_that_computed_an_event(client: Any) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(meter="tokens")]).code)
    create_meter(code="tokens", expression=TOKENS)
    properties = PROPERTIES
    take_in([NewEvent(unique("e"), subscription.ref, "tokens", occurred_at=at(1, 10), properties=properties)])
    [row] = client.get(f"/admin/billing/subscription/{subscription.pk}/usage/").context_data["rows_table"]["rows"]
    assert [str(cell) for cell in row][1:3] == ["27", "v1"]


def test_the_next_version_starts_with_the_expression_of_this_one(client: Any) -> None:
    first = create_meter(code=unique("tokens"), expression=TOKENS)
    url = f"{METERS}/{first.pk}/new-version/"
    form = client.get(url).context_data["form"]
    assert (form["code"].value(), form["expression"].value()) == (first.code, TOKENS)
    assert send_both_steps(client, url, {"code": first.code, "expression": ""}).status_code == 302
    second = Meter.objects.get(code=first.code, version=2)
    shown = text_of_response(client.get(f"{METERS}/{second.pk}/change/"))
    assert f"Events of {first.code} send their value." in shown
    assert "v1" in shown
    rows = client.get(f"{METERS}/?code={first.code}").context_data["cl"].result_list
    assert [row.version for row in rows] == [2, 1]
    found = client.get(f"{METERS}/?q={first.code}").context_data["cl"].result_list
    assert {row.pk for row in found} == {first.pk, second.pk}


def test_only_those_who_may_add_meters_see_the_form() -> None:
    meter = create_meter(code=unique("tokens"), expression=TOKENS)
    reader = operator("billing.view_meter", name="reader")
    assert reader.get(f"{METERS}/{meter.pk}/change/").status_code == 200
    for url in (f"{METERS}/add/", f"{METERS}/{meter.pk}/new-version/"):
        assert reader.get(url).status_code == 403
        assert reader.post(url, {"code": meter.code, "expression": "1", "confirmed": "yes"}).status_code == 403
    assert Meter.objects.filter(code=meter.code).count() == 1
    assert operator("billing.view_invoice", name="other").get(f"{METERS}/").status_code == 403


def test_numbers_among_the_properties_of_a_trial_are_numbers(client):
    values = {"code": "tokens", "expression": "properties.input * 1.5"} | properties_typed(input="8", model="large")
    assert "With these properties (input 8): 12." in text_of_response(send_first_step(client, f"{METERS}/add/", values))
    twice = values | {"properties-1-name": "input"}
    refused = send_first_step(client, f"{METERS}/add/", twice)
    assert refused.context_data["form"].errors["properties"] == ["Property 2: “input” stands here twice."]
    assert not Meter.objects.exists()
