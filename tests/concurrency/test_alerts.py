"""Two workers that read the same entries, and one that is killed: the feed makes one crossing one signal."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.db import connection

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import LockBusy
from ledger.signals import alert_watching
from ledger.signals import feed as feeding
from ledger.signals.alert_declarations import AlertRequest, EndAlertRequest, end_alert, set_alert
from ledger.signals.feed import feed
from ledger.signals.webhooks import WebhookRequest, create_webhook
from ledger.testing import unique
from tests.concurrency.test_webhooks import start_worker
from tests.nodes import pause

HANGS_S = 120
"""Ends what hangs; no test depends on how long something takes."""


@pytest.fixture
def holder(committed_db: None, new_holder: Callable[[], str]) -> Iterator[str]:
    """A holder with 20 credits, an alert below 10 and a webhook for it, whose entries so far were read."""
    holder = new_holder()
    made = create_webhook(WebhookRequest(url="https://shop.example/", types=["balance.low"], holder_id=holder)).body["id"]
    set_alert(AlertRequest(alert="low", holder_id=holder, below=10))
    services.grant(holder_id=holder, amount=20, idempotency_key=unique("k"))
    feed()
    yield holder
    end_alert(EndAlertRequest(alert="low", holder_id=holder))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook SET removed_at = clock_timestamp() WHERE id = %s", [made])


def signals(holder: str) -> list[str]:
    return fetch_rows(str, "SELECT type FROM ledger_signal WHERE holder_id = %s AND sequence IS NULL ORDER BY number", [holder])


def two_workers_meet(monkeypatch: pytest.MonkeyPatch, holder: str, *, both: bool) -> list[BaseException]:
    """Let two workers feed at once: both read the states before either writes, or the second tries while the first has read."""
    read = alert_watching._states
    is_reading, may_go_on = threading.Event(), threading.Event()
    meet = threading.Barrier(2)

    def states(asked: Sequence[str]) -> Any:
        found = read(asked)
        if holder in asked and connection.in_atomic_block:
            if both:
                with suppress(threading.BrokenBarrierError):
                    meet.wait(HANGS_S)
            else:
                is_reading.set()
                assert may_go_on.wait(HANGS_S)
        return found

    monkeypatch.setattr(alert_watching, "_states", states)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            feed()
        except BaseException as error:
            errors.append(error)
        finally:
            meet.abort()
            connection.close()

    first, second = threading.Thread(target=run), threading.Thread(target=run)
    first.start()
    if not both:
        assert is_reading.wait(HANGS_S)
    second.start()
    if not both:
        second.join()
        may_go_on.set()
    for thread in (first, second):
        thread.join()
    monkeypatch.setattr(alert_watching, "_states", read)
    return errors


def test_of_two_workers_one_reports_the_crossing_and_the_other_leaves_it_to_it(
    holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.spend(holder_id=holder, amount=15, idempotency_key=unique("k"))
    errors = two_workers_meet(monkeypatch, holder, both=False)
    assert [type(error) for error in errors] == [LockBusy]
    assert signals(holder) == ["balance.low"]


def test_control_without_the_lock_of_the_feed_both_report_it(holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "try_advisory_lock", lambda *names: nullcontext())
    services.spend(holder_id=holder, amount=15, idempotency_key=unique("k"))
    assert two_workers_meet(monkeypatch, holder, both=True) == []
    assert signals(holder) == ["balance.low", "balance.low"]


@pytest.mark.slow
@pytest.mark.one_node("a process of the application's role connects to the coordinator")
def test_a_worker_killed_between_decision_and_commit_neither_loses_nor_doubles_the_crossing(
    holder: str, raw_connection: Callable[..., Any]
) -> None:
    services.spend(holder_id=holder, amount=15, idempotency_key=unique("k"))
    feed()
    services.grant(holder_id=holder, amount=20, idempotency_key=unique("k"))
    feed()
    assert signals(holder) == ["balance.low"]  # of the types, the webhook has chosen this one alone
    services.spend(holder_id=holder, amount=20, idempotency_key=unique("k"))
    other = raw_connection("owner")
    other.execute("SELECT FROM ledger_alert_state WHERE holder_id = %s FOR UPDATE", [holder])
    worker = start_worker()
    try:
        while not _is_waited_for(other.info.backend_pid):
            with suppress(subprocess.TimeoutExpired):
                worker.wait(0.1)
                pytest.fail("the worker ended before it wrote the state")
        worker.send_signal(signal.SIGKILL)
        worker.wait(HANGS_S)
    finally:
        worker.kill()
        worker.communicate()
    other.rollback()
    assert signals(holder) == ["balance.low"], "what the worker had decided is gone with it"
    while True:  # until the server notices that the worker's session has ended
        with suppress(LockBusy):
            feed()
            break
        pause()
    assert signals(holder) == ["balance.low", "balance.low"]
    crossings = fetch_rows(int, "SELECT crossings FROM ledger_alert_state WHERE holder_id = %s", [holder])
    assert crossings == [2]


def _is_waited_for(pid: int) -> bool:
    return bool(fetch_rows(int, "SELECT pid FROM pg_locks WHERE NOT granted AND %s = ANY(pg_blocking_pids(pid))", [pid]))
