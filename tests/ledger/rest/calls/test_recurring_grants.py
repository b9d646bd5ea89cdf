"""Recurring grants over REST: set, read, listed, ended; the next grants; and what does not fit."""

import json
from collections.abc import Callable
from datetime import datetime

import pytest

from ledger import services
from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient, entry_of_201, nothing_written, problem_of_refusal


@pytest.fixture
def admin(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with all scopes."""
    return make_api(*ALL_SCOPES, "ledger:admin")


@pytest.fixture
def path(holder: str) -> str:
    """Where the recurring grants of the holder are."""
    return f"/v1/holders/{holder}/recurring-grants"


MONTHLY = {"amount": 100, "interval": "month", "starts_at": "2200-01-31T00:00:00Z", "time_zone": "Europe/Berlin"}


def test_a_recurring_grant_is_set_read_listed_and_ended(admin: ApiClient, path: str) -> None:
    response = admin.put(f"{path}/monthly", MONTHLY | {"reason": "Agreed"}, key="k")
    entry = entry_of_201(response, "recurring_grant")
    assert (entry["kind"], entry["amount"], entry["recurring_grant"]) == ("adjust", 0, "monthly")
    assert admin.put(f"{path}/monthly", MONTHLY | {"reason": "Agreed"}, key="k").content == response.content
    found = json.loads(admin.get(f"{path}/monthly?upcoming=2").content)
    assert [(each["starts_at"][:16], each["expires_at"][:16]) for each in found["upcoming"]] == [
        ("2200-01-31T00:00", "2200-02-28T00:00"),
        ("2200-02-28T00:00", "2200-03-30T23:00"),
    ]
    assert (found["state"], found["amount"], found["up_to"], found["next_at"][:10]) == ("active", 100, None, "2200-01-31")
    admin.put(f"{path}/daily", {"up_to": 5, "interval": "day", "expiry": "never", "periods": 1})
    listed = json.loads(admin.get(f"{path}?limit=1").content)
    assert [each["recurring_grant"] for each in listed["results"]] == ["daily"]
    second = json.loads(admin.get(listed["next"]).content)
    assert [each["recurring_grant"] for each in second["results"]] == ["monthly"]
    ended = admin.delete(f"{path}/monthly?reason=Over", key="end")
    assert (ended.status_code, json.loads(ended.content)["recurring_grant"]) == (200, "monthly")
    again = admin.delete(f"{path}/monthly?reason=Over", key="end")
    assert (again.content, again["Idempotency-Replayed"]) == (ended.content, "true")
    assert admin.get(f"{path}/monthly").status_code == 404
    problem = problem_of_refusal(admin.delete(f"{path}/monthly", key="end-2"), 404)
    assert problem["type"].endswith("/recurring-grant-not-found")


def test_what_is_due_is_granted_before_other_terms_begin(admin: ApiClient, path: str, holder: str) -> None:
    before = json.loads(admin.get(f"/v1/holders/{holder}/balance").content)["available"]
    admin.put(f"{path}/daily", {"amount": 7, "interval": "day", "expiry": "never"})
    admin.put(f"{path}/daily", {"amount": 8, "interval": "day", "expiry": "never", "change": "keep"})
    assert json.loads(admin.get(f"/v1/holders/{holder}/balance").content)["available"] == before + 7
    found = json.loads(admin.get(f"{path}/daily").content)
    assert (found["amount"], found["next_at"]) == (8, found["granted_until"])
    assert datetime.fromisoformat(found["next_at"]) > datetime.fromisoformat(found["starts_at"])
    assert services.grant_all_due().periods == 0
    query = f"/v1/entries?holder={holder}&reference=recurring%20grant%20daily"
    (entry,) = json.loads(admin.get(query).content)["results"]
    assert (entry["kind"], entry["amount"], entry["reason"][:19]) == ("grant", 7, "Daily grant, period")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"amount": None, "up_to": None}, "/amount"),
        ({"interval": "hour"}, "/interval"),
        ({"interval_count": 101}, "/interval_count"),
        ({"expiry": "rollover"}, "/rollover_cap"),
        ({"expires_after_days": 2}, "/expires_after_days"),
        ({"ends_at": "2199-01-01T00:00:00Z"}, "/ends_at"),
        ({"time_zone": "Mars"}, "/time_zone"),
        ({"periods": 0}, "/periods"),
        ({"setting": 1}, "/setting"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(
    admin: ApiClient, path: str, holder: str, change: dict, pointer: str
) -> None:
    with nothing_written(holder):
        response = admin.put(f"{path}/monthly", {name: item for name, item in (MONTHLY | change).items() if item is not None})
    problem = json.loads(response.content)
    assert (response.status_code, problem["outcome"]) == (400, "not_executed")
    assert [each["pointer"] for each in problem["errors"]] == [pointer]


def test_a_dry_run_shows_the_entry_and_sets_nothing(admin: ApiClient, path: str, holder: str) -> None:
    with nothing_written(holder):
        response = admin.put(f"{path}/monthly?dry_run=true", MONTHLY, key="k")
    assert (response.status_code, json.loads(response.content)["recurring_grant"]) == (200, "monthly")
    assert admin.get(f"{path}/monthly").status_code == 404
