"""ETag, If-Match and If-None-Match: write only if nothing has happened since."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from ledger import services
from ledger.rules.accounts import AccountState
from tests.ledger.rest.conftest import ApiClient, nothing_written, rows_of

# Of the holder that the fixture `holder` makes, with 100 credits in entry 1.
BALANCE = "/v1/holders/customer-42/balance"
SPENDS = "/v1/holders/customer-42/spends"


def test_the_balance_bears_the_sequence_as_its_etag(api: ApiClient, holder: str) -> None:
    assert api.get(BALANCE)["ETag"] == '"1"'
    assert api.get("/v1/holders/nobody/balance")["ETag"] == '"0"'
    assert "ETag" not in api.get(f"{BALANCE}?at=2026-01-01T00:00:00Z")
    assert "ETag" not in api.get(f"{BALANCE}?by=effective")


def test_a_write_is_done_while_the_account_is_as_it_was_seen(api: ApiClient, holder: str) -> None:
    tag = api.get(BALANCE)["ETag"]
    first = api.post(SPENDS, {"amount": 1}, key="k", If_Match=tag)
    assert first.status_code == 201
    with nothing_written(holder):
        moved = api.post(SPENDS, {"amount": 1}, key="k2", If_Match=tag)
        again = api.post(SPENDS, {"amount": 1}, key="k", If_Match=tag)
    problem = json.loads(moved.content)
    assert (moved.status_code, problem["type"].rsplit("/", 1)[1]) == (412, "account-moved-on")
    assert (problem["expected"], problem["sequence"], problem["outcome"]) == (1, 2, "not_executed")
    assert (again.status_code, again.content) == (201, first.content)
    assert api.post(SPENDS, {"amount": 1}, key="k2", If_Match=' "2" ').status_code == 201


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("grants", {"amount": 1}),
        ("refunds", {"spend": 2}),
        ("revocations", {"grant": 1}),
        ("holds", {"amount": 1}),
        ("holds/3/captures", {}),
        ("holds/3/release", {}),
        ("holds/3/extend", {"expires_at": "2090-01-01T00:00:00Z"}),
        ("transfers", {"to": "team-7", "amount": 1}),
    ],
)
def test_every_write_heeds_the_condition(api: ApiClient, holder: str, path: str, body: dict[str, Any]) -> None:
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    services.hold(holder_id=holder, amount=1, idempotency_key="h")
    with nothing_written(holder), nothing_written("team-7"):
        assert api.post(f"/v1/holders/{holder}/{path}", body, If_Match='"2"').status_code == 412


@pytest.mark.parametrize("tag", ['"0"', '"2"', '"9223372036854775807"'], ids=["behind", "ahead", "far ahead"])
def test_a_write_is_refused_whichever_way_the_account_is_not_as_it_was_seen(api: ApiClient, holder: str, tag: str) -> None:
    """Ahead it is where the database was set back to a copy from before, or the tag is another account's."""
    with nothing_written(holder):
        refused = api.post(SPENDS, {"amount": 1}, key="k", If_Match=tag)
    problem = json.loads(refused.content)
    assert (refused.status_code, problem["expected"], problem["sequence"]) == (412, int(tag.strip('"')), 1)
    assert api.post(SPENDS, {"amount": 1}, key="k", If_Match='"1"').status_code == 201, "the key is free for the right tag"


def test_an_account_without_entries_is_at_0_and_a_star_is_no_condition(api: ApiClient, holder: str) -> None:
    grant = {"amount": 1}
    assert api.post("/v1/holders/new/grants", grant, If_Match='"0"').status_code == 201
    assert api.post("/v1/holders/new/grants", grant, If_Match='"0"').status_code == 412
    assert api.post("/v1/holders/new/grants", grant, If_Match="*").status_code == 201


@pytest.mark.parametrize("tag", ["1", '"01"', '"x"', 'W/"1"', '"1", "2"', "", '""', '"-1"', '"9223372036854775808"', '"1"x'])
def test_an_if_match_that_no_balance_gives_is_a_400(api: ApiClient, holder: str, tag: str) -> None:
    with nothing_written(holder):
        response = api.post(SPENDS, {"amount": 1}, If_Match=tag)
    assert response.status_code == 400
    assert [(error["pointer"], error["code"]) for error in json.loads(response.content)["errors"]] == [("/If-Match", "not-a-tag")]


def test_rates_take_no_condition(make_api: Any, holder: str) -> None:
    response = make_api("ledger:admin").post("/v1/rates", {"ref": "a", "price": 1, "per": 1}, If_Match="*")
    assert (response.status_code, json.loads(response.content)["errors"][0]["code"]) == (400, "not-here")


@pytest.mark.parametrize("tag", ['"1"', 'W/"1"', '"7", "1"', "*"])
def test_a_balance_that_is_known_is_a_304(api: ApiClient, holder: str, tag: str, way: type[Client]) -> None:
    response = api.get(BALANCE, If_None_Match=tag)
    assert (response.status_code, response.content, response["ETag"]) == (304, b"", '"1"')
    # Django's CommonMiddleware gives a length to every response.
    added = {"Content-Length"} if way is Client else set()
    assert {"Content-Length", "Content-Type"} & set(response.headers) == added
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    if tag != "*":
        assert api.get(BALANCE, If_None_Match=tag).status_code == 200


@pytest.mark.parametrize("tag", ['"2"', '"11"', "1", "nonsense", '"7", "8"', ""])
def test_a_balance_with_another_etag_is_returned(api: ApiClient, holder: str, tag: str) -> None:
    assert api.get(BALANCE, If_None_Match=tag).status_code == 200


def test_what_the_clock_has_changed_is_not_known(api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services.grant(holder_id=holder, amount=5, idempotency_key="g", expires_at=datetime.now(UTC) + timedelta(days=1))
    assert api.get(BALANCE, If_None_Match='"2"').status_code == 304
    day_us = 86_400_000_000
    make = AccountState.__new__
    # The account as it is looked at two days later.
    monkeypatch.setattr(
        "ledger.reads.account_state.AccountState",
        lambda *fields: make(AccountState, *fields[:2], fields[2] + 2 * day_us, *fields[3:]),
    )
    response = api.get(BALANCE, If_None_Match='"2"')
    assert (response.status_code, json.loads(response.content)["available"], rows_of(holder)) == (200, 100, (2, 0))
