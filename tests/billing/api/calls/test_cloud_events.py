"""Usage events that come in the envelope of CloudEvents 1.0."""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from billing.metering import measuring
from billing.models import RequestKey, Subscription, UsageEvent
from billing.rating.prices.reading import parse_price
from ledger_project.api.documents import openapi_document
from tests.billing.factories import SubscriptionFactory, at, metered, unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

ONE = "application/cloudevents+json"
MANY = "application/cloudevents-batch+json"


def envelope(subscription: Any, **attributes: Any) -> dict[str, Any]:
    """A CloudEvent as the examples of the specification have it; an attribute of None is left out."""
    event = {
        "specversion": "1.0", "id": unique("e"), "source": "/api/eu-1", "type": "calls", "subject": subscription.ref,
        "time": "2026-01-10T12:00:00Z", "datacontenttype": "application/json", "traceparent": "00-1",
        "data": {"value": 7, "region": "eu"},
    }  # fmt: skip
    return {name: item for name, item in (event | attributes).items() if item is not None}


def send(api: ApiClient, body: Any, content_type: str = ONE, **options: Any) -> Any:
    """Post the body without an Idempotency-Key."""
    return api.post("/v1/usage-events", raw=json.dumps(body).encode(), key=None, **{"Content-Type": content_type}, **options)


def results(response: Any) -> list[tuple[str, str]]:
    """The results of a response, with their details."""
    assert response.status_code == 200, response.content
    return [(one["result"], one["detail"]) for one in response.json()["results"]]


def test_an_event_has_key_subscription_meter_time_value_and_properties(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    sent = envelope(subscription, time="2026-01-10T14:00:00.123456789+02:00")
    assert results(send(api, sent)) == [("accepted", "")]
    event = UsageEvent.objects.get(subscription_id=subscription.pk)
    assert event.idempotency_key == f"/api/eu-1 {sent['id']}"
    assert (event.meter, event.value, event.properties) == ("calls", 7, {"region": "eu"})
    assert event.occurred_at == at(1, 10).replace(hour=12, microsecond=123456)


def test_a_batch_has_a_result_for_each_event(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    first, second = envelope(subscription), envelope(subscription, data={"value": 1.5})
    bad = envelope(subscription, subject="absent")
    wrong = [envelope(subscription, time=None), envelope(subscription, specversion="0.3"), envelope(subscription, type="a b"), 7]
    found = results(send(api, [first, second, bad, *wrong], MANY))
    assert [result for result, _ in found] == ["accepted", "accepted", *["invalid"] * 5]
    assert [detail.split(":")[0] for _, detail in found[3:]] == ["/time", "/specversion", "/type", ""]
    price = parse_price(metered())
    assert measuring.measure(subscription.pk, [measuring.Measure(price, at(1, 1), at(2, 1))])[0].quantity == 8 + Fraction(1, 2)


def test_without_a_value_or_data_an_event_counts_one(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    send(api, [envelope(subscription, data=None), envelope(subscription, data={"region": "eu"})], MANY)
    assert [event.value for event in UsageEvent.objects.filter(subscription_id=subscription.pk)] == [1, 1]


def test_the_same_event_again_is_a_duplicate_and_with_other_content_a_conflict(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    sent = envelope(subscription)
    assert [results(send(api, sent)) for _ in range(2)] == [[("accepted", "")], [("duplicate", "")]]
    assert not RequestKey.objects.exists()
    changed = sent | {"data": {"value": 8}}
    again = send(api, [sent, changed, envelope(subscription, id=sent["id"], source="/api/eu-2")], MANY)
    assert [result for result, _ in results(again)] == ["duplicate", "conflict", "accepted"]
    assert UsageEvent.objects.filter(subscription_id=subscription.pk).count() == 2


def test_an_event_that_came_too_early_is_accepted_when_it_is_sent_again(api: ApiClient) -> None:
    ref = unique("SUB")
    sent = envelope(Subscription(ref=ref))
    assert results(send(api, sent)) == [("invalid", f"there is no subscription {ref!r}")]
    SubscriptionFactory(ref=ref)
    assert results(send(api, sent)) == [("accepted", "")]


def test_an_event_in_the_future_is_invalid_for_its_time(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    [(result, detail)] = results(send(api, envelope(subscription, time="2150-01-01T00:00:00Z")))
    assert (result, detail.split(":")[0]) == ("invalid", "/time")
    assert not UsageEvent.objects.filter(subscription_id=subscription.pk).exists()


def test_with_an_idempotency_key_it_is_answered_as_every_write(api: ApiClient) -> None:
    body = json.dumps(envelope(SubscriptionFactory())).encode()
    first, again = (api.post("/v1/usage-events", raw=body, key="one", **{"Content-Type": ONE}) for _ in range(2))
    assert results(first) == results(again) == [("accepted", "")]


def test_source_and_id_are_one_key_in_one_way_only(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    pairs = [("a", "b c"), ("a%20b", "c"), ("ä", "1"), ("a", "ä/1")]
    sent = [envelope(subscription, source=source, id=own) for source, own in pairs]
    assert [result for result, _ in results(send(api, sent, MANY))] == ["accepted"] * 4
    [(result, detail)] = results(send(api, envelope(subscription, source="a" * 200, id="b" * 200)))
    assert (result, detail.split(":")[0]) == ("invalid", "/id")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        ([], ONE, 400), ({}, MANY, 400), ([], MANY, 400), ([{}] * 1001, MANY, 400), ({}, "application/cloudevents+xml", 415),
        ({}, f"{ONE}; charset=latin-1", 415),
    ],
)  # fmt: skip
def test_another_body_is_refused_and_nothing_is_written(api: ApiClient, body: Any, content_type: str, status: int) -> None:
    before = UsageEvent.objects.count(), RequestKey.objects.count()
    assert send(api, body, content_type).status_code == status
    assert (UsageEvent.objects.count(), RequestKey.objects.count()) == before


def test_binary_data_is_refused(api: ApiClient) -> None:
    found = results(send(api, envelope(SubscriptionFactory(), data=None, data_base64="eyJ9")))
    assert found == [("invalid", "/data_base64: Send JSON in data.")]


def test_the_document_names_the_envelope_of_one_event() -> None:
    """Not that of a batch, a bare list, for which client generators make code that they cannot check."""
    content = json.loads(openapi_document())["paths"]["/v1/usage-events"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", ONE}
    assert content[ONE]["schema"]["required"] == ["specversion", "id", "source", "type", "subject", "time"]


def patterns_in(document: Any) -> Iterator[str]:
    """All patterns of a document."""
    if isinstance(document, dict):
        yield from (found for name, found in document.items() if name == "pattern" and isinstance(found, str))
    for member in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from patterns_in(member)


def test_every_pattern_of_the_document_can_be_compiled_behind_its_anchor() -> None:
    """A flag within a pattern cannot: JSON Schema knows none, and a client or a tester that reads it refuses the document."""
    found = set(patterns_in(json.loads(openapi_document())))
    assert len(found) > 20
    for pattern in found:
        assert re.compile(pattern)


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=utf-8", "text/vnd.api+json"])
def test_json_is_data_in_whatever_case(api: ApiClient, media_type: str) -> None:
    assert results(send(api, envelope(SubscriptionFactory(), datacontenttype=media_type))) == [("accepted", "")]
    [(result, detail)] = results(send(api, envelope(SubscriptionFactory(), datacontenttype="application/xml")))
    assert (result, detail.split(":")[0]) == ("invalid", "/datacontenttype")
