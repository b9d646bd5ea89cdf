"""Signals through kill -9, by workers that share webhooks, while entries are written: nothing is lost or out of order."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import LockBusy
from ledger.reads import entry_feed
from ledger.signals import delivery
from ledger.signals.delivery import Summary, deliver
from ledger.signals.feed import feed
from ledger.signals.webhooks import WebhookRequest, create_webhook
from ledger.testing import unique
from tests.conftest import database_url
from tests.ledger.signals.conftest import Handler, Receiver, answer, receiver, work

__all__ = ["receiver"]

HANGS_S = 120
"""Ends what hangs; no test depends on how long something takes."""


@pytest.fixture
def of_this_test(committed_db: None, receiver: Receiver) -> Iterator[Callable[..., int]]:
    """Makes webhooks that lead to the receiver, the only ones of the database, and removes them when the test ends."""
    made: list[int] = []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook SET removed_at = clock_timestamp() WHERE removed_at IS NULL")

    def make(holder: str | None = None) -> int:
        request = WebhookRequest(url=receiver.url, types=["entry.recorded"], holder_id=holder)
        made.append(create_webhook(request).body["id"])
        return made[-1]

    yield make
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook SET removed_at = clock_timestamp() WHERE id = ANY(%s)", [made])


def grant(holder: str) -> Any:
    return services.grant(holder_id=holder, amount=1, idempotency_key=unique("k"))


def start_worker() -> subprocess.Popen[str]:
    """Start `manage.py deliver_signals` in a process."""
    environment = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"), "LEDGER_SIGNAL_PLAIN_HTTP": "true",
        "LEDGER_SIGNAL_ALLOWED_NETWORKS": "127.0.0.0/8", "LEDGER_SIGNAL_TIMEOUT_SECONDS": "30",
    }  # fmt: skip
    command = [sys.executable, "manage.py", "deliver_signals", "--format", "json"]
    return subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def in_first_order(sequences: list[int]) -> list[int]:
    """Each number where it came first."""
    return list(dict.fromkeys(sequences))


@pytest.mark.slow
@pytest.mark.one_node("a process of the application's role connects to the coordinator")
def test_a_worker_killed_in_the_middle_of_a_request_loses_nothing_and_keeps_the_order(
    of_this_test: Callable[..., int], receiver: Receiver, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    webhook = of_this_test(holder)
    for _ in range(5):
        grant(holder)
    has_third, may_answer = threading.Event(), threading.Event()

    def hold_third(handler: Handler) -> None:
        if len(receiver.received) == 3:
            has_third.set()
            may_answer.wait(HANGS_S)
        answer(204)(handler)

    receiver.always = hold_third
    worker = start_worker()
    try:
        while not has_third.wait(0.2):
            assert worker.poll() is None, "the worker ended before the third signal"
        worker.send_signal(signal.SIGKILL)
        worker.wait(HANGS_S)
    finally:
        worker.kill()
        may_answer.set()
        print(worker.communicate()[0])
    assert fetch_rows(str, "SELECT state FROM ledger_delivery WHERE webhook_id = %s", [webhook]) == ["pending"] * 5
    # The server frees the lock of the killed session when it notices; until then the webhook is busy.
    while work() == Summary():
        pass
    assert receiver.sequences() == [1, 2, 3, 1, 2, 3, 4, 5], "what was sent before is sent again, and nothing is left out"
    ids = {each.content["data"]["sequence"]: each.id for each in receiver.received}
    assert all(ids[each.content["data"]["sequence"]] == each.id for each in receiver.received)


def test_a_webhook_that_another_worker_has_is_left_to_it(
    of_this_test: Callable[..., int], receiver: Receiver, new_holder: Callable[[], str], raw_connection: Callable[..., Any]
) -> None:
    holder = new_holder()
    taken, free = of_this_test(holder), of_this_test(holder)
    grant(holder)
    feed()
    other = raw_connection("application", autocommit=True)
    other.execute(delivery.MAKE_TURNS)
    other.autocommit = False
    other.execute(delivery.TURN, [taken])
    assert deliver() == Summary(attempts=1, delivered=1)
    rows = fetch_rows(
        lambda *row: row, "SELECT webhook_id, state FROM ledger_delivery WHERE webhook_id = ANY(%s)", [[taken, free]]
    )
    assert dict(rows) == {taken: "pending", free: "delivered"}
    other.rollback()
    assert deliver() == Summary(attempts=1, delivered=1)


def writers_and_workers(holders: list[str], entries: int, workers: int) -> None:
    """Write entries in threads, while others feed and deliver; then finish."""
    errors: list[BaseException] = []
    is_over = threading.Event()

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    def write(holder: str) -> None:
        for _ in range(entries):
            grant(holder)

    def deliver_on() -> None:
        while not is_over.is_set():
            try_to_work()

    writing = [threading.Thread(target=run, args=(lambda holder=holder: write(holder),)) for holder in holders]  # type: ignore[misc]
    working = [threading.Thread(target=run, args=(deliver_on,)) for _ in range(workers)]
    for thread in writing + working:
        thread.start()
    for thread in writing:
        thread.join()
    is_over.set()
    for thread in working:
        thread.join()
    assert errors == []
    try_to_work()


def try_to_work() -> None:
    """Feed unless another does, and deliver."""
    with suppress(LockBusy):
        feed()
    deliver()


def test_several_workers_beside_writers_send_each_entry_once_and_in_order(
    of_this_test: Callable[..., int], receiver: Receiver, new_holder: Callable[[], str]
) -> None:
    holders = [new_holder() for _ in range(4)]
    for holder in holders:
        of_this_test(holder)
    writers_and_workers(holders, entries=15, workers=3)
    came: dict[str, list[int]] = {}
    for each in receiver.received:
        came.setdefault(each.content["data"]["holder_id"], []).append(each.content["data"]["sequence"])
    assert came == {holder: list(range(1, 16)) for holder in holders}


def test_a_worker_that_waits_for_a_receiver_holds_up_neither_the_feed_of_entries_nor_signals(
    of_this_test: Callable[..., int], receiver: Receiver, new_holder: Callable[[], str]
) -> None:
    holder, other = new_holder(), new_holder()
    of_this_test(holder)
    grant(holder)
    feed()
    is_waiting, may_answer = threading.Event(), threading.Event()

    def wait(handler: Handler) -> None:
        is_waiting.set()
        may_answer.wait(HANGS_S)
        answer(204)(handler)

    receiver.behaviours.append(wait)

    def one() -> None:
        try:
            deliver()
        finally:
            connection.close()

    worker = threading.Thread(target=one)
    worker.start()
    assert is_waiting.wait(HANGS_S)
    began = entry_feed.feed_end()
    recorded = grant(other)
    assert entry_feed.feed_end().recorded_us > recorded.recorded_us > began.recorded_us
    may_answer.set()
    worker.join()


def test_control_without_the_lock_of_a_webhook_signals_are_sent_twice(
    of_this_test: Callable[..., int], receiver: Receiver, new_holder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = new_holder()
    of_this_test(holder)
    grant(holder)
    feed()
    monkeypatch.setattr(delivery, "TURN", delivery.TURN.replace("FOR UPDATE SKIP LOCKED", ""))
    both_have_it = threading.Barrier(2)

    def meet(handler: Handler) -> None:
        both_have_it.wait(HANGS_S)
        answer(204)(handler)

    receiver.always = meet

    def one() -> None:
        try:
            deliver()
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(receiver.sequences()) == {1: 2}


# Slow receivers --------------------------------------------------------------------------------------

SESSIONS = 3


class SlowPath:
    """Holds each request to a path that ends with /slow until it may answer, and counts those that it holds."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.held = threading.Semaphore(0)

    def __call__(self, handler: Handler) -> None:
        if handler.path.endswith("/slow"):
            self.held.release()
            self.may_answer.wait(HANGS_S)
        answer(204)(handler)


