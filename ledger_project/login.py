"""Logging in to the admin: guesses are counted per name and address, and passwords are hashed one at a time in each process.

A guess costs a third of a second of CPU, because hashing a password is meant to be slow. Many guesses at once would take the
processors from everybody else; so they take turns, and whoever would wait too long is asked to come back.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from unfold.forms import AuthenticationForm

AT_ONCE = 1
"""Passwords that one process hashes at the same time."""
WAITING_LIMIT = 2
"""Logins that wait for their turn in one process; each of them holds a thread."""
PATIENCE_S = 5.0

_turn = threading.BoundedSemaphore(AT_ONCE)
_seats = threading.BoundedSemaphore(AT_ONCE + WAITING_LIMIT)


class LoginForm(AuthenticationForm):
    """The admin's login; refuses without looking at the password while too many others are logging in."""

    def clean(self) -> dict[str, Any]:
        """Check name and password, or raise ValidationError; a login that is refused for want of a turn is no failed guess."""
        with _a_turn():
            cleaned: dict[str, Any] = super().clean()
            return cleaned


@contextmanager
def _a_turn() -> Iterator[None]:
    if not _seats.acquire(blocking=False):
        raise _busy()
    try:
        if not _turn.acquire(timeout=PATIENCE_S):
            raise _busy()
        try:
            yield
        finally:
            _turn.release()
    finally:
        _seats.release()


def _busy() -> ValidationError:
    return ValidationError("Too many operators are logging in. Try again in a few seconds.", code="busy")


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: Any) -> HttpResponse:
    """Return the login page again, which says that this name is locked for this address. AXES_LOCKOUT_CALLABLE."""
    minutes = int(settings.AXES_COOLOFF_TIME.total_seconds() // 60)
    messages.error(
        request,
        f"After {settings.AXES_FAILURE_LIMIT} wrong passwords, the server locks this name for this address for "
        f'{minutes} minutes. Another operator can remove the lock under "Failed logins".',
    )
    context = {
        **admin.site.each_context(request),
        "title": "Log in",
        "form": LoginForm(request),
        "app_path": request.get_full_path(),
    }
    return render(request, "admin/login.html", context, status=429)
