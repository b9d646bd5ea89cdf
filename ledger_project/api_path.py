"""The short way for API requests: from the WSGI handler to the view, past the middleware that sessions, forms and pages need.

Each middleware costs every request something, and an API call has no session, no cookie, no form and no page. Everything that an
API path can end in is an answer of ours: no exception leaves it, and no HTML.
"""

from collections.abc import Callable
from time import perf_counter

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, get_resolver

from ledger.api.kit.parsing import is_storable
from ledger.api.kit.request_errors import Flaw, MalformedRequest, NotFound
from ledger.api.kit.request_ids import request_id
from ledger.api.kit.request_log import log_request
from ledger_project import problems

PROBES = ("/healthz", "/readyz")
API_PATHS = ("/v1/", "/healthz", "/readyz", "/problems/")

_NUL_IN_PATH = Flaw("", "forbidden-character", "NUL is refused in a path.")


class ApiPath:
    """The outermost middleware: answers API paths itself, leaves the others to the rest, names every request."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the answer to the request, with its id."""
        started_at = perf_counter()
        # Now, so that whatever is logged on the way names it.
        request_id(request)
        path = request.path_info
        if not is_storable(path):
            answer = _finished(problems.answer(MalformedRequest(_NUL_IN_PATH), request))
        elif path.startswith(API_PATHS):
            answer = _finished(self._answer(request))
        else:
            answer = self.get_response(request)
        answer.headers["X-Request-Id"] = request_id(request)
        log_request(request, answer, started_at=started_at)
        return answer

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        try:
            # A name that leads here but is not ours, as by DNS rebinding, gets nothing. Probes use a process's address.
            if request.path_info not in PROBES:
                request.get_host()
            found = get_resolver().resolve(request.path_info)
            request.resolver_match = found
            answer: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
            return answer
        except Resolver404:
            return problems.answer(NotFound(), request)
        except Exception as error:
            return problems.answer(error, request)


def _finished(answer: HttpResponseBase) -> HttpResponseBase:
    """Say how long the answer is, so that the server need not send it in chunks, and that it is what it says it is."""
    answer.headers["X-Content-Type-Options"] = "nosniff"
    if isinstance(answer, HttpResponse) and answer.status_code != 304:
        answer.headers.setdefault("Content-Length", str(len(answer.content)))
    return answer
