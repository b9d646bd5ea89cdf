"""The problems in the OpenAPI document: each operation lists those that it can return, with an example of each."""

from typing import Any

from ledger import errors
from ledger.api.kit import request_errors
from ledger.api.kit.problems import MEDIA_TYPE, body
from ledger.api.kit.schema import PROBLEMS_KEY, TAKES_BODY_KEY
from ledger.api.kit.server_errors import DatabaseUnavailable
from ledger.api.kit.statuses import NOT_EXECUTED, UNKNOWN

EXAMPLE_REQUEST_ID = "0198c0de-7a1e-7b00-8000-000000000001"

_EVERYWHERE: tuple[errors.LedgerError, ...] = (
    request_errors.Unauthenticated(),
    request_errors.NotFound(),
    request_errors.NotAcceptable(served="application/json"),
    request_errors.TooManyRequests(retry_after_seconds=1),
    DatabaseUnavailable(),
)
_WITH_INPUT: tuple[errors.LedgerError, ...] = (
    request_errors.InvalidRequest([request_errors.FieldError("/limit", "too-large", "This must be at most 200.")]),
)
_WITH_BODY: tuple[errors.LedgerError, ...] = (
    request_errors.MalformedRequest(
        request_errors.FieldError("", "malformed-json", "The body is not JSON at character 12: Expecting value.")
    ),
    request_errors.InvalidRequest(
        [request_errors.FieldError("/amount", "not-an-integer", "This must be a JSON integer, not a string.")]
    ),
    request_errors.BodyTooLarge(limit_bytes=64 * 1024),
    request_errors.UnsupportedMediaType(accepted="application/json"),
)
_WITH_KEY: tuple[errors.LedgerError, ...] = (
    request_errors.IdempotencyKeyMissing(),
    errors.IdempotencyKeyReused(idempotency_key="order-7781"),
    errors.HolderBusy(key="ledger/customer-42"),
    errors.OutcomeUnknown(),
)

_PROBLEM_SCHEMA = {
    "type": "object",
    "description": "What went wrong, in the format of RFC 9457, with the facts of the case as further members.",
    "required": ["type", "title", "status", "detail", "request_id", "outcome"],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "Stable; ends in the problem's slug."},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "outcome": {
            "type": "string",
            "enum": [NOT_EXECUTED, UNKNOWN],
            "description": "Whether the request took effect. `unknown`: send the same request with the same key to find out.",
        },
        "errors": {
            "type": "array",
            "description": "For 400: every fault of the request.",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "JSON pointer into the body; for a query parameter or a header, / and its name.",
                    },
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
    "additionalProperties": True,
}


def document_problems(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Put the problems that each operation can return into the OpenAPI document. A drf-spectacular postprocessing hook."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM_SCHEMA
    for path in result.get("paths", {}).values():
        for operation in path.values():
            if not isinstance(operation, dict) or PROBLEMS_KEY not in operation:
                continue
            for error in _problems_of(operation):
                _document(operation["responses"], error)
    return result


def _problems_of(operation: dict[str, Any]) -> list[errors.LedgerError]:
    own = list(operation.pop(PROBLEMS_KEY))
    takes_body = operation.pop(TAKES_BODY_KEY)
    if not operation.get("security"):
        return own
    parameters = {parameter["name"]: parameter["in"] for parameter in operation.get("parameters", [])}
    problems = [*own, *_EVERYWHERE]
    if takes_body:
        problems += _WITH_BODY
    elif "query" in parameters.values():
        problems += _WITH_INPUT
    if "Idempotency-Key" in parameters:
        problems += _WITH_KEY
    return problems


def _document(responses: dict[str, Any], error: errors.LedgerError) -> None:
    example = body(error, EXAMPLE_REQUEST_ID)
    response = responses.setdefault(
        str(example["status"]),
        {"description": example["title"], "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}},
    )
    content = response.setdefault("content", {}).setdefault(MEDIA_TYPE, {"schema": {"$ref": "#/components/schemas/Problem"}})
    content.setdefault("examples", {})[error.code] = {"value": example, "summary": error.title}
