"""Sends what is due. Workers on any machines share the webhooks by trying a lock; a round keeps the order of each stream.

Note [A round]
    A worker has a webhook's lock for one round, in one transaction: it sends the first signals of some streams, those of one
    stream one after the other, and then records what came of it. A stream that fails waits, with all that is behind it; others go
    on. If the worker is killed, its lock is free, nothing of the round is recorded, and all of it is sent again: at least once.
    A round takes less time than a session may idle in a transaction, because each request and the round are bounded.
    The lock is that of a row, and no advisory lock: the feed of entries and the totals wait for those (docs/adr/0070).

Note [Paced by seconds]
    What a receiver takes from the others is the time for which it holds a session, whether it accepts signals in the end or not.
    So each round is recorded with its seconds, and a webhook stands in line behind those that are due until as much time has
    passed again: of two that always have signals, the one with short rounds has more of them. A receiver whose last round was
    long is slow, and slow ones never get the last third of the sessions: however many there are, the others find one free.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.core.mail import EmailMessage
from django.db import close_old_connections, connection, connections, transaction

from ledger import conf
from ledger.database.locking import TurnResult
from ledger.database.statements import fetch_rows
from ledger.errors import Misuse
from ledger.signals import mail, sending
from ledger.signals.addresses import mail_address
from ledger.signals.payloads import SIGNAL_COLUMNS, StoredSignal, body
from ledger.signals.sending import GONE, Attempt
from ledger.signals.webhooks import disable

log = logging.getLogger(__name__)

Waiting = tuple[StoredSignal, str | EmailMessage]
"""A signal, and what is sent of it: the body, or a mail."""

STREAMS_AT_ONCE: Final = 16
SIGNALS_AT_ONCE: Final = 20
ROUND_SECONDS: Final = 2.0
"""After that no further request of a round begins. With the longest request it stays below the session's 60 s."""
SLOW_MS: Final = 3_000
"""A round that took longer waited for one request for more than a second."""
LOOK_EVERY_S: Final = 0.25
"""How often a run looks for what has become due."""
BUSY_PAUSE_S: Final = 1.0
TOO_MANY, UNAVAILABLE = 429, 503
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

AFTER: Final = (
    timedelta(seconds=5), timedelta(seconds=30), 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR,
    12 * HOUR, 16 * HOUR, 24 * HOUR, 24 * HOUR,
)  # fmt: skip
"""How long after the first failure, the second … the next attempt is due: together 3.8 days."""
ATTEMPTS: Final = len(AFTER) + 1
"""After that number of attempts a signal is given up, if its receiver accepts others."""
SPREAD: Final = 0.1
"""By which part a wait is longer or shorter, so that receivers do not get everything at once."""
MOST_ASKED_FOR: Final = HOUR
"""The longest wait that a receiver can ask for by Retry-After."""

