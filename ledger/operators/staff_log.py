"""The staff log: operators' actions and all attempts to log in, in one append-only table. docs/how-to/admin.md.

Entries, rates and transitions of documents are recorded elsewhere with their actor; for these the log only names the form.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from django.db import connection
from django.http import HttpRequest

from ledger.telemetry.request_origins import client_address

ACTIONS: Final = {
    "login": "Logged in",
    "login-failed": "Login failed",
    "login-locked": "Name locked after wrong passwords or codes",
    "login-unlocked": "Lock of a name removed",
    "logout": "Logged out",
    "password-changed": "Password changed",
    "second-step-on": "Two-step login turned on",
    "second-step-off": "Two-step login turned off",
    "recovery-codes-made": "Recovery codes made",
    "operator-created": "Operator created",
    "operator-changed": "Operator changed",
    "permissions-changed": "Permissions changed",
    "group-created": "Group created",
    "group-changed": "Group changed",
    "group-deleted": "Group deleted",
    "key-created": "API key created",
    "key-rotated": "API key rotated",
    "key-revoked": "API key revoked",
    "page-link-made": "Link to a customer's page made",
    "exported": "Exported",
    "form": "Form sent",
    "approval-requested": "Approval requested",
    "approval-given": "Approved",
    "approval-declined": "Approval declined",
}
"""The actions that can be recorded, and their names on pages."""
COMMAND: Final = "command"
"""The actor of an action from a command line."""

INSERT = """
INSERT INTO ledger_staff_event (actor, address, action, object, details, request_id)
VALUES (left(%s, 200), left(%s, 64), %s, left(%s, 200), left(%s, 1000), left(%s, 64))
"""

_request: ContextVar[HttpRequest | None] = ContextVar("staff_request", default=None)


@contextmanager
def during(request: HttpRequest) -> Iterator[None]:
    """While the block runs, use this request for rows that are recorded without one."""
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)


def record(request: HttpRequest | None, action: str, *, about: str = "", details: str = "", actor: str | None = None) -> None:
    """Write one row, in the open transaction: it is committed or rolled back with the recorded action.

    Args:
        request: has the operator, the address and the request's id; None: the request of `during`, or else a command line.
        action: one of `ACTIONS`.
        about: the object of the action: "user ben", "key shop", "entries.csv".
        details: the change, in words; never a secret. Texts that are too long are cut.
        actor: the actor, if that is not the operator who is logged in.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is not an action of the staff log")
    request = request or _request.get()
    who = actor if actor is not None else _actor(request)
    address = "" if request is None else client_address(request)
    values = [who, address, action, about, details, getattr(request, "request_id", None) or ""]
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [value.replace("\x00", "") for value in values])


def _actor(request: HttpRequest | None) -> str:
    if request is None:
        return COMMAND
    user = getattr(request, "user", None)
    return f"admin:{user.get_username()}" if user is not None and user.is_authenticated else ""
