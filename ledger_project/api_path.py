"""The short way for API requests: from the WSGI handler to the view, past the middleware that sessions, forms and pages need.

Each middleware costs every request something, and an API call has no session, no cookie, no form and no page. Everything that an
API path can end in is an answer of ours: no exception leaves it, and no HTML.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, get_resolver

from ledger.api.parsing import is_storable
from ledger.api.rejections import Flaw, MalformedRequest, NotFound
from ledger.api.request_ids import request_id
from ledger_project import problems

API_PATHS = ("/v1/", "/healthz", "/readyz", "/problems/")


class ApiPath:
    """The outermost middleware: answers API paths itself, leaves the others to the rest, names every request."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the answer to the request, with its id."""
        if not is_storable(request.path_info):
            flaw = Flaw("", "forbidden-character", "NUL is refused in a path.")
            answer: HttpResponseBase = problems.answer(MalformedRequest(flaw), request)
        elif request.path_info.startswith(API_PATHS):
            answer = self._answer(request)
        else:
            answer = self.get_response(request)
        answer.headers["X-Request-Id"] = request_id(request)
        return answer

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        try:
            found = get_resolver().resolve(request.path_info)
            request.resolver_match = found
            answer: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
        except Resolver404:
            answer = problems.answer(NotFound(), request)
        except Exception as error:
            answer = problems.answer(error, request)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        if isinstance(answer, HttpResponse):
            answer.headers.setdefault("Content-Length", str(len(answer.content)))
        return answer
