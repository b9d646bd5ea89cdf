"""Django's error handlers: for people a page in the design of the admin, for programs a problem.

Without `ledger.rest` every path is for people, so nothing of it is imported before a program gets a problem. Without
`ledger.staff` every path is for programs.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from rest_framework import exceptions as rest_framework

from ledger.telemetry.request_origins import request_id

TEXTS: Final = {
    400: ("The request is not valid", "This page does not accept what the browser sent. Go back and try again."),
    403: (
        "You may not open this page",
        "Your account lacks the permission. Somebody who may change operators can give it to you.",
    ),
    404: ("There is no such page", "The address is mistyped, or its row no longer exists. Find anything with Ctrl+K."),
    500: (
        "Something went wrong",
        "The page failed; the log has the reason. Nothing was written unless the page had confirmed it.",
    ),
}
"""The text of a page by its status: a title and a sentence."""
EXPIRED: Final = ("The form has expired", "Nothing was written. Open the page of the form again, and send it from there.")

log = logging.getLogger(__name__)


def _is_for_people(request: HttpRequest) -> bool:
    is_page = request.path_info.startswith("/admin/") and apps.is_installed("ledger.staff")
    return is_page or not apps.is_installed("ledger.rest")


def _page(request: HttpRequest, status: int, texts: tuple[str, str] | None = None) -> HttpResponse:
    """Return a page in the design of the admin, with its sidebar for operators; without it if the sidebar fails too."""
    title, sentence = texts or TEXTS[status]
    shown = {"title": title, "sentence": sentence, "status": status, "request_id": request_id(request)}
    if apps.is_installed("ledger.staff") and getattr(getattr(request, "user", None), "is_staff", False):
        try:
            context = {**admin.site.each_context(request), **shown}
            return HttpResponse(render_to_string("admin/error.html", context, request), status=status)
        except Exception:  # such as without a database: the page of the failure must not fail
            log.exception("The page of an error could not be made with its sidebar")
    return HttpResponse(render_to_string("admin/error_alone.html", shown), status=status)


def _problem(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    from ledger.rest.kit.problems import problem_response
    from ledger.rest.kit.rendering import for_django

    return for_django(problem_response(exception, request), request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler400."""
    return _page(request, 400) if _is_for_people(request) else _problem(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler403."""
    return _page(request, 403) if _is_for_people(request) else _problem(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """CSRF_FAILURE_VIEW."""
    if _is_for_people(request):
        return _page(request, 403, EXPIRED)
    from ledger.rest.kit.server_errors import Forbidden

    return _problem(request, Forbidden())


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler404."""
    if _is_for_people(request):
        return _page(request, 404)
    from ledger.rest.kit.endpoint import unknown_path

    return unknown_path(request)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """handler500. Django has logged the exception."""
    if _is_for_people(request):
        return _page(request, 500)
    from ledger.rest.kit.problems import ProblemResponse, body
    from ledger.rest.kit.rendering import for_django
    from ledger.rest.kit.server_errors import InternalError

    return for_django(ProblemResponse(body(InternalError(), request_id(request)), {}), request)


def no_such_docs(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """EXCEPTION_HANDLER of REST framework, whose one view here is the page /docs/api; any other lets nobody in."""
    from ledger.rest.kit.problems import problem_response
    from ledger.rest.kit.request_errors import MethodNotAllowed, NotAcceptable
    from ledger.rest.kit.server_errors import Forbidden

    request: HttpRequest = context["request"]
    if isinstance(error, rest_framework.MethodNotAllowed):
        error = MethodNotAllowed(method=request.method or "", allowed=["GET", "HEAD"])
    elif isinstance(error, rest_framework.NotAcceptable):
        error = NotAcceptable(served="text/html")
    elif isinstance(error, rest_framework.PermissionDenied):
        error = Forbidden()
    return problem_response(error, request)