# In the order in which they get a session; see Note [Paced by seconds].
DUE: Final = """
    SELECT w.id, COALESCE(p.round_ms, 0) FROM ledger_webhook AS w
    LEFT JOIN ledger_webhook_pace AS p ON p.webhook_id = w.id
    CROSS JOIN LATERAL (
        SELECT due_at FROM ledger_delivery_stream AS s
        WHERE s.webhook_id = w.id AND s.due_at <= clock_timestamp() ORDER BY s.due_at LIMIT 1
    ) AS first
    WHERE w.removed_at IS NULL AND w.disabled_at IS NULL AND (p.retry_at IS NULL OR p.retry_at <= clock_timestamp())
    ORDER BY greatest(first.due_at, p.rests_until), w.id
"""
TURN: Final = "SELECT webhook_id FROM ledger_webhook_turn WHERE webhook_id = %s FOR UPDATE SKIP LOCKED"
MAKE_TURNS: Final = "INSERT INTO ledger_webhook_turn (webhook_id) SELECT id FROM ledger_webhook ON CONFLICT DO NOTHING"
RECEIVER: Final = """
    SELECT w.url, w.secret, CASE WHEN w.former_until > clock_timestamp() THEN w.former_secret END, COALESCE(p.failed_rounds, 0)
    FROM ledger_webhook AS w LEFT JOIN ledger_webhook_pace AS p ON p.webhook_id = w.id
    WHERE w.id = %s AND w.removed_at IS NULL AND w.disabled_at IS NULL AND (p.retry_at IS NULL OR p.retry_at <= clock_timestamp())
"""
STREAMS: Final = """
    SELECT stream FROM ledger_delivery_stream
    WHERE webhook_id = %s AND due_at <= clock_timestamp() ORDER BY due_at LIMIT %s
"""
PENDING: Final = f"""
    SELECT {SIGNAL_COLUMNS} FROM ledger_delivery AS d JOIN ledger_signal AS s ON s.number = d.signal
    WHERE d.webhook_id = %s AND d.stream = %s AND d.state = 'pending' ORDER BY d.signal LIMIT %s
"""
RECORD: Final = """
    INSERT INTO ledger_delivery_attempt (webhook_id, signal, url, started_at, took_ms, status, error, response)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
# Waits for the feed, which may have it in an open transaction: then what it adds is seen by the next statement.
LOCK_STREAM: Final = "SELECT failures FROM ledger_delivery_stream WHERE webhook_id = %s AND stream = %s FOR UPDATE"
COUNT: Final = """
    UPDATE ledger_delivery
    SET attempts = attempts + 1,
        state = CASE
            WHEN %(accepted)s THEN 'delivered' WHEN %(may_end)s AND attempts + 1 >= %(most)s THEN 'given_up' ELSE state END,
        ended_at = CASE WHEN %(accepted)s OR %(may_end)s AND attempts + 1 >= %(most)s THEN clock_timestamp() END
    WHERE webhook_id = %(webhook)s AND signal = %(signal)s
    RETURNING state
"""
NEXT: Final = """
    UPDATE ledger_delivery_stream AS s
    SET failures = %(failures)s,
        due_at = CASE WHEN EXISTS (
            SELECT FROM ledger_delivery AS d WHERE d.webhook_id = s.webhook_id AND d.stream = s.stream AND d.state = 'pending'
        ) THEN clock_timestamp() + %(wait)s END
    WHERE webhook_id = %(webhook)s AND stream = %(stream)s
"""
PACE: Final = """
    INSERT INTO ledger_webhook_pace AS known (webhook_id, round_ms, rests_until)
    VALUES (%(webhook)s, %(ms)s, clock_timestamp() + %(ms)s * interval '1 ms')
    ON CONFLICT (webhook_id) DO UPDATE SET round_ms = EXCLUDED.round_ms, rests_until = EXCLUDED.rests_until
"""
WELL: Final = "UPDATE ledger_webhook_pace SET failing_since = NULL, failed_rounds = 0, retry_at = NULL WHERE webhook_id = %s"
FAILING: Final = """
    INSERT INTO ledger_webhook_pace AS known (webhook_id, failing_since, failed_rounds, retry_at)
    VALUES (%(webhook)s, clock_timestamp(), %(rounds)s, clock_timestamp() + %(wait)s::interval)
    ON CONFLICT (webhook_id) DO UPDATE SET failing_since = COALESCE(known.failing_since, EXCLUDED.failing_since),
        failed_rounds = EXCLUDED.failed_rounds, retry_at = EXCLUDED.retry_at
    RETURNING failing_since < clock_timestamp() - %(disabled_after)s::interval
