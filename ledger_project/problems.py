"""Error class -> HTTP status -> application/problem+json: the only place with statuses.

A problem's body says what happened (`type`, `title`, `detail` and the facts of the case), whether anything took effect
(`outcome`), and by which request (`request_id`). The same refusal always has the same bytes: facts stand in the order of their
names, and the request id is that of the request which was refused first. See docs/API.md, "Problems". Source: RFC 9457.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from django.core import exceptions as django_errors
from django.db import DatabaseError, DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.views import csrf, defaults
from rest_framework.exceptions import APIException

from billing import errors as billing_errors
from ledger import errors
from ledger.api.kit import request_errors
from ledger.api.kit.rendering import in_key_order
from ledger.api.kit.request_ids import request_id
from ledger.api.kit.schema import PROBLEMS_KEY, TAKES_BODY_KEY
from ledger.database.locks import sqlstate

log = logging.getLogger(__name__)

TYPE_BASE = "https://credit-ledger.example/problems/"
"""What every `type` begins with. It names, no such host can exist; `/problems/<slug>` on any server tells more."""

MEDIA_TYPE = "application/problem+json"
NOT_EXECUTED = "not_executed"
UNKNOWN = "unknown"

AGAIN = "Nothing was written. Send the same request again with the same key."


# What can go wrong with the server, beyond what the ledger names itself ------------------------------


class DatabaseBusy(errors.Retryable):
    """A statement timed out, deadlocked or failed to serialize, three times in a row."""

    code = "database-busy"
    title = "The database is busy"


class DatabaseUnavailable(errors.Retryable):
    """The database cannot be reached, takes no more connections, or went away before COMMIT."""

    code = "database-unavailable"
    title = "The database is not available"


class DiskFull(errors.Retryable):
    """The database server's disk is full."""

    code = "disk-full"
    title = "The database server's disk is full"


class Forbidden(request_errors.Rejected):
    """The server does this for no client."""

    code = "forbidden"
    title = "The request is not allowed"


class InternalError(errors.LedgerError):
    """The server has a bug; the log has the details under the request's id."""

    code = "internal-error"
    title = "The server failed"


# Error class -> status -------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How an error class is answered. `detail` is filled from the facts."""

    status: int
    detail: str
    outcome: str = NOT_EXECUTED
    retry_after_seconds: int | None = None


