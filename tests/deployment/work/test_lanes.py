"""Seen from outside: strangers that are slow, dead or silent hold up neither what writes money nor receivers that answer."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from billing.models import ScheduledTask
from billing.payments.intent_orders import order_payment
from billing.payments.testing import PackFactory
from ledger.signals.webhooks import WebhookRequest, create_webhook
from ledger.testing import unique
from ledger_project.work.timetable import Lane, named
from tests.concurrency.test_mail_races import queued
from tests.conftest import database_url, on_fresh_database
from tests.deployment.serving.test_serve import wait_until

ROOT = Path(__file__).resolve().parents[3]
SLOW_S, QUICK_S, SMTP_S = 9, 0.1, 3
MEASURED_S = 10
ROUNDS = 3
"""How often the rate alone and the rate beside strangers are measured, in turns, so that other load meets both."""

# Signals that need no entries, in as many streams.
MAKE_SIGNALS = """
    WITH made AS (
        INSERT INTO ledger_signal (type, stream, webhook_id, data, is_spread)
        SELECT 'webhook.ping', 'holder-' || n %% %(streams)s, %(webhook)s, '{"webhook": 1, "actor": "test"}', true
        FROM generate_series(1, %(count)s) AS n
        RETURNING number, stream
    ), put AS (
        INSERT INTO ledger_delivery (webhook_id, signal, stream) SELECT %(webhook)s, number, stream FROM made
    )
    INSERT INTO ledger_delivery_stream (webhook_id, stream, due_at)
    SELECT DISTINCT %(webhook)s::bigint, stream, statement_timestamp() FROM made
"""
SETTINGS = """
from ledger_project.settings import *

PAYMENT_PROVIDERS = {
    "stripe": {
        "class": "billing.payments.providers.stripe_payments.StripeProvider",
        "api_key": "sk_test", "event_secret": "whsec", "api_base": "%s/silent",
    }
}
"""


# Each turn of a task waits for that of another, and a receiver for the answer of another.
ONE_LANE = """
from dataclasses import replace
from ledger_project.work import timetable
from ledger_project.work.worker import Worker

timetable.TIMETABLE = tuple(
    replace(task, options=("--stay", "--workers", "1")) if task.name == "deliver_signals" else task
    for task in timetable.TIMETABLE
)
begin_due_turns = Worker._begin_due_turns


def begin_one(self):
    tasks = self._tasks
    for task in sorted(tasks, key=lambda task: self._due_at[task.name]):
        if not self._turns:
            self._tasks = [task]
            begin_due_turns(self)
    self._tasks = tasks


Worker._begin_due_turns = begin_one
"""


class Strangers:
    """One server for all of them: what it does is in the path. Of each it counts the requests, and those that wait."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        start = asyncio.start_server
        for act in (self._answer_http, self._answer_smtp):
            made = asyncio.run_coroutine_threadsafe(start(act, "127.0.0.1", 0), self._loop).result(60)
            self._servers.append(made)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].sockets[0].getsockname()[1]}"

    @property
    def smtp_port(self) -> int:
        port: int = self._servers[1].sockets[0].getsockname()[1]
        return port

    async def _answer_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            who = head.split()[1].decode().split("/")[1]
            self.requests[who] += 1
            self.waiting[who] += 1
            after_s = {"quick": QUICK_S, "slow": SLOW_S}.get(who, 3_600)
            ends = [asyncio.ensure_future(asyncio.sleep(after_s)), asyncio.ensure_future(reader.read())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.waiting[who] -= 1
                for end in ends:
                    end.cancel()
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    async def _answer_smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests["smtp"] += 1
        with suppress(OSError, asyncio.CancelledError):
            answers = iter([b"220 slow\r\n", *[b"250 ok\r\n"] * 3, b"354 go on\r\n", *[b"250 ok\r\n"] * 99])
            while True:
                await asyncio.sleep(SMTP_S)
                writer.write(next(answers))
                if not await reader.readline():
                    break
        writer.close()


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    made = Strangers()
    with made.listening():
        yield made


@pytest.fixture
def own_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), on_fresh_database("lanes"):
        yield


def webhook_with_signals(url: str, *, count: int, streams: int) -> int:
    webhook: int = create_webhook(WebhookRequest(url=url, types=["entry.recorded"], holder_id=unique("nobody"))).body["id"]
    with connection.cursor() as cursor:
        cursor.execute(MAKE_SIGNALS, {"webhook": webhook, "count": count, "streams": streams})
    return webhook


