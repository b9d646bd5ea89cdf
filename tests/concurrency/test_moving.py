"""Observations and promotions of one holder at once, and a shop that moves with traffic running and goes back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from ledger import journal
from ledger.database.locks import holder_key, holding
from ledger.database.statements import fetch_rows, fetch_value
from ledger.journal import LockedAccounts
from ledger.shadow import observing, promoting
from ledger.shadow.observing import observe
from ledger.shadow.promoting import Move, promote
from ledger.testing import unique
from tests.benchmarks import moving
from tests.benchmarks.moving import Shop, check, differing, move
from tests.concurrency.meetings import LOCKED, meet

RunThreads = Callable[[Callable[[int], Any], int], list[Any]]


@contextmanager
def open_without_locks(*, accounts: Any, held: Any = None) -> Iterator[LockedAccounts]:
    """As `journal.open`, by somebody who only says that the holders are locked."""
    names = {holder_key(holder_id) for holder_id, _ in accounts}
    with holding(*names) as lock, journal.open(accounts=accounts, held=held or lock) as opened:
        yield opened


class Unlocked:
    """Stands for the journal in a module that is tested without the locks."""

    open = staticmethod(open_without_locks)


@LOCKED
def test_two_observations_of_an_account_are_decided_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, run_threads: RunThreads, new_holder: Callable[[], str], *, is_locked: bool
) -> None:
    holder = new_holder()
    observe(holder_id=holder, idempotency_key="first", operation="balance", balance=10)
    read, reads = observing.load, []

    def load(*arguments: Any) -> Any:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(observing, "load", load)
    if not is_locked:
        monkeypatch.setattr(observing, "journal", Unlocked)
    meet(monkeypatch, (observing, "load"), is_locked=is_locked, has_read=True)
    found = run_threads(lambda index: observe(holder_id=holder, idempotency_key=f"k{index}", operation="balance", balance=10), 2)
    assert [each.result for each in found] == ["recorded"] * 2
    numbers = fetch_rows(int, "SELECT number FROM ledger_observation WHERE holder_id = %s ORDER BY number", [holder])
    assert numbers == [1, 2, 3]
    # Without the lock both read the same state; then the number is taken, and one of them decides again.
    assert len(reads) == (2 if is_locked else 3)


@LOCKED
def test_a_holder_is_promoted_once_by_two_machines(
    monkeypatch: pytest.MonkeyPatch, run_threads: RunThreads, new_holder: Callable[[], str], *, is_locked: bool
) -> None:
    holder = new_holder()
    observe(holder_id=holder, idempotency_key="first", operation="balance", balance=10)
    decide, decisions = promoting._Promoting._why_not, []

    def why_not(*arguments: Any) -> Any:
        decisions.append(arguments)
        return decide(*arguments)

    monkeypatch.setattr(promoting._Promoting, "_why_not", why_not)
    if not is_locked:
        monkeypatch.setattr(promoting, "journal", Unlocked)
    meet(monkeypatch, (promoting._Promoting, "_why_not"), is_locked=is_locked, has_read=True)
    found = run_threads(lambda index: promote([Move(holder_id=holder)])[0], 2)
    assert sorted(each.result for each in found) == ["moved", "moved before"]
    assert found[0].accounts == found[1].accounts
    assert fetch_value(int, f"SELECT sum(amount)::int FROM ledger_entry WHERE holder_id = '{holder}'") == 10
    # Without the lock both decide to grant; then the entry's number is taken, and one of them looks again.
    assert len(decisions) == (1 if is_locked else 2)


@pytest.fixture
def shop(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop with 60 users and their column."""
    monkeypatch.setattr(moving, "AT_ONCE", 10)
    made = Shop(60, f"{unique('shop')}-")
    made.open()
    yield made
    with connection.cursor() as cursor:
        cursor.execute(moving.DROPPED)


@pytest.mark.slow
def test_a_shop_moves_with_traffic_running_and_goes_back_and_no_credit_is_lost(shop: Shop) -> None:
    """As the guide says it; `python -m tests.benchmarks.moving` does it with 50,000 users."""
    steps = move(shop, decisions=100)
    check(shop, differing(shop))
    assert [step.name for step in steps] == ["observed", "promoted", "spent in the ledger", "went back", "observed again"]
    assert shop.jobs["ledger"] > 0
    assert shop.jobs["column"] > 0
