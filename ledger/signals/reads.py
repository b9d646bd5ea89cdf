"""Reads of webhooks' deliveries, for showing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from ledger.database.statements import fetch_rows
from ledger.rules.instants import to_text, to_us
from ledger.signals.errors import WebhookNotFound
from ledger.signals.models import Webhook
from ledger.signals.payloads import SIGNAL_COLUMNS, StoredSignal, payload

STATES: Final = ("pending", "delivered", "given_up")
"""The states of a delivery."""
ATTEMPTS_SHOWN: Final = 100

DELIVERIES: Final = """
    SELECT s.number, s.id, s.type, s.holder_id, s.occurred_at, d.state, d.attempts, d.ended_at, t.due_at
    FROM ledger_delivery AS d JOIN ledger_signal AS s ON s.number = d.signal
    LEFT JOIN ledger_delivery_stream AS t
        ON d.state = 'pending' AND t.webhook_id = d.webhook_id AND t.stream = d.stream
    WHERE d.webhook_id = %(webhook)s {condition}
    ORDER BY d.signal {order} LIMIT %(limit)s
"""
ATTEMPTS: Final = """
    SELECT a.started_at, a.took_ms, a.status, a.error, a.response, a.url
    FROM ledger_delivery_attempt AS a WHERE a.webhook_id = %s AND a.signal = %s ORDER BY a.id DESC LIMIT %s
"""
SIGNAL: Final = f"SELECT {SIGNAL_COLUMNS} FROM ledger_signal AS s WHERE s.number = %s"


def time_or_none(at: datetime | None) -> str | None:
    """Return a time as the API shows it."""
    return None if at is None else to_text(to_us(at))


def webhooks(*, before: tuple[int] | None = None, after: tuple[int] | None = None, limit: int = 50) -> list[Webhook]:
    """Return the webhooks that were not removed, newest first.

    Args:
        before: only those with a smaller id; `after`: only those with a larger one, those next to it.
    """
    rows = Webhook.objects.filter(removed_at=None)
    if after is not None:
        return list(rows.filter(pk__gt=after[0]).order_by("pk")[:limit])[::-1]
    if before is not None:
        rows = rows.filter(pk__lt=before[0])
    return list(rows.order_by("-pk")[:limit])


def failing_since(webhook_ids: Sequence[int]) -> dict[int, datetime | None]:
    """Return since when no attempt of these webhooks has succeeded; those that succeeded last are not in it."""
    sql = "SELECT webhook_id, failing_since FROM ledger_webhook_pace WHERE webhook_id = ANY(%s)"
    return dict(fetch_rows(lambda *row: row, sql, [list(webhook_ids)]))


def deliveries(
    webhook_id: int,
    *,
    state: str | None = None,
    holder: str | None = None,
    type: str | None = None,  # noqa: A002 - as the API names it
    signal: UUID | None = None,
    before: tuple[int] | None = None,
    after: tuple[int] | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return a page of what a webhook got or is to get, newest first.

    Args:
        state, holder, type, signal: only these.
        before: only those with a smaller number; `after`: only those with a larger one, those next to it.
    """
    conditions = {
        "state": "AND d.state = %(state)s",
        "holder": "AND s.holder_id = %(holder)s",
        "type": "AND s.type = %(type)s",
        "signal": "AND s.id = %(signal)s",
        "before": "AND d.signal < %(before)s",
        "after": "AND d.signal > %(after)s",
    }
    given: dict[str, Any] = {"state": state, "holder": holder, "type": type, "signal": signal}
    given |= {"before": before and before[0], "after": after and after[0]}
    condition = " ".join(text for name, text in conditions.items() if given[name] is not None)
    sql = DELIVERIES.format(condition=condition, order="DESC" if after is None else "ASC")
    rows = fetch_rows(_show_delivery, sql, {**given, "webhook": webhook_id, "limit": limit})
    return rows if after is None else rows[::-1]


def _show_delivery(
    number: int, id: UUID, type: str, holder_id: str | None, occurred_at: datetime, state: str, attempts: int,  # noqa: A002
    ended_at: datetime | None, due_at: datetime | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "number": number,
        "signal": str(id),
        "type": type,
        "holder_id": holder_id,
        "occurred_at": time_or_none(occurred_at),
        "state": state,
        "attempts": attempts,
        "next_attempt_at": time_or_none(due_at),
        "ended_at": time_or_none(ended_at),
    }


def delivery(webhook_id: int, signal: UUID) -> dict[str, Any]:
    """Return one delivery with its payload and its attempts, the newest first, or raise WebhookNotFound."""
    found = deliveries(webhook_id, signal=signal, limit=1)
    if not found:
        raise WebhookNotFound(webhook=webhook_id)
    number = found[0]["number"]
    [stored] = fetch_rows(StoredSignal, SIGNAL, [number])
    tried = fetch_rows(_attempt, ATTEMPTS, [webhook_id, number, ATTEMPTS_SHOWN])
    return {**found[0], "payload": payload(stored), "tried": tried}


def _attempt(started_at: datetime, took_ms: int, status: int | None, error: str, response: str, url: str) -> Mapping[str, Any]:
    return {
        "started_at": time_or_none(started_at),
        "took_ms": took_ms,
        "status": status,
        "error": error,
        "response": response,
        "url": url,
    }
