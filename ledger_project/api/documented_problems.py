"""The problems in the OpenAPI document: a schema for each, and for each operation those that it can return, with an example."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ledger import errors
from ledger.json_values import EXACT_INTEGERS
from ledger.rest.kit import request_errors
from ledger.rest.kit.problems import MEDIA_TYPE, TYPE_BASE, body, problems_by_slug
from ledger.rest.kit.schema import EXACT_INTEGERS_SCHEMA, PROBLEMS_KEY, TAKES_BODY_KEY
from ledger.rest.kit.server_errors import DatabaseBusy, DatabaseUnavailable, DiskFull, InternalError, ServerUnavailable
from ledger.values import Credits, Members, Value, annotations_of

EXAMPLE_REQUEST_ID = "0198c0de-7a1e-7b00-8000-000000000001"

_EVERYWHERE: Final[tuple[errors.LedgerError, ...]] = (
    request_errors.MalformedRequest(request_errors.FieldError("", "suspicious", "The request looks forged.")),
    request_errors.InvalidRequest(
        [request_errors.FieldError("/page", "unknown-parameter", "This call takes no parameter of this name.")]
    ),
    InternalError(),
)
_WITH_API_KEY: Final[tuple[errors.LedgerError, ...]] = (
    request_errors.Unauthenticated(),
    request_errors.NotFound(),
    request_errors.NotAcceptable(served="application/json"),
    request_errors.TooManyRequests(retry_after_seconds=1),
    errors.ServerBusy(retry_after_seconds=1),
    DatabaseBusy(),
    DatabaseUnavailable(),
    ServerUnavailable(),
)
_WITH_QUERY: Final[tuple[errors.LedgerError, ...]] = (
    request_errors.InvalidRequest([request_errors.FieldError("/limit", "too-large", "This must be at most 200.")]),
)
_WITH_BODY: Final[tuple[errors.LedgerError, ...]] = (
    request_errors.MalformedRequest(
        request_errors.FieldError("", "malformed-json", "The body is not JSON at character 12: Expecting value.")
    ),
    request_errors.InvalidRequest(
        [request_errors.FieldError("/amount", "not-an-integer", "This must be a JSON integer, not a string.")]
    ),
    request_errors.BodyTimeout(seconds=20),
    request_errors.BodyTooLarge(limit_bytes=64 * 1024),
    request_errors.UnsupportedMediaType(accepted="application/json"),
)
_WITH_IDEMPOTENCY_KEY: Final[tuple[errors.LedgerError, ...]] = (
    request_errors.IdempotencyKeyMissing(),
    request_errors.IdempotencyKeyInvalid(),
    errors.IdempotencyKeyReused(idempotency_key="order-7781"),
    errors.HolderBusy(key="ledger/customer-42"),
    errors.SequenceTaken(holder_id="customer-42"),
    errors.UnsafeDatabase(what="fsync = off", why="a server that stops can lose committed entries"),
    errors.OutcomeUnknown(),
    DiskFull(),
)

_REF: Final = "#/components/schemas/"

_MEMBERS: Final[dict[str, Any]] = {
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "request_id": {"type": "string"},
    "outcome": {
        "type": "string",
        "enum": [errors.NOT_EXECUTED, errors.UNKNOWN],
        "description": "Whether the request took effect. `unknown`: send the same request with the same key to find out.",
    },
}
"""The members that every problem has beside its `type`."""
_FIELD_ERRORS: Final[dict[str, Any]] = {"errors": {"type": "array", "items": {"$ref": _REF + "FieldError"}}}
_FIELD_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A fault of a request.",
    "required": ["pointer", "code", "detail"],
    "properties": {
        "pointer": {
            "type": "string",
            "description": "JSON pointer into the body; for a query parameter or a header, / and its name.",
        },
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}


def document_problems(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Put the problems that each operation can return into the OpenAPI document. A drf-spectacular postprocessing hook."""
    components = result["components"]
    schemas, examples = components["schemas"], components.setdefault("examples", {})
    schemas["FieldError"] = _FIELD_ERROR
    for slug, error_classes in problems_by_slug().items():
        schemas[_name(slug)] = _schema(slug, error_classes, schemas)
    for path in result.get("paths", {}).values():
        for operation in path.values():
            if isinstance(operation, dict) and PROBLEMS_KEY in operation:
                _document(operation, list(_problems_of(operation)), schemas, examples)
    return result


# A problem -------------------------------------------------------------------------------------------


def _name(slug: str) -> str:
    return "".join(word.capitalize() for word in slug.split("-"))


