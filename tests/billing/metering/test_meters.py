"""Meters: their versions, and the quantity of an event that an expression computes when the event is recorded."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from billing.metering import measuring, usage
from billing.metering.corrections import EventCancellation, EventCorrection, take_in_all
from billing.metering.meters import create_meter
from billing.metering.usage import EventResult, NewEvent
from billing.models import Meter, Subscription, UsageEvent, UsageKey
from billing.rating.prices.reading import parse_price
from ledger.errors import Invalid
from tests.billing.api.calls.test_cloud_events import MANY, envelope, results, send
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

TOKENS = "round(properties.input_tokens * 1.5 + properties.output_tokens, 2)"
USED: dict[str, Any] = {"input_tokens": 8, "output_tokens": "15"}
"""8 * 1.5 + 15 = 27."""


@pytest.fixture
def meter() -> str:
    """The ref of a meter that weighs tokens."""
    return create_meter(code=unique("tokens"), expression=TOKENS).code


@pytest.fixture
def subscription(meter: str) -> Subscription:
    """A subscription that pays 1 for each unit of the meter."""
    made: Subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(meter=meter, unit_amount="1.00")]).code)
    return made


def event(subscription: Subscription, meter: str, properties: dict[str, Any] | None = None, **fields: Any) -> NewEvent:
    """An event of 10 January; without properties: of 27 units."""
    known = {"idempotency_key": unique("e"), "occurred_at": at(1, 10), "properties": USED if properties is None else properties}
    return NewEvent(subscription=subscription.ref, meter=meter, **{**known, **fields})


def sent(*events: Any) -> list[str]:
    """The results of events that are sent together."""
    return [one.result.value for one in take_in_all(events)]


def stored(*events: Any) -> list[tuple[Decimal, int | None]]:
    """The value of each event, and the version of the meter that computed it."""
    rows = {row.idempotency_key: row for row in UsageEvent.objects.all()}
    return [(rows[one.idempotency_key].value, rows[one.idempotency_key].meter_version) for one in events]


def rows_of_usage() -> tuple[int, int]:
    return UsageEvent.objects.count(), UsageKey.objects.count()


# Versions --------------------------------------------------------------------------------------------


def test_a_change_is_a_version_of_its_own_and_earlier_events_keep_their_value(subscription: Subscription, meter: str) -> None:
    first, second, third = (event(subscription, meter) for _ in range(3))
    assert sent(first) == ["accepted"]
    create_meter(code=meter, expression="properties.input_tokens")
    assert sent(second) == ["accepted"]
    create_meter(code=meter, expression="")
    assert sent(third) == ["invalid"]
    third = replace(third, value=Decimal(5))
    assert sent(third) == ["accepted"]
    assert stored(first, second, third) == [(27, 1), (8, 2), (5, None)]
    assert [row.version for row in Meter.objects.filter(code=meter).order_by("-version")] == [3, 2, 1]
    [invoice] = bill(subscription, at(2, 1))
    assert invoice["total_minor"] == 4000
    assert findings_of("usage") == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_event_that_is_sent_again_is_a_duplicate_whatever_its_meter_has_become(
    subscription: Subscription, meter: str, version: int
) -> None:
    one = event(subscription, meter)
    sent(one)
    for expression in ("properties.absent", "")[: version - 1]:
        create_meter(code=meter, expression=expression)
    other = replace(one, properties=USED | {"output_tokens": 16})
    with_value = replace(one, value=Decimal(27))
    before = rows_of_usage()
    assert sent(one, one) == ["duplicate", "duplicate"]
    assert sent(other) == sent(with_value) == ["conflict"]
    assert rows_of_usage() == before
    assert stored(one) == [(27, 1)]


def test_an_event_with_a_value_is_a_duplicate_after_its_meter_has_got_an_expression(subscription: Subscription) -> None:
    meter = unique("new")
    one = event(subscription, meter, value=Decimal(3))
    assert sent(one) == ["accepted"]
    create_meter(code=meter, expression=TOKENS)
    assert sent(one, replace(one, value=Decimal("3.000"))) == ["duplicate", "duplicate"]
    assert sent(replace(one, value=None)) == ["conflict"]
    assert stored(one) == [(3, None)]


@pytest.mark.parametrize("text", ["properties.a +", "__import__('os')", "1 / 0 0", "round(1, 13)", "1" * 501])
def test_a_bad_expression_is_refused_and_no_version_is_written(text: str) -> None:
    before = Meter.objects.count()
    with pytest.raises(Invalid) as refused:
        create_meter(code="tokens", expression=text)
    assert refused.value.facts["pointer"] == "/expression"
    assert Meter.objects.count() == before


# Recording -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "value", "pointer", "detail"),
    [
        ({"input_tokens": 8}, None, "/properties/output_tokens", "needs this property"),
        ({"input_tokens": 8, "output_tokens": None}, None, "/properties/output_tokens", "needs a number"),
        ({"input_tokens": True, "output_tokens": 1}, None, "/properties/input_tokens", "needs a number"),
        ({"input_tokens": "eight", "output_tokens": 1}, None, "/properties/input_tokens", "needs a number"),
        ({"input_tokens": "1e31", "output_tokens": 1}, None, "/properties/input_tokens", "at most 30 digits"),
        ({"input_tokens": "1e26", "output_tokens": 1}, None, "/properties", "beyond plus or minus"),
        (USED, Decimal(27), "/value", "the meter computes the value"),
    ],
)
def test_an_event_without_a_quantity_is_refused_by_field_and_nothing_of_it_is_recorded(
    subscription: Subscription, meter: str, properties: dict[str, Any], value: Decimal | None, pointer: str, detail: str
) -> None:
    wrong = event(subscription, meter, properties, value=value)
    good = event(subscription, meter)
    refused, accepted = take_in_all([wrong, good])
    assert (refused.result, refused.pointer) == ("invalid", pointer)
    assert detail in refused.detail
    assert accepted == EventResult(good.idempotency_key, usage.EventStatus.ACCEPTED)
    assert not UsageKey.objects.filter(idempotency_key=wrong.idempotency_key).exists()
    assert sent(replace(wrong, value=None, properties=USED)) == ["accepted"]


def test_a_division_by_zero_is_refused_and_the_key_stays_free(subscription: Subscription) -> None:
    meter = create_meter(code=unique("ratio"), expression="properties.bytes / properties.seconds").code
    wrong = event(subscription, meter, {"bytes": 10, "seconds": 0})
    before = rows_of_usage()
    [refused] = take_in_all([wrong])
    assert (refused.result, refused.pointer) == ("invalid", "/properties")
    assert rows_of_usage() == before
    right = replace(wrong, properties={"bytes": 10, "seconds": 3})
    assert sent(right) == ["accepted"]
    assert stored(right) == [(Decimal("3.333333333333"), 1)]


def test_a_quantity_of_thirty_digits_is_stored_whole(subscription: Subscription) -> None:
    meter = create_meter(code=unique("much"), expression="-properties.n").code
    one = event(subscription, meter, {"n": "987654321987654321.123456789012"})
    assert sent(one) == ["accepted"]
    assert stored(one) == [(Decimal("-987654321987654321.123456789012"), 1)]


def test_the_computed_quantity_is_what_prices_measure(subscription: Subscription, meter: str) -> None:
    sent(event(subscription, meter), event(subscription, meter, {"input_tokens": "0.01", "output_tokens": 0}))
    for aggregation, quantity in (("sum", Decimal("27.02")), ("max", 27), ("count", 2), ("unique", 2)):
        price = parse_price(metered(meter=meter, aggregation=aggregation))
        [measured] = measuring.measure(subscription.pk, [measuring.Measure(price, at(1, 1), at(2, 1))])
        assert measured.quantity == quantity, aggregation


# Envelopes -------------------------------------------------------------------------------------------


def test_the_value_of_an_event_in_an_envelope_is_computed_from_its_data(
    api: ApiClient, subscription: Subscription, meter: str
) -> None:
    good = envelope(subscription, type=meter, data=USED)
    lacking = envelope(subscription, type=meter, data={"input_tokens": 8})
    valued = envelope(subscription, type=meter, data=USED | {"value": 27})
    needed = "the expression of the meter needs this property"
    assert results(send(api, [good, lacking, valued, envelope(subscription, type=meter, data=None)], MANY)) == [
        ("accepted", ""),
        ("invalid", f"/data/output_tokens: {needed}"),
        ("invalid", "/data/value: the meter computes the value from the properties; leave it out"),
        ("invalid", f"/data/input_tokens: {needed}"),
    ]
    assert [(row.value, row.meter_version) for row in UsageEvent.objects.filter(subscription_id=subscription.pk)] == [(27, 1)]


def test_an_envelope_without_a_value_is_a_duplicate_before_and_after_its_meter_changes(
    api: ApiClient, subscription: Subscription, meter: str
) -> None:
    computed, counted = envelope(subscription, type=meter, data=USED), envelope(subscription, type=unique("clicks"), data=USED)
    assert [result for result, _ in results(send(api, [computed, counted], MANY))] == ["accepted", "accepted"]
    create_meter(code=meter, expression="")
    create_meter(code=counted["type"], expression=TOKENS)
    again = send(api, [computed, counted, counted | {"data": USED | {"value": 1}}, {**counted, "data": {}}], MANY)
    assert [result for result, _ in results(again)] == ["duplicate", "duplicate", "duplicate", "conflict"]


# Corrections -----------------------------------------------------------------------------------------


def correction(subscription: Subscription, of: str, properties: dict[str, Any], **fields: Any) -> EventCorrection:
    return EventCorrection(
        **{"idempotency_key": unique("fix"), "subscription": subscription.ref, "corrects": of, "properties": properties, **fields}
    )


def test_a_correction_is_computed_by_the_meter_as_it_is_now(subscription: Subscription, meter: str) -> None:
    one = event(subscription, meter)
    sent(one)
    create_meter(code=meter, expression="properties.output_tokens")
    fixed = correction(subscription, one.idempotency_key, {"output_tokens": 4})
    assert sent(fixed) == ["accepted"]
    create_meter(code=meter, expression="")
    assert sent(fixed) == ["duplicate"]
    assert sent(replace(fixed, properties={"output_tokens": 5})) == ["conflict"]
    assert stored(one, fixed) == [(27, 1), (4, 2)]
    [invoice] = bill(subscription, at(2, 1))
    assert invoice["total_minor"] == 400
    assert findings_of("usage") == []


def test_a_correction_without_a_quantity_is_refused_and_the_event_counts(subscription: Subscription, meter: str) -> None:
    one, valued = event(subscription, meter), event(subscription, unique("plain"), value=Decimal(2))
    sent(one, valued)
    before = rows_of_usage()
    for wrong, pointer in (
        (correction(subscription, one.idempotency_key, {"input_tokens": 8}), "/properties/output_tokens"),
        (correction(subscription, one.idempotency_key, USED, value=Decimal(1)), "/value"),
        (correction(subscription, valued.idempotency_key, USED), "/value"),
    ):
        [refused] = take_in_all([wrong])
        assert (refused.result, refused.pointer) == ("invalid", pointer)
    assert rows_of_usage() == before
    [invoice] = bill(subscription, at(2, 1))
    assert invoice["total_minor"] == 2700


def test_of_corrections_sent_together_those_without_a_quantity_harm_no_other(subscription: Subscription, meter: str) -> None:
    one = event(subscription, meter)
    wrong = correction(subscription, one.idempotency_key, {})
    of_wrong = correction(subscription, wrong.idempotency_key, USED)
    right = correction(subscription, one.idempotency_key, {"input_tokens": 2, "output_tokens": 0})
    of_right = correction(subscription, right.idempotency_key, {"input_tokens": 4, "output_tokens": 0})
    assert sent(one, wrong, of_wrong, right, of_right) == ["accepted", "invalid", "invalid", "accepted", "accepted"]
    assert stored(one, right, of_right) == [(27, 1), (3, 1), (6, 1)]


def test_a_cancellation_needs_no_quantity(subscription: Subscription, meter: str) -> None:
    one = event(subscription, meter)
    cancelled = EventCancellation(idempotency_key=unique("fix"), subscription=subscription.ref, cancels=one.idempotency_key)
    assert sent(one, cancelled, replace(cancelled)) == ["accepted", "accepted", "duplicate"]
    assert stored(cancelled) == [(0, None)]
    assert bill(subscription, at(2, 1)) == []


# Over REST -------------------------------------------------------------------------------------------


def test_meters_over_rest(api: ApiClient) -> None:
    ref = unique("tokens")
    body = {"ref": ref, "expression": f" {TOKENS} "}
    first = api.post("/v1/meters", body, key=unique("k"))
    assert first.status_code == 201
    assert first.json() | {"created_at": None} == {"ref": ref, "version": 1, "expression": TOKENS, "created_at": None}
    second = api.post("/v1/meters", {"ref": ref, "expression": ""}, key=unique("k")).json()
    assert (second["version"], second["expression"]) == (2, "")
    assert api.get(f"/v1/meters/{ref}").json() == second
    assert api.get(f"/v1/meters/{ref}?version=1").json() == first.json()
    assert api.get(f"/v1/meters?ref={ref}").json()["results"] == [second, first.json()]
    assert api.get(f"/v1/meters?ref={ref}&newest=true").json()["results"] == [second]
    assert api.get(f"/v1/meters/{ref}?version=3").status_code == 404
    assert api.get(f"/v1/meters/{unique('none')}").status_code == 404


def test_a_meter_is_created_once_per_key_and_not_by_a_dry_run(api: ApiClient) -> None:
    body, key = {"ref": unique("tokens"), "expression": TOKENS}, unique("k")
    assert api.post("/v1/meters?dry_run=true", body, key=key).json()["version"] == 1
    assert not Meter.objects.filter(code=body["ref"]).exists()
    first, second = (api.post("/v1/meters", body, key=key) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert Meter.objects.filter(code=body["ref"]).count() == 1


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"expression": "properties.a +"}, "/expression", "syntax"),
        ({"expression": "(" * 21 + "1" + ")" * 21}, "/expression", "too-deep"),
        ({"expression": "1" * 31}, "/expression", "too-many-digits"),
        ({"expression": "1" * 501}, "/expression", "too-long"),
        ({"expression": "min(1)"}, "/expression", "arguments"),
        ({"expression": 27}, "/expression", "not-a-string"),
        ({"expression": None}, "/expression", "null"),
        ({"ref": "to kens"}, "/ref", "pattern"),
        ({"version": 1}, "/version", "unknown-field"),
    ],
)
def test_a_bad_meter_is_refused_by_field_and_rule_and_nothing_is_written(
    api: ApiClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    before = Meter.objects.count()
    response = api.post("/v1/meters", {"ref": "tokens", "expression": TOKENS} | change)
    assert response.status_code == 400
    assert [(error["pointer"], error["code"]) for error in response.json()["errors"]] == [(pointer, code)]
    assert Meter.objects.count() == before


def test_events_over_rest_say_what_computed_them_and_what_they_lack(
    api: ApiClient, subscription: Subscription, meter: str
) -> None:
    key = unique("e")
    named = {"subscription": subscription.ref, "meter": meter, "occurred_at": "2026-01-10T10:00:00Z"}
    body = {"events": [
        {**named, "idempotency_key": key, "properties": USED}, {**named, "idempotency_key": unique("e"), "value": "27"},
    ]}  # fmt: skip
    found = api.post("/v1/usage-events", body).json()["results"]
    assert [one["result"] for one in found] == ["accepted", "invalid"]
    assert found[1]["detail"] == "/value: the meter computes the value from the properties; leave it out"
    shown = api.get(f"/v1/usage-events/{key}").json()
    assert (shown["value"], shown["meter_version"], shown["properties"]) == ("27", 1, USED)
    assert api.get(f"/v1/usage-events?subscription={subscription.ref}").json()["results"] == [shown]
