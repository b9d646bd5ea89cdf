"""The scopes of the REST API: what a call needs, and what its API key, or a project's own authentication, gives."""

from collections.abc import Collection

SCOPES = (
    "ledger:read",
    "ledger:spend",
    "ledger:refund",
    "ledger:hold",
    "ledger:transfer",
    "ledger:grant",
    "ledger:observe",
    "ledger:admin",
    "billing:read",
    "billing:write",
    "keys:admin",
    "signals:read",
    "signals:write",
    "pages:write",
)

LABELLED_SCOPES = ("ledger:read", "ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer", "keys:admin")
"""The scopes that a key with labels can have: whatever it does with them carries its labels, or shows only what does."""


def includes_scope(scopes: Collection[str], scope: str) -> bool:
    """Return whether these scopes include that one: `ledger:admin` includes every `ledger:` scope."""
    return scope in scopes or ("ledger:admin" in scopes and scope.startswith("ledger:"))
