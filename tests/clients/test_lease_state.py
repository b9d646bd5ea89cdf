"""What a lease decides and sends, in random lives beside a ledger of a few lines."""

from pathlib import Path

import pytest

from credit_ledger.lease_state import LeaseState
from tests.clients.lease_world import CASES, Life, text_of_cases
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


def test_both_languages_live_the_same_lives() -> None:
    """clients/typescript/tests/lease.test.mjs lives those of the file."""
    assert CASES.read_text() == text_of_cases(), "write them again: python -m tests.clients.lease_world"
