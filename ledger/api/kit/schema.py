"""How calls are shown in the OpenAPI document: `@operation(...)` on a view's method says all, with an example for each body.

Problems are given as the errors that are raised, with facts as an example; `ledger_project.api.documented_problems` makes
responses of them, with their statuses, when the document is made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from ledger.api.kit.endpoint import Handler, requires
from ledger.api.kit.reading.fields import CREDIT_TYPE_PATTERN, HOLDER_PATTERN, RATE_PATTERN
from ledger.api.kit.reading.queries import DryRunQuery
from ledger.api.kit.reading.strict_serializers import AnyOfField, ListOfField, MapField, StrictSerializer, choice_text
from ledger.api.kit.request_errors import ScopeMissing
from ledger.errors import AccountMovedOn, LedgerError
from ledger.rules.requests import MAX_SEQUENCE

PROBLEMS_KEY = "x-problems"
"""Where an operation carries its errors until the hook turns them into responses; it is not in the finished document."""
TAKES_BODY_KEY = "x-takes-body"
SCOPE_KEY = "x-scope"
"""Where the finished document names the scope that a call needs; null for none."""

HOLDER_PATH = OpenApiParameter(
    "holder",
    {"type": "string", "pattern": f"^{HOLDER_PATTERN}$", "minLength": 1, "maxLength": 64},
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
    {"type": "string", "pattern": f"^{RATE_PATTERN}$", "minLength": 1, "maxLength": 64},
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

    shape: type[StrictSerializer]
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
    query: type[StrictSerializer] | None = None,
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
        parameters=[*parameters, *([query] if query else []), *headers],
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


CREDIT_TYPE_SCHEMA = {"type": "string", "pattern": f"^{CREDIT_TYPE_PATTERN}$"}


# What drf-spectacular is to make of our declarations -------------------------------------------------


class StrictFieldSchema(OpenApiSerializerFieldExtension):
    """A strict field says itself what it takes."""

    target_class = "ledger.api.kit.reading.fields.StrictField"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the field's JSON schema."""
        field = self.target
        schema: dict[str, Any] = dict(field.openapi())
        if isinstance(field, ListOfField):
            schema["items"] = _child_schema(auto_schema, field.child, direction)
        elif isinstance(field, AnyOfField):
            schema["items"] = _one_of(auto_schema, field, direction).ref
        elif isinstance(field, MapField):
            schema["additionalProperties"] = _child_schema(auto_schema, field.child, direction)
        return schema


def _child_schema(auto_schema: Any, child: Any, direction: Any) -> Any:
    if isinstance(child, serializers.Serializer):
        return auto_schema.resolve_serializer(child, direction).ref
    return auto_schema._map_serializer_field(child, direction)


def _one_of(auto_schema: Any, field: AnyOfField, direction: Any) -> ResolvedComponent:
    refs = {name: auto_schema.resolve_serializer(shape, direction).ref for name, shape in field.shapes.items()}
    mapping = {name: ref["$ref"] for name, ref in refs.items()}
    component = ResolvedComponent(
        name=field.item_name,
        type=ResolvedComponent.SCHEMA,
        schema={"oneOf": list(refs.values()), "discriminator": {"propertyName": field.by, "mapping": mapping}},
        object=field.item_name,
    )
    auto_schema.registry.register_on_missing(component)
    return component


class StrictSerializerSchema(OpenApiSerializerExtension):
    """A strict body takes no other fields than those declared."""

    target_class = "ledger.api.kit.reading.strict_serializers.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the JSON schema of the body."""
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        schema["additionalProperties"] = False
        if self.target.either:
            # Not as a `oneOf` of lists of required fields: client generators make a type of nothing of each of them.
            schema["description"] = f"{schema['description']}\n\nGive {choice_text(self.target.either)}."
        return schema


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
