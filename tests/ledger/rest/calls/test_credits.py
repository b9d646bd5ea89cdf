"""The ledger's calls, each by its whole body."""

import json
import re
from datetime import datetime
from typing import Any

import pytest
from django.http import HttpResponse

from ledger import services
from ledger.rest.kit import problems
from tests.ledger.rest.conftest import TIME, ApiClient, entry_of_201, nothing_written, problem_of_refusal, rows_of

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def problem_of(response: HttpResponse) -> dict[str, Any]:
    """The problem of a response, without its request id, which is checked here."""
    assert response["Content-Type"] == "application/problem+json"
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert UUID7.fullmatch(problem.pop("request_id"))
    return problem


def test_a_grant_returns_its_entry(api: ApiClient) -> None:
    response = api.post(
        "/v1/holders/customer-42/grants",
        {
            "amount": 100,
            "credit_type": "sms",
            "source": "promotional",
            "effective_at": "2026-01-01T01:00:00+01:00",
            "expires_at": "2090-01-01T00:00:00Z",
            "priority": 7,
            "reason": "Welcome",
            "reference": "order-1",
            "metadata": {"z": [1, {"b": None, "a": 1.5}], "a": True},
        },
        key="k1",
    )
    assert "Idempotency-Replayed" not in response
    assert entry_of_201(response) == {
        "holder_id": "customer-42",
        "credit_type": "sms",
        "sequence": 1,
        "kind": "grant",
        "amount": 100,
        "balance": 100,
        "held": 0,
        "drawn": [],
        "refers_to": None,
        "effective_at": "2026-01-01T00:00:00.000000Z",
        "actor": "key:shop",
        "reason": "Welcome",
        "reference": "order-1",
        "metadata": {"a": True, "z": [1, {"a": 1.5, "b": None}]},
        "idempotency_key": "k1",
    }


def test_a_grant_needs_no_more_than_an_amount(api: ApiClient) -> None:
    entry = entry_of_201(api.post("/v1/holders/h/grants", {"amount": 9007199254740991}, key="k"))
    assert (entry["credit_type"], entry["balance"], entry["reason"], entry["metadata"]) == ("credits", 9007199254740991, "", {})
    lots = json.loads(api.get("/v1/holders/h/balance").content)["lots"]
    assert [(lot["priority"], lot["source"], lot["expires_at"]) for lot in lots] == [(100, "purchased", None)]


def test_a_time_of_null_is_the_same_as_a_missing_time(api: ApiClient) -> None:
    response = api.post("/v1/holders/h/grants", {"amount": 1, "effective_at": None, "expires_at": None})
    assert entry_of_201(response)["amount"] == 1


def test_a_spend_returns_its_entry_with_the_lots_that_it_drew_from(api: ApiClient, holder: str) -> None:
    services.grant(holder_id=holder, amount=5, idempotency_key="second", priority=1)
    response = api.post(f"/v1/holders/{holder}/spends", {"amount": 8, "reason": "8 e-mails"}, key="k2")
    spent = entry_of_201(response)
    assert spent.pop("effective_at")
    assert spent == {
        "holder_id": holder,
        "credit_type": "credits",
        "sequence": 3,
        "kind": "spend",
        "amount": -8,
        "balance": 97,
        "held": 0,
        "drawn": [{"grant": 2, "amount": 5}, {"grant": 1, "amount": 3}],
        "refers_to": None,
        "actor": "key:shop",
        "reason": "8 e-mails",
        "reference": "",
        "metadata": {},
        "idempotency_key": "k2",
    }


def test_a_partial_spend_says_how_much_it_asked_for(api: ApiClient, holder: str) -> None:
    asked = {"amount": 250, "partial": True}
    tried = api.post(f"/v1/holders/{holder}/spends?dry_run=true", asked)
    assert (tried.status_code, json.loads(tried.content)["amount"]) == (200, -100)
    response = api.post(f"/v1/holders/{holder}/spends", asked, key="part")
    entry = entry_of_201(response, "requested")
    assert (entry["amount"], entry["requested"], entry["balance"]) == (-100, 250, 0)
    assert api.post(f"/v1/holders/{holder}/spends", asked, key="part").content == response.content
    newest = json.loads(api.get(f"/v1/holders/{holder}/entries").content)["results"][0]
    assert newest == json.loads(response.content)
    with nothing_written(holder):
        problem_of_refusal(
            api.post(f"/v1/holders/{holder}/spends", {"amount": 1, "partial": 1}), 400, ("/partial", "not-a-boolean")
        )


def test_a_spend_beyond_the_balance_is_a_402_with_the_facts(api: ApiClient, holder: str) -> None:
    lot = json.loads(api.get(f"/v1/holders/{holder}/balance").content)["lots"][0]
    response = api.post(f"/v1/holders/{holder}/spends", {"amount": 250}, key="too-much")
    assert response.status_code == 402
    assert problem_of(response) == {
        "type": "https://credit-ledger.example/problems/insufficient-credits",
        "title": "The account has too few credits",
        "status": 402,
        "detail": "The request needs 250 credits; 100 are available.",
        "outcome": "not_executed",
        "available": 100,
        "balance": 100,
        "earliest_sufficient_at": None,
        "expired": 0,
        "held": 0,
        "holds": [],
        "lots": [
            {"effective_at": lot["effective_at"], "expires_at": None, "grant": 1, "remaining": 100, "state": "spendable"},
        ],
        "not_yet_effective": 0,
        "requested": 250,
        "shortfall": 150,
    }
    assert rows_of(holder) == (1, 1)