KINDS: dict[type[errors.LedgerError], Kind] = {
    # Refused: recorded; the same key gets the same refusal
    errors.Refused: Kind(409, ""),
    errors.InsufficientCredits: Kind(402, "The request needs {requested} credits; {available} are available."),
    errors.EntryNotFound: Kind(404, "Entry {sequence} of {credit_type} does not exist."),
    errors.NotRefundable: Kind(409, "Entry {sequence} is of kind {kind}; only a spend can be refunded."),
    errors.RefundExceedsSpend: Kind(
        409, "Spend {sequence} has {refundable} credits left to refund; the request asks for {requested}."
    ),
    errors.NotRevocable: Kind(409, "Entry {sequence} is of kind {kind}; only a grant can be revoked."),
    errors.RevocationExceedsGrant: Kind(
        409, "Grant {sequence} has {revocable} credits left to revoke; the request asks for {requested}."
    ),
    errors.LotLimit: Kind(409, "The account has {open_lots} open lots; the limit is {limit}."),
    errors.HoldLimit: Kind(409, "The open holds would hold {held_lots} lots; the limit is {limit}."),
    errors.NotAHold: Kind(409, "Entry {sequence} is of kind {kind}; only a hold can be captured, released or extended."),
    errors.HoldClosed: Kind(409, "Hold {sequence} is closed: {how}."),
    errors.CaptureExceedsHold: Kind(409, "Hold {sequence} holds {held} credits; the request asks for {requested}."),
    errors.UnknownRate: Kind(409, "Rate {rate} of {credit_type} does not exist."),
    errors.AmountLimit: Kind(409, "One operation moves at most {limit} credits."),
    # Retryable: nothing was written
    errors.Retryable: Kind(503, AGAIN, retry_after_seconds=1),
    errors.LockBusy: Kind(409, "Another process holds this lock. Nothing was written; try again later."),
    DatabaseUnavailable: Kind(503, AGAIN, retry_after_seconds=2),
    DiskFull: Kind(503, AGAIN, retry_after_seconds=60),
    errors.UnsafeDatabase: Kind(
        503,
        "The database does not give the guarantees that the ledger needs; the ledger does not use it.",
        retry_after_seconds=60,
    ),
    # Written or not
    errors.OutcomeUnknown: Kind(
        503, "The connection broke during COMMIT. Send the same request with the same key to learn the outcome.", UNKNOWN, 1
    ),
    errors.LedgerError: Kind(500, "The log has the details under this request_id.", UNKNOWN),
    # The request is wrong
    errors.Invalid: Kind(400, "`errors` lists every fault."),
    errors.IdempotencyKeyReused: Kind(422, "Another request has used this Idempotency-Key. A new request needs a new key."),
    errors.BatchRejected: Kind(409, "Operation {index} failed, so the ledger executed no operation of the batch."),
    errors.AccountMovedOn: Kind(412, "The last entry is {sequence}, not {expected}. Read the account again before you retry."),
    request_errors.Rejected: Kind(400, ""),
    request_errors.MalformedRequest: Kind(400, "`errors` lists every fault."),
    request_errors.InvalidRequest: Kind(400, "`errors` lists every fault."),
    request_errors.IdempotencyKeyMissing: Kind(400, "`errors` lists every fault."),
    request_errors.IdempotencyKeyInvalid: Kind(400, "`errors` lists every fault."),
    request_errors.Unauthenticated: Kind(401, "Send `Authorization: Bearer <api key>` with a valid key."),
    request_errors.ScopeMissing: Kind(403, "The key needs the scope {scope}."),
    Forbidden: Kind(403, "The server does not allow this request."),
    request_errors.NotFound: Kind(404, "The resource does not exist, or this key may not see it."),
    request_errors.MethodNotAllowed: Kind(405, "The Allow header lists the supported methods."),
    request_errors.NotAcceptable: Kind(406, "This path serves {served}."),
    request_errors.BodyTimeout: Kind(408, "The body must arrive within {seconds} s. Nothing was executed."),
    request_errors.BodyTooLarge: Kind(413, "The body must be at most {limit_bytes} bytes."),
    request_errors.UnsupportedMediaType: Kind(415, "Send {accepted} in UTF-8, uncompressed."),
    request_errors.TooManyRequests: Kind(429, "Try again in {retry_after_seconds} s."),
    # Billing
    billing_errors.NotFound: Kind(404, "The {resource} {ref} does not exist."),
    billing_errors.PeriodAlreadyBilled: Kind(409, "Another process has billed this period. Nothing was written."),
}


def kind_of(error_class: type[errors.LedgerError]) -> Kind:
    """Return how an error class is answered: as it says itself, or its nearest base does."""
    return next(KINDS[base] for base in error_class.__mro__ if base in KINDS)


# SQLSTATE -> error -----------------------------------------------------------------------------------

BUSY_STATES = {"57014", "40P01", "40001", "25P03", "25P04"}
"""Statement timeout, deadlock, serialization failure, timeouts of a transaction that stood still or took too long."""
FULL_STATES = {"53100"}
UNAVAILABLE_STATES = {"57P01", "57P02", "57P03", "57P04", "57P05", "25006"}
"""Shutdown, crash, starting up, dropped, idle too long; a server that only reads, as after a failover."""
UNAVAILABLE_CLASSES = {"08", "53", "58"}
"""Connection lost, no resources (53300: too many connections), trouble with the operating system."""


def translated(error: Exception) -> errors.LedgerError:
    """Return any exception as one that `KINDS` knows."""
    if isinstance(error, errors.LedgerError):
        return error
    if isinstance(error, DatabaseError | InterfaceError):
        return _from_database(error)
    if isinstance(error, APIException):
        return _BY_STATUS.get(error.status_code, InternalError)()
    for known, build in _FROM_DJANGO:
        if isinstance(error, known):
            return build()
    return InternalError()


