"""How calls are shown in the OpenAPI document: `@operation(...)` on a view's method says all, with an example for each body.

Problems are given as the errors that are raised, with facts as an example; `ledger_project.api.documented_problems` makes
responses of them, with their statuses, when the document is made.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, append_meta
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from ledger.api.kit.endpoint import Handler, requires
from ledger.api.kit.reading.queries import DryRunQuery
from ledger.api.kit.request_errors import ScopeMissing
from ledger.errors import AccountMovedOn, LedgerError
from ledger.records import Field, OneOf, Record, Shape, choice_text, shape_of
from ledger.values import CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE, RATE_CODE

PROBLEMS_KEY = "x-problems"
"""Where an operation carries its errors until the hook turns them into responses; it is not in the finished document."""
TAKES_BODY_KEY = "x-takes-body"
SCOPE_KEY = "x-scope"
"""Where the finished document names the scope that a call needs; null for none."""

HOLDER_PATH = OpenApiParameter(
    "holder",
    {"type": "string", "pattern": f"^{HOLDER_ID.pattern}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="The owner of the credits. A new holder has no credits; its first grant creates it.",
    examples=[OpenApiExample("holder", "customer-42")],
)
SEQUENCE_PATH = OpenApiParameter(
    "sequence",
    {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_SEQUENCE},
    OpenApiParameter.PATH,
    description="The number of the entry in its account: 1, 2, 3 …",
    examples=[OpenApiExample("sequence", 1)],
)
RATE_PATH = OpenApiParameter(
    "code",
    {"type": "string", "pattern": f"^{RATE_CODE.pattern}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="The name of the rate.",
    examples=[OpenApiExample("code", "gpt-4o.output")],
)
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
IF_MATCH_HEADER = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": r'^("(0|[1-9][0-9]{0,18})"|\*)$'},
    OpenApiParameter.HEADER,
    description="The ETag of the balance you read: the write needs an account without a later entry. `*` sets no condition.",
    examples=[OpenApiExample("tag", "*")],
)
IF_NONE_MATCH_HEADER = OpenApiParameter(
    "If-None-Match",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="ETags of balances you know: the response is 304 if one of them is current.",
    examples=[OpenApiExample("tag", '"7"')],
)
ETAG_HEADER = OpenApiParameter(
    "ETag",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The sequence of the account's last entry; for If-Match on a write, and for If-None-Match here.",
    response=[200, 304],
)
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
    """A body that a call takes; `examples` by name."""

    shape: Shape[Any]
    examples: Mapping[str, Any]


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
    conditional: bool = False,
    deprecated: bool = False,
) -> Callable[[Handler], Handler]:
    """Declare the method of a view: which scope it needs, which the view then enforces, and what the document says of it.

    Args:
        name: the operationId, unique.
        scope: which scope a key needs; "" for a call without a key.
        responses: by status.
        takes: the body, for a write.
        query: the declaration of the query parameters, which the handler reads; without it, the call refuses every parameter.
        parameters: in the path.
        problems: errors beyond those that every call can meet, each with facts as an example.
        idempotent: the call needs an Idempotency-Key.
        dry_run: it takes `?dry_run=true`; a `query` of its own is then a `DryRunQuery`.
        conditional: it takes If-Match.
        deprecated: another call does the same, and new clients use that one.
    """
    headers = [
        REQUEST_ID_HEADER,
        *([OPTIONAL_KEY_HEADER if dry_run else IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER] if idempotent else []),
    ]
    headers += [IF_MATCH_HEADER] if conditional else []
    query = query or (DryRunQuery if dry_run else None)
    queries: list[Any] = [shape_of(query)] if query else []
    if conditional:
        problems = [*problems, AccountMovedOn(expected=7, sequence=8)]
    if dry_run and 200 not in responses:
        shown = responses[201]._replace(description="With `dry_run`: the response that the write would get.")
        responses = {200: shown, **responses}
    document = extend_schema(
        operation_id=name,
        summary=summary,
        description=f"{description}\n\nScope: `{scope}`.".strip() if scope else description,
        tags=[tag],
        deprecated=deprecated or None,
        parameters=[*parameters, *queries, *headers],
        request=takes.shape if takes else None,
        responses={
            (status, body.media_type): OpenApiResponse(body.shape, body.description or summary)
            for status, body in responses.items()
        },
        examples=[*_response_examples(responses), *_request_examples(takes)],
        extensions={
            PROBLEMS_KEY: [*problems, *([ScopeMissing(scope=scope)] if scope else [])],
            TAKES_BODY_KEY: takes is not None,
            SCOPE_KEY: scope or None,
        },
    )
    return lambda handler: requires(scope, takes_query=query is not None)(document(handler))


def _response_examples(responses: Mapping[int, ResponseBody]) -> list[OpenApiExample]:
    return [
        OpenApiExample(f"response {status}", body.example, response_only=True, status_codes=[str(status)])
        for status, body in responses.items()
        if body.example is not None
    ]


def _request_examples(takes: RequestBody | None) -> list[OpenApiExample]:
    return [OpenApiExample(name, value, request_only=True) for name, value in takes.examples.items()] if takes else []


def page_of(shape: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """Return the shape of a page of a list."""
    link = "The address of that page; null at the end of the list."
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


CREDIT_TYPE_SCHEMA = {"type": "string", "pattern": f"^{CREDIT_TYPE.pattern}$"}


# What drf-spectacular is to make of our declarations -------------------------------------------------


class ShapeSchema(OpenApiSerializerExtension):
    """A shape says itself what it takes, and takes no other fields."""

    target_class = "ledger.records.Shape"

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        """Return the name of the shape's component."""
        name: str = self.target.name
        return name

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the JSON schema of the shape."""
        shape: Shape[Any] = self.target
        # Not as a `oneOf` of lists of required fields: client generators make a type of nothing of each of them.
        choice = f"\n\nGive {choice_text(shape.either)}." if shape.either else ""
        required = sorted(field.name for field in shape.fields if field.required)
        return {
            "type": "object",
            "description": shape.text + choice,
            "properties": {field.name: _field_schema(auto_schema, field, direction) for field in shape.fields},
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


class CallSchema(AutoSchema):
    """What the document says of one call because of its view: whether it needs an API key, and a body."""

    def get_auth(self) -> list[dict[str, list[str]]]:
        """Return the security that the call asks for."""
        view: Any = self.view
        return [] if view.is_public else [{"apiKey": []}]

    def get_operation(self, *args: Any, **options: Any) -> Any:
        """Return the call; a public one says that it needs no key, where drf-spectacular would say nothing."""
        call = super().get_operation(*args, **options)
        if call is not None:
            call.setdefault("security", [])
        return call

    def _get_request_body(self, direction: Any = "request") -> Any:
        """Return the body of a write; drf-spectacular takes one whose fields can all be left out for one that can be missing."""
        view: Any = self.view
        body = super()._get_request_body(direction)
        if body is not None:
            body["required"] = not view.takes_nothing
        return body
