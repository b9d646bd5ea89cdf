"""Current locks: the sessions that hold advisory locks or wait for them, as in `manage.py locks`."""

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern

from ledger.operators.permissions import VIEW_LOCKS
from ledger.reads.lock_report import SessionLock, current_locks, known_names
from ledger.staff.kit import columns
from ledger.staff.kit.cells import mono
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded

NAMES_TRIED = 5_000
WAITS_SHOWN = 5


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "locks/", partial(page, model_admin), name="ledger_locks", permission=VIEW_LOCKS)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the locks that are held and awaited now."""
    found = current_locks()
    if any(lock.name is None and not lock.two_part for lock in found):
        found = current_locks(names=known_names(limit=NAMES_TRIED))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Current locks",
        "locks": found,
        "waiting": sum(not lock.granted for lock in found),
        "sentences": _waits(found),
        "locks_table": _table(found),
    }
    return TemplateResponse(request, "admin/ledger/home/locks.html", context)


def _waits(found: list[SessionLock]) -> list[str]:
    """Return the longest waits, each with the sessions that have the lock."""
    waiting = sorted((lock for lock in found if not lock.granted), key=lambda lock: lock.seconds or 0, reverse=True)
    return [_wait(lock, [each for each in found if _blocks(each, lock)]) for lock in waiting[:WAITS_SHOWN]]


def _blocks(keeping: SessionLock, waiting: SessionLock) -> bool:
    same_lock = (keeping.node, keeping.number, keeping.two_part) == (waiting.node, waiting.number, waiting.two_part)
    return keeping.granted and same_lock and keeping.pid in waiting.blocked_by


def _wait(lock: SessionLock, blocking: list[SessionLock]) -> str:
    waited = f"{_who(lock)} has waited for {lock.name or lock.number} for {lock.seconds or 0:,.1f} s"
    if not blocking:
        return f"{waited}."
    names = ", ".join(_who(each) for each in blocking)
    oldest = max(each.seconds or 0 for each in blocking)
    return f"{waited}; {names} {'has' if len(blocking) == 1 else 'have'} it, for at most {oldest:,.1f} s."


def _who(lock: SessionLock) -> str:
    return f"{f'{lock.node} ' if lock.node else ''}pid {lock.pid} ({lock.application or lock.role})"


def _table(found: list[SessionLock]) -> dict[str, Any]:
    return table_of(
        found,
        ("Lock", lambda lock: lock.name or mono(lock.number)),
        ("Mode", lambda lock: "shared" if lock.shared else "exclusive"),
        ("State", lambda lock: "held" if lock.granted else "waiting"),
        ("At most for", lambda lock: "" if lock.seconds is None else f"{lock.seconds:,.1f} s"),
        ("Session", _session),
        columns.instant("Transaction began", "transaction_started_at"),
        ("Blocked by", lambda lock: ", ".join(f"pid {pid}" for pid in lock.blocked_by)),
    )


def _session(lock: SessionLock) -> str:
    """Return the session's pid, on a cluster with its node, and its owner."""
    at = f"{lock.node} " if lock.node else ""
    of_client = f", for pid {lock.client_pid} of {lock.client_node}:" if lock.client_pid else ""
    return f"{at}pid {lock.pid}{of_client} {lock.application} {lock.role} {lock.client}"
