"""The application with its views loaded, before any look at the database; servers call `ledger_project.asgi`."""

import os
from typing import Any

import django
from django.core import signals
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
django.setup()

from ledger.api.kit.front import request_log  # noqa: E402
from ledger.api.kit.front.application import Front  # noqa: E402
from ledger_project import logs  # noqa: E402
from ledger_project.serving.static_files import StaticFiles  # noqa: E402


class Pages(BaseHandler):
    """Django as it is, with all its middleware, for a request whose body has been received; called in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware()

    def __call__(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """Return the response; a file is read from it later."""
        signals.request_started.send(sender=type(self))
        response: Any = self.get_response(request)
        if isinstance(response, HttpResponse):
            response.close()
        return response


write_line = logs.write_without_record(request_log.log)
if write_line is not None:
    request_log.write_lines_by(write_line)
application = Front(Pages(), is_static_file=StaticFiles().files.__contains__)
# Imports the views, which Django would do at the first request.
get_resolver().url_patterns  # noqa: B018
