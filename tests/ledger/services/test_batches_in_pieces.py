"""A batch that gives way to quicker work locks, reads and stores in pieces; nothing else about it changes."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DataError, connection

from ledger import journal, reads, services
from ledger.database import pacing
from ledger.database.pacing import yielding_to_quick_work
from ledger.rules.requests import GrantRequest, SpendRequest

NewHolder = Callable[[], str]

OPERATIONS = 100


class Statements:
    """The openings and insertions that a batch sends: the lock numbers and the rows of each."""

    def __init__(self) -> None:
        self.lock_numbers: list[list[int]] = []
        self.insertions = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql == journal.OPEN.sql:
            self.lock_numbers.append([int(number.strip('"')) for number in params[1].decode().strip("{}").split(",")])
        elif sql == journal.APPEND_FEW.sql:
            self.insertions += 1
        return execute(sql, params, many, context)


@pytest.fixture
def statements(committed_db: None) -> Iterator[Statements]:
    """What this connection sends."""
    noted = Statements()
    with connection.execute_wrapper(noted):
        yield noted


@pytest.fixture
def always_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this thread pause at every place where it may, by pauses that take no time."""
    monkeypatch.setattr(pacing, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    monkeypatch.setattr(pacing, "PAUSE_SECONDS", pacing.PAUSES_SECONDS / 10_000)
    with yielding_to_quick_work(lambda: True):
        yield


def grants(new_holder: NewHolder) -> list[GrantRequest]:
    """A grant for each of 100 new holders."""
    return [GrantRequest(holder_id=new_holder(), idempotency_key="g", amount=1) for _ in range(OPERATIONS)]


def sizes(statements: Statements) -> list[int]:
    """How many locks each opening has taken."""
    return [len(numbers) for numbers in statements.lock_numbers]


def test_a_batch_beside_nobody_opens_and_stores_at_once(statements: Statements, new_holder: NewHolder) -> None:
    requests = grants(new_holder)
    services.batch(requests, mode="each", idempotency_key=requests[0].holder_id)
    assert sizes(statements) == [OPERATIONS + 1], "the holders and the batch's key"
    assert statements.insertions == 0, "one COPY stores more than 64 entries"


@pytest.mark.parametrize("mode", ["atomic", "each"])
def test_a_batch_that_gives_way_takes_its_locks_in_one_order_over_all_pieces(
    always_pauses: None, statements: Statements, new_holder: NewHolder, mode: services.Mode
) -> None:
    requests = grants(new_holder)
    services.batch(requests, mode=mode, idempotency_key=requests[0].holder_id)
    assert sizes(statements) == [32, 32, 32, 5]
    taken = [number for numbers in statements.lock_numbers for number in numbers]
    assert taken == sorted(taken)
    assert statements.insertions == 2
    assert [reads.balance(request.holder_id).balance for request in requests] == [1] * OPERATIONS


def test_the_entries_of_one_account_follow_each_other_over_all_pieces(
    always_pauses: None, statements: Statements, new_holder: NewHolder
) -> None:
    holder = new_holder()
    grant = GrantRequest(holder_id=holder, idempotency_key="g", amount=OPERATIONS)
    spends = [SpendRequest(holder_id=holder, idempotency_key=f"s{number}", amount=1) for number in range(OPERATIONS + 1)]
    result = services.batch([grant, *spends], mode="each", idempotency_key=holder)
    assert [outcome.entry and outcome.entry.sequence for outcome in result.outcomes[:-1]] == list(range(1, OPERATIONS + 2))
    assert result.outcomes[-1].error is not None, "the last spend is refused"
    assert (reads.balance(holder).balance, reads.balance(holder).sequence) == (0, OPERATIONS + 2)
    assert len(statements.lock_numbers) > 1
    again = services.batch([grant, *spends], mode="each", idempotency_key=holder)
    assert again.replayed
    assert [outcome.entry for outcome in again.outcomes] == [outcome.entry for outcome in result.outcomes]


def test_nothing_remains_of_the_pieces_before_one_that_fails(
    always_pauses: None, statements: Statements, new_holder: NewHolder
) -> None:
    def fail_in_the_second(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql == journal.APPEND_FEW.sql and statements.insertions == 1:
            raise DataError
        return execute(sql, params, many, context)

    requests = grants(new_holder)
    with connection.execute_wrapper(fail_in_the_second), pytest.raises(DataError):
        services.batch(requests, mode="each", idempotency_key=requests[0].holder_id)
    assert statements.insertions == 1
    assert [reads.balance(request.holder_id).sequence for request in requests] == [0] * OPERATIONS
