"""API keys: making, finding, rotating and revoking them, what a key may do with other keys, and when a key was used."""

from ledger.models import LABELLED_SCOPES
from ledger.services.api_keys.delegation import KeyAnswer, KeyCall, Made, change_once, give, revoke_by, rotate_by
from ledger.services.api_keys.keys import (
    ApiKeyRequest,
    RotationRequest,
    create_api_key,
    find_api_key,
    includes_scope,
    is_of_this_deployment,
    revoke_api_key,
    rotate_api_key,
)
from ledger.services.api_keys.last_use import note_use

__all__ = [
    "LABELLED_SCOPES",
    "ApiKeyRequest",
    "KeyAnswer",
    "KeyCall",
    "Made",
    "RotationRequest",
    "change_once",
    "create_api_key",
    "find_api_key",
    "give",
    "includes_scope",
    "is_of_this_deployment",
    "note_use",
    "revoke_api_key",
    "revoke_by",
    "rotate_api_key",
    "rotate_by",
]
