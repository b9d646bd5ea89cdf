"""What a key may do with other keys: give rights that it has, and end keys that have no more rights. Once per Idempotency-Key.

The row of the key of the request decides, locked until the change is committed, and not what a process has cached: a
key whose revocation is under way makes no other key. See docs/explanation/ledger.md.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import Q

from ledger.conf import KEY_CONCURRENT_REQUESTS, KEY_REQUESTS_PER_SECOND
from ledger.database.lock_names import KEY_REQUEST
from ledger.database.locking import insert_once
from ledger.database.locks import waits_bounded
from ledger.errors import IdempotencyKeyReused
from ledger.keys.api_keys import (
    ApiKeyRequest,
    RotationRequest,
    create_api_key,
    key_of,
    revoke_api_key,
    rotate_api_key,
    with_secret,
)
from ledger.keys.errors import KeyExceedsOwn
from ledger.keys.models import ApiKey, KeyRequest
from ledger.previews import preview
from ledger.rules.instants import to_text, to_us
from ledger.scopes import includes_scope
from ledger.values import encode_json

RIGHTS: Final = ("scopes", "holder_id", "labels")
"""The fields that say what a key may do. The others say how long and how often."""

Made = tuple[ApiKey, str | None]
"""A key, and its secret if it got one."""


# What a key may do with others -----------------------------------------------------------------------


def give(asker: ApiKey, request: ApiKeyRequest) -> Made:
    """Make a key, or raise and write nothing.

    Raises:
        KeyExceedsOwn: the key would have more than the asker.
        As `create_api_key`.
    """
    _ensure_within(asker, key_of(request))
    return create_api_key.execute(replace(request, parent_id=asker.pk))


def rotate_by(asker: ApiKey, target: ApiKey, request: RotationRequest) -> Made:
    """Give a key another secret, which the asker then knows, or raise and write nothing.

    Raises:
        KeyExceedsOwn: the key has more than the asker.
        As `rotate_api_key`.
    """
    _ensure_within(asker, target)
    return rotate_api_key.execute(request)


def revoke_by(asker: ApiKey, target: ApiKey) -> Made:
    """Revoke a key, and with a key with labels all that it has made; one that is revoked stays as it is.

    Raises:
        KeyExceedsOwn: the key may do more than the asker. For how long and how often makes no difference: the key that has to end
            one that has leaked may have a shorter life.
    """
    _ensure_within(asker, target, only=RIGHTS)
    revoke_api_key(target, actor=asker.actor)
    target.refresh_from_db()
    return target, None


def _ensure_within(asker: ApiKey, other: ApiKey, only: tuple[str, ...] = ()) -> None:
    exceeds = [] if other.pk == asker.pk else [name for name in exceeding(asker, other) if not only or name in only]
    if exceeds:
        raise KeyExceedsOwn(exceeds=exceeds)


def exceeding(asker: ApiKey, other: ApiKey) -> list[str]:
    """Return the names of what the other key has beyond the asker; an empty list if it has the same or less."""
    own = asker.granted_scopes
    ends = asker.expires_at
    is_within = {
        "scopes": all(includes_scope(own, scope) for scope in other.granted_scopes),
        "holder_id": not asker.holder_id or other.holder_id == asker.holder_id,
        "labels": asker.labels.items() <= other.labels.items(),
        "expires_at": ends is None or (other.expires_at is not None and other.expires_at <= ends),
        "requests_per_second": _is_within(
            asker.requests_per_second, other.requests_per_second, of_settings=KEY_REQUESTS_PER_SECOND.value
        ),
        "concurrent_requests": _is_within(
            asker.concurrent_requests, other.concurrent_requests, of_settings=KEY_CONCURRENT_REQUESTS.value
        ),
    }
    return [name for name, within in is_within.items() if not within]


def _is_within(own: int | None, other: int | None, *, of_settings: int) -> bool:
    """Compare two limits: None is that of the settings, and 0 there is no limit."""
    limit, wanted = own or of_settings, other or of_settings
    return not limit or 0 < wanted <= limit


# Once per Idempotency-Key ----------------------------------------------------------------------------


class KeyCall(NamedTuple):
    """A call that changes keys."""

    operation: str
    """Its name: a key that another operation has used is reused."""
    secret_digest: bytes
    """Of the secret that the request carries."""
    confined_to: str
    """The holder to which the key of the request is confined, or empty."""
    actor: str
    idempotency_key: str
    fields: dict[str, Any]
    """What the request asks for, as it was read."""
    target_id: int | None = None
    """The key that it is about; None for a new one."""
    request_id: str = ""
    dry_run: bool = False

    @property
    def digest(self) -> bytes:
        """SHA-256 over what the request asks for, however that was spelled."""
        fields = {name: to_text(to_us(item)) if isinstance(item, datetime) else item for name, item in self.fields.items()}
        return hashlib.sha256(encode_json([self.operation, self.target_id, fields]).encode()).digest()


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The answer to such a call. The secret is not stored: a replay has none, and a dry run neither."""

    body: dict[str, Any]
    secret: str | None = None
    replayed: bool = False


Act = Callable[[ApiKey | None, ApiKey | None], Made]
"""Takes the key of the request, None if it has ended, and the key that the request is about, None if it does not exist."""


def change_once(call: KeyCall, act: Act, show: Callable[[ApiKey], dict[str, Any]]) -> KeyAnswer:
    """Change a key and store the answer, or return the answer that is stored; whatever `act` raises has written nothing.

    Args:
        act: runs in the transaction that stores the answer; both keys are locked.
        show: the body of the answer, without a secret.

    Raises:
        IdempotencyKeyReused: the Idempotency-Key belongs to another request.
        HolderBusy: another request with this key, or about these API keys, takes longer than lock_timeout.
        OutcomeUnknown: COMMIT was sent without an answer; a request with the same key settles whether it took effect.
    """

    def insert() -> KeyAnswer:
        key, secret = act(*_lock_keys(call))
        answer = KeyAnswer(show(key), secret)
        KeyRequest(
            idempotency_key=call.idempotency_key,
            confined_to=call.confined_to,
            request_digest=call.digest,
            key_id=key.pk,
            answer=answer.body,
            actor=call.actor,
            request_id=call.request_id,
        ).save(force_insert=True)
        return answer

    if call.dry_run:
        with waits_bounded(), preview():
            return _stored_answer(call) or KeyAnswer(insert().body)
    name = KEY_REQUEST(call.confined_to, call.idempotency_key)
    with waits_bounded():
        return insert_once(name, check=lambda: _stored_answer(call), insert=insert)[0]


def _stored_answer(call: KeyCall) -> KeyAnswer | None:
    known = KeyRequest.objects.filter(idempotency_key=call.idempotency_key, confined_to=call.confined_to).first()
    if known is None:
        return None
    if bytes(known.request_digest) != call.digest:
        raise IdempotencyKeyReused(idempotency_key=call.idempotency_key)
    return KeyAnswer(known.answer, replayed=True)


def _lock_keys(call: KeyCall) -> tuple[ApiKey | None, ApiKey | None]:
    """Lock the rows of both keys, in one order for all, and then look whether the key of the request is still valid."""
    either = Q(key_digest=call.secret_digest) | Q(former_digest=call.secret_digest) | Q(pk=call.target_id)
    rows = list(ApiKey.objects.select_for_update(no_key=True).filter(either).order_by("pk"))
    # By a statement after the locks: what others have committed by then counts, and so does the database's clock.
    return with_secret(call.secret_digest).first(), next((row for row in rows if row.pk == call.target_id), None)
