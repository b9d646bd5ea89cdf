"""Holds over REST: set aside, captured, released, extended, listed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.rest.kit import problems
from tests.ledger.rest.conftest import ApiClient, entry_of_201, nothing_written, rows_of

# Of the holder that the fixture `holder` makes, with 100 credits in entry 1: so a first hold is entry 2.
HOLDS = "/v1/holders/customer-42/holds"
LATER = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)


def time_text(time: datetime) -> str:
    """A time as the API writes it."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def problem_of(response: Any, status: int, slug: str) -> dict[str, Any]:
    """The body of a refused call, which has this status and type."""
    found: dict[str, Any] = json.loads(response.content)
    assert (response.status_code, found["type"]) == (status, problems.TYPE_BASE + slug)
    return found


def balance_of(api: ApiClient, holder: str) -> dict[str, Any]:
    """The balance of the holder over REST."""
    found: dict[str, Any] = json.loads(api.get(f"/v1/holders/{holder}/balance").content)
    return found


def test_a_hold_returns_its_entry_and_is_shown_by_the_balance(api: ApiClient, holder: str) -> None:
    response = api.post(HOLDS, {"amount": 30, "expires_at": time_text(LATER), "reference": "call-98"}, key="h")
    held = entry_of_201(response, "expires_at")
    assert held.pop("effective_at")
    assert held == {
        "holder_id": holder,
        "credit_type": "credits",
        "sequence": 2,
        "kind": "hold",
        "amount": -30,
        "balance": 70,
        "held": 30,
        "drawn": [{"grant": 1, "amount": 30}],
        "refers_to": None,
        "actor": "key:shop",
        "reason": "",
        "reference": "call-98",
        "metadata": {},
        "idempotency_key": "h",
        "expires_at": time_text(LATER),
    }
    account = balance_of(api, holder)
    assert (account["available"], account["balance"], account["held"]) == (70, 70, 30)
    assert account["holds"] == [{"hold": 2, "amount": 30, "expires_at": time_text(LATER), "state": "open"}]


def test_a_hold_expires_in_an_hour_unless_it_says_otherwise(api: ApiClient, holder: str) -> None:
    held = entry_of_201(api.post(HOLDS, {"amount": 30}), "expires_at")
    assert datetime.fromisoformat(held["expires_at"]) - datetime.fromisoformat(held["effective_at"]) == timedelta(hours=1)


