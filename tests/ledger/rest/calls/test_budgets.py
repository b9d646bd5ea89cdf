"""Budgets over REST: set, read, ended; and what a call beyond one responds with."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger import services
from tests.ledger.rest.conftest import ALL_SCOPES, TIME, ApiClient, entry_of_201, nothing_written, problem_of_refusal, rows_of

EACH_MEMBER = {"limit": 10, "window": "day", "by": "label", "label": "member"}


@pytest.fixture
def admin(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with all scopes."""
    return make_api(*ALL_SCOPES, "ledger:admin")


@pytest.fixture
def budgets(holder: str) -> str:
    """Where the budgets of the holder are, who has 100 credits."""
    return f"/v1/holders/{holder}/budgets"


def test_a_budget_is_set_read_listed_and_ended(admin: ApiClient, holder: str, budgets: str) -> None:
    response = admin.put(f"{budgets}/daily", EACH_MEMBER | {"reason": "Agreed"}, key="k")
    entry = entry_of_201(response, "budget")
    assert (entry["kind"], entry["amount"], entry["budget"], entry["reason"]) == ("adjust", 0, "daily", "Agreed")
    assert admin.put(f"{budgets}/daily", EACH_MEMBER | {"reason": "Agreed"}, key="k").content == response.content
    services.spend(holder_id=holder, amount=7, idempotency_key="s", metadata={"member": "ann"})
    found = json.loads(admin.get(f"{budgets}/daily").content)
    as_of = datetime.fromisoformat(found.pop("as_of"))
    resets_at = found["usage"][0].pop("resets_at")
    assert TIME.fullmatch(resets_at)
    assert timedelta() < datetime.fromisoformat(resets_at) - as_of <= timedelta(days=1)
    assert found == {
        "holder_id": holder, "credit_type": "credits", "budget": "daily", "limit": 10, "window": "day", "hours": None,
        "time_zone": "UTC", "by": "label", "label": "member", "subject": None, "mode": "hard",
        "parent": None, "in_force": True, "starts_at": None, "ends_at": None, "later": [],
        "set_by": entry["actor"], "reference": "", "subjects": 1,
        "usage": [{"subject": "ann", "within": [], "used": 7, "remaining": 3, "exceeded": False}],
    }  # fmt: skip
    admin.put(f"{budgets}/all", {"limit": 5, "window": "rolling", "hours": 2, "mode": "soft"})
    listed = json.loads(admin.get(f"{budgets}?limit=1").content)
    assert [each["budget"] for each in listed["results"]] == ["all"]
    second = json.loads(admin.get(listed["next"]).content)
    assert [each["budget"] for each in second["results"]] == ["daily"]
    assert [each["budget"] for each in json.loads(admin.get(second["previous"]).content)["results"]] == ["all"]
    ended = admin.delete(f"{budgets}/daily?reason=Over", key="end")
    assert (ended.status_code, json.loads(ended.content)["budget"], json.loads(ended.content)["reason"]) == (200, "daily", "Over")
    again = admin.delete(f"{budgets}/daily?reason=Over", key="end")
    assert (again.content, again["Idempotency-Replayed"]) == (ended.content, "true")
    assert admin.get(f"{budgets}/daily").status_code == 404
    problem = problem_of_refusal(admin.delete(f"{budgets}/daily", key="end-2"), 404)
    assert problem["type"].endswith("/budget-not-found")


def test_a_budget_for_later_is_shown_as_such_and_may_end_at_an_instant(admin: ApiClient, budgets: str) -> None:
    coming = {"starts_at": "2199-03-01T00:00:00Z", "ends_at": "2199-04-01T00:00:00Z"}
    entry = entry_of_201(admin.put(f"{budgets}/b", {"limit": 5, "window": "day"} | coming), "budget")
    found = json.loads(admin.get(f"{budgets}/b").content)
    instants = {"starts_at": "2199-03-01T00:00:00.000000Z", "ends_at": "2199-04-01T00:00:00.000000Z"}
    expected = {"in_force": False, "limit": 5, "later": [], "usage": [], "subjects": 0} | instants
    assert {name: found[name] for name in expected} == expected
    assert json.loads(admin.get(f"{budgets}/b/usage").content)["results"] == []
    admin.put(f"{budgets}/b", {"limit": 9, "window": "month", "ends_at": "2199-03-01T00:00:00Z"})
    found = json.loads(admin.get(f"{budgets}/b").content)
    assert (found["in_force"], found["limit"], found["starts_at"], found["ends_at"]) == (True, 9, None, instants["starts_at"])
    assert [(each["limit"], each["window"], each["starts_at"]) for each in found["later"]] == [(5, "day", instants["starts_at"])]
    assert admin.delete(f"{budgets}/b?ends_at=2199-02-01T00:00:00Z", key="end").status_code == 200
    found = json.loads(admin.get(f"{budgets}/b").content)
    assert (found["limit"], found["ends_at"], found["later"]) == (9, "2199-02-01T00:00:00.000000Z", [])
    explained = admin.get(budgets.replace("budgets", f"entries/{entry['sequence']}/explanation")).content.decode()
    assert "from 2199-03-01 00:00:00 UTC on until 2199-04-01 00:00:00 UTC" in explained


