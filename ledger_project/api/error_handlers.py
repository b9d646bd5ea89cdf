"""Django's error handlers: for people a page, for programs a problem."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views import csrf, defaults

from ledger.api.kit.problems import ProblemResponse, body, problem_response
from ledger.api.kit.requests import request_id
from ledger.api.kit.server_errors import Forbidden, InternalError


def _is_for_people(request: HttpRequest) -> bool:
    return request.path_info.startswith("/admin/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400."""
    return defaults.bad_request(request, exception) if _is_for_people(request) else problem_response(exception, request)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403."""
    return defaults.permission_denied(request, exception) if _is_for_people(request) else problem_response(exception, request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW."""
    return csrf.csrf_failure(request, reason) if _is_for_people(request) else problem_response(Forbidden(), request)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404."""
    return defaults.page_not_found(request, exception) if _is_for_people(request) else problem_response(Http404(), request)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500. Django has logged the exception."""
    if _is_for_people(request):
        return defaults.server_error(request)
    return ProblemResponse(body(InternalError(), request_id(request)), {})
