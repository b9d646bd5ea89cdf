"""API keys, for showing. Whether a key may be used is decided by `ledger.keys` alone."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from ledger.keys.models import ApiKey

STATES: Final[dict[str, Q]] = {
    "active": Q(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None),
    "expired": Q(expires_at__lte=Now(), revoked_at=None),
    "revoked": Q(revoked_at__isnull=False),
}
"""By state: which keys are in it."""
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def api_key(pk: int, *, seen_by: str | None, with_labels: Mapping[str, str] = NO_LABELS) -> ApiKey | None:
    """The key of this number, or None.

    Args:
        seen_by: the holder to which the reader is confined, who sees only keys that are confined to the same one; None: all.
        with_labels: the labels to which the reader is bound, who sees only keys with these labels.
    """
    return _visible_keys(seen_by, with_labels).filter(pk=pk).first()


def api_keys(
    *,
    seen_by: str | None,
    with_labels: Mapping[str, str] = NO_LABELS,
    state: str | None = None,
    name: str | None = None,
    holder_id: str | None = None,
    created_by: str | None = None,
    before: tuple[int] | None = None,
    after: tuple[int] | None = None,
    limit: int = 50,
) -> list[ApiKey]:
    """A page of keys, those made last first.

    Args:
        seen_by, with_labels: as for `api_key`.
        before: only keys made before the one of this number; `after`: only later ones, those next to it.
    """
    given = {"name": name, "holder_id": holder_id, "created_by": created_by}
    found = _visible_keys(seen_by, with_labels).filter(**{column: value for column, value in given.items() if value is not None})
    if state is not None:
        found = found.filter(STATES[state])
    if before is not None:
        found = found.filter(pk__lt=before[0])
    if after is not None:
        return list(found.filter(pk__gt=after[0]).order_by("pk")[:limit])[::-1]
    return list(found.order_by("-pk")[:limit])


def _visible_keys(by: str | None, labels: Mapping[str, str]) -> QuerySet[ApiKey]:
    seen = ApiKey.objects.all() if by is None else ApiKey.objects.filter(holder_id=by)
    return seen.filter(labels__contains=dict(labels)) if labels else seen
