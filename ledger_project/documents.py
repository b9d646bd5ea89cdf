"""Documents about the API: the OpenAPI document, made once per process, and a page about each problem."""

import threading
from functools import cache

from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema

from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.rendering import json_answer
from ledger.api.kit.request_errors import NotFound
from ledger.errors import LedgerError
from ledger_project.problems import TYPE_BASE, kind_of

_building = threading.Lock()


def openapi_document() -> bytes:
    """Return the OpenAPI 3.1 document as JSON. The first call builds it; calls that come during the build wait for it.

    Two builds at once would break each other: drf-spectacular keeps the operation it is working on in objects that belong to the
    view's class.
    """
    with _building:
        return _build_document()


@cache
def _build_document() -> bytes:
    return OpenApiJsonRenderer().render(SchemaGenerator().get_schema(request=None, public=True))


class Schema(Endpoint):
    """The OpenAPI document."""

    is_public = True

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest) -> HttpResponse:
        """Answer with the document."""
        return HttpResponse(openapi_document(), content_type="application/json", headers={"Cache-Control": "max-age=60"})


@cache
def problems_by_slug() -> dict[str, type[LedgerError]]:
    """Return every problem that can be answered, by its slug."""
    found: dict[str, type[LedgerError]] = {}
    waiting: list[type[LedgerError]] = [LedgerError]
    while waiting:
        error_class = waiting.pop()
        waiting.extend(error_class.__subclasses__())
        found.setdefault(error_class.code, error_class)
    return found


class ProblemPage(Endpoint):
    """What a problem's slug means."""

    is_public = True

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Answer with what the slug means."""
        error_class = problems_by_slug().get(slug)
        if error_class is None:
            raise NotFound
        kind = kind_of(error_class)
        return json_answer(
            {
                "type": TYPE_BASE + slug,
                "title": error_class.title,
                "status": kind.status,
                "outcome": kind.outcome,
                "description": (error_class.__doc__ or "").strip(),
            }
        )
