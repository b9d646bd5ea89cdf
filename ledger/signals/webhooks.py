"""Webhooks: made, changed, rotated, removed, tested. Each change is on record, and takes effect at most once for its key."""

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from ledger import conf
from ledger.database.lock_names import WEBHOOK_REQUEST
from ledger.database.locks import waits_bounded
from ledger.database.transactions import locked_transaction, own_or_joined
from ledger.errors import IdempotencyKeyReused, Invalid
from ledger.records import Record
from ledger.signals.addresses import MAX_URL_CHARACTERS, url_fault
from ledger.signals.errors import WebhookNotFound, WebhookRotating
from ledger.signals.models import Webhook, WebhookChange
from ledger.signals.reads import delivery
from ledger.signals.reads import time_or_none as _time
from ledger.signals.types import PING, TypeName, in_order
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_SEQUENCE, Boolean, Holder, Integer, ListOf, Text, Time, encode_json

SECRET_BYTES: Final = 32
MAX_TYPES: Final = 50
BY_REQUEST: Final = "Disabled by request."

Url = Text("Where signals are sent to: https, at a public address, or mailto: and one address.", least=1, most=MAX_URL_CHARACTERS)
Description = Text("What it is for, for people.", most=500)
Types = ListOf(TypeName(), "The types of signals that it gets.", least=1, most=MAX_TYPES)


@dataclass(frozen=True, kw_only=True)
class WebhookWrite(Record):
    """The options of every write of a webhook, in addition to its fields.

    Args:
        idempotency_key: None: the request has none, and is executed each time.
        dry_run: everything is decided, and nothing is kept.
    """

    action: ClassVar[str]

    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    idempotency_key: str | None = None
    request_id: str = ""
    dry_run: bool = False

    def digest(self) -> bytes:
        """SHA-256 over what the request asks for."""
        facts = {name: value for name, value in vars(self).items() if name not in REQUEST_OPTIONS}
        return hashlib.sha256(json.dumps([self.action, facts], sort_keys=True, default=str).encode()).digest()