@contextmanager
def working(strangers: Strangers, folder: Path, more: str = "") -> Iterator[None]:
    """`manage.py work`, with Stripe and a mail server among the strangers, and more settings."""
    (folder / "settings_of_lanes.py").write_text(SETTINGS % strangers.url + more)
    environment = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests", "PYTHONPATH": f"{folder}:{ROOT}",
        "DJANGO_SETTINGS_MODULE": "settings_of_lanes", "DATABASE_URL": database_url("application"),
        "EMAIL_URL": f"smtp://127.0.0.1:{strangers.smtp_port}", "LEDGER_SIGNAL_MAIL_FROM": "ledger@example.com",
        "LEDGER_SIGNAL_PLAIN_HTTP": "true", "LEDGER_SIGNAL_ALLOWED_NETWORKS": "127.0.0.0/8",
    }  # fmt: skip
    with (folder / "log").open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, ROOT / "manage.py", "work"], cwd=ROOT, env=environment, stdout=output, stderr=output, process_group=0
        )
    try:
        yield
        assert worker.poll() is None, (folder / "log").read_text()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def quick_requests_a_second(strangers: Strangers, lateness: list[float]) -> float:
    """Measure for some time how often the quick receiver is asked, and how late the tasks of the lane for money are."""
    first, began = strangers.requests["quick"], time.monotonic()
    while time.monotonic() - began < MEASURED_S:
        now = datetime.now(UTC)
        due = dict(ScheduledTask.objects.values_list("name", "due_at"))
        lateness += [task.late_s(due[task.name], now) for task in named([], [Lane.MONEY]) if task.name in due]
        time.sleep(0.25)
    return (strangers.requests["quick"] - first) / (time.monotonic() - began)


PAUSE = """
    UPDATE ledger_delivery_stream SET due_at = due_at + interval '1 day'
    WHERE webhook_id = ANY(%s) AND due_at < now() + interval '12 hours'
"""
RESUME = """
    UPDATE ledger_delivery_stream SET due_at = due_at - interval '1 day'
    WHERE webhook_id = ANY(%s) AND due_at > now() + interval '12 hours'
"""


def execute(statement: str, webhooks: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, [webhooks])


def rates(strangers: Strangers, lateness: list[float], *, rounds: int) -> tuple[float, float]:
    """Median rates of the quick receiver: without another receiver, and beside a slow one and a dead one, measured in turns."""
    alone, beside = [quick_requests_a_second(strangers, [])], list[float]()
    others = [
        webhook_with_signals(f"{strangers.url}/slow", count=20_000, streams=400),
        webhook_with_signals(f"{strangers.url}/dead", count=1_000, streams=100),
    ]
    for _ in range(24):
        order_payment(pack=PackFactory().code, holder_id=unique("holder"), return_url="https://shop.example/")
    for _ in range(12):
        queued()
    wait_until(lambda: len(strangers.requests) == 5, "all strangers are asked")
    for _ in range(rounds):
        if beside:
            alone.append(quick_requests_a_second(strangers, lateness))
            execute(RESUME, others)
            wait_until(lambda: strangers.waiting["slow"] > 0, "the slow receiver is asked again")
        beside.append(quick_requests_a_second(strangers, lateness))

        def are_left_alone() -> bool:
            execute(PAUSE, others)
            return not strangers.waiting["slow"] and not strangers.waiting["dead"]

        wait_until(are_left_alone, "nobody waits for the slow receiver and the dead one")
    print(f"alone {alone}/s, beside {beside}/s, latest {max(lateness):.1f} s, {strangers.requests}")
    return median(alone), median(beside)


@pytest.fixture
def providers(settings: Any, strangers: Strangers) -> None:
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_ALLOWED_NETWORKS": ["127.0.0.0/8"], "SIGNAL_PLAIN_HTTP": True}
    stripe = "billing.payments.providers.stripe_payments.StripeProvider"
    settings.PAYMENT_PROVIDERS = {
        "stripe": {"class": stripe, "api_key": "sk_test", "event_secret": "whsec", "api_base": strangers.url}
    }


@pytest.mark.slow
@pytest.mark.one_node("the worker of the test connects to the coordinator alone")
@pytest.mark.usefixtures("own_database", "providers")
def test_strangers_hold_up_neither_money_nor_a_receiver_that_answers(strangers: Strangers, tmp_path: Path) -> None:
    webhook_with_signals(f"{strangers.url}/quick", count=40_000, streams=200)
    lateness: list[float] = []
    with working(strangers, tmp_path):
        wait_until(lambda: strangers.requests["quick"] > 100, "the worker has begun")
        alone, beside = rates(strangers, lateness, rounds=ROUNDS)
    assert max(lateness) <= 10
    assert beside >= 0.9 * alone


@pytest.mark.slow
@pytest.mark.one_node("the worker of the test connects to the coordinator alone")
@pytest.mark.usefixtures("own_database", "providers")
def test_control_in_one_lane_they_hold_up_both(strangers: Strangers, tmp_path: Path) -> None:
    webhook_with_signals(f"{strangers.url}/quick", count=20_000, streams=200)
    lateness: list[float] = []
    with working(strangers, tmp_path, ONE_LANE):
        wait_until(lambda: strangers.requests["quick"] > 100, "the worker has begun")
        alone, beside = rates(strangers, lateness, rounds=1)
    assert max(lateness) > 10
    assert beside < 0.9 * alone
