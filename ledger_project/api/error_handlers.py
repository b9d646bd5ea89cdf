"""Django's error handlers: for people a page in the look of the admin, for programs a problem."""

import logging
from typing import Final

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string

from ledger.api.kit.reading.requests import request_id
from ledger.api.kit.writing.problems import ProblemResponse, body, problem_response
from ledger.api.kit.writing.server_errors import Forbidden, InternalError

TEXTS: Final = {
    400: ("The request is not valid", "The browser sent something that this page does not take. Go back and try again."),
    403: (
        "You may not open this page",
        "Your account lacks the permission. Somebody who may change operators can give it to you.",
    ),
    404: ("There is no such page", "The address is mistyped, or what it named is gone. Find anything with Ctrl+K."),
    500: ("Something went wrong", "The page failed, and the log says why. Nothing was written unless the page said so before."),
}
"""What a page says, by its status: a title and a sentence."""
EXPIRED: Final = ("The form has expired", "Nothing was written. Open the page of the form again, and send it from there.")

log = logging.getLogger(__name__)


def _is_for_people(request: HttpRequest) -> bool:
    return request.path_info.startswith("/admin/")


def _page(request: HttpRequest, status: int, texts: tuple[str, str] | None = None) -> HttpResponse:
    """A page in the look of the admin, with its sidebar for operators; without it, where that cannot be made either."""
    title, sentence = texts or TEXTS[status]
    said = {"title": title, "sentence": sentence, "status": status, "request_id": request_id(request)}
    if getattr(getattr(request, "user", None), "is_staff", False):
        try:
            context = {**admin.site.each_context(request), **said}
            return HttpResponse(render_to_string("admin/error.html", context, request), status=status)
        except Exception:  # such as without a database: the page of the failure must not fail
            log.exception("The page of an error could not be made with its sidebar")
    return HttpResponse(render_to_string("admin/error_alone.html", said), status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400."""
    return _page(request, 400) if _is_for_people(request) else problem_response(exception, request)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403."""
    return _page(request, 403) if _is_for_people(request) else problem_response(exception, request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW."""
    return _page(request, 403, EXPIRED) if _is_for_people(request) else problem_response(Forbidden(), request)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404."""
    return _page(request, 404) if _is_for_people(request) else problem_response(Http404(), request)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500. Django has logged the exception."""
    if _is_for_people(request):
        return _page(request, 500)
    return ProblemResponse(body(InternalError(), request_id(request)), {})
