"""Observations: what the ledger would decide is on record beside what another system decided, and no credits change."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.errors import Invalid
from ledger.shadow import reads
from ledger.shadow.observing import ObservationResult, observe, observe_all
from ledger.shadow.requests import ObservationRequest

pytestmark = pytest.mark.django_db

BOTH_SIDES = (
    "The other system allows a spend of 50 and has -6 after it; the ledger would refuse it (insufficient-credits), with 44 to "
    "spend."
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def seen(key: str, operation: str, amount: int | None, balance: int, **fields: Any) -> ObservationResult:
    return observe(holder_id="ada", idempotency_key=key, operation=operation, amount=amount, balance=balance, **fields)


def rows() -> int:
    """How many rows there are of observations and entries."""
    return fetch_value(int, "SELECT (SELECT count(*) FROM ledger_observation) + (SELECT count(*) FROM ledger_entry)")


def test_decisions_that_agree_are_recorded_and_no_credits_change() -> None:
    found = [
        seen("1", "spend", 3, 41),
        seen("2", "grant", 59, 100),
        seen("3", "hold", 30, 70),
        seen("4", "capture", 20, 80, of="3"),
        seen("5", "refund", 5, 85, of="4"),
        seen("6", "refund", 3, 88, of="1"),
        seen("7", "revoke", 10, 78, of="2"),
        seen("8", "spend", 79, 78, is_allowed=False),
        seen("9", "balance", None, 78),
    ]
    assert [each.detail for each in found] == [""] * 9
    assert [(each.ledger_allows, each.ledger_balance) for each in found] == [
        (True, 41), (True, 100), (True, 70), (True, 80), (True, 85), (True, 88), (True, 78), (False, 78), (True, 78),
    ]  # fmt: skip
    assert fetch_value(int, "SELECT count(*) FROM ledger_entry") == 0
    (account,) = reads.accounts()
    assert (account.state, account.observations, account.differences, account.balance) == ("same", 9, 0, 78)


@pytest.mark.parametrize(
    ("operation", "amount", "balance", "allowed", "difference", "text"),
    [
        (
            "spend", 50, -6, True, "decision",
            BOTH_SIDES,
        ),
        (
            "spend", 4, 44, False, "decision",
            "The other system refuses a spend of 4 and has 44; the ledger would allow it and have 40 after it.",
        ),
        (
            "spend", 4, 36, True, "balance",
            "The other system allows a spend of 4 and has 36 after it; the ledger would have 40.",
        ),
        (
            "balance", None, 45, True, "balance",
            "The other system states the balance and has 45 after it; the ledger would have 44.",
        ),
    ],
)  # fmt: skip
def test_a_difference_is_named_once_and_the_ledger_goes_on_from_the_other_balance(
    operation: str, amount: int | None, balance: int, allowed: bool, difference: str, text: str
) -> None:
    seen("1", "balance", None, 44)
    found = seen("2", operation, amount, balance, is_allowed=allowed)
    assert (found.result, found.difference, found.detail) == ("recorded", difference, text)
    assert seen("3", "grant", 50, balance + 50).difference is None
    assert seen("4", "spend", balance + 50, 0).difference is None
    (account,) = reads.accounts(state="different")
    assert (account.observations, account.differences) == (4, 1)
    assert account.first is not None
    assert (account.first.number, account.first.text) == (2, text)
    assert reads.accounts(state="same") == []


def test_a_debt_of_the_other_system_is_followed() -> None:
    seen("1", "spend", 5, -5)
    assert seen("2", "grant", 3, -2).difference is None
    assert seen("3", "grant", 3, 1).difference is None
    assert seen("4", "spend", 1, 0).difference is None
    # The ledger would not let it grow: that is a decision of its own.
    assert seen("5", "spend", 1, -1).difference == "decision"


def test_the_ledger_decides_as_of_the_time_of_the_other_system() -> None:
    seen("1", "grant", 100, 100, occurred_at=NOON, expires_at=NOON + timedelta(days=1))
    assert seen("2", "spend", 30, 70, occurred_at=NOON + timedelta(hours=23)).difference is None
    found = seen("3", "expire", 70, 0, occurred_at=NOON + timedelta(days=1))
    assert (found.difference, found.ledger_balance) == (None, 0)
    late = seen("4", "spend", 10, 0, occurred_at=NOON + timedelta(hours=22), is_allowed=False)
    assert (late.ledger_allows, late.difference) == (False, None)
    found = seen("5", "refund", 30, 30, of="2", occurred_at=NOON + timedelta(days=2))
    assert found.difference is None


def test_what_is_about_something_that_nobody_observed_is_followed_and_not_compared() -> None:
    seen("1", "balance", None, 10)
    found = [seen("2", "refund", 5, 15), seen("3", "capture", 2, 13, of="of-yesterday"), seen("4", "revoke", 3, 10, of="?")]
    assert {(each.ledger_allows, each.ledger_balance, each.difference) for each in found} == {(None, None, None)}
    assert seen("5", "spend", 10, 0).difference is None


def test_a_second_refund_of_a_spend_is_a_difference() -> None:
    seen("1", "spend", 10, 0)
    first, second = observe_all(
        [
            ObservationRequest(holder_id="ada", idempotency_key="2", operation="refund", amount=10, balance=10, of="1"),
            ObservationRequest(holder_id="ada", idempotency_key="3", operation="refund", amount=10, balance=20, of="1"),
        ]
    )
    assert (first.difference, second.difference) == (None, "decision")
    assert "(refund-exceeds-spend)" in second.detail
    assert "(refund-exceeds-spend)" in seen("4", "refund", 1, 21, of="1").detail


def test_an_observation_is_recorded_once_for_its_key() -> None:
    first = seen("1", "spend", 50, -6)
    before = rows()
    again = seen("1", "spend", 50, -6)
    assert (again.result, again.id, again.detail) == ("duplicate", first.id, first.detail)
    other = seen("1", "spend", 50, -7)
    assert (other.result, other.id) == ("conflict", None)
    assert rows() == before


def test_one_transaction_sees_what_it_recorded_before() -> None:
    request = ObservationRequest(holder_id="ada", idempotency_key="1", operation="spend", amount=5, balance=5)
    first, again, second = observe_all(
        [
            request,
            request,
            ObservationRequest(holder_id="ada", idempotency_key="2", operation="spend", amount=5, balance=0),
        ]
    )
    assert [first.result, again.result, second.result] == ["recorded", "duplicate", "recorded"]
    assert again.id == first.id
    assert second.difference is None


def test_accounts_are_apart() -> None:
    seen("1", "balance", None, 10)
    seen("2", "balance", None, 7, credit_type="sms")
    assert seen("3", "spend", 1, 6, credit_type="sms").difference is None
    assert seen("4", "spend", 1, 9).difference is None
    services.grant(holder_id="ada", amount=1_000, idempotency_key="own")
    assert seen("5", "spend", 10, 9, is_allowed=False).difference is None
    assert [each.keyset for each in reads.accounts()] == [("ada", "credits"), ("ada", "sms")]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"operation": "spend", "amount": None}, "/amount"),
        ({"operation": "balance", "amount": 1}, "/amount"),
        ({"operation": "balance", "amount": None, "is_allowed": False}, "/allowed"),
        ({"operation": "spend", "of": "1"}, "/of"),
        ({"operation": "spend", "expires_at": NOON}, "/expires_at"),
        ({"operation": "hold", "priority": 3}, "/priority"),
        ({"operation": "sell"}, "/operation"),
        ({"operation": "spend", "amount": 0}, "/amount"),
        ({"operation": "spend", "balance": 2**53}, "/balance"),
        ({"operation": "spend", "holder_id": " ada"}, "/holder_id"),
    ],
)
def test_what_does_not_belong_together_is_refused(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        observe(**{"holder_id": "ada", "idempotency_key": "1", "amount": 1, "balance": 0, **fields})
    assert refused.value.facts["pointer"] == pointer
    assert rows() == 0


def test_a_decision_of_the_future_is_refused() -> None:
    found = seen("1", "spend", 1, 0, occurred_at=datetime.now(UTC) + timedelta(minutes=6))
    assert (found.result, found.detail) == ("invalid", "/occurred_at: lies in the future")
    assert rows() == 0


def test_the_numbers_of_an_account_have_no_gaps_and_each_names_the_first_difference() -> None:
    for number in range(1, 6):
        seen(f"k{number}", "spend", 1, 10 - number - (number > 3))
    found = fetch_rows(lambda *row: row, "SELECT number, differences, first_difference FROM ledger_observation ORDER BY id")
    assert found == [(1, 0, None), (2, 0, None), (3, 0, None), (4, 1, 4), (5, 1, 4)]