def _from_database(error: Exception) -> errors.LedgerError:
    """Branch on SQLSTATE, never on text or on a constraint's name."""
    state = sqlstate(error)
    if state == "55P03":
        return errors.HolderBusy()
    if state in BUSY_STATES:
        return DatabaseBusy()
    if state in FULL_STATES:
        return DiskFull()
    if state in UNAVAILABLE_STATES or (state or "")[:2] in UNAVAILABLE_CLASSES:
        return DatabaseUnavailable()
    if state is None and isinstance(error, OperationalError | InterfaceError):
        return DatabaseUnavailable()  # never connected, or the socket broke: the server had no chance to say why
    if isinstance(error, DataError):
        log.error("a value got as far as the database and was refused there", exc_info=error)
        flaw = request_errors.Flaw("", "unstorable", "The database cannot store a value of this request.")
        return request_errors.InvalidRequest([flaw])
    return InternalError()


def _malformed(code: str, detail: str) -> Callable[[], errors.LedgerError]:
    return lambda: request_errors.MalformedRequest(request_errors.Flaw("", code, detail))


_FROM_DJANGO: tuple[tuple[type[Exception], Callable[[], errors.LedgerError]], ...] = (
    (Http404, request_errors.NotFound),
    (django_errors.PermissionDenied, Forbidden),
    (django_errors.RequestDataTooBig, lambda: request_errors.BodyTooLarge(limit_bytes=64 * 1024)),
    (django_errors.DisallowedHost, _malformed("host", "This server does not serve the host in the Host header.")),
    (django_errors.SuspiciousOperation, _malformed("suspicious", "The request looks forged.")),
    (django_errors.BadRequest, _malformed("bad-request", "The request is not well-formed.")),
    (UnreadablePostError, _malformed("truncated", "The body ended early.")),
)
_BY_STATUS: dict[int, Callable[[], errors.LedgerError]] = {
    400: _malformed("bad-request", "The request is not well-formed."),
    401: request_errors.Unauthenticated,
    403: Forbidden,
    404: request_errors.NotFound,
    405: lambda: request_errors.MethodNotAllowed(allowed=[]),
    406: lambda: request_errors.NotAcceptable(served="something else"),
    415: lambda: request_errors.UnsupportedMediaType(accepted="application/json"),
    429: lambda: request_errors.TooManyRequests(retry_after_seconds=1),
}


# Error -> body -> answer -----------------------------------------------------------------------------


