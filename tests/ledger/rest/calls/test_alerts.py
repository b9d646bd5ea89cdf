"""Alerts over REST: declared once for a key, replaced, listed, read and ended; refusals write nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import services
from ledger.database.statements import fetch_value
from ledger.signals import alert_declarations
from ledger.signals.feed import feed
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal

BODY = {"below": 100, "holder_id": "ada", "credit_type": "credits", "reason": "Asked for"}


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may do everything with alerts."""
    return make_api("signals:read", "signals:write", name="shop")


def rows() -> int:
    """How many rows writes of alerts leave."""
    return fetch_value(int, "SELECT (SELECT count(*) FROM ledger_alert) + (SELECT count(*) FROM ledger_alert_look)")


def declare(api: ApiClient, alert: str = "low", **body: Any) -> dict[str, Any]:
    response = api.put(f"/v1/alerts/{alert}", body or BODY)
    assert response.status_code == 200, response.content
    made: dict[str, Any] = response.json()
    return made


def test_an_alert_is_declared_read_listed_and_ended(api: ApiClient) -> None:
    made = declare(api)
    assert {name: made[name] for name in BODY} == BODY
    assert (made["alert"], made["state"], made["declared_by"], made["days_left"]) == ("low", "declared", "key:shop", None)
    default = declare(api, days_left=3)
    assert (default["holder_id"], default["days_left"], default["rate_days"]) == (None, 3, 7)
    assert api.get("/v1/alerts/low?holder_id=ada&credit_type=credits").json() == made
    assert api.get("/v1/alerts/low").json() == default
    assert api.get("/v1/alerts").json()["results"] == [default, made]
    assert api.get("/v1/alerts?holder=ada").json()["results"] == [made]
    assert api.get("/v1/alerts?alert=other").json()["results"] == []
    ended = api.delete("/v1/alerts/low?holder_id=ada&credit_type=credits&reason=Over").json()
    assert (ended["state"], ended["reason"], ended["below"]) == ("ended", "Over", None)
    assert api.get("/v1/alerts").json()["results"] == [default]
    problem_of_refusal(api.get("/v1/alerts/low?holder_id=ada&credit_type=credits"), 404)


def test_a_list_of_alerts_has_pages_in_both_directions(api: ApiClient) -> None:
    for name in "abcde":
        declare(api, name, below=1)
    first = api.get("/v1/alerts?limit=2").json()
    second = api.get(first["next"]).json()
    assert [[each["alert"] for each in page["results"]] for page in (first, second)] == [["e", "d"], ["c", "b"]]
    assert api.get(second["previous"]).json()["results"] == first["results"]


def test_the_accounts_that_are_low_are_listed(api: ApiClient) -> None:
    declare(api, below=100)
    for holder, amount in (("ada", 99), ("bob", 100), ("cyd", 5), ("dan", 5)):
        services.grant(holder_id=holder, amount=amount, idempotency_key="g")
    services.grant(holder_id="ada", credit_type="sms", amount=5, idempotency_key="s")
    services.spend(holder_id="cyd", amount=5, idempotency_key="all")
    feed()
    path = "/v1/alerts/low/accounts"
    low = api.get(path).json()["results"]
    accounts = {(each["holder_id"], each["credit_type"]): each for each in low}
    assert set(accounts) == {("ada", "credits"), ("ada", "sms"), ("cyd", "credits"), ("dan", "credits")}
    assert [each["crossed_at"] for each in low] == sorted((each["crossed_at"] for each in low), reverse=True)
    assert {account for account, each in accounts.items() if each["is_depleted"]} == {("cyd", "credits")}
    assert {each["crossing"] for each in low} == {1}
    assert [each["credit_type"] for each in api.get(f"{path}?holder=ada&credit_type=sms").json()["results"]] == ["sms"]
    first = api.get(f"{path}?limit=3").json()
    second = api.get(first["next"]).json()
    assert first["results"] + second["results"] == low
    assert api.get(second["previous"]).json()["results"] == first["results"]
    services.grant(holder_id="dan", amount=100, idempotency_key="up")
    feed()
    assert "dan" not in {each["holder_id"] for each in api.get(path).json()["results"]}
    problem_of_refusal(api.get("/v1/alerts/none/accounts"), 404)
    api.delete("/v1/alerts/low")
    problem_of_refusal(api.get(path), 404)


def test_a_repeated_request_gets_the_same_bytes(api: ApiClient) -> None:
    first = api.put("/v1/alerts/low", BODY, key="one")
    again = api.put("/v1/alerts/low", BODY, key="one")
    assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
    before = rows()
    for other in (api.put("/v1/alerts/low", BODY | {"below": 1}, key="one"), api.delete("/v1/alerts/low", key="one")):
        assert problem_of_refusal(other, 422)["type"].endswith("/idempotency-key-reused")
    assert rows() == before == 2


def test_a_dry_run_writes_nothing(api: ApiClient) -> None:
    declare(api)
    before = rows()
    tried = api.put("/v1/alerts/low?dry_run=true", {"below": 5}, key=None)
    assert (tried.status_code, tried.json()["id"], tried.json()["below"]) == (200, None, 5)
    ended = api.delete("/v1/alerts/low?holder_id=ada&credit_type=credits&dry_run=true", key=None)
    assert (ended.json()["state"], rows()) == ("ended", before)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"below": 0}, "/below", "too-small"),
        ({"below": "10"}, "/below", "not-an-integer"),
        ({"days_left": 3}, "/days_left", "not-both"),
        ({"rate_days": 3}, "/rate_days", "not-used"),
        ({"holder_id": "a b"}, "/holder_id", "pattern"),
        ({"credit_type": "Credits"}, "/credit_type", "pattern"),
        ({"limit": 3}, "/limit", "unknown-field"),
        ({"reason": "r" * 501}, "/reason", "too-long"),
    ],
)
def test_what_is_wrong_is_said_by_its_field_and_nothing_is_written(
    api: ApiClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    problem_of_refusal(api.put("/v1/alerts/low", BODY | change), 400, (pointer, code))
    assert rows() == 0


def test_an_alert_without_a_limit_is_refused(api: ApiClient) -> None:
    problem_of_refusal(api.put("/v1/alerts/low", {}), 400, ("/below", "required"))
    problem_of_refusal(api.put("/v1/alerts/Low", BODY), 404)
    assert rows() == 0


def test_an_alert_that_is_not_there_and_one_too_many_are_refused(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_declarations, "MAX_ALERTS", 1)
    declare(api)
    before = rows()
    assert problem_of_refusal(api.delete("/v1/alerts/low"), 404)["alert"] == "low"
    problem = problem_of_refusal(api.put("/v1/alerts/other", BODY), 409)
    assert (problem["type"].rpartition("/")[2], problem["limit"], rows()) == ("alert-limit", 1, before)


def test_a_key_for_one_holder_sees_no_alerts_and_one_that_reads_declares_none(
    make_api: Callable[..., ApiClient], db: None
) -> None:
    confined = make_api("signals:read", "signals:write", holder_id="ada")
    for response in (confined.get("/v1/alerts"), confined.put("/v1/alerts/low", BODY), confined.delete("/v1/alerts/low")):
        problem_of_refusal(response, 404)
    reader = make_api("signals:read")
    problem_of_refusal(reader.put("/v1/alerts/low", BODY), 403)
    assert rows() == 0