def test_a_capture_of_less_gives_the_rest_back(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    captured = entry_of_201(api.post(f"{HOLDS}/2/captures", {"amount": 20, "metadata": {"tokens": 6120}}, key="c"))
    assert captured.pop("effective_at")
    assert captured == {
        "holder_id": holder,
        "credit_type": "credits",
        "sequence": 4,
        "kind": "capture",
        "amount": 0,
        "balance": 80,
        "held": 0,
        "drawn": [{"grant": 1, "amount": 20}],
        "refers_to": 2,
        "actor": "key:shop",
        "reason": "",
        "reference": "",
        "metadata": {"tokens": 6120},
        "idempotency_key": "c",
    }
    assert balance_of(api, holder)["holds"] == []
    refunded = entry_of_201(api.post(f"/v1/holders/{holder}/refunds", {"spend": 4}), "refunded_total")
    assert (refunded["amount"], refunded["balance"], refunded["refers_to"]) == (20, 100, 4)


def test_a_hold_can_be_captured_in_parts(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    first = entry_of_201(api.post(f"{HOLDS}/2/captures", {"amount": 5, "final": False}))
    assert (first["held"], balance_of(api, holder)["holds"][0]["amount"]) == (25, 25)
    rest = entry_of_201(api.post(f"{HOLDS}/2/captures", {}))
    assert (rest["held"], rest["drawn"], rest["balance"]) == (0, [{"grant": 1, "amount": 25}], 70)


def test_more_than_is_held_is_refused_or_taken_from_the_balance(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    refused = problem_of(api.post(f"{HOLDS}/2/captures", {"amount": 31}), 409, "capture-exceeds-hold")
    assert (refused["sequence"], refused["held"], refused["requested"]) == (2, 30, 31)
    assert rows_of(holder) == (2, 1)
    taken = entry_of_201(api.post(f"{HOLDS}/2/captures", {"amount": 45, "over_capture": "if_available"}))
    assert (taken["amount"], taken["balance"], taken["drawn"]) == (-15, 55, [{"grant": 1, "amount": 45}])


def test_more_than_is_held_and_available_is_a_402(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    response = api.post(f"{HOLDS}/2/captures", {"amount": 101, "over_capture": "if_available"})
    refused = problem_of(response, 402, "insufficient-credits")
    assert (refused["available"], refused["requested"], refused["shortfall"]) == (100, 101, 1)
    assert rows_of(holder) == (2, 1)


CLOSINGS: list[tuple[str, dict[str, Any], str, int]] = [
    ("captures", {"amount": 30}, "captured", 3),
    ("captures", {"amount": 10}, "captured", 4),
    ("release", {}, "released", 3),
]


@pytest.mark.parametrize(("path", "body", "how", "closed_by"), CLOSINGS)
@pytest.mark.parametrize("again", ["captures", "release", "extend"])
def test_a_closed_hold_says_how_it_was_closed(
    api: ApiClient, holder: str, path: str, body: dict[str, Any], how: str, closed_by: int, again: str
) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    assert api.post(f"{HOLDS}/2/{path}", body).status_code == 201
    before = rows_of(holder)
    response = api.post(f"{HOLDS}/2/{again}", {"expires_at": time_text(LATER)} if again == "extend" else {})
    refused = problem_of(response, 409, "hold-closed")
    assert (refused["sequence"], refused["how"], refused["closed_by"]) == (2, how, closed_by)
    assert refused["detail"] == f"Hold 2 is closed: {how}."
    assert rows_of(holder) == (before[0], before[1] + 1)


@pytest.mark.parametrize("call", ["captures", "release", "extend"])
def test_what_is_no_hold_cannot_be_settled(api: ApiClient, holder: str, call: str) -> None:
    body = {"expires_at": time_text(LATER)} if call == "extend" else {}
    refused = problem_of(api.post(f"{HOLDS}/1/{call}", body), 409, "not-a-hold")
    assert (refused["sequence"], refused["kind"]) == (1, "grant")
    assert problem_of(api.post(f"{HOLDS}/7/{call}", body), 404, "entry-not-found")["sequence"] == 7
    assert rows_of(holder) == (1, 2)
    with nothing_written(holder):
        problem_of(api.post(f"{HOLDS}/9223372036854775808/{call}", body), 404, "not-found")


def test_an_extension_is_an_entry_that_says_the_new_expiry(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    extended = entry_of_201(api.post(f"{HOLDS}/2/extend", {"expires_at": time_text(LATER)}), "expires_at")
    assert (extended["kind"], extended["amount"], extended["refers_to"], extended["held"]) == ("hold", 0, 2, 30)
    assert extended["expires_at"] == time_text(LATER)
    assert balance_of(api, holder)["holds"] == [{"hold": 2, "amount": 30, "expires_at": time_text(LATER), "state": "open"}]


@pytest.mark.parametrize(("days", "code"), [(-1, "past"), (32, "range")], ids=["in the past", "more than 31 days away"])
def test_an_expiry_out_of_bounds_is_a_400(api: ApiClient, holder: str, days: int, code: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    at = time_text(datetime.now(UTC) + timedelta(days=days))
    with nothing_written(holder):
        for path, body in ((HOLDS, {"amount": 1, "expires_at": at}), (f"{HOLDS}/2/extend", {"expires_at": at})):
            found = problem_of(api.post(path, body), 400, "invalid-request")
            assert [(error["pointer"], error["code"]) for error in found["errors"]] == [("/expires_at", code)]


def test_a_hold_beyond_the_balance_is_a_402_and_does_not_draw_on_an_overdraft(api: ApiClient, holder: str) -> None:
    services.set_overdraft(holder_id=holder, limit=50, idempotency_key="o")
    refused = problem_of(api.post(HOLDS, {"amount": 101}), 402, "insufficient-credits")
    assert (refused["available"], refused["shortfall"]) == (100, 1)
    assert rows_of(holder) == (2, 1)


def test_open_holds_are_listed_by_the_page(api: ApiClient, holder: str) -> None:
    for number in range(5):
        services.hold(holder_id=holder, amount=number + 1, idempotency_key=f"h{number}")
    services.release(holder_id=holder, hold=3, idempotency_key="r")
    first = json.loads(api.get(f"{HOLDS}?limit=2").content)
    second = json.loads(api.get(first["next"]).content)
    back = json.loads(api.get(second["previous"]).content)
    assert [(hold["hold"], hold["amount"]) for hold in first["results"] + second["results"]] == [(2, 1), (4, 3), (5, 4), (6, 5)]
    assert (first["previous"], second["next"], back["results"]) == (None, None, first["results"])
    assert list(first["results"][0]) == ["hold", "amount", "expires_at", "state"]
    assert json.loads(api.get(f"{HOLDS}?credit_type=sms").content)["results"] == []
