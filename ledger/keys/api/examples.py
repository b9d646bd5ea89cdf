"""Examples of the calls about API keys."""

from typing import Any

from ledger.rest.schemas.examples import RECORDED_AT

KEY_BODY: dict[str, Any] = {"name": "shop", "scopes": ["ledger:read", "ledger:spend"], "expires_at": "2027-01-31T00:00:00Z"}
LABELLED_KEY_BODY: dict[str, Any] = {
    "name": "red.ada",
    "scopes": ["ledger:read", "ledger:spend"],
    "holder_id": "customer-42",
    "labels": {"team": "red", "member": "ada"},
}
ROTATION_BODY: dict[str, Any] = {"former_until": "2026-02-01T12:00:00Z"}
KEY: dict[str, Any] = {
    "id": 7,
    "name": "shop",
    "actor": "key:shop",
    "prefix": "Yq3vN0aZ",
    "scopes": ["ledger:read", "ledger:spend"],
    "holder_id": None,
    "labels": {},
    "requests_per_second": None,
    "concurrent_requests": None,
    "state": "active",
    "created_at": RECORDED_AT,
    "created_by": "key:deploy",
    "parent_id": 3,
    "expires_at": "2027-01-31T00:00:00.000000Z",
    "rotated_at": None,
    "former_until": None,
    "revoked_at": None,
    "revoked_by": None,
    "last_used_at": "2026-01-31T09:35:00.000000Z",
}
NEW_KEY: dict[str, Any] = {**KEY, "last_used_at": None, "secret": "Yq3vN0aZ2m8PpXw5LkR7tCeJ4sUdGhBf1oViTn6yQxE"}
ROTATED_KEY: dict[str, Any] = {
    **NEW_KEY,
    "rotated_at": RECORDED_AT,
    "former_until": "2026-02-01T12:00:00.000000Z",
    "last_used_at": "2026-01-31T09:25:00.000000Z",
}
REVOKED_KEY: dict[str, Any] = {**KEY, "state": "revoked", "revoked_at": RECORDED_AT, "revoked_by": "key:deploy"}
OWN_KEY: dict[str, Any] = {
    "id": 7,
    "name": "shop",
    "actor": "key:shop",
    "scopes": ["ledger:read", "ledger:spend"],
    "holder_id": None,
    "labels": {},
    "expires_at": "2027-01-31T00:00:00.000000Z",
    "requests_per_second": 50,
    "concurrent_requests": 1024,
}
