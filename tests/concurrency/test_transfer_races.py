"""Transfers that cross: each locks two holders, and neither waits for the other for ever."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from ledger import journal, rules, selectors, services
from ledger.database.locks import holder_key, lock_number, sqlstate
from ledger.errors import SequenceTaken
from ledger.services import transferring

RunThreads = Callable[..., list[Any]]
NewHolder = Callable[[], str]

DEADLOCK = "40P01"
ROUNDS = 20


def test_crossing_transfers_all_go_through(run_threads: RunThreads, new_holder: NewHolder) -> None:
    ada, bob = new_holder(), new_holder()
    for holder in (ada, bob):
        services.grant(holder_id=holder, amount=1000, idempotency_key="grant")

    def transfer(index: int) -> int:
        source, target = (ada, bob) if index % 2 else (bob, ada)
        entries = [
            services.transfer(holder_id=source, to=target, amount=1, idempotency_key=f"{index}/{number}")
            for number in range(ROUNDS)
        ]
        return len(entries)

    assert run_threads(transfer, 4) == [ROUNDS] * 4
    assert [selectors.balance(holder).balance for holder in (ada, bob)] == [1000, 1000]


@pytest.mark.parametrize("in_order", [True, False], ids=["in the order of the numbers", "control: each its own side first"])
def test_only_the_order_of_the_numbers_keeps_them_from_deadlock(
    run_threads: RunThreads, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """The control takes the source's lock first, and meets the other transfer between its two locks."""
    ada, bob = new_holder(), new_holder()
    for holder in (ada, bob):
        services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    both_have_one = threading.Barrier(2)
    deadlocks: list[str] = []

    def own_side_first(request: rules.TransferRequest) -> journal.Recorded:
        with connection.cursor() as cursor:
            try:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(request.holder_id))])
                both_have_one.wait(10)
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(request.to))])
            except OperationalError as error:
                deadlocks.append(str(sqlstate(error)))
                raise
        with transferring.holder_lock(request.holder_id, request.to) as lock:
            return transferring.transfer_under(lock, request)

    def once(request: rules.TransferRequest) -> Any:
        if in_order:
            return services.transfer(
                holder_id=request.holder_id, to=request.to, amount=request.amount, idempotency_key=request.idempotency_key
            )
        with transaction.atomic(durable=True):
            return own_side_first(request).unwrap()

    requests = [
        rules.TransferRequest(holder_id=source, to=target, amount=3, idempotency_key="transfer")
        for source, target in ((ada, bob), (bob, ada))
    ]
    answers = run_threads(lambda index: once(requests[index]), 2)

    assert not any(isinstance(answer, SequenceTaken) for answer in answers)
    moved = [answer for answer in answers if isinstance(answer, rules.Entry)]
    assert (len(moved), deadlocks) == ((2, []) if in_order else (1, [DEADLOCK]))
    assert sum(selectors.balance(holder).balance for holder in (ada, bob)) == 20


def test_a_transfer_shows_both_sides_or_neither(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = new_holder(), new_holder()
    services.grant(holder_id=ada, amount=10, idempotency_key="grant")
    append = journal.append

    def fail_on_the_source(lock: Any, entries: Any) -> None:
        if entries[0].holder_id == ada:
            raise RuntimeError("the power went")
        append(lock, entries)

    monkeypatch.setattr(journal, "append", fail_on_the_source)
    with pytest.raises(RuntimeError):
        services.transfer(holder_id=ada, to=bob, amount=3, idempotency_key="transfer")
    assert (selectors.balance(ada).sequence, selectors.balance(bob).sequence) == (1, 0)
