"""API keys: creating, finding and revoking them. The text of a key is shown once and never stored."""

import hashlib
import secrets
from collections.abc import Sequence

from django.db import IntegrityError
from django.utils import timezone

from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.models import SCOPES, ApiKey
from ledger.records import check
from ledger.values import MIN_KEY_CHARACTERS, Holder


def create_api_key(
    *, name: str, scopes: Sequence[str], holder_id: str | None = None, key: str | None = None, actor: str = ""
) -> tuple[ApiKey, str]:
    """Make a key, or raise and write nothing.

    Args:
        name: unique; entries made with the key have the actor `key:<name>`.
        scopes: some of SCOPES.
        holder_id: the only holder that the key may act for; None for all holders.
        key: the key itself, at least MIN_KEY_CHARACTERS; random by default.

    Returns:
        The stored key, and its text, which can never be read again.

    Raises:
        Invalid: a scope is unknown, the holder's id is invalid, the name is taken or too long, or the given key is too short.
    """
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise Invalid(pointer="/scopes", rule="choice", detail=f"must be one or more of {', '.join(SCOPES)}")
    if holder_id is not None:
        check(Holder(), holder_id, "/holder_id")
    if not 1 <= len(name) <= 100:
        raise Invalid(pointer="/name", rule="length", detail="must have 1 to 100 characters")
    text = secrets.token_urlsafe(32) if key is None else key
    if len(text) < MIN_KEY_CHARACTERS:
        raise Invalid(pointer="/key", rule="min_length", detail=f"must have at least {MIN_KEY_CHARACTERS} characters")
    try:
        with own_or_joined():
            stored = ApiKey.objects.create(
                name=name,
                prefix=text[:8],
                key_digest=_key_digest(text),
                scopes=list(scopes),
                holder_id=holder_id,
                created_by=actor,
            )
    except IntegrityError as error:
        raise Invalid(pointer="/name", rule="unique", detail="another API key has this name or this secret") from error
    return stored, text


def find_api_key(text: str) -> ApiKey | None:
    """Return the key with this text, or None if it does not exist or was revoked."""
    return ApiKey.objects.filter(key_digest=_key_digest(text), revoked_at=None).first()


def revoke_api_key(key: ApiKey) -> None:
    """Revoke the key from now on; does nothing if it is already revoked."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())


def _key_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
