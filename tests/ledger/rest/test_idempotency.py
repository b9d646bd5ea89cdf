"""A key takes effect once: every retry gets the first answer, byte for byte, a refusal too."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.services.group_commit import WAITERS
from tests.asgi_client import AsgiClient
from tests.ledger.rest.conftest import ApiClient, nothing_written, rows_of
from tests.nodes import lock_holder

IN_AN_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("grants", {"amount": 5, "metadata": {"z": 1.5, "a": {"y": [1, "é"], "b": 1e-7}}, "expires_at": "2090-01-01T00:00:00+02:00"}),
    ("spends", {"amount": 5, "reason": "5 e-mails"}),
    ("refunds", {"spend": 2}),
    ("revocations", {"grant": 1, "amount": 2}),
    ("holds", {"amount": 5, "expires_at": IN_AN_HOUR}),
    ("holds/3/captures", {"amount": 4, "over_capture": "if_available", "metadata": {"z": 1, "a": 2}}),
    ("holds/3/release", {"reason": "cancelled"}),
    ("holds/3/extend", {"expires_at": IN_AN_HOUR}),
    ("transfers", {"to": "team-7", "amount": 5}),
]


@pytest.mark.parametrize(("path", "body"), WRITES)
def test_a_repeated_request_gets_the_same_bytes_and_the_header_idempotency_replayed(
    api: ApiClient, holder: str, path: str, body: dict[str, Any]
) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    services.hold(holder_id=holder, amount=7, idempotency_key="h")
    first = api.post(f"/v1/holders/{holder}/{path}", body, key="k")
    services.spend(holder_id=holder, amount=1, idempotency_key="between")
    with nothing_written(holder):
        again = api.post(f"/v1/holders/{holder}/{path}", body, key="k")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    assert again["X-Request-Id"] != first["X-Request-Id"]


def test_the_same_request_in_another_json_spelling_is_a_replay(api: ApiClient, holder: str) -> None:
    path = f"/v1/holders/{holder}/grants"
    first = api.post(path, raw=b'{"amount": 5, "expires_at": "2090-01-01T00:00:00Z", "metadata": {"a": 1, "b": 2}}', key="k")
    again = api.post(
        path,
        raw=b'{"metadata":{"b":2,"a":1},"priority":100,"expires_at":"2090-01-01t02:00:00.000+02:00","effective_at":null,"amount":5}',
        key="k",
    )
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (201, first.content, "true")


def test_a_refusal_is_replayed_even_after_a_top_up(api: ApiClient, holder: str) -> None:
    path = f"/v1/holders/{holder}/spends"
    first = api.post(path, {"amount": 101}, key="k")
    services.grant(holder_id=holder, amount=1000, idempotency_key="top-up")
    with nothing_written(holder):
        again = api.post(path, {"amount": 101}, key="k")
    assert (first.status_code, again.status_code) == (402, 402)
    assert again.content == first.content
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    assert json.loads(again.content)["request_id"] == first["X-Request-Id"] != again["X-Request-Id"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("refunds", {"spend": 1}),
        ("refunds", {"spend": 9}),
        ("revocations", {"grant": 1, "amount": 999}),
        ("holds", {"amount": 101}),
        ("holds/1/captures", {}),
        ("holds/9/release", {}),
        ("transfers", {"to": "team-7", "amount": 101}),
    ],
)
def test_every_refusal_is_replayed(api: ApiClient, holder: str, path: str, body: dict[str, Any]) -> None:
    first = api.post(f"/v1/holders/{holder}/{path}", body, key="k")
    again = api.post(f"/v1/holders/{holder}/{path}", body, key="k")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (first.status_code, first.content, "true")
    assert rows_of(holder) == (1, 1)


@pytest.mark.parametrize("first", [{"amount": 5}, {"amount": 500}], ids=["after an entry", "after a refusal"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("spends", {"amount": 6}),
        ("spends", {"amount": 5, "reason": "other"}),
        ("spends", {"amount": 5, "credit_type": "sms"}),
        ("spends", {"amount": 5, "metadata": {"a": 1}}),
        ("grants", {"amount": 5}),
        ("revocations", {"grant": 1, "amount": 5}),
    ],
)
def test_a_key_that_another_request_has_used_is_a_422(
    api: ApiClient, holder: str, first: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    api.post(f"/v1/holders/{holder}/spends", first, key="k")
    with nothing_written(holder):
        response = api.post(f"/v1/holders/{holder}/{path}", body, key="k")
    problem = json.loads(response.content)
    assert (response.status_code, problem["type"]) == (422, "https://credit-ledger.example/problems/idempotency-key-reused")
    assert (problem["idempotency_key"], problem["outcome"]) == ("k", "not_executed")
    assert "Idempotency-Replayed" not in response


def test_two_holders_may_use_the_same_key(api: ApiClient, holder: str) -> None:
    assert api.post("/v1/holders/other/grants", {"amount": 5}, key="k").status_code == 201
    assert api.post(f"/v1/holders/{holder}/grants", {"amount": 6}, key="k").status_code == 201


def test_a_bad_request_does_not_use_up_its_key(api: ApiClient, holder: str) -> None:
    path = f"/v1/holders/{holder}/spends"
    assert api.post(path, {"amount": 0}, key="k").status_code == 400
    assert api.post(path, {"amount": 1}, key="k").status_code == 201


@pytest.mark.slow
@pytest.mark.check
def test_a_write_for_a_busy_holder_waits_for_lock_timeout_and_does_not_use_up_its_key(
    committed_db: None, make_api: Callable[..., ApiClient], new_holder: Callable[[], str], raw_connection: Callable[..., Any]
) -> None:
    busy = new_holder()
    api = make_api(name=f"key of {busy}")
    assert api.post(f"/v1/holders/{busy}/grants", {"amount": 5}).status_code == 201
    other = raw_connection("owner")
    lock_holder(other, busy)
    with nothing_written(busy):
        response = api.post(f"/v1/holders/{busy}/spends", {"amount": 1}, key="k")
    problem = json.loads(response.content)
    assert (response.status_code, problem["outcome"]) == (503, "not_executed")
    assert "Retry-After" in response
    assert problem["type"] == "https://credit-ledger.example/problems/holder-busy"
    assert api.get(f"/v1/holders/{busy}/balance").status_code == 200
    other.rollback()
    assert api.post(f"/v1/holders/{busy}/spends", {"amount": 1}, key="k").status_code == 201


def test_a_key_with_the_hash_of_another_key_is_a_422_and_nothing_is_written(api: ApiClient, holder: str) -> None:
    one, other = "ad9c22dac5fa3bb4", "fd58ba3ca2b6fe39"
    assert api.post(f"/v1/holders/{holder}/spends", {"amount": 1}, key=one).status_code == 201
    before = rows_of(holder)
    response = api.post(f"/v1/holders/{holder}/spends", {"amount": 1}, key=other)
    assert (response.status_code, json.loads(response.content)["type"].rpartition("/")[2]) == (422, "idempotency-key-reused")
    assert rows_of(holder) == before
    assert api.post(f"/v1/holders/{holder}/spends", {"amount": 1}, key=one)["Idempotency-Replayed"] == "true"


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("way", [AsgiClient])
@pytest.mark.one_node("each node has its own waiters")
def test_holders_for_which_no_waiter_was_left_answer_again_as_soon_as_their_locks_are_free(
    committed_db: None,
    make_api: Callable[..., ApiClient],
    new_holder: Callable[[], str],
    raw_connection: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More holders are busy than the process waits for: some get holder-busy, the others server-busy, and none for longer."""
    monkeypatch.setattr(services.GROUP_COMMIT._waiters, "_limit", 2)
    holders = [new_holder() for _ in range(WAITERS + 6)]
    api = make_api(name=f"key of {holders[0]}")
    other = raw_connection("owner")
    for holder in holders:
        lock_holder(other, holder)

    def grant(holder: str) -> Any:
        response = api.post(f"/v1/holders/{holder}/grants", {"amount": 5}, key="k")
        return response.status_code, response.json().get("outcome"), response.json().get("type", "").rsplit("/", 1)[-1]

    with ThreadPoolExecutor(len(holders)) as pool:
        refused = list(pool.map(grant, holders))
        assert {slug for _, _, slug in refused} == {"holder-busy", "server-busy"}
        assert {(status, outcome) for status, outcome, _ in refused} == {(503, "not_executed")}
        assert [rows_of(holder) for holder in holders] == [(0, 0)] * len(holders)
        other.rollback()
        assert list(pool.map(grant, holders)) == [(201, None, "")] * len(holders)