class ProblemResponse(HttpResponse):
    """An answer that carries `problem`, as application/problem+json."""

    def __init__(self, problem: dict[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(
            orjson.dumps(problem),
            status=problem["status"],
            content_type=MEDIA_TYPE,
            headers={"Cache-Control": "no-store", **headers},
        )
        self.problem = problem
        self.cause = ""
        """Why, for the log only."""


def body(error: errors.LedgerError, request_id: str) -> dict[str, Any]:
    """Return the problem body of an error.

    Args:
        request_id: of the request at hand; a recorded refusal has its own, that of the request which was refused first.
    """
    kind = kind_of(type(error))
    is_ours = kind.status == 500
    is_private = isinstance(error, errors.Misuse) and kind.status >= 500
    facts = {} if is_ours or is_private or isinstance(error, errors.Invalid) else error.facts
    problem: dict[str, Any] = {
        "type": TYPE_BASE + (InternalError.code if is_ours else error.code),
        "title": InternalError.title if is_ours else error.title,
        "status": kind.status,
        "detail": kind.detail.format_map(_Facts(facts)) or f"{error.title}.",
        "request_id": getattr(error, "request_id", "") or request_id,
        "outcome": kind.outcome,
    }
    for name in sorted(facts):
        problem.setdefault(name, in_key_order(facts[name]))
    flaws = _flaws(error)
    if flaws:
        problem["errors"] = [flaw._asdict() for flaw in flaws]
    return problem


class _Facts(dict[str, Any]):
    """Facts for a detail; one that is missing must not make a 500 of a 409."""

    def __missing__(self, name: str) -> str:
        return "?"


def _flaws(error: errors.LedgerError) -> tuple[request_errors.Flaw, ...]:
    if isinstance(error, errors.Invalid):
        facts = error.facts
        return (request_errors.Flaw(facts["pointer"], facts["rule"], facts["detail"]),)
    return getattr(error, "flaws", ())


def _headers(error: errors.LedgerError) -> dict[str, str]:
    headers: dict[str, str] = {}
    retry_after_seconds = error.facts.get("retry_after_seconds") or kind_of(type(error)).retry_after_seconds
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(retry_after_seconds)
    if isinstance(error, request_errors.Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="credit-ledger"'
    elif isinstance(error, request_errors.MethodNotAllowed):
        headers["Allow"] = ", ".join(error.facts["allowed"])
    elif isinstance(error, request_errors.UnsupportedMediaType):
        headers["Accept"] = error.facts["accepted"]
    elif getattr(error, "replayed", False):
        headers["Idempotency-Replayed"] = "true"
    return headers


def answer(error: Exception, request: HttpRequest) -> ProblemResponse:
    """Return the answer to a request that ended in `error`; logs the traceback of what nobody expected, and of nothing else."""
    known = translated(error)
    status = kind_of(type(known)).status
    if status == 500:
        facts = {"request_id": request_id(request)}
        log.error("%s %s: %s", request.method, request.path, known.code, exc_info=error, extra={"facts": facts})
    response = ProblemResponse(body(known, request_id(request)), _headers(known))
    if status >= 500:
        response.cause = next(iter(str(error).splitlines()), "")
    return response


def exception_handler(error: Exception, context: Mapping[str, Any]) -> ProblemResponse:
    """Return the answer to an exception in a view. DRF's `EXCEPTION_HANDLER`."""
    request = context["request"]
    return answer(error, getattr(request, "_request", request))


# What Django answers without a view ------------------------------------------------------------------


def _is_for_people(request: HttpRequest) -> bool:
    return request.path_info.startswith("/admin/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400."""
    return defaults.bad_request(request, exception) if _is_for_people(request) else answer(exception, request)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403."""
    return defaults.permission_denied(request, exception) if _is_for_people(request) else answer(exception, request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW."""
    return csrf.csrf_failure(request, reason) if _is_for_people(request) else answer(Forbidden(), request)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404."""
    return defaults.page_not_found(request, exception) if _is_for_people(request) else answer(Http404(), request)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500. Django has logged the exception."""
    if _is_for_people(request):
        return defaults.server_error(request)
    return ProblemResponse(body(InternalError(), request_id(request)), {})


# The OpenAPI document --------------------------------------------------------------------------------

EXAMPLE_REQUEST_ID = "0198c0de-7a1e-7b00-8000-000000000001"

_EVERYWHERE: tuple[errors.LedgerError, ...] = (
    request_errors.Unauthenticated(),
    request_errors.NotFound(),
    request_errors.NotAcceptable(served="application/json"),
    request_errors.TooManyRequests(retry_after_seconds=1),
    DatabaseUnavailable(),
)
_WITH_INPUT: tuple[errors.LedgerError, ...] = (
    request_errors.InvalidRequest([request_errors.Flaw("/limit", "too-large", "This must be at most 200.")]),
)
_WITH_BODY: tuple[errors.LedgerError, ...] = (
    request_errors.MalformedRequest(
        request_errors.Flaw("", "malformed-json", "The body is not JSON at character 12: Expecting value.")
    ),
    request_errors.InvalidRequest(
        [request_errors.Flaw("/amount", "not-an-integer", "This must be a JSON integer, not a string.")]
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
    """Put the problems that each operation can answer into the OpenAPI document. A drf-spectacular postprocessing hook."""
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
