"""The declaration of calls for the OpenAPI document: `@operation(...)` on a view's method, with an example for each body.

Problems are given as the errors that are raised, with facts as an example; `ledger_project.api.documented_problems` makes
responses with their statuses of them when the document is made.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, append_meta
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from ledger.errors import LedgerError
from ledger.json_values import EXACT_INTEGERS
from ledger.records import Field, OneOf, Record, Shape, choice_text, shape_of
from ledger.rest.kit.endpoint import Handler, requires
from ledger.rest.kit.parsing import MERGE_PATCH
from ledger.rest.kit.queries import DryRunQuery
from ledger.rest.kit.request_errors import NotWithLabels, ScopeMissing
from ledger.scopes import LABELLED_SCOPES
from ledger.values import MAX_AMOUNT

PROBLEMS_KEY = "x-problems"
"""The key under which an operation carries its errors until the hook turns them into responses; the document does not have it."""
TAKES_BODY_KEY = "x-takes-body"
SCOPE_KEY = "x-scope"
"""The key under which the document names the scope that a call needs; null if it needs no scope."""

IDEMPOTENCY_KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$", "minLength": 1, "maxLength": 255},
    OpenApiParameter.HEADER,
    required=True,
    description="Identifies this write permanently. The same key and body again return the first response, without effect.",
    examples=[OpenApiExample("key", "order-7781")],
)
OPTIONAL_KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    IDEMPOTENCY_KEY_HEADER.type,
    OpenApiParameter.HEADER,
    description=f"Required, except with `dry_run`. {IDEMPOTENCY_KEY_HEADER.description}",
    examples=IDEMPOTENCY_KEY_HEADER.examples,
)
REPLAYED_HEADER = OpenApiParameter(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    OpenApiParameter.HEADER,
    description="Present when the server repeats the first response.",
    response=[200, 201],
)
LOCATION_HEADER = {"Location": {"schema": {"type": "string"}, "description": "The path of the new resource."}}
REQUEST_ID_HEADER = OpenApiParameter(
    "X-Request-Id",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The id of this request in the logs: the id you sent, or a new id.",
    response=True,
)


class ResponseBody(NamedTuple):
    """A body that a call responds with; `shape` is None for a response without one."""

    shape: Any
    example: Any
    description: str = ""
    media_type: str = "application/json"


class RequestBody(NamedTuple):
    """A body that a call takes; `examples` by name, and the bodies of other media types than JSON's: a schema and an example."""

    shape: Shape[Any]
    examples: Mapping[str, Any]
    others: Mapping[str, Any] = MappingProxyType({})


def operation(
    name: str,
    summary: str,
    description: str = "",
    *,
    tag: str,
    scope: str,
    responses: Mapping[int, ResponseBody],
    takes: RequestBody | None = None,
    query: type[Record] | None = None,
    parameters: Sequence[OpenApiParameter] = (),
    problems: Sequence[LedgerError] = (),
    idempotent: bool = False,
    dry_run: bool = False,
    conditions: Sequence[OpenApiParameter] = (),
    with_labels: bool = False,
) -> Callable[[Handler], Handler]:
    """Declare the method of a view: the scope that it needs, which the view then enforces, and its part of the document.

    Args:
        name: the operationId, unique.
        scope: the scope that a key needs; "" for a call that every key may make, or that needs no key.
        responses: by status.
        takes: the body, for a write.
        query: the declaration of the query parameters, which the handler reads; without it, the call refuses every parameter.
        parameters: in the path.
        problems: errors beyond those of every call, each with facts as an example.
        idempotent: the call needs an Idempotency-Key.
        dry_run: it takes `?dry_run=true`; its `query`, if any, is then a `DryRunQuery`.
        conditions: headers on which it depends whether the call is executed, such as If-Match.
        with_labels: a key that is bound to labels can make the call; see `requires`.
    """
    headers = [
        REQUEST_ID_HEADER,
        *([OPTIONAL_KEY_HEADER if dry_run else IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER] if idempotent else []),
        *conditions,
    ]
    query = query or (DryRunQuery if dry_run else None)
    queries: list[Any] = [shape_of(query)] if query else []
    refused_with_labels = [NotWithLabels()] if scope in LABELLED_SCOPES and not with_labels else []
    if dry_run and 200 not in responses:
        shown = responses[201]._replace(description="With `dry_run`: the response that the write would get.")
        responses = {200: shown, **responses}
    document = extend_schema(
        operation_id=name,
        summary=summary,
        description=f"{description}\n\nScope: `{scope}`.".strip() if scope else description,
        tags=[tag],
        parameters=[*parameters, *queries, *headers],
        request=takes.shape if takes else None,
        responses={
            (status, body.media_type): OpenApiResponse(body.shape, body.description or summary)
            for status, body in responses.items()
        },
        examples=[*_response_examples(responses), *_request_examples(takes)],
        extensions={
            PROBLEMS_KEY: [*problems, *([ScopeMissing(scope=scope)] if scope else []), *refused_with_labels],
            TAKES_BODY_KEY: takes is not None,
            SCOPE_KEY: scope or None,
        },
    )
    shapes = [shape for shape in (takes.shape if takes else None, *queries) if shape]
    names_in_json = {attribute: name for shape in shapes for name, attribute in shape.named.items()}

    def declare(handler: Handler) -> Handler:
        handler.names_in_json = names_in_json  # type: ignore[attr-defined]
        handler.other_bodies = takes.others if takes else {}  # type: ignore[attr-defined]
        handler.needs_body = takes is not None and any(each.required for each in takes.shape.fields)  # type: ignore[attr-defined]
        return requires(scope, takes_query=query is not None, with_labels=with_labels)(document(handler))

    return declare


