"""Where the credits of an account went, over HTTP: parameters by field, groups, days of a zone."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from ledger import services
from ledger.testing import FixedClock, api_key, unique

pytestmark = pytest.mark.django_db


def get(query: str, *, holder: str = "ada", scopes: tuple[str, ...] = ("ledger:read",), **confines: Any) -> Any:
    key = api_key(*scopes, **confines)
    return Client().get(f"/v1/holders/{holder}/usage{query}", headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
def used(db: None) -> None:
    """Ada used 30 for ann and 12 for ben on 1 January in Berlin, and 5 for nobody after midnight there; 3 of ann's came back."""
    with FixedClock(datetime(2026, 1, 1, 12, tzinfo=UTC)) as clock:
        services.grant(holder_id="ada", amount=100, idempotency_key="g")
        spend = services.spend(holder_id="ada", amount=30, metadata={"member": "ann", "model": "large"}, idempotency_key="1")
        services.spend(holder_id="ada", amount=12, metadata={"member": "ben"}, idempotency_key="2")
        clock.advance(hours=11, minutes=30)
        services.spend(holder_id="ada", amount=5, idempotency_key="3")
        services.refund(holder_id="ada", spend=spend.sequence, amount=3, idempotency_key="4")


SPAN = "?from=2026-01-01&to=2026-01-03&zone=Europe/Berlin"


def groups(response: Any) -> list[tuple[Any, ...]]:
    assert response.status_code == 200, response.content
    return [(row["group"], row["labels"], row["day"], row["amount"], row["entries"]) for row in response.json()["results"]]


def test_use_by_member_and_day_of_a_zone(used: None) -> None:
    response = get(f"{SPAN}&group_by=label:member,day")
    assert groups(response) == [
        ("value", {"member": "ann"}, "2026-01-01", 30, 1),
        ("value", {"member": "ann"}, "2026-01-02", -3, 1),
        ("value", {"member": "ben"}, "2026-01-01", 12, 1),
        ("without", {"member": None}, "2026-01-02", 5, 1),
    ]
    body = response.json()
    assert {name: body[name] for name in ("amount", "postpaid", "entries", "from", "to", "zone", "values_left_out")} == {
        "amount": 44, "postpaid": 0, "entries": 4, "zone": "Europe/Berlin", "values_left_out": 0,
        "from": "2025-12-31T23:00:00.000000Z", "to": "2026-01-02T23:00:00.000000Z",
    }  # fmt: skip


def test_use_in_all_by_day_and_by_rate(used: None) -> None:
    assert groups(get(SPAN)) == [("value", {}, None, 44, 4)]
    assert groups(get(f"{SPAN}&group_by=day")) == [("value", {}, "2026-01-01", 42, 2), ("value", {}, "2026-01-02", 2, 2)]
    assert groups(get(f"{SPAN}&group_by=rate")) == [("without", {}, None, 44, 4)]


@pytest.mark.parametrize("group_by", ["label:member,rate,day", "rate,day,label:member"])
def test_use_by_member_rate_and_day_together(db: None, group_by: str) -> None:
    with FixedClock(datetime(2026, 1, 1, 12, tzinfo=UTC)) as clock:
        services.grant(holder_id="ada", amount=100, idempotency_key="g")
        services.publish_rate(credit_type="credits", code="chat", price=2, per=1, idempotency_key="p")
        for number in range(2):
            services.spend(holder_id="ada", rate="chat", quantity=5, metadata={"member": "ann"}, idempotency_key=f"1/{number}")
            services.spend(holder_id="ada", amount=1, metadata={"member": "ann"}, idempotency_key=f"2/{number}")
            services.spend(holder_id="ada", rate="chat", quantity=3, idempotency_key=f"3/{number}")
            clock.advance(hours=12)
    response = get(f"?from=2026-01-01&to=2026-01-03&group_by={group_by}")
    rows = [(row["rate"], *row_of_group) for row, row_of_group in zip(response.json()["results"], groups(response), strict=True)]
    assert rows == [
        ("chat", "value", {"member": "ann"}, "2026-01-01", 10, 1),
        ("chat", "value", {"member": "ann"}, "2026-01-02", 10, 1),
        (None, "value", {"member": "ann"}, "2026-01-01", 1, 1),
        (None, "value", {"member": "ann"}, "2026-01-02", 1, 1),
        ("chat", "without", {"member": None}, "2026-01-01", 6, 1),
        ("chat", "without", {"member": None}, "2026-01-02", 6, 1),
    ]
    assert (response.json()["amount"], response.json()["values_left_out"]) == (34, 0)


def test_the_values_beyond_the_limit_are_one_group(used: None) -> None:
    response = get(f"{SPAN}&group_by=label:member&limit=1")
    assert groups(response) == [
        ("value", {"member": "ann"}, None, 27, 2),
        ("others", {"member": None}, None, 12, 1),
        ("without", {"member": None}, None, 5, 1),
    ]
    assert response.json()["values_left_out"] == 1


def test_an_instant_stands_for_its_quarter_of_an_hour(used: None) -> None:
    response = get("?from=2026-01-01T23:44:59Z&to=2026-01-01T23:30:00.000001Z")
    assert response.json()["errors"][0]["code"] == "not-after-from"
    assert groups(get("?from=2026-01-01T23:30:00Z&to=2026-01-01T23:30:00.000001Z")) == [("value", {}, None, 2, 2)]
    assert groups(get("?from=2026-01-01T22:00:00Z&to=2026-01-01T23:30:00Z")) == []


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        ("?group_by=member", "/group_by", "not-a-group"),
        ("?group_by=", "/group_by", None),
        ("?group_by=label:", "/group_by", "not-a-group"),
        ("?group_by=day,day", "/group_by", "too-many-groups"),
        ("?group_by=rate,label:member,rate", "/group_by", "too-many-groups"),
        ("?group_by=label:member,label:model", "/group_by", "too-many-labels"),
        ("?from=2026-02-30", "/from", "not-a-day"),
        ("?from=2026-01-01T00:00:00", "/from", "no-offset"),
        ("?to=tomorrow", "/to", None),
        ("?to=0001-01-01", "/to", "out-of-range"),
        ("?to=1999-12-31", "/to", "out-of-range"),
        ("?from=9999-12-31", "/from", "out-of-range"),
        ("?from=2026-01-02&to=2026-01-02", "/to", "not-after-from"),
        ("?from=2025-01-01&to=2026-01-03", "/to", "too-long"),
        ("?zone=Mars/Olympus", "/zone", "unknown-time-zone"),
        ("?limit=0", "/limit", None),
        ("?limit=201", "/limit", None),
        ("?since=2026-01-01", "/since", None),
        ("?credit_type=A", "/credit_type", None),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_name(used: None, query: str, pointer: str, code: str | None) -> None:
    response = get(query)
    assert response.status_code == 400
    [error] = response.json()["errors"]
    assert error["pointer"] == pointer
    assert code is None or error["code"] == code


def test_by_default_it_is_about_the_last_30_days(db: None) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", amount=7, idempotency_key=unique("s"))
    assert groups(get("")) == [("value", {}, None, 7, 1)]
    assert groups(get("", holder="nobody")) == []


def test_a_key_sees_its_own_holder_and_no_key_with_labels_sees_the_use_of_others(used: None) -> None:
    assert get("", scopes=("ledger:spend",)).status_code == 403
    assert get("", holder_id="bob").status_code == 404
    assert get("", holder_id="ada").status_code == 200
    assert get("", labels={"member": "ann"}).status_code == 403
