"""Documents about the API: the OpenAPI document, made once per process, that of its page, and a page about each problem."""

import threading
from functools import cache
from typing import Any, Final

import orjson
from django.http import HttpRequest
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer

from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.problems import TYPE_BASE, problems_by_slug
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound
from ledger.rest.kit.schema import SCOPE_KEY, ResponseBody, operation
from ledger_project.api.reference_document import as_openapi_3_0

METHODS: Final = {"get", "post", "put", "patch", "delete"}

_building = threading.Lock()


class ResourceSerializer(serializers.Serializer):
    """A path."""

    path = serializers.CharField(help_text="With its parameters in braces.")
    methods = serializers.DictField(help_text="By method: its effect, and the scope that a key needs, null if it needs no scope.")


class PathListSerializer(serializers.Serializer):
    """All paths."""

    resources = ResourceSerializer(many=True)
    schema = serializers.CharField(help_text="The address of the OpenAPI document.")
    docs = serializers.CharField(help_text="The address at which a browser shows the document.")


def openapi_document() -> bytes:
    """Return the OpenAPI 3.1 document as JSON. The first call builds it; calls that come during the build wait for it.

    Two builds at once would break each other: drf-spectacular keeps the operation it is working on in objects that belong to the
    view's class.
    """
    with _building:
        return _build_document()


@cache
def _build_document() -> bytes:
    """Without spaces: with them it has 5 MB, and without 2 MB."""
    return orjson.dumps(orjson.loads(JSONRenderer().render(SchemaGenerator().get_schema(request=None, public=True))))


@cache
def _reference_document() -> bytes:
    return orjson.dumps(as_openapi_3_0(orjson.loads(openapi_document())))


class ReferenceSchema(Endpoint):
    """The document for the page /docs/api."""

    is_public = True

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest) -> Response:
        """Return the document as OpenAPI 3.0. See `ledger_project.api.reference_document`."""
        return Response(_reference_document(), headers={"Content-Type": "application/json", "Cache-Control": "max-age=60"})


class Schema(Endpoint):
    """The OpenAPI document."""

    is_public = True

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest) -> Response:
        """Return the document."""
        return Response(openapi_document(), headers={"Content-Type": "application/json", "Cache-Control": "max-age=60"})


RESOURCES: Final = {
    "resources": [
        {"path": "/v1/holders/{holder}/spends", "methods": {"POST": {"summary": "Spend credits", "scope": "ledger:spend"}}},
    ],
    "schema": "/v1/schema",
    "docs": "/docs",
}


class Resources(Endpoint):
    """Lists the paths under /v1."""

    is_public = True

    @operation(
        "listResources", "List the paths", "Every path with its methods and the scope each method needs. The call needs no key.",
        tag="About", scope="", responses={200: ResponseBody(PathListSerializer, RESOURCES, "All paths.")},
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        return json_response({"resources": resources(), "schema": "/v1/schema", "docs": "/docs"})


@cache
def resources() -> list[dict[str, Any]]:
    """Return the paths of the OpenAPI document under /v1: their methods, and the scope that each needs."""
    document = orjson.loads(openapi_document())
    return [
        {
            "path": path,
            "methods": {
                method.upper(): {"summary": call["summary"], "scope": call.get(SCOPE_KEY)}
                for method, call in calls.items()
                if method in METHODS
            },
        }
        for path, calls in document["paths"].items()
        if path.startswith("/v1")
    ]


class ProblemPage(Endpoint):
    """Explains the slug of a problem."""

    is_public = True

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest, slug: str) -> Response:
        """Return the explanation of the slug."""
        if slug not in problems_by_slug():
            raise NotFound
        error_class = problems_by_slug()[slug][0]
        return json_response(
            {
                "type": TYPE_BASE + slug,
                "title": error_class.title,
                "status": error_class.answer.status,
                "outcome": error_class.answer.outcome,
                "description": (error_class.__doc__ or "").strip(),
            }
        )
