"""Transfers in opposite directions at the same time: each locks two holders, and they never deadlock."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from ledger import journal, reads, services
from ledger.database.locks import WAIT_FOR_HOLDER, holder_key, holder_lock, lock_number, sqlstate
from ledger.errors import SequenceTaken
from ledger.keys import api_keys
from ledger.rest.kit.front import application as front
from ledger.rules.entries import Entry
from ledger.rules.requests import TransferRequest
from ledger.scopes import SCOPES
from tests.asgi_client import AsgiClient
from tests.nodes import lock_holder, neighbours

RunThreads = Callable[..., list[Any]]
NewHolder = Callable[[], str]
Connect = Callable[..., psycopg.Connection[Any]]

DEADLOCK = "40P01"
ROUNDS = 20


def test_transfers_in_opposite_directions_all_succeed(run_threads: RunThreads, new_holder: NewHolder) -> None:
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
    assert [reads.balance(holder).balance for holder in (ada, bob)] == [1000, 1000]


@pytest.mark.parametrize("in_order", [True, False], ids=["in the order of the numbers", "control: each its own side first"])
def test_transfers_deadlock_unless_they_lock_in_the_order_of_the_numbers(
    run_threads: RunThreads, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """The control locks the source first and meets the other transfer between its two locks."""
    ada, bob = neighbours(new_holder)
    for holder in (ada, bob):
        services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    both_have_one = threading.Barrier(2)
    deadlocks: list[str] = []

    def own_side_first(request: TransferRequest) -> Entry:
        with connection.cursor() as cursor:
            try:
                cursor.execute(WAIT_FOR_HOLDER, [lock_number(holder_key(request.holder_id)), request.holder_id])
                both_have_one.wait(60)
                cursor.execute(WAIT_FOR_HOLDER, [lock_number(holder_key(request.to)), request.to])
            except OperationalError as error:
                deadlocks.append(str(sqlstate(error)))
                raise
        with holder_lock(request.holder_id, request.to) as lock:
            return services.execute_under(lock, request)

    def once(request: TransferRequest) -> Any:
        if in_order:
            return services.transfer(
                holder_id=request.holder_id, to=request.to, amount=request.amount, idempotency_key=request.idempotency_key
            )
        with transaction.atomic(durable=True):
            return own_side_first(request)

    requests = [
        TransferRequest(holder_id=source, to=target, amount=3, idempotency_key="transfer")
        for source, target in ((ada, bob), (bob, ada))
    ]
    answers = run_threads(lambda index: once(requests[index]), 2)

    assert not any(isinstance(response, SequenceTaken) for response in answers)
    moved = [response for response in answers if isinstance(response, Entry)]
    assert (len(moved), deadlocks) == ((2, []) if in_order else (1, [DEADLOCK]))
    assert sum(reads.balance(holder).balance for holder in (ada, bob)) == 20


@pytest.mark.parametrize("fails", [False, True])
def test_another_session_sees_both_sides_of_a_transfer_or_neither(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    ada, bob = new_holder(), new_holder()
    services.grant(holder_id=ada, amount=10, idempotency_key="grant")
    observer = raw_connection(autocommit=True)
    insert = journal._insert
    written: list[str] = []

    def balances() -> list[tuple[str, int]]:
        """Return what the observer sees: the holder and the balance after each of the two holders' entries."""
        return observer.execute(
            "SELECT holder_id, balance FROM ledger_entry WHERE holder_id = ANY(%s) ORDER BY recorded_at, sequence", [[ada, bob]]
        ).fetchall()

    def insert_and_look(entries: Sequence[Entry]) -> None:
        insert(entries)
        written.extend(entry.holder_id for entry in entries)
        assert balances() == [(ada, 10)]
        if fails and {ada, bob} <= set(written):
            raise RuntimeError("the power went")

    monkeypatch.setattr(journal, "_insert", insert_and_look)
    with pytest.raises(RuntimeError, match="the power went") if fails else nullcontext():
        services.transfer(holder_id=ada, to=bob, amount=3, idempotency_key="transfer")
    assert sorted(written) == sorted([ada, bob])
    assert set(balances()) == ({(ada, 10)} if fails else {(ada, 10), (ada, 7), (bob, 3)})


CLIENTS, PAYMENTS = 16, 25


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [front.WAITING_PER_HOLDER, 0], ids=["calls wait for a thread", "control: none waits"])
def test_sixteen_clients_pay_out_of_one_pool_and_none_is_refused(
    run_threads: RunThreads, raw_connection: Connect, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """A process gives a holder's calls four threads. The control refuses a fifth call at once."""
    monkeypatch.setattr(front, "WAITING_PER_HOLDER", waiting)
    pool = new_holder()
    services.grant(holder_id=pool, amount=CLIENTS * PAYMENTS, idempotency_key="grant")
    _, secret = api_keys.create_api_key(name=pool, scopes=list(SCOPES))
    client = AsgiClient(headers={"Authorization": f"Bearer {secret}"})
    other, one_is_refused = raw_connection(), threading.Event()
    if not waiting:
        lock_holder(other, pool)  # until it has been refused, so that four calls are there for certain

    def pay_once(index: int, number: int) -> int:
        status = client.post(
            f"/v1/holders/{pool}/transfers",
            {"amount": 1, "to": f"{pool}-{index}"},
            content_type="application/json",
            headers={"Idempotency-Key": f"{index}/{number}"},
        ).status_code
        if status == 503:
            one_is_refused.set()
        return status

    def pay(index: int) -> list[int]:
        if index == CLIENTS:
            if not waiting:
                assert one_is_refused.wait(60)
            other.rollback()
            return []
        return [pay_once(index, number) for number in range(PAYMENTS)]

    statuses = Counter(status for found in run_threads(pay, CLIENTS + 1) for status in found)

    assert set(statuses) <= {201, 503}
    assert (statuses[503] == 0) is (waiting > 0)
    assert reads.balance(pool).balance == statuses[503]
