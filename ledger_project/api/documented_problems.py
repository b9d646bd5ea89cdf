"""The problems in the OpenAPI document: each operation lists those that it can return, with an example of each."""

import copy
from typing import Any

from ledger import errors
from ledger.api.kit import request_errors
from ledger.api.kit.schema import PROBLEMS_KEY, TAKES_BODY_KEY
from ledger.api.kit.writing.problems import MEDIA_TYPE, body
from ledger.api.kit.writing.server_errors import DatabaseUnavailable
from ledger.rules.holds import HOLD_STATES
from ledger.rules.lots import LOT_STATES

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

_MEMBERS: dict[str, Any] = {
    "type": {"type": "string", "format": "uri", "description": "Stable; ends in the problem's slug."},
    "title": {"type": "string"},
    "status": {"type": "integer", "minimum": 400, "maximum": 599},
    "detail": {"type": "string"},
    "request_id": {"type": "string"},
    "outcome": {
        "type": "string",
        "enum": [errors.NOT_EXECUTED, errors.UNKNOWN],
        "description": "Whether the request took effect. `unknown`: send the same request with the same key to find out.",
    },
}
"""What every problem has."""


def _problem(description: str, /, required: tuple[str, ...] = (), **facts: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": [*_MEMBERS, *required],
        "properties": {**_MEMBERS, **facts},
        "additionalProperties": True,
    }


def _object(description: str, /, **members: Any) -> dict[str, Any]:
    return {"type": "object", "description": description, "required": [*members], "properties": members}


def _whole(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _time(description: str, *, or_null: bool = False) -> dict[str, Any]:
    return {"type": ["string", "null"] if or_null else "string", "format": "date-time", "description": description}


def _list_of(name: str, description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": _REF + name}, "description": description}


_REF = "#/components/schemas/"

_SCHEMAS: dict[str, Any] = {
    "Problem": _problem(
        "What went wrong, in the format of RFC 9457, with the facts of the case as further members.",
        errors=_list_of("FieldError", "For 400: every fault of the request."),
    ),
    "FieldError": _object(
        "A fault of a request.",
        pointer={
            "type": "string",
            "description": "JSON pointer into the body; for a query parameter or a header, / and its name.",
        },
        code={"type": "string"},
        detail={"type": "string"},
    ),
    "InsufficientCredits": _problem(
        "The account has fewer credits available than the request needs. A key without `ledger:read` gets no causes and, "
        "of a dry run, only the shortfall.",
        required=("shortfall",),
        shortfall=_whole("How many credits are missing."),
        available=_whole("How many credits can be used for the request."),
        balance=_whole("The sum of all entries; below zero only where an overdraft was agreed."),
        requested=_whole("How many credits the request needs."),
        held=_whole("Credits set aside."),
        expired=_whole("Credits that have expired and are not booked yet."),
        not_yet_effective=_whole("Credits that cannot be spent yet."),
        lots=_list_of("InsufficientCreditsLot", "Up to ten lots; those that cannot be spent come first."),
        holds=_list_of("InsufficientCreditsHold", "Up to ten open holds, the oldest first."),
        earliest_sufficient_at=_time(
            "From when on enough will be available if nothing else happens; null for never.", or_null=True
        ),
    ),
    "InsufficientCreditsLot": _object(
        "A lot of the account that has too few credits.",
        grant=_whole("The grant, by sequence."),
        remaining=_whole("Credits left in it."),
        state={"type": "string", "enum": list(LOT_STATES)},
        effective_at=_time("When it can be spent from.", or_null=True),
        expires_at=_time("When it expires; null for never.", or_null=True),
    ),
    "InsufficientCreditsHold": _object(
        "An open hold of the account that has too few credits.",
        hold=_whole("The hold, by the sequence of its entry."),
        amount=_whole("What it still sets aside."),
        state={"type": "string", "enum": list(HOLD_STATES)},
        expires_at=_time("When it expires."),
    ),
}
_OWN_SCHEMAS = {errors.InsufficientCredits.code: "InsufficientCredits"}
"""The problems whose facts have types, by their slugs. Each is the only problem of its status in a call."""


def document_problems(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Put the problems that each operation can return into the OpenAPI document. A drf-spectacular postprocessing hook."""
    result.setdefault("components", {}).setdefault("schemas", {}).update(copy.deepcopy(_SCHEMAS))
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
    response = responses.setdefault(str(example["status"]), {"description": example["title"]})
    schema = {"$ref": _REF + _OWN_SCHEMAS.get(error.code, "Problem")}
    content = response.setdefault("content", {}).setdefault(MEDIA_TYPE, {"schema": schema})
    content.setdefault("examples", {})[error.code] = {"value": example, "summary": error.title}