"""


@dataclass(slots=True)
class Summary:
    """The counts of one run."""

    attempts: int = 0
    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    disabled: int = 0
    broken: int = 0
    """Rounds that ended with an error of the ledger, which is in the log."""

    def add(self, other: "Summary") -> None:
        """Count what another run or round did, too."""
        for name in Summary.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Receiver(NamedTuple):
    """The address of a webhook, the secrets that sign its signals, and how many rounds in a row have failed completely."""

    url: str
    secret: str
    former_secret: str | None
    failed_rounds: int

    @property
    def secrets(self) -> list[str]:
        return [secret for secret in (self.secret, self.former_secret) if secret]


@dataclass(slots=True)
class Sent:
    """What a round did with one stream: the signals that were tried, each with its result; all but the last were accepted."""

    stream: str
    outcomes: list[tuple[StoredSignal, Attempt]]

    @property
    def failure(self) -> Attempt | None:
        """The failed attempt that ended it."""
        return next((attempt for _, attempt in self.outcomes if attempt.error), None)


def deliver(*, workers: int = 1, stop: Callable[[], bool] = lambda: False, stays: bool = False) -> Summary:
    """Send all that is due, until nothing is; return what was done.

    Any number of these runs may work at the same time: each takes the webhooks that no other has.

    Args:
        workers: the number of rounds at the same time, each in a session. 1: in the caller's thread.
        stop: True ends the run after the present rounds: until the slow ones among them have ended, it begins quick ones.
        stays: go on looking for what becomes due until `stop` says so.
    """
    # By itself, so that no round waits for the row of another worker's first one.
    with connection.cursor() as cursor:
        cursor.execute(MAKE_TURNS)
    if workers == 1:
        return _Rounds(_Here(), 1, stop, stays=stays).run()
    with ThreadPoolExecutor(workers, "sends-signals") as pool:
        try:
            return _Rounds(pool, workers, stop, stays=stays).run()
        finally:
            # Each of the threads meets the others, so each closes its own connection.
            everyone = threading.Barrier(workers)
            wait([pool.submit(_close_connections, everyone) for _ in range(workers)])


def _close_connections(everyone: threading.Barrier) -> None:
    everyone.wait()
    connections.close_all()


class _Here(Executor):
    """Does the work at once, in the caller's thread."""

    def submit(self, act: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(act(*arguments, **options))
        return done


class Candidate(NamedTuple):
    """A webhook with signals that are due, and for how many milliseconds its last round lasted."""

    webhook_id: int
    round_ms: int

    @property
    def is_slow(self) -> bool:
        """Whether a round is expected to hold its session for long."""
        return self.round_ms > SLOW_MS


class _Rounds:
    """Begins rounds in a number of sessions; see Note [Paced by seconds]."""

    def __init__(self, sessions: Executor, number: int, stop: Callable[[], bool], *, stays: bool) -> None:
        self._sessions = sessions
        self._number = number
        self._stop = stop
        self._stays = stays
        self._running: dict[Future[_Round], Candidate] = {}
        self._leaves_alone: dict[int, float] = {}
        """Webhooks of which another worker has the turn, or whose round failed here: until when they are left to others."""
        self._summary = Summary()

    def run(self) -> Summary:
        while True:
            is_stopping = self._stop()
            self._begin(is_stopping=is_stopping)
            if not self._running:
                if is_stopping or not self._stays:
                    return self._summary
                time.sleep(LOOK_EVERY_S)
            for done in wait(self._running, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED).done:
                self._end(self._running.pop(done), done.result())

    def _begin(self, *, is_stopping: bool) -> None:
        free = self._number - len(self._running)
        slow = sum(each.is_slow for each in self._running.values())
        if not free or (is_stopping and not slow):
            return
        at_work = {each.webhook_id for each in self._running.values()}
        now = time.monotonic()
        due = [
            each
            for each in fetch_rows(Candidate, DUE)
            if each.webhook_id not in at_work and now >= self._leaves_alone.get(each.webhook_id, 0.0)
        ]
        room_for_slow = 0 if is_stopping else slow_rounds_at_once(self._number) - slow
        for candidate in chosen(due, free=free, room_for_slow=room_for_slow):
            self._running[self._sessions.submit(_round_in_session, candidate.webhook_id)] = candidate

    def _end(self, candidate: Candidate, done: "_Round") -> None:
        self._summary.add(done.summary)
        if done.turn is TurnResult.BUSY or done.summary.broken:
            pause_s = BUSY_PAUSE_S if self._stays else float("inf")
            self._leaves_alone[candidate.webhook_id] = time.monotonic() + pause_s


def slow_rounds_at_once(sessions: int) -> int:
    """Return in how many sessions slow receivers may be served at the same time: a third, at least one, is kept free of them."""
    return sessions if sessions == 1 else sessions - max(1, sessions // 3)


def chosen(due: Sequence[Candidate], *, free: int, room_for_slow: int) -> list[Candidate]:
    """Return the webhooks whose rounds begin now: the first ones that have room, in their order."""
    begun: list[Candidate] = []
    for candidate in due:
        if len(begun) >= free:
            break
        if candidate.is_slow:
            if room_for_slow <= 0:
                continue
            room_for_slow -= 1
        begun.append(candidate)
    return begun


class _Round(NamedTuple):
    """What came of a round: BUSY if another worker has the webhook."""

    summary: Summary
    turn: TurnResult | None = None


def _round_in_session(webhook_id: int) -> _Round:
    """Do one round; what goes wrong here keeps no other webhook from its turn."""
    summary = Summary()
    try:
        return _Round(summary, _round(webhook_id, summary))
    except Misuse:
        raise
    except Exception:
        log.exception("A round of webhook %s failed; what it sent is sent again.", webhook_id)
        return _Round(Summary(broken=1))
    finally:
        if threading.current_thread() is not threading.main_thread():
            close_old_connections()


def _round(webhook_id: int, summary: Summary) -> TurnResult | None:
    """Do one round of a webhook, or return at once that it is busy where another worker is at it; see Note [A round]."""
    with transaction.atomic():
        if not fetch_rows(int, TURN, [webhook_id]):
            return TurnResult.BUSY
        receivers = fetch_rows(Receiver, RECEIVER, [webhook_id])
        if not receivers:
            return None
        # After a round that failed whole, one stream tells whether the receiver is back.
        streams = fetch_rows(str, STREAMS, [webhook_id, 1 if receivers[0].failed_rounds else STREAMS_AT_ONCE])
        waiting = {stream: _pending(webhook_id, stream, receivers[0]) for stream in streams}
        began = time.monotonic()
        sent = asyncio.run(_send_all(receivers[0], waiting))
        _record(webhook_id, receivers[0], sent, summary)
        with connection.cursor() as cursor:
            cursor.execute(PACE, {"webhook": webhook_id, "ms": round((time.monotonic() - began) * 1000)})
    return None


def _pending(webhook_id: int, stream: str, receiver: Receiver) -> list[Waiting]:
    signals = fetch_rows(StoredSignal, PENDING, [webhook_id, stream, SIGNALS_AT_ONCE])
    by_mail = mail_address(receiver.url)
    return [(signal, mail.message(signal, receiver.url) if by_mail else body(signal)) for signal in signals]


async def _send_all(receiver: Receiver, waiting: dict[str, list[Waiting]]) -> list[Sent]:
    ends_at = time.monotonic() + ROUND_SECONDS
    async with sending.new_client() as client:

        async def send_stream(stream: str, signals: Sequence[Waiting]) -> Sent:
            sent = Sent(stream, [])
            for signal, content in signals:
                if time.monotonic() > ends_at or sent.failure:
                    break
                if isinstance(content, EmailMessage):
                    attempt = await sending.send_mail(receiver.url, content)
                else:
                    attempt = await sending.send(
                        client, receiver.url, content, signal_id=str(signal.id), secrets=receiver.secrets
                    )
                sent.outcomes.append((signal, attempt))
            return sent

        return await asyncio.gather(*(send_stream(*each) for each in waiting.items()))


def wait_after(failures: int, asked_for: timedelta | None = None) -> timedelta:
    """Return how long to wait after that many failures in a row, 1 or more.

    Args:
        asked_for: what the receiver's Retry-After says.
    """
    planned = AFTER[min(failures, len(AFTER)) - 1]
    spread: timedelta = planned * random.uniform(1 - SPREAD, 1 + SPREAD)
    return max(spread, min(asked_for or timedelta(), MOST_ASKED_FOR))


# What came of it -------------------------------------------------------------------------------------


def _record(webhook_id: int, receiver: Receiver, sent: list[Sent], summary: Summary) -> None:
    attempts = [attempt for each in sent for _, attempt in each.outcomes]
    some_accepted = any(not attempt.error for attempt in attempts)
    with connection.cursor() as cursor:
        # The feed has many streams at once in its transaction.
        cursor.execute("SET LOCAL lock_timeout = '30s'")
        for each in sorted(sent, key=lambda one: one.stream):
            _record_stream(
                cursor, webhook_id, each, may_end=some_accepted or not _is_failing(cursor, webhook_id), summary=summary
            )
        if some_accepted:
            cursor.execute(WELL, [webhook_id])
        elif attempts:
            _record_failed_round(cursor, webhook_id, receiver, attempts, summary)


def _record_stream(cursor: Any, webhook_id: int, sent: Sent, *, may_end: bool, summary: Summary) -> None:
    cursor.execute(LOCK_STREAM, [webhook_id, sent.stream])
    [(failures,)] = cursor.fetchall() or [(0,)]
    wait = timedelta()
    for signal, attempt in sent.outcomes:
        summary.attempts += 1
        facts = (attempt.url, attempt.started_at, attempt.took_ms, attempt.status, attempt.error, attempt.response)
        cursor.execute(RECORD, [webhook_id, signal.number, *facts])
        accepted = not attempt.error
        parameters = {"accepted": accepted, "may_end": may_end, "most": ATTEMPTS}
        cursor.execute(COUNT, {**parameters, "webhook": webhook_id, "signal": signal.number})
        [(state,)] = cursor.fetchall() or [("gone",)]
        summary.delivered += accepted
        summary.failed += not accepted
        summary.given_up += state == "given_up"
        failures = 0 if accepted or state == "given_up" else failures + 1
        wait = wait_after(failures, attempt.retry_after) if failures else timedelta()
    cursor.execute(NEXT, {"failures": failures, "wait": wait, "webhook": webhook_id, "stream": sent.stream})


def _is_failing(cursor: Any, webhook_id: int) -> bool:
    cursor.execute("SELECT FROM ledger_webhook_pace WHERE webhook_id = %s AND failing_since IS NOT NULL", [webhook_id])
    return bool(cursor.rowcount)


def _record_failed_round(cursor: Any, webhook_id: int, receiver: Receiver, attempts: list[Attempt], summary: Summary) -> None:
    """Nothing was accepted. Leave the receiver alone if it answers nobody, and disable the webhook when that has lasted for days.

    A receiver that answers but refuses the signals of one stream still gets those of others.
    """
    answers_nobody = len(attempts) > 1 or all(each.status in (None, TOO_MANY, UNAVAILABLE) for each in attempts)
    rounds = receiver.failed_rounds + 1 if answers_nobody else 0
    asked_for = max((each.retry_after or timedelta() for each in attempts), default=timedelta())
    parameters = {
        "webhook": webhook_id,
        "rounds": rounds,
        "wait": wait_after(rounds, asked_for) if rounds else timedelta(),
        "disabled_after": timedelta(days=conf.SIGNAL_DISABLED_AFTER_DAYS.value),
    }
    cursor.execute(FAILING, parameters)
    [(is_too_long,)] = cursor.fetchall()
    if any(each.status == GONE for each in attempts):
        because = "The receiver answered 410: it is gone."
    elif is_too_long:
        because = (
            f"No attempt has succeeded for {conf.SIGNAL_DISABLED_AFTER_DAYS.value} days. The last one: {attempts[-1].error}."
        )
    else:
        return
    disable(webhook_id, because=because)
    summary.disabled += 1
