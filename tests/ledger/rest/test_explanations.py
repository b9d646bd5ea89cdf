"""Why an entry is as it is, and why there was not enough."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.testing import FixedClock
from tests.ledger.rest.conftest import ApiClient, rows_of

NOW = datetime.now(UTC).replace(microsecond=0)


def time_text(moment: datetime) -> str:
    """A time as the API writes it."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def explanation_of(api: ApiClient, holder: str, sequence: int) -> dict[str, Any]:
    """The explanation of an entry, over REST."""
    response = api.get(f"/v1/holders/{holder}/entries/{sequence}/explanation")
    assert response.status_code == 200, response.content
    found: dict[str, Any] = json.loads(response.content)
    return found


def lot_decisions(explanation: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Of each lot its grant, the amount taken, and why so much."""
    return [(lot["grant"], lot["amount"], lot["decision"]) for lot in explanation["lots"]]


def test_a_spend_says_what_became_of_every_lot_and_why(api: ApiClient, holder: str) -> None:
    services.grant(holder_id=holder, amount=5, idempotency_key="g2", expires_at=NOW + timedelta(days=9))
    services.grant(holder_id=holder, amount=5, idempotency_key="g3", effective_at=NOW + timedelta(days=1), priority=1)
    services.grant(holder_id=holder, amount=4, idempotency_key="g4", priority=7)
    services.grant(holder_id=holder, amount=50, idempotency_key="g5")
    services.spend(holder_id=holder, amount=12, idempotency_key="s")
    found = explanation_of(api, holder, 6)
    assert list(found) == [
        "sequence", "kind", "text", "before", "after", "lots", "costs", "budgets", "booked_before", "booked_after", "refers_to",
    ]  # fmt: skip
    assert (found["sequence"], found["kind"], found["refers_to"]) == (6, "spend", None)
    order = "priority, soonest expiry, promotional before purchased, oldest"
    assert found["text"] == f"The spend took 12 credits from 3 lots, in the order {order}."
    assert found["lots"] == [
        {
            "grant": 3,
            "amount": 0,
            "decision": "not_yet_effective",
            "text": f"Skipped: the lot is effective from {time_text(NOW + timedelta(days=1))}.",
        },
        {
            "grant": 4,
            "amount": 4,
            "decision": "drawn",
            "text": "Used 4 of 4. It comes before lot 2: its priority 7 is ahead of 100.",
        },
        {
            "grant": 2,
            "amount": 5,
            "decision": "drawn",
            "text": "Used 5 of 5. It comes before lot 1: it expires, and the other does not.",
        },
        {
            "grant": 1,
            "amount": 3,
            "decision": "drawn",
            "text": "Used 3 of 100; 97 remain. It comes before lot 5: it is older.",
        },
        {"grant": 5, "amount": 0, "decision": "not_needed", "text": "The lots before it had enough credits."},
    ]
    before, after = found["before"], found["after"]
    assert (before["sequence"], before["available"], before["balance"]) == (5, 159, 164)
    assert (after["sequence"], after["available"], after["balance"]) == (6, 147, 152)
    assert [lot["grant"] for lot in before["lots"]] == [3, 4, 2, 1, 5]
    assert [(lot["grant"], lot["remaining"]) for lot in after["lots"]] == [(3, 5), (1, 97), (5, 50)]


def test_promotional_credits_and_the_sooner_expiry_come_first(api: ApiClient, holder: str) -> None:
    services.grant(holder_id=holder, amount=1, idempotency_key="g2", source="promotional")
    services.grant(holder_id=holder, amount=1, idempotency_key="g3", expires_at=NOW + timedelta(days=9))
    services.grant(holder_id=holder, amount=1, idempotency_key="g4", expires_at=NOW + timedelta(days=8))
    services.spend(holder_id=holder, amount=103, idempotency_key="s")
    assert [lot["text"] for lot in explanation_of(api, holder, 5)["lots"]] == [
        "Used 1 of 1. It comes before lot 3: it expires sooner.",
        "Used 1 of 1. It comes before lot 2: it expires, and the other does not.",
        "Used 1 of 1. It comes before lot 1: promotional credits are used first.",
        "Used 100 of 100. It is the last usable lot.",
    ]


def test_a_refund_says_what_is_left_to_refund(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    services.refund(holder_id=holder, spend=2, amount=3, idempotency_key="r1")
    services.refund(holder_id=holder, spend=2, amount=4, idempotency_key="r2")
    found = explanation_of(api, holder, 4)
    assert found["text"] == "The refund returned 4 credits of entry 2 to 1 lot."
    assert found["refers_to"] == {
        "sequence": 2,
        "kind": "spend",
        "amount": -8,
        "taken": 8,
        "returned_before": 3,
        "returned": 7,
        "refundable": 1,
        "text": "Refunds have returned 7 of the 8 credits taken; 1 can be refunded.",
    }
    assert lot_decisions(found) == [(1, 4, "returned")]


def test_a_capture_says_what_of_the_hold_it_took_and_what_went_back(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    services.capture(holder_id=holder, hold=2, amount=20, idempotency_key="c")
    found = explanation_of(api, holder, 4)
    assert found["text"] == "The capture took 20 credits: 20 from hold 2."
    assert lot_decisions(found) == [(1, 20, "captured")]
    assert [(each["sequence"], each["kind"], each["text"]) for each in found["booked_before"]] == [
        (3, "release", "Hold 2 returned 10 credits: captured less.")
    ]
    assert (found["before"]["held"], found["after"]["held"]) == (20, 0)
    assert (found["refers_to"]["held_before"], found["refers_to"]["held"], found["refers_to"]["expires_at"]) == (20, 0, None)
    released = explanation_of(api, holder, 3)
    assert (released["text"], released["booked_after"]) == (
        "The release returned 10 credits of hold 2 to 1 lot: captured less.",
        [],
    )


def test_a_hold_a_release_and_an_extension_are_explained(api: ApiClient, holder: str) -> None:
    services.hold(holder_id=holder, amount=30, idempotency_key="h")
    services.extend(holder_id=holder, hold=2, expires_at=NOW + timedelta(days=2), idempotency_key="e")
    services.release(holder_id=holder, hold=2, idempotency_key="r")
    assert lot_decisions(explanation_of(api, holder, 2)) == [(1, 30, "drawn")]
    extended = explanation_of(api, holder, 3)
    assert extended["text"] == "Hold 2 has a new expiry; no credits moved."
    assert extended["refers_to"]["expires_at"] == time_text(NOW + timedelta(days=2))
    assert explanation_of(api, holder, 4)["text"] == "The release returned 30 credits of hold 2 to 1 lot."


def test_expirations_that_were_due_are_explained_with_the_entry_that_booked_them(api: ApiClient, holder: str) -> None:
    with FixedClock(NOW - timedelta(days=2)):
        services.grant(holder_id=holder, amount=5, idempotency_key="g2", expires_at=NOW - timedelta(days=1))
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    found = explanation_of(api, holder, 4)
    assert [
        (each["sequence"], each["kind"], each["amount"], each["refers_to"], each["text"]) for each in found["booked_before"]
    ] == [(3, "expire", -5, 2, "Lot 2 expired with 5 credits left.")]
    assert lot_decisions(found) == [(1, 1, "drawn")]
    expired = explanation_of(api, holder, 3)
    assert (expired["text"], expired["refers_to"]["kind"], lot_decisions(expired)) == (
        "5 credits of grant 2 expired.",
        "grant",
        [(2, 5, "expired")],
    )


def test_grants_transfers_overdrafts_and_repayments_are_explained(api: ApiClient, holder: str) -> None:
    services.set_overdraft(holder_id=holder, limit=50, idempotency_key="o")
    services.spend(holder_id=holder, amount=130, idempotency_key="s")
    services.grant(holder_id=holder, amount=40, idempotency_key="g")
    services.transfer(holder_id=holder, to="team-7", amount=10, idempotency_key="t")
    assert explanation_of(api, holder, 2)["text"] == "Spends may take the balance down to -50 from now on."
    assert explanation_of(api, holder, 3)["text"].startswith("The spend took 130 credits from 1 lot and 30 on the overdraft, ")
    granted = explanation_of(api, holder, 4)
    assert lot_decisions(granted) == [(4, 40, "opened")]
    assert [(each["kind"], each["text"]) for each in granted["booked_after"]] == [("adjust", "30 credits repaid the overdraft.")]
    assert explanation_of(api, holder, 5)["text"] == "30 credits from 1 lot repaid the overdraft."
    assert explanation_of(api, holder, 6)["text"].startswith("The transfer moved 10 credits from 1 lot to team-7, ")
    came = explanation_of(api, "team-7", 1)
    assert (came["text"], lot_decisions(came)) == (
        "customer-42 transferred 10 credits, now a new lot with its old terms.",
        [(1, 10, "opened")],
    )
    assert (came["before"]["sequence"], came["before"]["lots"]) == (0, [])


@pytest.mark.parametrize("path", ["entries/2/explanation", "entries/1/explanation?credit_type=sms", "entries/0/explanation"])
def test_an_entry_that_is_not_there_cannot_be_explained(api: ApiClient, holder: str, path: str) -> None:
    assert api.get(f"/v1/holders/{holder}/{path}").status_code == 404


# Not enough ------------------------------------------------------------------------------------------


def test_a_402_says_which_lots_and_holds_made_it_so_and_when_there_will_be_enough(api: ApiClient, holder: str) -> None:
    in_a_day, in_two = NOW + timedelta(days=1), NOW + timedelta(days=2)
    services.grant(holder_id=holder, amount=50, idempotency_key="g2", effective_at=in_two)
    services.hold(holder_id=holder, amount=30, idempotency_key="h", expires_at=in_a_day)
    response = api.post(f"/v1/holders/{holder}/spends", {"amount": 90}, key="k")
    problem = json.loads(response.content)
    assert (response.status_code, problem["available"], problem["held"], problem["not_yet_effective"]) == (402, 70, 30, 50)
    assert problem["holds"] == [{"amount": 30, "expires_at": time_text(in_a_day), "hold": 3, "state": "open"}]
    assert [(lot["grant"], lot["remaining"], lot["state"]) for lot in problem["lots"]] == [
        (2, 50, "not_yet_effective"),
        (1, 70, "spendable"),
    ]
    assert problem["earliest_sufficient_at"] == time_text(in_a_day)
    assert json.loads(api.post(f"/v1/holders/{holder}/spends", {"amount": 150}).content)["earliest_sufficient_at"] == time_text(
        in_two
    )
    assert json.loads(api.post(f"/v1/holders/{holder}/spends", {"amount": 151}).content)["earliest_sufficient_at"] is None
    again = api.post(f"/v1/holders/{holder}/spends", {"amount": 90}, key="k")
    assert (again.content, again["Idempotency-Replayed"]) == (response.content, "true")
    listed = json.loads(api.get(f"/v1/holders/{holder}/refusals").content)["results"][-1]["problem"]
    assert listed == problem
    assert rows_of(holder) == (3, 3)


def test_a_402_lists_ten_lots_and_ten_holds_at_most(api: ApiClient, holder: str) -> None:
    for number in range(12):
        services.grant(holder_id=holder, amount=1, idempotency_key=f"g{number}", effective_at=NOW + timedelta(days=1))
        services.hold(holder_id=holder, amount=1, idempotency_key=f"h{number}")
    problem = json.loads(api.post(f"/v1/holders/{holder}/spends", {"amount": 1000}).content)
    assert (len(problem["lots"]), len(problem["holds"])) == (10, 10)
    assert {lot["state"] for lot in problem["lots"]} == {"not_yet_effective"}