def _response_examples(responses: Mapping[int, ResponseBody]) -> list[OpenApiExample]:
    return [
        OpenApiExample(
            f"response {status}", body.example, response_only=True, status_codes=[str(status)], media_type=body.media_type
        )
        for status, body in responses.items()
        if body.example is not None
    ]


def _request_examples(takes: RequestBody | None) -> list[OpenApiExample]:
    return [OpenApiExample(name, value, request_only=True) for name, value in takes.examples.items()] if takes else []


@cache
@cache
def page_of(shape: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """Return the shape of a page of a list; the same for two lists of the same rows."""
    link = "The URL of that page; null at the end of the list."
    return type(
        f"{shape.__name__.removesuffix('Serializer')}PageSerializer",
        (serializers.Serializer,),
        {
            "__doc__": "A page of a list.",
            "results": shape(many=True),
            "next": serializers.URLField(allow_null=True, help_text=link),
            "previous": serializers.URLField(allow_null=True, help_text=link),
        },
    )


def page_example(*results: Any, path: str) -> dict[str, Any]:
    """Return a page of a list as an example."""
    return {"results": list(results), "next": f"https://ledger.example{path}?cursor=Zm9sbG93aW5n&limit=1", "previous": None}


def page_response(shape: type[serializers.Serializer], row: Any, *, path: str, text: str) -> dict[int, ResponseBody]:
    """Return the response of a call that lists rows of this shape, by its status.

    Args:
        row: the example of a row. path: of the call, in the links of the example.
        text: what the page is of.
    """
    return {200: ResponseBody(page_of(shape), page_example(row, path=path), text)}


# What drf-spectacular is to make of our declarations -------------------------------------------------


class ShapeSchema(OpenApiSerializerExtension):
    """A shape has all fields that it takes, and takes no others."""

    target_class = "ledger.records.Shape"

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        """Return the name of the shape's component."""
        name: str = self.target.name
        return name

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the JSON schema of the shape."""
        shape: Shape[Any] = self.target
        # Not as a `oneOf` of lists of required fields: client generators make an empty type of each.
        choice = f"\n\nGive {choice_text(shape.either)}." if shape.either else ""
        required = sorted(field.json_name for field in shape.fields if field.required)
        return {
            "type": "object",
            "description": shape.text + choice,
            "properties": {field.json_name: _field_schema(auto_schema, field, direction) for field in shape.fields},
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }


def _field_schema(auto_schema: Any, field: Field, direction: Any) -> Any:
    meta = {"description": field.value.text} | ({"nullable": True} if field.value.null else {})
    if field.default is not None:
        meta["default"] = str(field.default) if isinstance(field.default, Decimal) else field.default
    return append_meta(_with_references(auto_schema, field.value.openapi(), direction), meta)


def _with_references(auto_schema: Any, schema: Any, direction: Any) -> Any:
    """Return the schema of a value with references to the components of the shapes in it."""
    if isinstance(schema, Shape):
        return auto_schema.resolve_serializer(schema, direction).ref
    if isinstance(schema, OneOf):
        return _one_of(auto_schema, schema, direction).ref
    if isinstance(schema, list):
        return [_with_references(auto_schema, part, direction) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _with_references(auto_schema, part, direction) for name, part in schema.items()}


def _one_of(auto_schema: Any, value: OneOf, direction: Any) -> ResolvedComponent:
    refs = {name: auto_schema.resolve_serializer(shape, direction).ref for name, shape in value.shapes.items()}
    mapping = {name: ref["$ref"] for name, ref in refs.items()}
    component = ResolvedComponent(
        name=value.item_name,
        type=ResolvedComponent.SCHEMA,
        schema={"oneOf": list(refs.values()), "discriminator": {"propertyName": value.by, "mapping": mapping}},
        object=value.item_name,
    )
    auto_schema.registry.register_on_missing(component)
    return component


EXACT_INTEGERS_SCHEMA = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": "^-?[1-9][0-9]*$"},
    "description": f"Only if an integer of this object exceeds {MAX_AMOUNT}: by its name, its digits as a string, for readers of "
    "JSON that round such integers.",
}


class CallSchema(AutoSchema):
    """The document's data of one call that come from its view: whether it needs an API key, and a body."""

    def get_auth(self) -> list[dict[str, list[str]]]:
        """Return the security that the call asks for."""
        view: Any = self.view
        return [] if view.is_public else [{"apiKey": []}]

    def get_operation(self, *args: Any, **options: Any) -> Any:
        """Return the call; a public call has an empty security, which drf-spectacular would leave out."""
        view: Any = self.view
        call = super().get_operation(*args, **options)
        if call is not None:
            call.setdefault("security", [])
            if view.location and "201" in call["responses"]:
                call["responses"]["201"].setdefault("headers", {}).update(LOCATION_HEADER)
        return call

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """Return the schema of a response, with the exact integers that it may have."""
        schema = super()._map_basic_serializer(serializer, direction)
        if any(member.get("maximum", 0) > MAX_AMOUNT for member in schema["properties"].values()):
            schema["properties"][EXACT_INTEGERS] = EXACT_INTEGERS_SCHEMA
        return schema

    def _get_request_body(self, direction: Any = "request") -> Any:
        """Return the body of a write; drf-spectacular would make a body optional whose fields are all optional."""
        view: Any = self.view
        body = super()._get_request_body(direction)
        if body is not None:
            handler = getattr(view, self.method.lower())
            body["required"] = handler.needs_body or not view.takes_nothing
            for media_type, (schema, example) in handler.other_bodies.items():
                examples = {"an example": {"value": example}}
                body["content"][media_type] = {"schema": _with_references(self, schema, direction), "examples": examples}
            if self.method == "PATCH":
                body["content"][MERGE_PATCH] = body["content"]["application/json"]
        return body