REQUEST_OPTIONS: Final = frozenset(WebhookWrite.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class WebhookRequest(WebhookWrite):
    """A webhook to create."""

    action = "created"

    url: Annotated[str, Url]
    types: Annotated[Sequence[str], Types]
    holder_id: Annotated[str | None, Holder("The only holder whose signals it gets; null for all.", null=True)] = None
    description: Annotated[str, Description] = ""

    def check_whole(self) -> None:
        """Refuse a URL to which nothing may be sent."""
        _ensure_url(self.url)


@dataclass(frozen=True, kw_only=True)
class _ChangeOf(WebhookWrite):
    webhook: Annotated[int, Integer("The webhook.", least=1, most=MAX_SEQUENCE)]


@dataclass(frozen=True, kw_only=True)
class WebhookChangeRequest(_ChangeOf):
    """Changes to a webhook; fields that are left out do not change."""

    action = "changed"

    url: Annotated[str | None, Url] = None
    types: Annotated[Sequence[str] | None, Types] = None
    description: Annotated[str | None, Description] = None
    enabled: Annotated[bool | None, Boolean("False: signals are kept for it, but not sent; true: they are sent from now on.")] = (
        None
    )

    def check_whole(self) -> None:
        """Refuse a URL to which nothing may be sent."""
        if self.url is not None:
            _ensure_url(self.url)


@dataclass(frozen=True, kw_only=True)
class WebhookRotationRequest(_ChangeOf):
    """A new secret for a webhook."""

    action = "rotated"

    former_until: Annotated[
        datetime | None,
        Time("Until when the former secret also signs requests; null: it ends at once.", null=True),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WebhookRemovalRequest(_ChangeOf):
    """A webhook that gets nothing any more."""

    action = "removed"


@dataclass(frozen=True, kw_only=True)
class _Disabling(_ChangeOf):
    action = "disabled"


@dataclass(frozen=True, kw_only=True)
class PingRequest(_ChangeOf):
    """A signal for this webhook alone, as a test."""

    action = "pinged"


@dataclass(frozen=True, kw_only=True)
class ResendRequest(_ChangeOf):
    """A signal to send to a webhook again."""

    action = "resent"

    signal: UUID


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the body of the response, and whether an earlier request with the key made it."""

    body: dict[str, Any]
    replayed: bool = False


def _ensure_url(url: str) -> None:
    if fault := url_fault(url, plain_http=conf.SIGNAL_PLAIN_HTTP.value, mail=bool(conf.SIGNAL_MAIL_FROM.value)):
        raise Invalid(pointer="/url", rule="not-a-url", detail=fault)


# One write -------------------------------------------------------------------------------------------


class _DryRun(Exception):
    """Undoes what a dry run has done."""


def _once(request: WebhookWrite, act: Callable[[], tuple[int, dict[str, Any]]]) -> Written:
    """Execute a write and record it with its body, or return the body that is recorded under its key.

    Args:
        act: returns the webhook's id, and the body.
    """
    key = request.idempotency_key
    names = [] if key is None else [WEBHOOK_REQUEST(key)]
    written: Written | None = None
    with waits_bounded(), locked_transaction(*names) if names else own_or_joined():
        known = None if key is None else WebhookChange.objects.filter(idempotency_key=key).first()
        if known is not None:
            return _replay_write(known, request)
        try:
            with transaction.atomic():
                webhook_id, body = act()
                written = Written(body)
                if request.dry_run:
                    raise _DryRun
                _put_on_record(request, webhook_id, body)
        except _DryRun:
            pass
    assert written is not None
    return written


RECORD: Final = """
    INSERT INTO ledger_webhook_change (webhook_id, action, idempotency_key, request_digest, body, actor, request_id)
    VALUES (%s, %s, %s, %s, %s::json, %s, %s)
"""


def _put_on_record(request: WebhookWrite, webhook_id: int, body: Mapping[str, Any]) -> None:
    stored = encode_json({name: None if name == "secret" else value for name, value in body.items()})
    key = request.idempotency_key
    with connection.cursor() as cursor:
        cursor.execute(
            RECORD,
            [webhook_id, request.action, key, key and request.digest(), stored, request.actor, request.request_id],
        )


def _replay_write(known: WebhookChange, request: WebhookWrite) -> Written:
    if bytes(known.request_digest or b"") != request.digest():
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key or "")
    body = dict(known.body)
    if "secret" in body:
        # The secret itself is not on record; it is shown again for as long as it is the one that signs.
        webhook = Webhook.objects.get(pk=known.webhook_id)
        is_the_same = body["rotated_at"] == _time(webhook.rotated_at)
        body["secret"] = webhook.secret if is_the_same and webhook.removed_at is None else None
    return Written(body, replayed=True)


def shown(webhook: Webhook) -> dict[str, Any]:
    """Return a webhook as the API shows it, without its secret."""
    state = "removed" if webhook.removed_at else "disabled" if webhook.disabled_at else "enabled"
    return {
        "id": webhook.pk,
        "url": webhook.url,
        "types": webhook.types,
        "holder_id": webhook.holder_id,
        "description": webhook.description,
        "state": state,
        "disabled_at": _time(webhook.disabled_at),
        "disabled_because": webhook.disabled_because,
        "created_at": _time(webhook.created_at),
        "created_by": webhook.created_by,
        "rotated_at": _time(webhook.rotated_at),
        "former_until": _time(webhook.former_until),
    }


def _secret(request: WebhookWrite, secret: str) -> dict[str, Any]:
    # That of a dry run signs nothing.
    return {"secret": None if request.dry_run else secret}


def _new_secret() -> str:
    """A secret in the form of Standard Webhooks. Source: its spec 1.0.0, "Signature scheme"."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def present(webhook_id: int) -> Webhook:
    """Return a webhook that was not removed, or raise WebhookNotFound."""
    webhook = Webhook.objects.filter(pk=webhook_id, removed_at=None).first()
    if webhook is None:
        raise WebhookNotFound(webhook=webhook_id)
    return webhook


# Use-cases -------------------------------------------------------------------------------------------


def create_webhook(request: WebhookRequest) -> Written:
    """Make a webhook, which gets what happens from now on. The response alone has its secret.

    Raises:
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy: another request with the same key takes longer than lock_timeout.
    """

    def act() -> tuple[int, dict[str, Any]]:
        webhook = Webhook.objects.create(
            url=request.url,
            description=request.description,
            types=in_order(request.types),
            holder_id=request.holder_id,
            secret=_new_secret(),
            created_by=request.actor,
        )
        webhook.refresh_from_db()
        return webhook.pk, shown(webhook) | _secret(request, webhook.secret)

    return _once(request, act)


def change_webhook(request: WebhookChangeRequest) -> Written:
    """Change what is given; a webhook that is enabled again begins at once with what was kept for it.

    Raises: as `create_webhook`; WebhookNotFound.
    """

    def act() -> tuple[int, dict[str, Any]]:
        changes: dict[str, Any] = {
            name: value for name in ("url", "description") if (value := getattr(request, name)) is not None
        }
        if request.types is not None:
            changes["types"] = in_order(request.types)
        if request.enabled is not None:
            _switch(request.webhook, changes, enabled=request.enabled)
        rows = Webhook.objects.filter(pk=request.webhook, removed_at=None)
        if changes:
            rows.update(**changes)
        return request.webhook, shown(present(request.webhook))

    return _once(request, act)


def _switch(webhook_id: int, changes: dict[str, Any], *, enabled: bool) -> None:
    if enabled:
        changes |= {"disabled_at": None, "disabled_because": None}
        with connection.cursor() as cursor:
            cursor.execute(FORGET_FAILURES, [webhook_id])
            cursor.execute(DUE_NOW, [webhook_id])
    elif present(webhook_id).disabled_at is None:
        changes |= {"disabled_at": Now(), "disabled_because": BY_REQUEST}


FORGET_FAILURES: Final = (
    "UPDATE ledger_webhook_pace SET failing_since = NULL, failed_rounds = 0, retry_at = NULL WHERE webhook_id = %s"
)
DUE_NOW: Final = (
    "UPDATE ledger_delivery_stream SET due_at = clock_timestamp() WHERE webhook_id = %s AND due_at > clock_timestamp()"
)


def disable(webhook_id: int, *, because: str) -> None:
    """Disable a webhook whose receiver does not answer, in the open transaction; signals are kept for it."""
    changed = Webhook.objects.filter(pk=webhook_id, removed_at=None, disabled_at=None).update(
        disabled_at=Now(), disabled_because=because[:500]
    )
    if changed:
        _put_on_record(_Disabling(webhook=webhook_id, actor="ledger"), webhook_id, shown(present(webhook_id)))


def rotate_secret(request: WebhookRotationRequest) -> Written:
    """Give a webhook another secret. The response alone has it.

    Raises: as `create_webhook`; WebhookNotFound; Invalid: the overlap would be over already; WebhookRotating: an overlap is
    asked for while the former secret still signs.
    """
    if request.former_until is not None and request.former_until <= timezone.now():
        raise Invalid(pointer="/former_until", rule="past", detail="must be in the future")

    def act() -> tuple[int, dict[str, Any]]:
        webhook = present(request.webhook)
        rows = Webhook.objects.filter(pk=webhook.pk, removed_at=None)
        secret = _new_secret()
        if request.former_until is None:
            rows.update(secret=secret, former_secret=None, former_until=None, rotated_at=Now())
        else:
            # One statement decides and writes, so that of two rotations at once one waits and then sees the other's.
            free = rows.filter(Q(former_until=None) | Q(former_until__lte=Now()), secret=webhook.secret)
            former = {"former_secret": webhook.secret, "former_until": request.former_until}
            if not free.update(secret=secret, rotated_at=Now(), **former):
                raise WebhookRotating(former_until=_time(present(webhook.pk).former_until) or "")
        return webhook.pk, shown(present(webhook.pk)) | _secret(request, secret)

    return _once(request, act)


def remove_webhook(request: WebhookRemovalRequest) -> Written:
    """Remove a webhook: it gets nothing any more, and what is pending for it is not sent.

    Raises: as `create_webhook`; WebhookNotFound.
    """

    def act() -> tuple[int, dict[str, Any]]:
        webhook = present(request.webhook)
        Webhook.objects.filter(pk=webhook.pk).update(removed_at=Now())
        webhook.refresh_from_db()
        return webhook.pk, shown(webhook)

    return _once(request, act)


# What is sent by request -----------------------------------------------------------------------------

TELL: Final = """
    INSERT INTO ledger_signal (type, stream, webhook_id, data, is_spread) VALUES (%s, %s, %s, %s::json, true)
    RETURNING number, id, occurred_at
"""
ADD: Final = """
    INSERT INTO ledger_delivery AS known (webhook_id, signal, stream) VALUES (%(webhook)s, %(signal)s, %(stream)s)
    ON CONFLICT (webhook_id, signal) DO UPDATE SET state = 'pending', attempts = 0, ended_at = NULL
"""
WAKE: Final = """
    INSERT INTO ledger_delivery_stream AS known (webhook_id, stream, due_at) VALUES (%s, %s, clock_timestamp())
    ON CONFLICT (webhook_id, stream) DO UPDATE SET due_at = clock_timestamp(), failures = 0
"""
DELIVERY: Final = """
    SELECT s.number, d.stream FROM ledger_delivery AS d JOIN ledger_signal AS s ON s.number = d.signal
    WHERE d.webhook_id = %s AND s.id = %s
"""


def ping(request: PingRequest) -> Written:
    """Have a signal of type `webhook.ping` sent to this webhook alone.

    Raises: as `create_webhook`; WebhookNotFound.
    """

    def act() -> tuple[int, dict[str, Any]]:
        webhook = present(request.webhook)
        stream = f"webhook/{webhook.pk}"
        with connection.cursor() as cursor:
            cursor.execute(TELL, [PING.name, stream, webhook.pk, encode_json({"webhook": webhook.pk, "actor": request.actor})])
            number, signal_id, _ = cursor.fetchone()
            _send_soon(cursor, webhook.pk, number, stream)
        return webhook.pk, delivery(webhook.pk, signal_id)

    return _once(request, act)


def resend(request: ResendRequest) -> Written:
    """Have a signal sent to a webhook again, ahead of what is pending behind it.

    Raises: as `create_webhook`; WebhookNotFound: there is no such webhook, or it never got this signal.
    """

    def act() -> tuple[int, dict[str, Any]]:
        webhook = present(request.webhook)
        with connection.cursor() as cursor:
            cursor.execute(DELIVERY, [webhook.pk, request.signal])
            row = cursor.fetchone()
            if row is None:
                raise WebhookNotFound(webhook=webhook.pk)
            _send_soon(cursor, webhook.pk, *row)
        return webhook.pk, delivery(webhook.pk, request.signal)

    return _once(request, act)


def _send_soon(cursor: Any, webhook_id: int, number: int, stream: str) -> None:
    # The stream before the delivery, in the order in which a round has them.
    cursor.execute(WAKE, [webhook_id, stream])
    cursor.execute(ADD, {"webhook": webhook_id, "signal": number, "stream": stream})