@pytest.mark.parametrize("way_to_use", ["spends", "holds", "transfers"])
def test_what_exceeds_a_hard_budget_is_a_402_with_the_facts(admin: ApiClient, holder: str, budgets: str, way_to_use: str) -> None:
    admin.put(f"{budgets}/daily", EACH_MEMBER)
    services.hold(holder_id=holder, amount=8, idempotency_key="h", metadata={"member": "ann"})
    body = {"amount": 3, "metadata": {"member": "ann"}} | ({"to": "team-7"} if way_to_use == "transfers" else {})
    entries, refusals = rows_of(holder)
    problem = problem_of_refusal(admin.post(f"/v1/holders/{holder}/{way_to_use}", body, key="k"), 402)
    assert TIME.fullmatch(problem.pop("resets_at"))
    assert problem.pop("request_id")
    assert problem == {
        "type": "https://credit-ledger.example/problems/budget-exceeded",
        "title": "The budget is used up",
        "status": 402,
        "detail": "The request needs 3 credits within the budget daily.",
        "outcome": "not_executed",
        "budget": "daily", "subject": "ann", "requested": 3, "limit": 10, "used": 8, "remaining": 2,
    }  # fmt: skip
    assert rows_of(holder) == (entries, refusals + 1)
    admin.delete(f"{budgets}/daily")
    again = admin.post(f"/v1/holders/{holder}/{way_to_use}", body, key="k")
    assert (again.status_code, again["Idempotency-Replayed"]) == (402, "true")


def test_each_operation_of_a_batch_counts(admin: ApiClient, holder: str, budgets: str) -> None:
    admin.put(f"{budgets}/daily", {"limit": 10, "window": "day"})
    spend = {"operation": "spend", "holder": holder, "amount": 6}
    response = admin.post("/v1/batches", {"mode": "each", "operations": [spend, spend, {**spend, "amount": 4}]})
    assert [each["status"] for each in json.loads(response.content)["results"]] == [201, 402, 201]


def test_a_dry_run_of_budget_and_spend_writes_nothing(admin: ApiClient, holder: str, budgets: str) -> None:
    with nothing_written(holder):
        assert admin.put(f"{budgets}/daily?dry_run=true", EACH_MEMBER).status_code == 200
    admin.put(f"{budgets}/daily", EACH_MEMBER)
    with nothing_written(holder):
        assert admin.delete(f"{budgets}/daily?dry_run=true").status_code == 200
        assert admin.post(f"/v1/holders/{holder}/spends?dry_run=true", {"amount": 10}).status_code == 200
        assert admin.post(f"/v1/holders/{holder}/spends?dry_run=true", {"amount": 11}).status_code == 402