def came_to(receiver: Receiver) -> set[str]:
    """Whose signals it got."""
    return {each.content["data"]["holder_id"] for each in list(receiver.received)}


@pytest.mark.parametrize("is_protected", [True, False], ids=["as it is", "control: slow ones take every session"])
def test_receivers_that_are_slow_leave_a_session_to_the_others(
    committed_db: None, receiver: Receiver, new_holder: Callable[[], str], monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    holders = [new_holder() for _ in range(SESSIONS + 1)]
    urls = [f"{receiver.url}/slow"] * SESSIONS + [receiver.url]
    webhooks = [
        create_webhook(WebhookRequest(url=url, types=["entry.recorded"], holder_id=holder)).body["id"]
        for url, holder in zip(urls, holders, strict=True)
    ]
    with connection.cursor() as cursor:
        for slow in webhooks[:SESSIONS]:
            cursor.execute(delivery.PACE, {"webhook": slow, "ms": 9_000})
    if not is_protected:
        monkeypatch.setattr(delivery, "slow_rounds_at_once", lambda sessions: sessions)
    receiver.always = slow_path = SlowPath()
    for holder in holders[:SESSIONS]:
        grant(holder)
    feed()
    sending = threading.Thread(target=lambda: (deliver(workers=SESSIONS), connection.close()))
    sending.start()
    try:
        for _ in range(SESSIONS - is_protected):
            assert slow_path.held.acquire(timeout=HANGS_S)
        grant(holders[-1])
        feed()
        while is_protected and holders[-1] not in came_to(receiver):
            assert sending.is_alive()
        assert not slow_path.held.acquire(blocking=False), "no further one begins beside them"
        assert (holders[-1] in came_to(receiver)) is is_protected
    finally:
        slow_path.may_answer.set()
        sending.join()
    states = fetch_rows(str, "SELECT DISTINCT state FROM ledger_delivery WHERE webhook_id = ANY(%s)", [webhooks])
    assert states == ["delivered"], "once the slow ones have answered, everybody has everything"