def _schema(slug: str, error_classes: Sequence[type[errors.LedgerError]], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the problems with this slug; what each of their classes requires is required."""
    declared = [annotations_of(error_class) for error_class in error_classes]
    facts = {name: fact.value for of_class in reversed(declared) for name, fact in of_class.items()}
    required = [name for name in facts if all(name in of_class and of_class[name].required for of_class in declared)]
    is_fault_of_request = error_classes[0].answer.status == 400
    return {
        "type": "object",
        "description": " ".join((error_classes[0].__doc__ or "").split()),
        "required": ["type", *_MEMBERS, *(_FIELD_ERRORS if is_fault_of_request else ()), *required],
        "properties": {
            "type": {"type": "string", "enum": [TYPE_BASE + slug]},
            **_MEMBERS,
            "status": {"type": "integer", "minimum": error_classes[0].answer.status, "maximum": error_classes[0].answer.status},
            **(_FIELD_ERRORS if is_fault_of_request else {}),
            **_facts(facts, schemas),
        },
        "additionalProperties": True,
    }


def _facts(values: dict[str, Value], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of facts; credits can be more than every reader of JSON takes exactly."""
    has_credits = any(isinstance(value, Credits) for value in values.values())
    facts = {name: _fact(value, schemas) for name, value in values.items()}
    return facts | ({EXACT_INTEGERS: EXACT_INTEGERS_SCHEMA} if has_credits else {})


def _fact(value: Value, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _with_references(value.openapi(), schemas)
    for bound in ("minimum", "maximum", "maxLength", "minLength", "maxItems", "pattern"):  # of what is sent
        schema.pop(bound, None)
    if value.null:
        schema["type"] = [schema["type"], "null"]
    return {**schema, "description": value.text} if value.text else schema


def _with_references(schema: Any, schemas: dict[str, Any]) -> Any:
    if isinstance(schema, Members):
        name = schema.declared.__name__
        members = annotations_of(schema.declared)
        schemas[name] = {
            "type": "object",
            "description": schema.declared.__doc__,
            "required": [member for member, each in members.items() if each.required],
            "properties": _facts({member: each.value for member, each in members.items()}, schemas),
        }
        return {"$ref": _REF + name}
    if isinstance(schema, dict):
        return {name: _with_references(part, schemas) for name, part in schema.items()}
    return schema


# The problems of an operation ------------------------------------------------------------------------


def _problems_of(operation: dict[str, Any]) -> Iterator[errors.LedgerError]:
    own = operation.pop(PROBLEMS_KEY)
    takes_body = operation.pop(TAKES_BODY_KEY)
    parameters = {parameter["name"]: parameter["in"] for parameter in operation.get("parameters", [])}
    yield from own
    yield from _EVERYWHERE
    if operation.get("security"):
        yield from _WITH_API_KEY
    if takes_body:
        yield from _WITH_BODY
    elif "query" in parameters.values():
        yield from _WITH_QUERY
    if "Idempotency-Key" in parameters:
        yield from _WITH_IDEMPOTENCY_KEY


def _document(
    operation: dict[str, Any], problems: Sequence[errors.LedgerError], schemas: dict[str, Any], examples: dict[str, Any]
) -> None:
    """Give each status its problems: the schema of the only one, or the union of all problems of the call."""
    by_status: dict[int, dict[str, errors.LedgerError]] = {}
    for error in problems:
        by_status.setdefault(error.answer.status, {})[error.code] = error
    union = f"{operation['operationId'][0].upper()}{operation['operationId'][1:]}Problem"
    schemas[union] = _union(sorted({error.code for error in problems}))
    for status, by_slug in by_status.items():
        slugs = list(by_slug)
        response = operation["responses"].setdefault(str(status), {"description": by_slug[slugs[0]].title})
        response.setdefault("content", {})[MEDIA_TYPE] = {
            "schema": {"$ref": _REF + (_name(slugs[0]) if len(slugs) == 1 else union)},
            "examples": {slug: _example(error, examples) for slug, error in by_slug.items()},
        }


def _example(error: errors.LedgerError, examples: dict[str, Any]) -> dict[str, Any]:
    """Return the example, by a reference if other calls have the same one."""
    example = {"value": body(error, EXAMPLE_REQUEST_ID), "summary": error.title}
    return {"$ref": f"#/components/examples/{error.code}"} if examples.setdefault(error.code, example) == example else example


def _union(slugs: Sequence[str]) -> dict[str, Any]:
    references = {TYPE_BASE + slug: _REF + _name(slug) for slug in slugs}
    return {
        "description": "The problems of this call.",
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "type", "mapping": references},
    }
