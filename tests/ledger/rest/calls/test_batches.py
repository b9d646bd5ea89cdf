"""Batches over REST: many operations in one request, with a result for each."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.models import Batch, Entry
from ledger.rest.kit import problems
from tests.ledger.rest.conftest import ApiClient, nothing_written, rows_of

BATCHES = "/v1/batches"
MODES = pytest.mark.parametrize("mode", ["atomic", "each"])


def grant_operation(**more: Any) -> dict[str, Any]:
    """A grant of 5, as an operation of a batch."""
    return {"operation": "grant", "holder": "customer-42", "amount": 5, **more}


def spend_operation(**more: Any) -> dict[str, Any]:
    """A spend of 3, as an operation of a batch."""
    return {"operation": "spend", "holder": "customer-42", "amount": 3, **more}


def batch_body(mode: str, *operations: Any) -> dict[str, Any]:
    """The body of a batch."""
    return {"mode": mode, "operations": list(operations)}


def body_of(response: Any, status: int = 200) -> dict[str, Any]:
    """The body of a response that has this status."""
    assert response.status_code == status, response.content
    found: dict[str, Any] = json.loads(response.content)
    return found


def slugs(body: dict[str, Any]) -> list[tuple[int, str]]:
    """Of each result, its status and the kind of its entry or the slug of its problem."""
    return [
        (result["status"], result["body"]["kind"] if "body" in result else result["problem"]["type"].rsplit("/", 1)[1])
        for result in body["results"]
    ]


@MODES
def test_every_kind_of_operation_is_done_in_its_order(api: ApiClient, holder: str, mode: str) -> None:
    operations = [
        grant_operation(),
        spend_operation(reason="3 e-mails", metadata={"b": 1, "a": 2}),
        {"operation": "refund", "holder": holder, "spend": 3, "amount": 1},
        {"operation": "revoke", "holder": holder, "grant": 2},
        {"operation": "hold", "holder": holder, "amount": 30},
        {"operation": "capture", "holder": holder, "hold": 6, "amount": 10, "final": False},
        {"operation": "extend", "holder": holder, "hold": 6, "expires_at": (datetime.now(UTC) + timedelta(hours=3)).isoformat()},
        {"operation": "release", "holder": holder, "hold": 6},
        {"operation": "transfer", "holder": holder, "to": "team-7", "amount": 8},
        spend_operation(holder="team-7"),
    ]
    body = body_of(api.post(BATCHES, batch_body(mode, *operations), key="b"))
    assert slugs(body) == [
        (201, kind)
        for kind in ("grant", "spend", "refund", "revoke", "hold", "capture", "hold", "release", "transfer_out", "spend")
    ]
    entries = [result["body"] for result in body["results"]]
    assert [entry["balance"] for entry in entries] == [105, 102, 103, 98, 68, 68, 68, 88, 80, 5]
    assert [entry["idempotency_key"] for entry in entries] == [f"b/{index}" for index in range(10)]
    assert entries[1] == json.loads(api.get(f"/v1/holders/{holder}/entries/3").content)
    assert entries[4]["expires_at"]
    assert entries[8]["counterpart"] == {"holder_id": "team-7"}
    assert body["failed"] == 0
    assert list(body) == ["failed", "results"]


def test_each_goes_on_after_a_refusal_and_after_what_is_not_valid(api: ApiClient, holder: str) -> None:
    operations = [
        spend_operation(amount=101),
        spend_operation(amount=0),
        spend_operation(),
        "nonsense",
        {"operation": "mint"},
        spend_operation(surprise=1),
    ]
    body = body_of(api.post(BATCHES, batch_body("each", *operations), key="b"))
    assert slugs(body) == [
        (402, "insufficient-credits"),
        (400, "invalid-request"),
        (201, "spend"),
        (400, "invalid-request"),
        (400, "invalid-request"),
        (400, "invalid-request"),
    ]
    field_errors = [
        [(error["pointer"], error["code"]) for error in result.get("problem", {}).get("errors", [])] for result in body["results"]
    ]
    assert field_errors == [
        [],
        [("/operations/1/amount", "too-small")],
        [],
        [("/operations/3", "not-an-object")],
        [("/operations/4/operation", "not-a-choice")],
        [("/operations/5/surprise", "unknown-field")],
    ]
    assert body["failed"] == 5
    assert body["results"][0]["problem"]["shortfall"] == 1
    assert rows_of(holder) == (2, 1)
    # What was not valid has not used its key up.
    assert api.post(f"/v1/holders/{holder}/spends", {"amount": 1}, key="b/1").status_code == 201


def test_an_atomic_batch_with_a_refusal_is_rejected_and_executes_no_operation(api: ApiClient, holder: str) -> None:
    response = api.post(BATCHES, batch_body("atomic", spend_operation(), spend_operation(amount=101), spend_operation()), key="b")
    problem = body_of(response, 409)
    assert response["Content-Type"] == "application/problem+json"
    assert problem["type"] == problems.TYPE_BASE + "batch-rejected"
    assert problem["detail"] == "Operation 1 failed, so the ledger executed no operation of the batch."
    assert (problem["index"], problem["outcome"]) == (1, "not_executed")
    assert (problem["problem"]["status"], problem["problem"]["available"], problem["problem"]["requested"]) == (402, 97, 101)
    assert problem["results"] == [{"status": 424}, {"status": 402, "problem": problem["problem"]}, {"status": 424}]
    assert problem["request_id"] == problem["problem"]["request_id"] == response["X-Request-Id"]
    # The refused state was rolled back: only the batch's outcome is recorded, and the operation's key is still unused.
    assert rows_of(holder) == (1, 0)
    assert Batch.objects.get(idempotency_key="b").outcomes[1]["code"] == "insufficient-credits"


@pytest.mark.parametrize(
    ("operations", "field_errors"),
    [
        (
            [grant_operation(), spend_operation(amount=0), spend_operation(reason=1)],
            [("/operations/1/amount", "too-small"), ("/operations/2/reason", "not-a-string")],
        ),
        (
            [grant_operation(expires_at="2020-01-01T00:00:00Z", effective_at="2019-01-01T00:00:00Z")],
            [("/operations/0/expires_at", "past")],
        ),
        ([grant_operation(), {"operation": "transfer", "holder": "a", "to": "a", "amount": 1}], [("/operations/1/to", "other")]),
        ([{"holder": "a", "amount": 1}], [("/operations/0/operation", "required")]),
        ([spend_operation(operation=["spend"])], [("/operations/0/operation", "not-a-choice")]),
        ([spend_operation(holder="a b")], [("/operations/0/holder", "pattern")]),
        ([{"operation": "spend", "amount": 1}], [("/operations/0/holder", "required")]),
        ([spend_operation(idempotency_key="")], [("/operations/0/idempotency_key", "too-short")]),
        ([spend_operation(idempotency_key="é")], [("/operations/0/idempotency_key", "pattern")]),
        ([{"operation": "spend", "holder": "a"}], [("/operations/0/amount", "required")]),
    ],
)  # fmt: skip
def test_an_atomic_batch_with_what_is_not_valid_is_a_400_with_all_of_it(
    api: ApiClient, holder: str, operations: list[Any], field_errors: list[tuple[str, str]]
) -> None:
    with nothing_written(holder):
        problem = body_of(api.post(BATCHES, batch_body("atomic", *operations), key="b"), 400)
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == field_errors
    assert not Batch.objects.exists()
    assert body_of(api.post(BATCHES, batch_body("atomic", grant_operation()), key="b"))["failed"] == 0


def test_a_batch_may_be_4_mib_and_no_more(api: ApiClient, holder: str) -> None:
    body = json.dumps(batch_body("each", grant_operation())).encode()
    body += b" " * (4 * 1024 * 1024 - len(body))
    assert api.post(BATCHES, raw=body).status_code == 200
    with nothing_written(holder):
        assert body_of(api.post(BATCHES, raw=body + b" "), 413)["limit_bytes"] == 4194304


def test_a_thousand_operations_are_taken(api: ApiClient, holder: str) -> None:
    services.grant(holder_id=holder, amount=1000, idempotency_key="more")
    body = body_of(api.post(BATCHES, batch_body("atomic", *[spend_operation(amount=1)] * 1000)))
    assert (body["failed"], len(body["results"])) == (0, 1000)
    assert [result["body"]["balance"] for result in body["results"]] == list(range(1099, 99, -1))


# Keys ------------------------------------------------------------------------------------------------


def test_the_same_batch_again_gets_the_same_bytes(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=1, idempotency_key="known")
    operations = [
        spend_operation(),
        spend_operation(amount=500),
        spend_operation(amount=0),
        {"operation": "refund", "holder": holder, "spend": 1},
        grant_operation(expires_at="2020-02-01T00:00:00Z", effective_at="2020-01-01T00:00:00Z"),
        spend_operation(amount=1, idempotency_key="known"),
        spend_operation(amount=2, idempotency_key="known"),
        {"operation": "hold", "holder": holder, "amount": 1},
    ]
    first = api.post(BATCHES, batch_body("each", *operations), key="b", X_Request_Id="first")
    statuses = [result["status"] for result in json.loads(first.content)["results"]]
    assert statuses == [201, 402, 400, 409, 400, 201, 422, 201]
    services.grant(holder_id=holder, amount=1000, idempotency_key="top-up")
    with nothing_written(holder):
        again = api.post(BATCHES, batch_body("each", *operations), key="b", X_Request_Id="second")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (200, first.content, "true")
    assert "Idempotency-Replayed" not in first


def test_a_rejected_batch_stays_rejected(api: ApiClient, holder: str) -> None:
    asked = batch_body("atomic", spend_operation(), spend_operation(amount=101))
    first = api.post(BATCHES, asked, key="b")
    services.grant(holder_id=holder, amount=1000, idempotency_key="top-up")
    with nothing_written(holder):
        again = api.post(BATCHES, asked, key="b")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (409, first.content, "true")


@pytest.mark.parametrize(
    "other",
    [
        batch_body("atomic", spend_operation()),
        batch_body("each", spend_operation(), spend_operation()),
        batch_body("each", spend_operation(amount=4)),
        batch_body("each", spend_operation(idempotency_key="k")),
        batch_body("each", spend_operation(amount=0)),
        batch_body("each", grant_operation()),
    ],
)
def test_the_key_of_another_batch_is_a_422(api: ApiClient, holder: str, other: dict[str, Any]) -> None:
    api.post(BATCHES, batch_body("each", spend_operation()), key="b")
    with nothing_written(holder):
        problem = body_of(api.post(BATCHES, other, key="b"), 422)
    assert problem["idempotency_key"] == "b"


def test_what_was_not_valid_is_part_of_the_batch_too(api: ApiClient, holder: str) -> None:
    api.post(BATCHES, batch_body("each", spend_operation(), spend_operation(amount=0)), key="b")
    assert api.post(BATCHES, batch_body("each", spend_operation(), spend_operation(amount=-1)), key="b").status_code == 422


def test_an_operation_that_was_done_before_is_not_done_again(api: ApiClient, holder: str) -> None:
    alone = api.post(f"/v1/holders/{holder}/spends", {"amount": 3}, key="s")
    refused = api.post(f"/v1/holders/{holder}/spends", {"amount": 300}, key="no")
    with nothing_written(holder):
        asked = batch_body("each", spend_operation(idempotency_key="s"), spend_operation(amount=300, idempotency_key="no"))
        body = body_of(api.post(BATCHES, asked))
    assert body["results"] == [
        {"status": 201, "replayed": True, "body": json.loads(alone.content)},
        {"status": 402, "problem": json.loads(refused.content), "replayed": True},
    ]


def test_a_key_that_leaves_no_room_for_the_index_is_a_400_where_it_is_needed(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        problem = body_of(api.post(BATCHES, batch_body("atomic", spend_operation()), key="k" * 254), 400)
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [("/Idempotency-Key", "too-long")]
    assert api.post(BATCHES, batch_body("atomic", spend_operation()), key="k" * 253).status_code == 200
    assert api.post(BATCHES, batch_body("atomic", spend_operation(idempotency_key="own")), key="k" * 255).status_code == 200


@pytest.mark.parametrize("key", [None, " "])
def test_a_batch_without_a_key_is_a_400(api: ApiClient, holder: str, key: str | None) -> None:
    with nothing_written(holder):
        assert body_of(api.post(BATCHES, batch_body("each", grant_operation()), key=key), 400)["type"].endswith(
            "/idempotency-key-missing"
        )


# Scopes and confines ---------------------------------------------------------------------------------


def test_each_operation_needs_the_scope_of_its_own_call(make_api: Callable[..., ApiClient], holder: str) -> None:
    spender = make_api("ledger:spend")
    body = body_of(
        spender.post(
            BATCHES,
            batch_body("each", grant_operation(), spend_operation(), {"operation": "revoke", "holder": holder, "grant": 1}),
        )
    )
    assert slugs(body) == [(403, "scope-missing"), (201, "spend"), (403, "scope-missing")]
    assert body["results"][0]["problem"]["scope"] == "ledger:grant"
    with nothing_written(holder):
        assert (
            body_of(spender.post(BATCHES, batch_body("atomic", spend_operation(), grant_operation())), 403)["scope"]
            == "ledger:grant"
        )


def test_a_holder_outside_the_confines_looks_like_one_that_does_not_exist(
    make_api: Callable[..., ApiClient], holder: str
) -> None:
    confined = make_api(holder_id=holder)
    with nothing_written("somebody"):
        body = body_of(
            confined.post(
                BATCHES,
                batch_body(
                    "each", spend_operation(), grant_operation(holder="somebody"), spend_operation(holder="somebody", amount=0)
                ),
            )
        )
        assert slugs(body) == [(201, "spend"), (404, "not-found"), (404, "not-found")]
        with nothing_written(holder):
            assert body_of(
                confined.post(BATCHES, batch_body("atomic", spend_operation(), grant_operation(holder="somebody"))), 404
            )


def test_a_confined_key_neither_uses_up_nor_learns_of_a_batch_key_of_another_holder(
    make_api: Callable[..., ApiClient], api: ApiClient, holder: str
) -> None:
    ada, bob = make_api(holder_id="ada"), make_api(holder_id="bob")

    used_up = body_of(ada.post(BATCHES, batch_body("each", grant_operation(holder="ada")), key="import-7"))
    assert slugs(used_up) == [(201, "grant")]
    by_bob = bob.post(BATCHES, batch_body("each", grant_operation(holder="bob", amount=9)), key="import-7")
    by_all = api.post(BATCHES, batch_body("each", grant_operation()), key="import-7")

    for response, amount in ((by_bob, 9), (by_all, 5)):
        assert slugs(body_of(response)) == [(201, "grant")]
        assert "Idempotency-Replayed" not in response.headers
        assert body_of(response)["results"][0]["body"]["amount"] == amount
    assert sorted(Batch.objects.values_list("idempotency_key", "confined_to")) == [
        ("import-7", ""), ("import-7", "ada"), ("import-7", "bob"),
    ]  # fmt: skip


def test_within_its_confines_a_batch_key_is_the_same_for_every_api_key(make_api: Callable[..., ApiClient], holder: str) -> None:
    first, second = make_api(holder_id=holder), make_api(holder_id=holder)
    response = first.post(BATCHES, batch_body("each", spend_operation()), key="import-7")

    again = second.post(BATCHES, batch_body("each", spend_operation()), key="import-7")
    assert (again.content, again.headers["Idempotency-Replayed"]) == (response.content, "true")
    with nothing_written(holder):
        reused = body_of(second.post(BATCHES, batch_body("each", spend_operation(amount=1)), key="import-7"), 422)
    assert reused["type"].endswith("/idempotency-key-reused")


def test_without_a_valid_key_nothing_is_disclosed(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        assert ApiClient("x" * 43).post(BATCHES, batch_body("each", grant_operation())).status_code == 401
    assert api.get(BATCHES).status_code == 405


def test_a_sequence_that_no_entry_can_have_is_a_404(api: ApiClient, holder: str) -> None:
    refund = {"operation": "refund", "holder": holder, "spend": 2**63}
    assert slugs(body_of(api.post(BATCHES, batch_body("each", refund, spend_operation())))) == [
        (404, "not-found"),
        (201, "spend"),
    ]


# Dry runs --------------------------------------------------------------------------------------------


def test_a_dry_run_of_a_batch_says_all_and_writes_nothing(api: ApiClient, holder: str) -> None:
    operations = [
        grant_operation(),
        spend_operation(amount=104),
        {"operation": "transfer", "holder": holder, "to": "team-7", "amount": 1},
        spend_operation(),
    ]
    with nothing_written(holder), nothing_written("team-7"):
        body = body_of(api.post(f"{BATCHES}?dry_run=true", batch_body("each", *operations), key=None))
        rejected = body_of(api.post(f"{BATCHES}?dry_run=true", batch_body("atomic", *operations), key="b"), 409)
    assert slugs(body) == [(201, "grant"), (201, "spend"), (201, "transfer_out"), (402, "insufficient-credits")]
    assert [result["body"]["balance"] for result in body["results"][:3]] == [105, 1, 0]
    assert {result["body"]["idempotency_key"] for result in body["results"][:3]} == {None}
    assert (rejected["index"], Batch.objects.count(), Entry.objects.count()) == (3, 0, 1)
    assert "Idempotency-Replayed" not in api.post(BATCHES, batch_body("atomic", *operations), key="b")


def test_a_batch_takes_no_condition(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        problem = body_of(api.post(BATCHES, batch_body("each", grant_operation()), If_Match='"1"'), 400)
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [("/If-Match", "not-here")]
