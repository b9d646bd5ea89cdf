"""The applications with their views loaded, before any look at the database; servers call `ledger_project.asgi`.

`application` can do everything. `calls` has the API and the probes only, and redirects to the other for pages, which have their
own processes, so that no page takes the interpreter from a call (docs/adr/0065).
"""

import os
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core import signals
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.request import split_domain_port
from django.urls import get_resolver, reverse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
django.setup()

from ledger.rest.kit.front import request_log  # noqa: E402
from ledger.rest.kit.front.application import Front  # noqa: E402
from ledger.rest.kit.requests import ensure_host  # noqa: E402
from ledger_project import logs  # noqa: E402
from ledger_project.serving.pages_server import wait_until_listening  # noqa: E402


class PageHandler(BaseHandler):
    """Django with all its middleware, for a request whose body has been received; called in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware()

    def __call__(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """Return the response; the server reads a file from it later."""
        signals.request_started.send(sender=type(self))
        response: Any = self.get_response(request)
        if isinstance(response, HttpResponse):
            response.close()
        return response


def lead_to_pages(request: HttpRequest) -> HttpResponse:
    """Redirect to the same path of the pages' server; raise `Resolver404` for a path without a page.

    They are at `settings.PAGES_URL`, or else at the host of the request, which is one of ours, and `settings.PAGES_PORT`.
    """
    ensure_host(request)
    if not request.path_info.startswith(settings.STATIC_URL):
        get_resolver().resolve(request.path_info)
    host, _ = split_domain_port(request.get_host())
    wait_until_listening()
    address = settings.PAGES_URL or f"{request.scheme}://{host}:{settings.PAGES_PORT}"
    return HttpResponseRedirect(address + request.get_full_path(), preserve_request=True)


lines = logs.write_without_record(request_log.log)
if lines is not None:
    request_log.write_lines_by(lines)
# Imports the views, which Django would do at the first request.
get_resolver().url_patterns  # noqa: B018
application = Front(PageHandler(), login_path=reverse("admin:login") if apps.is_installed("ledger.staff") else "")
calls = Front(lead_to_pages)