def test_a_refund_gives_back_what_is_left_of_the_spend_by_default(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    part = entry_of_201(api.post(f"/v1/holders/{holder}/refunds", {"spend": 2, "amount": 3}, key="r1"), "refunded_total")
    rest = entry_of_201(api.post(f"/v1/holders/{holder}/refunds", {"spend": 2, "reason": "rest"}, key="r2"), "refunded_total")
    assert (part["kind"], part["amount"], part["balance"], part["refers_to"]) == ("refund", 3, 95, 2)
    assert (rest["kind"], rest["amount"], rest["balance"], rest["refers_to"], rest["reason"]) == ("refund", 5, 100, 2, "rest")


REFUSED_REFUNDS = [
    (
        {"spend": 1},
        409,
        "not-refundable",
        "Entry 1 is of kind grant; only a spend can be refunded.",
        {"sequence": 1, "kind": "grant"},
    ),
    (
        {"spend": 2, "amount": 9},
        409,
        "refund-exceeds-spend",
        "Spend 2 has 8 credits left to refund; the request asks for 9.",
        {"sequence": 2, "refundable": 8, "requested": 9},
    ),
    ({"spend": 99}, 404, "entry-not-found", "Entry 99 of credits does not exist.", {"sequence": 99, "credit_type": "credits"}),
]


@pytest.mark.parametrize(("body", "status", "slug", "detail", "facts"), REFUSED_REFUNDS)
def test_a_refund_that_cannot_be_is_refused(
    api: ApiClient, holder: str, body: dict[str, Any], status: int, slug: str, detail: str, facts: dict[str, Any]
) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    response = api.post(f"/v1/holders/{holder}/refunds", body)
    problem = problem_of(response)
    assert (response.status_code, problem["type"], problem["detail"]) == (status, problems.TYPE_BASE + slug, detail)
    assert {name: problem[name] for name in facts} == facts
    assert rows_of(holder) == (2, 1)


def test_a_second_full_refund_is_refused_with_nothing_left(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    assert api.post(f"/v1/holders/{holder}/refunds", {"spend": 2}).status_code == 201
    response = api.post(f"/v1/holders/{holder}/refunds", {"spend": 2})
    problem = problem_of(response)
    assert (response.status_code, problem["refundable"], problem["requested"]) == (409, 0, None)
    assert rows_of(holder) == (3, 1)


def test_a_revocation_takes_back_what_is_unspent(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    revoked = entry_of_201(api.post(f"/v1/holders/{holder}/revocations", {"grant": 1}))
    assert (revoked["kind"], revoked["amount"], revoked["balance"], revoked["refers_to"]) == ("revoke", -92, 0, 1)
    assert revoked["drawn"] == [{"grant": 1, "amount": 92}]


def test_a_revocation_beyond_the_rest_is_refused(api: ApiClient, holder: str) -> None:
    response = api.post(f"/v1/holders/{holder}/revocations", {"grant": 1, "amount": 101})
    problem = problem_of(response)
    assert (response.status_code, problem["type"]) == (409, problems.TYPE_BASE + "revocation-exceeds-grant")
    assert (problem["revocable"], problem["requested"], problem["sequence"]) == (100, 101, 1)
    assert rows_of(holder) == (1, 1)


def test_the_balance_of_a_holder_never_seen_is_zeros(api: ApiClient) -> None:
    balance = json.loads(api.get("/v1/holders/nobody/balance").content)
    assert TIME.fullmatch(balance.pop("as_of"))
    assert balance == {
        "holder_id": "nobody",
        "credit_type": "credits",
        "available": 0,
        "balance": 0,
        "held": 0,
        "sequence": 0,
        "lots": [],
        "next_expiry": None,
        "holds": [],
        "overdraft": 0,
        "owed": 0,
        "overage": None,
    }


def test_the_balance_shows_lots_in_burn_order_and_the_next_expiry(api: ApiClient) -> None:
    grants = "/v1/holders/h/grants"
    api.post(grants, {"amount": 5, "effective_at": "2026-01-01T00:00:00Z"})
    api.post(grants, {"amount": 7, "effective_at": "2026-01-01T00:00:00Z", "expires_at": "2090-06-01T02:00:00+02:00"})
    api.post(grants, {"amount": 9, "effective_at": "2080-01-01T00:00:00Z", "expires_at": "2090-07-01T00:00:00Z"})
    balance = json.loads(api.get("/v1/holders/h/balance?credit_type=credits").content)
    assert (balance["available"], balance["balance"], balance["held"], balance["sequence"]) == (12, 21, 0, 3)
    assert balance["next_expiry"] == {"at": "2090-06-01T00:00:00.000000Z", "amount": 7}
    assert [(lot["grant"], lot["remaining"]) for lot in balance["lots"]] == [(2, 7), (3, 9), (1, 5)]
    assert balance["lots"][0] == {
        "grant": 2,
        "remaining": 7,
        "effective_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2090-06-01T00:00:00.000000Z",
        "priority": 100,
        "source": "purchased",
        "state": "spendable",
    }
    assert [lot["state"] for lot in balance["lots"]] == ["spendable", "not_yet_effective", "spendable"]


def test_the_balance_at_an_instant_is_what_was_known_then(api: ApiClient, holder: str) -> None:
    first = services.spend(holder_id=holder, amount=8, idempotency_key="s1")
    services.spend(holder_id=holder, amount=8, idempotency_key="s2")
    at = first.recorded_at.isoformat().replace("+00:00", "Z")
    balance = json.loads(api.get(f"/v1/holders/{holder}/balance?at={at}").content)
    assert (balance["sequence"], balance["balance"]) == (2, 92)
    assert datetime.fromisoformat(balance["as_of"]) == first.recorded_at
    assert json.loads(api.get(f"/v1/holders/{holder}/balance?at=2000-01-01T00:00:00Z").content)["sequence"] == 0


def test_the_balance_by_effective_time_includes_a_back_dated_grant(api: ApiClient, holder: str) -> None:
    path = f"/v1/holders/{holder}/balance?at=2026-01-15T00:00:00Z"
    api.post(f"/v1/holders/{holder}/grants", {"amount": 7, "effective_at": "2026-01-01T00:00:00Z"})
    recorded = json.loads(api.get(f"{path}&by=recorded").content)
    effective = json.loads(api.get(f"{path}&by=effective").content)
    assert (recorded["balance"], recorded["available"], recorded["lots"]) == (0, 0, [])
    assert (effective["balance"], effective["available"], effective["as_of"]) == (7, 7, "2026-01-15T00:00:00.000000Z")
    assert [(lot["grant"], lot["remaining"]) for lot in effective["lots"]] == [(2, 7)]
    assert json.loads(api.get(f"/v1/holders/{holder}/balance?by=effective").content)["balance"] == 107


def test_an_entry_is_read_as_it_was_returned(api: ApiClient) -> None:
    response = api.post("/v1/holders/h/grants", {"amount": 1, "metadata": {"z": 1, "a": 2}})
    assert api.get("/v1/holders/h/entries/1").content == response.content
    assert api.get("/v1/holders/h/entries/1?credit_type=credits").content == response.content


@pytest.mark.parametrize("path", ["entries/2", "entries/1?credit_type=sms", "entries/9223372036854775807"])
def test_an_entry_that_is_not_there_is_a_404(api: ApiClient, holder: str, path: str) -> None:
    response = api.get(f"/v1/holders/{holder}/{path}")
    assert problem_of(response) == {
        "type": "https://credit-ledger.example/problems/not-found",
        "title": "Not found",
        "status": 404,
        "detail": "The resource does not exist, or this key may not see it.",
        "outcome": "not_executed",
    }


def test_refusals_are_listed_with_the_problem_that_was_returned(api: ApiClient, holder: str) -> None:
    first = api.post(f"/v1/holders/{holder}/spends", {"amount": 101}, key="no-1")
    second = api.post(f"/v1/holders/{holder}/refunds", {"spend": 1}, key="no-2")
    listed = json.loads(api.get(f"/v1/holders/{holder}/refusals").content)
    assert [list(refusal) for refusal in listed["results"]] == [
        ["idempotency_key", "operation", "problem", "recorded_at", "actor"]
    ] * 2
    assert [refusal["problem"] for refusal in listed["results"]] == [json.loads(second.content), json.loads(first.content)]
    assert [(refusal["idempotency_key"], refusal["operation"], refusal["actor"]) for refusal in listed["results"]] == [
        ("no-2", "refund", "key:shop"),
        ("no-1", "spend", "key:shop"),
    ]
    assert (listed["next"], listed["previous"]) == (None, None)


def test_head_returns_what_get_does_without_the_body(api: ApiClient, holder: str) -> None:
    response = api.client.head(f"/v1/holders/{holder}/entries/1", headers={"Authorization": f"Bearer {api.secret}"})
    assert (response.status_code, response.content) == (200, b"")
    assert int(response["Content-Length"]) == len(api.get(f"/v1/holders/{holder}/entries/1").content)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("refunds", {"spend": 2}),
        ("refunds", {"spend": 2, "amount": 1}),
        ("refunds", {"spend": 1}),
        ("refunds", {"spend": 3}),
        ("revocations", {"grant": 1, "amount": 101}),
        ("revocations", {"grant": 2}),
    ],
)
def test_a_refusal_by_the_state_is_a_409_and_recorded(api: ApiClient, holder: str, path: str, body: dict[str, int]) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    services.refund(holder_id=holder, spend=2, idempotency_key="r")
    problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", body), 409)
    assert rows_of(holder) == (3, 1)
