"""Transfers between holders, and overdrafts, over REST."""

import json
from collections.abc import Callable

import pytest

from ledger import services
from tests.ledger.rest.conftest import ApiClient, entry_of_201, nothing_written, rows_of

TRANSFERS = "/v1/holders/customer-42/transfers"


def test_a_transfer_returns_the_entry_of_the_sender(api: ApiClient, holder: str) -> None:
    gave = entry_of_201(api.post(TRANSFERS, {"to": "team-7", "amount": 10, "reason": "team"}, key="t"), "counterpart")
    assert gave.pop("effective_at")
    assert gave == {
        "holder_id": holder,
        "credit_type": "credits",
        "sequence": 2,
        "kind": "transfer_out",
        "amount": -10,
        "balance": 90,
        "held": 0,
        "drawn": [{"grant": 1, "amount": 10}],
        "refers_to": None,
        "actor": "key:shop",
        "reason": "team",
        "reference": "",
        "metadata": {},
        "idempotency_key": "t",
        "counterpart": {"holder_id": "team-7"},
    }
    got = json.loads(api.get("/v1/holders/team-7/entries/1").content)
    assert (got["kind"], got["amount"], got["idempotency_key"]) == ("transfer_in", 10, None)
    assert got["counterpart"] == {"holder_id": holder, "sequence": 2, "grant": 1}
    assert list(got["counterpart"]) == ["holder_id", "sequence", "grant"]


def test_a_transfer_beyond_the_balance_moves_nothing(api: ApiClient, holder: str) -> None:
    with nothing_written("team-7"):
        response = api.post(TRANSFERS, {"to": "team-7", "amount": 101})
    assert (response.status_code, json.loads(response.content)["shortfall"]) == (402, 1)
    assert rows_of(holder) == (1, 1)


def test_a_transfer_to_oneself_is_a_400(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        response = api.post(TRANSFERS, {"to": holder, "amount": 1})
    assert (response.status_code, json.loads(response.content)["errors"][0]["pointer"]) == (400, "/to")


INCOMING = "/v1/holders/team-7/incoming-transfers"


def test_a_holder_refuses_transfers_and_the_sender_learns_that_and_nothing_else(
    api: ApiClient, holder: str, make_api: Callable[..., ApiClient]
) -> None:
    own = make_api("ledger:transfer", "ledger:read", holder_id="team-7")
    said = own.get(INCOMING).json()
    assert said == {
        "holder_id": "team-7",
        "credit_type": "credits",
        "accepts_transfers": True,
        "changed_by": None,
        "changed_at": None,
    }
    services.grant(holder_id="team-7", amount=7, idempotency_key="g")
    set_to = own.put(INCOMING, {"accepts_transfers": False, "reason": "no gifts"})
    entry = set_to.json()
    assert (set_to.status_code, entry["kind"], entry["amount"], entry["accepts_transfers"]) == (201, "adjust", 0, False)
    assert "counterpart" not in entry
    assert own.get("/v1/holders/team-7/entries").json()["results"][0] == entry
    assert own.get(INCOMING).json() | {"changed_at": ""} == {
        "holder_id": "team-7", "credit_type": "credits", "accepts_transfers": False,
        "changed_by": 2, "changed_at": "",
    }  # fmt: skip

    sender = make_api("ledger:transfer", holder_id=holder)
    refused = sender.post(TRANSFERS, {"to": "team-7", "amount": 1})
    problem = refused.json()
    assert (refused.status_code, problem["type"].rsplit("/", 1)[1]) == (409, "transfers-refused")
    assert set(problem) == {"type", "title", "status", "detail", "request_id", "outcome", "to"}
    assert problem["outcome"] == "not_executed"
    assert own.put(INCOMING, {"accepts_transfers": True}).status_code == 201
    assert sender.post(TRANSFERS, {"to": "team-7", "amount": 1}).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"accepts_transfers": "no"},
        {"accepts_transfers": 0},
        {"accepts_transfers": None},
        {"accepts_transfers": True, "limit": 1},
    ],
)
def test_the_setting_is_read_strictly(api: ApiClient, holder: str, body: dict[str, object]) -> None:
    with nothing_written(holder):
        assert api.put(f"/v1/holders/{holder}/incoming-transfers", body).status_code == 400


def test_a_confined_key_may_give_to_whomever_but_not_take(
    api: ApiClient, holder: str, make_api: Callable[..., ApiClient]
) -> None:
    services.grant(holder_id="team-7", amount=5, idempotency_key="g")
    confined = make_api("ledger:transfer", holder_id=holder)
    assert confined.post(TRANSFERS, {"to": "team-7", "amount": 1}).status_code == 201
    with nothing_written("team-7"):
        assert confined.post("/v1/holders/team-7/transfers", {"to": holder, "amount": 1}).status_code == 404


def test_an_overdraft_is_an_entry_and_part_of_what_is_available(make_api: Callable[..., ApiClient], holder: str) -> None:
    admin = make_api("ledger:admin")
    agreed = entry_of_201(admin.put(f"/v1/holders/{holder}/overdraft", {"limit": 50, "reason": "trusted"}, key="o"), "overdraft")
    assert (agreed["kind"], agreed["amount"], agreed["balance"], agreed["overdraft"], agreed["reason"]) == (
        "adjust",
        0,
        100,
        50,
        "trusted",
    )
    spent = entry_of_201(admin.post(f"/v1/holders/{holder}/spends", {"amount": 130}), "overdraft")
    assert (spent["balance"], spent["drawn"], spent["overdraft"]) == (-30, [{"grant": 1, "amount": 100}], 50)
    account = json.loads(admin.get(f"/v1/holders/{holder}/balance").content)
    assert (account["available"], account["balance"], account["overdraft"], account["lots"]) == (20, -30, 50, [])
    refused = json.loads(admin.post(f"/v1/holders/{holder}/spends", {"amount": 21}).content)
    assert (refused["available"], refused["balance"], refused["shortfall"]) == (20, -30, 1)