def test_a_dry_run_tells_a_key_that_may_not_read_no_numbers(
    make_api: Callable[..., ApiClient], admin: ApiClient, holder: str, budgets: str
) -> None:
    admin.put(f"{budgets}/daily", {"limit": 10, "window": "day"})
    spender = make_api("ledger:spend")
    tried = problem_of_refusal(spender.post(f"/v1/holders/{holder}/spends?dry_run=true", {"amount": 11}), 402)
    assert tried.keys().isdisjoint({"limit", "used", "remaining"})
    assert problem_of_refusal(spender.post(f"/v1/holders/{holder}/spends", {"amount": 11}), 402)["remaining"] == 10


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"window": "day"}, "/limit", "required"),
        ({"limit": 1}, "/window", "required"),
        ({"limit": -1, "window": "day"}, "/limit", "too-small"),
        ({"limit": 1, "window": "year"}, "/window", "not-a-choice"),
        ({"limit": 1, "window": "rolling"}, "/hours", "with-rolling"),
        ({"limit": 1, "window": "day", "time_zone": "Mars"}, "/time_zone", "unknown-time-zone"),
        ({"limit": 1, "window": "day", "by": "label"}, "/label", "with-label"),
        ({"limit": 1, "window": "day", "budget": "x"}, "/budget", "unknown-field"),
        ({"limit": 1.5, "window": "day"}, "/limit", "not-an-integer"),
        ({"limit": 1, "window": "day", "starts_at": "tomorrow"}, "/starts_at", "not-a-time"),
        ({"limit": 1, "window": "day", "ends_at": "2020-01-01T00:00:00Z"}, "/ends_at", "past"),
        (
            {"limit": 1, "window": "day", "starts_at": "2199-01-01T00:00:00Z", "ends_at": "2199-01-01T00:00:00Z"},
            "/ends_at",
            "order",
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_field(
    admin: ApiClient, holder: str, budgets: str, body: dict[str, Any], pointer: str, code: str
) -> None:
    with nothing_written(holder):
        problem_of_refusal(admin.put(f"{budgets}/b", body), 400, (pointer, code))


def test_a_label_that_cannot_be_counted_is_refused_by_field(admin: ApiClient, holder: str, budgets: str) -> None:
    admin.put(f"{budgets}/daily", EACH_MEMBER)
    with nothing_written(holder):
        response = admin.post(f"/v1/holders/{holder}/spends", {"amount": 1, "metadata": {"member": "x" * 201}})
        problem_of_refusal(response, 400, ("/metadata/member", "too-long"))


def test_a_budget_needs_the_scope_of_an_administrator(make_api: Callable[..., ApiClient], api: ApiClient, budgets: str) -> None:
    spender = make_api("ledger:spend", "ledger:read")
    assert spender.put(f"{budgets}/daily", EACH_MEMBER).status_code == 403
    assert spender.delete(f"{budgets}/daily").status_code == 403
    assert spender.get(budgets).status_code == 200


def test_the_explanation_names_the_budgets_that_counted(admin: ApiClient, holder: str, budgets: str) -> None:
    admin.put(f"{budgets}/daily", EACH_MEMBER)
    services.spend(holder_id=holder, amount=7, idempotency_key="s", metadata={"member": "ann"})
    explained = json.loads(admin.get(f"/v1/holders/{holder}/entries/3/explanation").content)
    assert explained["budgets"] == [
        {
            "budget": "daily", "subject": "ann", "within": [], "mode": "hard", "limit": 10, "used_before": 0, "used": 7,
            "text": "Member ann has used 7 of 10 a day; before, 0.",
        }
    ]  # fmt: skip
    admin.post(f"/v1/holders/{holder}/spends", {"amount": 9, "metadata": {"member": "ann"}})
    refused = json.loads(admin.get(f"/v1/holders/{holder}/entries/4/explanation").content)["text"]
    assert "The budget daily of ann had 7 of 10 used, and 9 were requested. It resets at " in refused
    set_up = json.loads(admin.get(f"/v1/holders/{holder}/entries/2/explanation").content)["text"]
    assert set_up == "The account has the hard budget daily, 10 credits a day for each member, from now on."


def test_the_usage_of_a_budget_is_listed_by_subject_in_pages(admin: ApiClient, holder: str, budgets: str) -> None:
    admin.put(f"{budgets}/member", EACH_MEMBER)
    admin.put(f"{budgets}/agent", EACH_MEMBER | {"label": "agent", "parent": "member"})
    for number, member in enumerate(("cy", "ann", "ben")):
        metadata = {"member": member, "agent": "a1"}
        services.spend(holder_id=holder, amount=number + 1, idempotency_key=member, metadata=metadata)
    first = json.loads(admin.get(f"{budgets}/member/usage?limit=2").content)
    assert [(each["subject"], each["used"]) for each in first["results"]] == [("ann", 2), ("ben", 3)]
    second = json.loads(admin.get(first["next"]).content)
    assert [(each["subject"], each["remaining"]) for each in second["results"]] == [("cy", 9)]
    assert json.loads(admin.get(second["previous"]).content)["results"] == first["results"]
    one = json.loads(admin.get(f"{budgets}/member/usage?subject=ann").content)["results"]
    assert one == first["results"][:1]
    agents = json.loads(admin.get(f"{budgets}/agent/usage?subject=a1").content)["results"]
    assert [(each["within"], each["subject"], each["used"]) for each in agents] == [
        (["ann"], "a1", 2), (["ben"], "a1", 3), (["cy"], "a1", 1),
    ]  # fmt: skip
    assert json.loads(admin.get(f"{budgets}/agent").content)["parent"] == "member"
    assert admin.get(f"{budgets}/none/usage").status_code == 404
