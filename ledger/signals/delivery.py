"""Sends what is due. Workers on any machines share the webhooks by trying a lock; a round keeps the order of each stream.

Note [A round]
    A worker has a webhook's lock for one round, in one transaction: it sends the first signals of some streams, those of one
    stream one after the other, and then records what came of it. A stream that fails waits, with all that is behind it; others go
    on. If the worker is killed, its lock is free, nothing of the round is recorded, and all of it is sent again: at least once.
    A round takes less time than a session may idle in a transaction, because each request and the round are bounded.
    The lock is that of a row, and no advisory lock: the feed of entries and the totals wait for those (docs/adr/0070).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.core.mail import EmailMessage
from django.db import connection, connections, transaction

from ledger import conf
from ledger.database.locking import Turn, share
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
ROUND_SECONDS: Final = 15.0
"""After that no further request of a round begins. With the longest request it stays below the session's 60 s."""
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

# One worker after the other begins with the webhook that has waited longest.
DUE: Final = """
    SELECT w.id FROM ledger_webhook AS w
    LEFT JOIN ledger_webhook_pace AS p ON p.webhook_id = w.id
    CROSS JOIN LATERAL (
        SELECT due_at FROM ledger_delivery_stream AS s
        WHERE s.webhook_id = w.id AND s.due_at <= clock_timestamp() ORDER BY s.due_at LIMIT 1
    ) AS first
    WHERE w.removed_at IS NULL AND w.disabled_at IS NULL AND (p.retry_at IS NULL OR p.retry_at <= clock_timestamp())
    ORDER BY first.due_at
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


def deliver(*, workers: int = 1, stop: Callable[[], bool] = lambda: False) -> Summary:
    """Send all that is due, until nothing is; return what was done.

    Any number of these runs may work at the same time: each takes the webhooks that no other has.

    Args:
        workers: the number of parallel sessions.
        stop: called before each round; True ends the run.
    """
    if workers == 1:
        return _work(stop)
    with ThreadPoolExecutor(workers) as pool:
        parts = [each.result() for each in [pool.submit(_work_in_thread, stop) for _ in range(workers)]]
    total = Summary()
    for part in parts:
        total.add(part)
    return total


def _work_in_thread(stop: Callable[[], bool]) -> Summary:
    try:
        return _work(stop)
    finally:
        connections.close_all()


def _work(stop: Callable[[], bool]) -> Summary:
    summary = Summary()
    # By itself, so that no round waits for the row of another worker's first one.
    with connection.cursor() as cursor:
        cursor.execute(MAKE_TURNS)
    before = -1
    while summary.attempts > before and not stop():
        before = summary.attempts
        share(fetch_rows(int, DUE), lambda webhook: _whole_round(webhook, summary), retries=0, stop=stop)
    return summary


def _whole_round(webhook_id: int, summary: Summary) -> Turn | None:
    """Do one round; what goes wrong here keeps no other webhook from its turn."""
    made = Summary()
    try:
        turn = _round(webhook_id, made)
    except Misuse:
        raise
    except Exception:
        log.exception("A round of webhook %s failed; what it sent is sent again.", webhook_id)
        # Its attempts do not count, because a run goes on for as long as there are attempts.
        summary.broken += 1
        return None
    summary.add(made)
    return turn


def _round(webhook_id: int, summary: Summary) -> Turn | None:
    """Do one round of a webhook, or return at once that it is busy where another worker is at it; see Note [A round]."""
    with transaction.atomic():
        if not fetch_rows(int, TURN, [webhook_id]):
            return Turn.BUSY
        found = fetch_rows(Receiver, RECEIVER, [webhook_id])
        if not found:
            return None
        # After a round that failed whole, one stream tells whether the receiver is back.
        streams = fetch_rows(str, STREAMS, [webhook_id, 1 if found[0].failed_rounds else STREAMS_AT_ONCE])
        waiting = {stream: _pending(webhook_id, stream, found[0]) for stream in streams}
        sent = asyncio.run(_send_all(found[0], waiting))
        _record(webhook_id, found[0], sent, summary)
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
