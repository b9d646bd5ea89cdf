"""What a lease decides and sends, in random lives beside a ledger of a few lines."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from credit_ledger.lease_state import LeaseExhausted, LeaseState, Terms, UnitPrice, Use
from tests.clients.lease_world import CASES, Life, problem, text_of_cases
from tests.parts import spread


@pytest.mark.parametrize("seed", spread(range(60), test=range(4), check=range(4, 10)))
def test_lives(seed: int) -> None:
    """However batches are lost and come late, nothing is spent beyond the credits, and each decision is charged or named."""
    for number in range(25):
        life = Life(seed * 25 + number)
        life.live()
        state: LeaseState = life.state
        assert (state.holds, state.late, state.sent) == ([], [], None)
        assert state.captured == life.ledger.spent
        assert state.decided == state.captured + state.uncharged


@pytest.mark.parametrize("seed", spread(range(40), test=range(2), check=range(2, 6)))
def test_lives_of_processes_that_die(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal, each decision is charged or named although processes die between any two steps."""
    monkeypatch.setattr("credit_ledger.journal.LONGEST_BYTES", 4_000)
    crashes = 0
    for number in range(15):
        life = Life(seed * 15 + number, tmp_path / f"journal-{number}")
        life.live()
        assert life.journal is not None
        life.journal.close()
        state = life.state
        assert (state.holds, state.late, state.sent) == ([], [], None)
        assert life.decided + state.decided == life.ledger.spent + life.uncharged + state.uncharged
        crashes += life.crashes
    assert crashes > 20


def opened(rate: str | None = None) -> LeaseState:
    """A lease that has asked for its first hold, of 100 credits."""
    state = LeaseState(Terms("jane", 100, 100, 60_000, 10_000, {}, rate), "lease")
    state.learn_prices({1: {"input": UnitPrice(1, 1)}})
    state.learn_time("2027-01-01T00:00:00.000000Z", 0)
    state.ask_for(1)
    return state


def held(amount: int, version: int | None = None) -> dict[str, Any]:
    """The result of a hold with the sequence 7."""
    instants = {"effective_at": "2027-01-01T00:00:00.000000Z", "expires_at": "2027-01-01T00:01:00.000000Z"}
    rating = None if version is None else {"version": version}
    return {"status": 201, "body": {"sequence": 7, "amount": -amount, "rating": rating, **instants}}


def test_a_hold_that_a_dearer_rate_has_made_too_large_is_given_back() -> None:
    state = opened("chat")
    batch = state.next_batch(0)
    assert batch is not None
    assert [(each["operation"], each["quantities"]) for each in batch.operations] == [("hold", {"input": "100"})]
    state.settle(batch, [held(900, version=2)], 0)
    assert (state.left(0), state.needs_prices, state.is_due(0)) == (0, True, True)
    state.learn_prices({2: {"input": UnitPrice(9, 1)}})
    assert state.left(0) == 0, "it holds more than `most`"
    following = state.next_batch(0)
    assert following is not None
    assert [(each["operation"], each.get("quantities")) for each in following.operations] == [
        ("release", None),
        ("hold", {"input": "11.111111"}),
    ]


def test_a_rate_that_becomes_free_is_asked_for_its_prices_and_holds_nothing() -> None:
    state = opened("chat")
    use, quantities = Use(by_quantities=True), {"input": Fraction(3)}
    first = state.next_batch(0)
    assert first is not None
    state.settle(first, [held(100, version=1)], 0)
    state.learn_prices({2: {"input": UnitPrice(0, 1)}})
    assert state.is_free
    of_the_hold, decision = state.decide(0, use, quantities=quantities)
    assert of_the_hold is not None
    assert decision.amount == 3, "the price of the hold"
    state.take(of_the_hold, use, 3, quantities=quantities)
    ended = 55_000
    batch = state.next_batch(ended)
    assert batch is not None
    assert [each["operation"] for each in batch.operations] == ["capture", "release"], "no hold, which would hold nothing"
    results: list[dict[str, Any]] = [
        {"status": 201, "body": {"sequence": 8, "amount": 0, "effective_at": "2027-01-01T00:00:55Z"}}
    ] * 2
    assert state.settle(batch, results, ended) == []
    for time_ms in (ended + 1_001, ended + 31_000):
        state.learn_prices({2: {"input": UnitPrice(0, 1)}})
        with pytest.raises(LeaseExhausted, match="costs nothing is not held") as refused:
            state.decide(time_ms, use, quantities=quantities)
        assert refused.value.requested == 0
        assert (state.next_batch(time_ms), state.needs_prices, state.is_due(time_ms)) == (None, True, False)
    state.learn_prices({3: {"input": UnitPrice(2, 1)}})
    state.ask_for(1)
    again = state.next_batch(ended + 32_000)
    assert again is not None
    assert [(each["operation"], each["quantities"]) for each in again.operations] == [("hold", {"input": "50"})]


def test_a_hold_of_nothing_says_that_the_rate_has_become_free() -> None:
    state = opened("chat")
    batch = state.next_batch(0)
    assert batch is not None
    state.settle(batch, [held(0, version=2)], 0)
    assert (state.holds, state.needs_prices) == ([], True)
    state.close()
    assert not state.needs_prices


def test_a_release_that_is_refused_is_not_sent_for_ever() -> None:
    state = opened()
    batch = state.next_batch(0)
    assert batch is not None
    state.settle(batch, [held(100)], 0)
    state.close()
    batch = state.next_batch(0)
    assert batch is not None
    assert [each["operation"] for each in batch.operations] == ["release"]
    state.settle(batch, [problem(403, "missing-scope")], 0)
    assert (state.next_batch(0), state.holds) == (None, [])


def test_both_languages_live_the_same_lives() -> None:
    """clients/typescript/tests/lease.test.mjs lives those of the file."""
    assert CASES.read_text() == text_of_cases(), "write them again: python -m tests.clients.lease_world"
