"""The beginning of each admin page: keeps the request for the staff log, sets the time zone, requires two-step login."""

from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib import messages
from django.contrib.auth import logout
from django.core.exceptions import BadRequest, MiddlewareNotUsed
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from ledger.operators import staff_log
from ledger.telemetry.request_origins import request_id
from ledger_project.operators import two_step
from ledger_project.operators.preferences import time_zone

PAGES = "/admin/"


class OperatorMiddleware:
    """Runs behind the middleware of sessions, logins, django-otp and messages. Concerns only the admin's pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if not apps.is_installed("ledger.staff"):
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the page, or redirect to the page that the operator must use first; no cache keeps either."""
        if not request.path_info.startswith(PAGES):
            return self.get_response(request)
        response = self._page(request)
        # Django leaves out some pages, such as those with password fields.
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _page(self, request: HttpRequest) -> HttpResponse:
        request_id(request)
        with staff_log.during(request):
            if not request.user.is_authenticated:
                return self.get_response(request)
            owed = self._owed_page(request)
            if owed is not None:
                return owed
            with timezone.override(time_zone(request)):
                return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """Respond with 400 to a page whose address has a value that the database cannot store, such as NUL in `?username=`."""
        is_page = request.path_info.startswith(PAGES) and request.method in ("GET", "HEAD")
        if is_page and isinstance(exception, DataError):
            raise BadRequest("The address has a value that the database cannot store.") from exception

    def _owed_page(self, request: HttpRequest) -> HttpResponse | None:
        """Return the page that this session has to use first; None if it may see the requested page.

        After an operator has turned two-step login on, older sessions have to log in again, with a code.
        An operator who must turn it on sees only that page.
        """
        user: Any = request.user
        if not user.is_staff or user.is_verified():
            return None
        if two_step.device_of(user) is not None:
            logout(request)
            messages.info(request, "Two-step login is on. Log in again, with a code.")
            return HttpResponseRedirect(reverse("admin:login"))
        open_pages = (reverse("two-step"), reverse("admin:logout"))
        if request.path in open_pages or not two_step.is_required(user):
            return None
        messages.warning(request, "Your role needs two-step login. Turn it on to continue.")
        return HttpResponseRedirect(reverse("two-step"))
