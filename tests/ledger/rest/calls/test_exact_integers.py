"""Integers beyond 2^53 - 1, which many readers of JSON round: each object that has one has its digits as a string too."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ledger import services
from ledger.errors import Invalid
from ledger.json_values import EXACT_INTEGERS
from ledger.rest.kit.rendering import json_bytes
from ledger.signals import payloads
from ledger.values import MAX_AMOUNT
from ledger_project.api.documents import openapi_document
from tests.ledger.rest.conftest import ApiClient, nothing_written

TWICE = 2 * MAX_AMOUNT
JANE = "/v1/holders/jane"


@pytest.fixture
def jane(api: ApiClient) -> str:
    """A holder with two lots of the largest amount, by entries 1 and 2."""
    services.grant(holder_id="jane", amount=MAX_AMOUNT, idempotency_key="1")
    services.grant(holder_id="jane", amount=MAX_AMOUNT, priority=200, idempotency_key="2")
    return "jane"


def large_integers(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield each object with an integer that is too large for some readers, and the digits of such integers by name."""
    if isinstance(value, dict):
        large = {name: str(item) for name, item in value.items() if isinstance(item, int) and abs(item) > MAX_AMOUNT}
        if large or EXACT_INTEGERS in value:
            yield value, large
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from large_integers(item)


def test_no_object_without_such_an_integer_has_the_member(api: ApiClient):
    entry = api.post(f"{JANE}/grants", {"amount": MAX_AMOUNT}).json()
    assert EXACT_INTEGERS not in entry
    assert list(large_integers(api.get(f"{JANE}/balance").json())) == []


def test_entries_and_their_retries_have_it(api: ApiClient, jane: str):
    first = api.post(f"{JANE}/grants", {"amount": 1, "priority": 1}, key="k")
    assert (first.status_code, first.json()["balance"], first.json()[EXACT_INTEGERS]) == (
        201,
        TWICE + 1,
        {"balance": f"{TWICE + 1}"},
    )
    again = api.post(f"{JANE}/grants", {"amount": 1, "priority": 1}, key="k")
    assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")


def test_every_response_has_it_for_every_such_integer(api: ApiClient, jane: str):
    services.hold(holder_id="jane", amount=MAX_AMOUNT, idempotency_key="h1")
    services.grant(holder_id="jane", amount=MAX_AMOUNT, idempotency_key="3")
    services.hold(holder_id="jane", amount=MAX_AMOUNT, idempotency_key="h2")
    services.grant(holder_id="jane", amount=MAX_AMOUNT, idempotency_key="4", expires_at=datetime.now(UTC) + timedelta(days=1))
    services.grant(holder_id="jane", amount=1, idempotency_key="5")
    batch = {"mode": "each", "operations": [{"operation": "grant", "holder": "jane", "amount": 2}]}
    found = {
        path: [(value[EXACT_INTEGERS], large) for value, large in large_integers(api.get(path).json())]
        for path in (f"{JANE}/balance", f"{JANE}/entries", f"{JANE}/entries/6/explanation", JANE, "/v1/holders", "/v1/entries")
    }
    found["batch"] = [(value[EXACT_INTEGERS], large) for value, large in large_integers(api.post("/v1/batches", batch).json())]
    assert {path for path, pairs in found.items() if not pairs} == set()
    assert all(shown == large for pairs in found.values() for shown, large in pairs)
    held = api.get(f"{JANE}/balance").json()
    assert held[EXACT_INTEGERS] == {name: f"{held[name]}" for name in ("available", "balance", "held")}


def test_a_refusal_has_it_now_and_on_record(api: ApiClient):
    later = datetime.now(UTC) + timedelta(days=1)
    for number in range(2):
        services.grant(holder_id="jane", amount=MAX_AMOUNT, effective_at=later, priority=number, idempotency_key=f"{number}")
    problem = api.post(f"{JANE}/spends", {"amount": 5}).json()
    assert (problem["available"], problem["balance"]) == (0, TWICE)
    assert problem[EXACT_INTEGERS] == {"balance": f"{TWICE}", "not_yet_effective": f"{TWICE}"}
    [refusal] = api.get(f"{JANE}/refusals").json()["results"]
    assert refusal["problem"][EXACT_INTEGERS] == {"balance": f"{TWICE}", "not_yet_effective": f"{TWICE}"}


def test_a_signal_has_it(api: ApiClient, jane: str):
    signal = payloads.StoredSignal(1, uuid4(), "entry.recorded", "jane", "credits", 2, None, datetime.now(UTC))
    assert json.loads(payloads.body(signal))["data"][EXACT_INTEGERS] == {"balance": f"{TWICE}"}


def test_sums_beyond_64_bits_keep_their_digits():
    body = {"used": 2**70, "of": [{"least": -(2**63) - 1, "name": "x"}]}
    written = json_bytes(body)
    assert json.loads(written) == {
        "used": 2**70,
        "of": [{"least": -(2**63) - 1, "name": "x", EXACT_INTEGERS: {"least": f"{-(2**63) - 1}"}}],
        EXACT_INTEGERS: {"used": f"{2**70}"},
    }


def test_a_body_that_json_cannot_say_is_still_an_error():
    with pytest.raises(TypeError):
        json_bytes({"what": object()})


def test_the_document_has_it_where_such_an_integer_can_be():
    schemas = json.loads(openapi_document())["components"]["schemas"]
    declared = {
        name: {member for member, of in schema["properties"].items() if of.get("maximum", 0) > MAX_AMOUNT}
        for name, schema in schemas.items()
        if EXACT_INTEGERS in schema.get("properties", {})
    }
    assert declared["Entry"] == {"balance", "held"}
    assert declared["AccountBalance"] == {"available", "balance", "held"}
    assert {"InsufficientCredits", "Lot", "BudgetUse", "CustomerCoupon"} <= declared.keys()
    assert not {"Invoice", "Rating", "UsageEvent"} & declared.keys()


@pytest.mark.django_db
def test_a_lot_that_transfers_made_larger_gets_no_other_terms():
    """Each lot of an account's own has at most 2^53 - 1 credits: that keeps its balance below the limit of the database."""
    for number in range(2):
        services.grant(holder_id="payer", amount=MAX_AMOUNT, idempotency_key=f"g{number}")
        services.transfer(holder_id="payer", to="jane", amount=MAX_AMOUNT, idempotency_key=f"t{number}")
    with nothing_written("jane"), pytest.raises(Invalid) as refused:
        services.reissue(holder_id="jane", lot=1, priority=1, idempotency_key="r")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/lot", "too-large")
