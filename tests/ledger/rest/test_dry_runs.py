"""`?dry_run=true`: what would be answered, and nothing written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from tests.ledger.rest.conftest import ApiClient, nothing_written

IN_AN_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
WRITES: list[tuple[str, dict[str, Any], str, int]] = [
    ("grants", {"amount": 5}, "grant", 65),
    ("spends", {"amount": 5}, "spend", 55),
    ("refunds", {"spend": 2}, "refund", 70),
    ("revocations", {"grant": 1, "amount": 2}, "revoke", 58),
    ("holds", {"amount": 5}, "hold", 55),
    ("holds/3/captures", {"amount": 30}, "capture", 60),
    ("holds/3/release", {}, "release", 90),
    ("holds/3/extend", {"expires_at": IN_AN_HOUR}, "hold", 60),
    ("transfers", {"to": "team-7", "amount": 5}, "transfer_out", 55),
]


@pytest.fixture
def used_holder(holder: str) -> str:
    """A holder with a spend (2) and a hold (3)."""
    services.spend(holder_id=holder, amount=10, idempotency_key="s")
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    return holder


@pytest.mark.parametrize(("path", "body", "kind", "balance"), WRITES)
def test_a_dry_run_returns_the_entry_that_would_be_made(
    api: ApiClient, used_holder: str, path: str, body: dict[str, Any], kind: str, balance: int
) -> None:
    with nothing_written(used_holder), nothing_written("team-7"):
        response = api.post(f"/v1/holders/{used_holder}/{path}?dry_run=true", body, key=None)
    entry = json.loads(response.content)
    assert (response.status_code, entry["kind"], entry["balance"], entry["sequence"]) == (200, kind, balance, 4)
    assert entry["idempotency_key"] is None
    real = json.loads(api.post(f"/v1/holders/{used_holder}/{path}?dry_run=false", body).content)
    different = {"recorded_at", "effective_at", "expires_at", "digest", "idempotency_key"}
    assert {name: entry[name] for name in set(entry) - different} == {name: real[name] for name in set(real) - different}


def test_a_dry_run_says_which_lots_would_be_drawn(api: ApiClient, used_holder: str) -> None:
    services.grant(holder_id=used_holder, amount=7, idempotency_key="g2", priority=1)
    entry = json.loads(api.post(f"/v1/holders/{used_holder}/spends?dry_run=true", {"amount": 10}, key="k").content)
    assert entry["drawn"] == [{"grant": 4, "amount": 7}, {"grant": 1, "amount": 3}]
    assert entry["idempotency_key"] == "k"


def test_a_dry_run_that_would_be_refused_has_the_problem_and_leaves_no_refusal(api: ApiClient, used_holder: str) -> None:
    with nothing_written(used_holder):
        response = api.post(f"/v1/holders/{used_holder}/spends?dry_run=true", {"amount": 61}, key="k")
    assert (response.status_code, json.loads(response.content)["shortfall"]) == (402, 1)
    assert api.post(f"/v1/holders/{used_holder}/spends", {"amount": 1}, key="k").status_code == 201


STANDARD = {"type", "title", "status", "detail", "request_id", "outcome"}


@pytest.mark.parametrize(
    ("scope", "path"), [("ledger:spend", "spends"), ("ledger:hold", "holds"), ("ledger:transfer", "transfers")]
)
def test_a_refused_dry_run_tells_a_key_that_may_not_read_only_the_shortfall(
    make_api: Any, used_holder: str, scope: str, path: str
) -> None:
    body = {"amount": 10**14} | ({"to": "team-7"} if path == "transfers" else {})
    with nothing_written(used_holder):
        told = json.loads(make_api(scope).post(f"/v1/holders/{used_holder}/{path}?dry_run=true", body).content)
        read = json.loads(make_api(scope, "ledger:read").post(f"/v1/holders/{used_holder}/{path}?dry_run=true", body).content)

    assert (set(told) - STANDARD, told["shortfall"]) == ({"shortfall"}, 10**14 - 60)
    assert (told["type"], told["status"], told["outcome"]) == (read["type"], 402, "not_executed")
    assert told["detail"] == "The account lacks 99999999999940 credits."
    assert {"lots", "holds", "balance", "held"} <= set(read)


def test_a_refused_spend_tells_a_key_that_may_not_read_what_the_contract_names(make_api: Any, used_holder: str) -> None:
    spender = make_api("ledger:spend")
    responses = [spender.post(f"/v1/holders/{used_holder}/spends", {"amount": 61}, key="k") for _ in range(2)]

    told = json.loads(responses[0].content)
    facts = {"available": 60, "balance": 60, "requested": 61, "shortfall": 1}
    assert {name: told[name] for name in set(told) - STANDARD} == facts
    assert responses[1].content == responses[0].content
    assert responses[1]["Idempotency-Replayed"] == "true"
    # What is recorded, and told to those who may read, is the whole.
    reader = make_api("ledger:read", "ledger:spend")
    again = json.loads(reader.post(f"/v1/holders/{used_holder}/spends", {"amount": 61}, key="k").content)
    assert (again["held"], again["holds"][0]["amount"], again["lots"][0]["remaining"]) == (30, 30, 60)


@pytest.mark.parametrize(
    ("query", "facts"), [("?dry_run=true", {"shortfall"}), ("", {"available", "balance", "requested", "shortfall"})]
)
@pytest.mark.parametrize("mode", ["each", "atomic"])
def test_an_operation_of_a_batch_tells_no_more_than_its_own_call(
    make_api: Any, used_holder: str, mode: str, query: str, facts: set[str]
) -> None:
    batch = {"mode": mode, "operations": [{"operation": "spend", "holder": used_holder, "amount": 61}]}
    body = json.loads(make_api("ledger:spend").post(f"/v1/batches{query}", batch).content)

    assert set(body["results"][0]["problem"]) - STANDARD == facts
    if mode == "atomic":
        assert set(body["problem"]) - STANDARD == facts


def test_a_dry_run_with_a_used_key_says_so(api: ApiClient, used_holder: str) -> None:
    first = api.post(f"/v1/holders/{used_holder}/spends", {"amount": 1}, key="k")
    with nothing_written(used_holder):
        again = api.post(f"/v1/holders/{used_holder}/spends?dry_run=true", {"amount": 1}, key="k")
        other = api.post(f"/v1/holders/{used_holder}/spends?dry_run=true", {"amount": 2}, key="k")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (200, first.content, "true")
    assert other.status_code == 422


QUERIES = [
    ("dry_run=yes", "/dry_run", "not-a-boolean"),
    ("dry_run=", "/dry_run", "not-a-boolean"),
    ("dry_run=1", "/dry_run", "not-a-boolean"),
    ("dry-run=true", "/dry-run", "unknown-field"),
    ("dry_run=true&dry_run=false", "/dry_run", "duplicate-key"),
]


@pytest.mark.parametrize(("query", "pointer", "code"), QUERIES)
@pytest.mark.parametrize("path", ["/v1/holders/customer-42/spends", "/v1/batches", "/v1/rates"])
def test_a_query_that_is_not_understood_writes_nothing(
    admin_api: ApiClient, holder: str, path: str, query: str, pointer: str, code: str
) -> None:
    with nothing_written(holder):
        response = admin_api.post(f"{path}?{query}", {"amount": 1})
    assert response.status_code == 400
    assert [(error["pointer"], error["code"]) for error in json.loads(response.content)["errors"]] == [(pointer, code)]


@pytest.fixture
def admin_api(make_api: Any, holder: str) -> ApiClient:
    """A client whose key may administer the ledger."""
    admin_api: ApiClient = make_api("ledger:admin")
    return admin_api
