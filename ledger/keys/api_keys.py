"""API keys: creating, finding, rotating and revoking them. The text of a key is shown once and never stored.

Each change is in the staff log, in the transaction of the change.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from django.db import IntegrityError
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ledger import conf
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid, LedgerError
from ledger.keys.errors import KeyEnded, KeyNameTaken, KeyRotating
from ledger.keys.models import ApiKey
from ledger.operators import staff_log
from ledger.records import Record, UseCase
from ledger.rules.instants import to_text, to_us
from ledger.scopes import LABELLED_SCOPES, SCOPES
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_LABEL_CHARACTERS,
    MAX_METADATA_KEY_CHARACTERS,
    MAX_SEQUENCE,
    MIN_KEY_CHARACTERS,
    Choice,
    FieldError,
    Holder,
    Integer,
    InvalidValue,
    ListOf,
    MapOf,
    Text,
    Time,
)

TEST_PREFIX = "test_"
"""How the keys of deployments for tests begin, and no others."""
WRONG_DEPLOYMENT = {
    True: f"must begin with {TEST_PREFIX}, because this is a deployment for tests",
    False: f"must not begin with {TEST_PREFIX}, because this is not a deployment for tests",
}
MAX_LABELS = 10
MAX_REQUESTS_PER_SECOND = 1_000_000
MAX_CONCURRENT_REQUESTS = 10_000


class Labels(MapOf):
    """The labels of an API key: texts by name, as entries have them in their metadata."""

    def __init__(self, text: str = "", **options: Any) -> None:
        child = Text(least=1, most=MAX_LABEL_CHARACTERS)
        super().__init__(child, text, max_keys=MAX_LABELS, key_length=MAX_METADATA_KEY_CHARACTERS, **options)

    def check(self, value: Any) -> dict[str, str]:
        field_errors: list[FieldError] = []
        taken: dict[str, str] = self.take(value, "", field_errors)
        if field_errors:
            raise InvalidValue(field_errors[0].code, field_errors[0].detail, field_errors[0].pointer)
        return taken


@dataclass(frozen=True, kw_only=True)
class ApiKeyRequest(Record):
    """An API key to make."""

    name: Annotated[str, Text("Unique. Entries made with the key have the actor key:<name>.", least=1, most=100)]
    scopes: Annotated[Sequence[str], ListOf(Choice(SCOPES), "What the key may do.", least=1, most=len(SCOPES))]
    holder_id: Annotated[str | None, Holder("The only holder that the key may use; null for all holders.", null=True)] = None
    labels: Annotated[
        dict[str, str],
        Labels(
            "Labels that whatever the key writes carries in its metadata, such as `member`. The key can name no other values, "
            "and sees only entries that carry them."
        ),
    ] = field(default_factory=dict)
    expires_at: Annotated[datetime | None, Time("The time from which the API refuses the key; null for never.", null=True)] = None
    requests_per_second: Annotated[
        int | None,
        Integer(
            "How many calls a second one process accepts; null for the settings' limit.",
            least=1,
            most=MAX_REQUESTS_PER_SECOND,
            null=True,
        ),
    ] = None
    concurrent_requests: Annotated[
        int | None,
        Integer(
            "How many calls at the same time one process accepts; null for the settings' limit.",
            least=1,
            most=MAX_CONCURRENT_REQUESTS,
            null=True,
        ),
    ] = None
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    key: str | None = None
    """The key itself, at least MIN_KEY_CHARACTERS; random by default."""
    parent_id: int | None = None
    """The key that makes it; None for a key that an operator or a command makes."""

    def check_whole(self) -> None:
        """Refuse a key without scopes, scopes that labels do not fit, and a given text that is too short."""
        if not self.scopes:
            raise Invalid(pointer="/scopes", rule="choice", detail=f"must be one or more of {', '.join(SCOPES)}")
        if self.labels and not set(self.scopes) <= set(LABELLED_SCOPES):
            detail = f"with labels, each must be one of {', '.join(LABELLED_SCOPES)}"
            raise Invalid(pointer="/scopes", rule="not-with-labels", detail=detail)
        if self.key is not None and len(self.key) < MIN_KEY_CHARACTERS:
            raise Invalid(pointer="/key", rule="min_length", detail=f"must have at least {MIN_KEY_CHARACTERS} characters")


def _create(request: ApiKeyRequest) -> tuple[ApiKey, str]:
    """Make a key, or raise and write nothing.

    Returns:
        The stored key, and its text, which can never be read again.

    Raises:
        Invalid: a field is invalid, another key has this secret, it is of the other kind of deployment, or the key would have
            expired already.
        KeyNameTaken: another key has this name, perhaps one that is revoked.
    """
    if request.expires_at is not None and request.expires_at <= timezone.now():
        raise Invalid(pointer="/expires_at", rule="past", detail="must be in the future")
    text = _new_secret() if request.key is None else request.key
    if not is_of_this_deployment(text):
        raise Invalid(pointer="/key", rule="deployment", detail=WRONG_DEPLOYMENT[conf.TEST_CLOCKS.value])
    stored = key_of(request)
    stored.prefix, stored.key_digest = text[:8], key_digest(text)
    try:
        with own_or_joined():
            stored.save(force_insert=True)
            confined = f", confined to {stored.holder_id}" if stored.holder_id else ""
            labelled = f", labels {stored.labels_text}" if stored.labels else ""
            _record("key-created", stored, request.actor, ", ".join(stored.scopes) + confined + labelled)
    except IntegrityError as error:
        if ApiKey.objects.filter(name=request.name).exists():
            raise KeyNameTaken(resource="API key", ref=request.name) from error
        raise Invalid(pointer="/key", rule="unique", detail="another API key has this secret") from error
    return stored, text


def _new_secret() -> str:
    while True:
        text = (TEST_PREFIX if conf.TEST_CLOCKS.value else "") + secrets.token_urlsafe(32)
        if is_of_this_deployment(text):
            return text


def is_of_this_deployment(text: str) -> bool:
    """Return whether a key with this secret is for tests, if the deployment is, and otherwise whether it is not."""
    return text.startswith(TEST_PREFIX) is conf.TEST_CLOCKS.value


def key_of(request: ApiKeyRequest) -> ApiKey:
    """Return the key that the request asks for, without a secret and not stored."""
    return ApiKey(
        name=request.name,
        scopes=list(dict.fromkeys(request.scopes)),
        holder_id=request.holder_id,
        labels=dict(request.labels),
        parent_id=request.parent_id,
        created_by=request.actor,
        expires_at=request.expires_at,
        requests_per_second=request.requests_per_second,
        concurrent_requests=request.concurrent_requests,
    )


create_api_key = UseCase(ApiKeyRequest, _create)


@dataclass(frozen=True, kw_only=True)
class RotationRequest(Record):
    """A new secret for an API key."""

    id: Annotated[int, Integer("The key.", least=1, most=MAX_SEQUENCE)]
    former_until: Annotated[datetime | None, Time("The end of the current secret; null: it ends at once.", null=True)] = None
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _rotate(request: RotationRequest) -> tuple[ApiKey, str]:
    """Give a key another secret, or raise and write nothing. Without an overlap, every earlier secret ends at once.

    Returns:
        The key, and the text of its secret, which can never be read again.

    Raises:
        Invalid: the key does not exist, or the overlap would have ended already.
        KeyEnded: the key is revoked or has expired.
        KeyRotating: the request has an overlap while the previous secret is still valid.
    """
    text = _new_secret()
    with own_or_joined():
        # One statement decides and writes: it waits for a rotation or revocation of this key that is in progress, and then sees
        # it.
        rotated = _valid().filter(pk=request.id)
        if request.former_until is None:
            before: dict[str, Any] = {"former_digest": None, "former_until": None}
        else:
            if request.former_until <= timezone.now():
                raise Invalid(pointer="/former_until", rule="past", detail="must be in the future")
            rotated = rotated.filter(Q(former_until=None) | Q(former_until__lte=Now()))
            before = {"former_digest": F("key_digest"), "former_until": request.former_until}
        if not rotated.update(key_digest=key_digest(text), prefix=text[:8], rotated_at=Now(), **before):
            raise _why_not_rotated(request.id)
        key = ApiKey.objects.get(pk=request.id)
        _record("key-rotated", key, request.actor, key.former_text)
        return key, text


rotate_api_key = UseCase(RotationRequest, _rotate)


def _why_not_rotated(pk: int) -> LedgerError:
    key = ApiKey.objects.filter(pk=pk).first()
    if key is None:
        return Invalid(pointer="/id", rule="unknown", detail="no API key has this id")
    if key.revoked_at is not None:
        return KeyEnded(how="revoked")
    if key.former_until is None or not _valid().filter(pk=pk).exists():
        return KeyEnded(how="expired")
    return KeyRotating(former_until=to_text(to_us(key.former_until)))


def find_api_key(text: str) -> ApiKey | None:
    """Return the key with this secret; None if no key has it, or the key was revoked or has expired by the database's clock.

    A secret from before the last rotation is valid until its end.
    """
    return with_secret(key_digest(text)).first()


def with_secret(digest: bytes) -> QuerySet[ApiKey]:
    """The valid key that has the secret with this digest."""
    return _valid().filter(Q(key_digest=digest) | Q(former_digest=digest, former_until__gt=Now()))


def _valid() -> QuerySet[ApiKey]:
    """The keys that are neither revoked nor expired."""
    return ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)


def revoke_api_key(key: ApiKey, *, actor: str = "") -> None:
    """Revoke the key from now on, and with a key with labels all that it has made; does nothing if it is already revoked."""
    with own_or_joined():
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now(), revoked_by=actor or None):
            _record("key-revoked", key, actor)
            if key.labels:
                _revoke_made_by([key.pk], actor)


def _revoke_made_by(parents: list[int], actor: str) -> None:
    """Revoke the keys that these have made, and what those have made.

    The parents' rows are locked: a key that one of them was making is committed by now, and the statement sees it; one that it is
    about to make finds its maker revoked.
    """
    while parents:
        rows = ApiKey.objects.select_for_update(no_key=True).filter(parent_id__in=parents, revoked_at=None)
        made = list(rows.order_by("pk"))
        parents = [key.pk for key in made]
        ApiKey.objects.filter(pk__in=parents).update(revoked_at=timezone.now(), revoked_by=actor or None)
        for key in made:
            _record("key-revoked", key, actor, "with the key that made it")


def _record(action: str, key: ApiKey, actor: str, details: str = "") -> None:
    staff_log.record(None, action, about=f"key {key.name}", details=details, actor=actor or None)


def key_digest(text: str) -> bytes:
    """Return what is stored of a secret."""
    return hashlib.sha256(text.encode()).digest()
