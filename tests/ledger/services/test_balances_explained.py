"""A balance is explained by the lots and holds that are shown beside it, whenever it is read."""

import random
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

from ledger import reads, services
from ledger.rest.schemas import response_schemas
from ledger.rules.explanations import explain
from ledger.rules.instants import from_us, to_us
from tests.benchmarks.histories import store
from tests.ledger.random_histories import START_US, RandomHistory, RulesLedger
from tests.ledger.rules.credit_model import DAY_US

pytestmark = pytest.mark.django_db


def explained_balance(state: dict[str, Any]) -> dict[str, Any]:
    """The account's state; asserts that its lots and holds add up to it."""
    assert sum(lot["remaining"] for lot in state["lots"]) == state["balance"] + state["owed"]
    assert sum(hold["amount"] for hold in state["holds"]) == state["held"]
    if not state["owed"]:
        spendable = sum(lot["remaining"] for lot in state["lots"] if lot["state"] == "spendable" and not lot.get("applies_to"))
        lapsed = sum(hold["amount"] for hold in state["holds"] if hold["state"] == "expired")
        assert spendable <= state["available"] - state["overdraft"] <= spendable + lapsed
    return state


@pytest.mark.parametrize("policy", ["new-lot", "gone"])
def test_lots_and_holds_add_up_to_the_balance_at_any_instant_of_any_history(policy):
    ledger = RulesLedger(policy)
    history = RandomHistory(ledger, ("ada", "bob"), opens_new_lots=policy == "new-lot")
    chance = random.Random(policy)
    for _ in range(300):
        history.step(chance)
    connection.ensure_connection()
    store(connection.connection, ledger.in_order)
    lapsed = 0
    for _ in range(60):
        holder, at = chance.choice(history.holders), from_us(chance.randint(START_US, ledger.now_us + 2 * DAY_US))
        found = explained_balance(response_schemas.AccountBalanceSerializer.body(reads.balance(holder, at=at)))
        lapsed += any(each["state"] == "expired" for each in (*found["lots"], *found["holds"]))
        counted = explained_balance(
            response_schemas.AccountBalanceSerializer.body(reads.balance_by_effective_time(holder, at=at))
        )
        assert all(each["state"] not in ("expired", "not_yet_effective") for each in (*counted["lots"], *counted["holds"]))
    assert lapsed > 10
    for entry in ledger.entries["ada"]:
        found = explain(entry, ledger.entry("ada", entry.sequence - 1), booked_before=(), booked_after=(), referred=None)
        for shown, state in (("before", ledger.entry("ada", entry.sequence - 1)), ("after", entry)):
            # Claimed credits that came back are not available any more: the next entry takes them back.
            if state is None or not {lot.grant for lot in state.lots} & {lot for claim in state.claims for lot in claim.lots}:
                explained_balance(found[shown])


def test_an_expired_hold_is_shown_as_long_as_it_is_part_of_what_is_held():
    ledger = RulesLedger()
    history = RandomHistory(ledger, ("ada",))
    history.grant("ada", 10, expires_in_us=2 * DAY_US)
    history.hold("ada", 10, DAY_US)
    connection.ensure_connection()
    store(connection.connection, ledger.in_order)
    found = reads.balance("ada", at=from_us(START_US + DAY_US))
    shown = response_schemas.AccountBalanceSerializer.body(found)
    until = "2025-01-02T00:00:00.000000Z"
    assert (shown["balance"], shown["held"], shown["available"], shown["lots"]) == (0, 10, 10, [])
    assert shown["holds"] == [{"hold": 2, "amount": 10, "expires_at": until, "state": "expired"}]
    assert [hold.hold for hold in reads.page_of_holds(reads.balance("ada"))] == [2]
    by_effective_time = response_schemas.AccountBalanceSerializer.body(reads.balance_by_effective_time("ada", at=found.as_of))
    assert (by_effective_time["balance"], by_effective_time["held"], by_effective_time["holds"]) == (10, 0, [])
    assert [(lot["remaining"], lot["state"]) for lot in by_effective_time["lots"]] == [(10, "spendable")]


def test_the_state_of_an_account_is_as_written_until_the_clock_changes_it():
    expires_at = datetime.fromisoformat("2100-01-01T00:00:00+00:00")
    services.grant(holder_id="ada", amount=10, idempotency_key="g", expires_at=expires_at)
    found = reads.balance("ada")
    assert found.is_as_written
    later = reads.balance("ada", at=expires_at)
    assert not later.is_as_written
    assert [lot.state(to_us(later.as_of)) for lot in later.lots] == ["expired"]
