"""Exception -> error -> application/problem+json. Each error's class has its status.

A problem's body has the event (`type`, `title`, `detail` and the facts of the case), whether anything took effect (`outcome`),
and the request (`request_id`). The same refusal always has the same bytes: facts are in the order of their names, and the request
id is that of the first refused request. See docs/reference/api.md, "Problems". Source: RFC 9457.
"""

import logging
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from django.core import exceptions as django_errors
from django.db import DatabaseError, DataError, InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import UnreadablePostError

from ledger import errors
from ledger.database.locks import sqlstate
from ledger.json_values import in_key_order
from ledger.rest.kit import request_errors, server_errors
from ledger.rest.kit.rendering import json_bytes
from ledger.telemetry.request_origins import request_id

log = logging.getLogger("ledger.problems")

TYPE_BASE = "https://credit-ledger.example/problems/"
"""The beginning of every `type`: only a name, since no such host can exist. `/problems/<slug>` on any server explains it."""

MEDIA_TYPE = "application/problem+json"

BASES = (errors.LedgerError, errors.Refused, errors.Retryable, errors.Misuse, request_errors.RequestError)
"""Classes of errors that no response contains."""


@cache
def problems_by_slug() -> dict[str, list[type[errors.LedgerError]]]:
    """Return by its slug each problem that a response of this project can have, with its classes: most have one."""
    found: dict[str, list[type[errors.LedgerError]]] = {}
    waiting: list[type[errors.LedgerError]] = [errors.LedgerError]
    for error_class in waiting:
        waiting.extend(error_class.__subclasses__())
        is_bug = error_class.answer.status == 500 and error_class is not server_errors.InternalError
        is_ours = error_class.__module__.partition(".")[0] in ("ledger", "billing")
        if error_class not in BASES and is_ours and not is_bug:
            found.setdefault(error_class.code, []).append(error_class)
    return dict(sorted(found.items()))


# SQLSTATE -> error -----------------------------------------------------------------------------------

BUSY_STATES = {"57014", "40P01", "40001", "25P03", "25P04"}
"""Statement timeout, deadlock, serialization failure, timeouts of a transaction that stood still or took too long."""
FULL_STATES = {"53100"}
UNAVAILABLE_STATES = {"57P01", "57P02", "57P03", "57P04", "57P05", "25006", "LG003"}
"""Shutdown, crash, starting up, dropped, idle too long; a server that only reads, as after a failover; on a cluster, a node that
does not have the holder (ledger/cluster/distributed.sql)."""
UNAVAILABLE_CLASSES = {"08", "53", "58"}
"""Connection lost, no resources (53300: too many connections), trouble with the operating system."""


def translated(error: Exception) -> errors.LedgerError:
    """Return any exception as an error with a status."""
    if isinstance(error, errors.LedgerError):
        return error
    if isinstance(error, DatabaseError | InterfaceError):
        return _from_database(error)
    for known, build in _FROM_DJANGO:
        if isinstance(error, known):
            return build()
    return server_errors.InternalError()


def _from_database(error: Exception) -> errors.LedgerError:
    """Branch on SQLSTATE, never on text or on a constraint's name."""
    state = sqlstate(error)
    if state == "55P03":
        return errors.HolderBusy()
    if state in BUSY_STATES:
        return server_errors.DatabaseBusy()
    if state in FULL_STATES:
        return server_errors.DiskFull()
    if state in UNAVAILABLE_STATES or (state or "")[:2] in UNAVAILABLE_CLASSES:
        return server_errors.DatabaseUnavailable()
    if state is None and (isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError):
        # It never connected, or the socket broke: the server could not give a reason. With the last two classes, the driver
        # reports bytes that are not the server's protocol.
        return server_errors.DatabaseUnavailable()
    if isinstance(error, DataError):
        log.error("the database refused a value that the checks before it accepted", exc_info=error)
        field_error = request_errors.FieldError("", "unstorable", "The database cannot store a value of this request.")
        return request_errors.InvalidRequest([field_error])
    return server_errors.InternalError()


def _malformed_error(code: str, detail: str) -> Callable[[], errors.LedgerError]:
    return lambda: request_errors.MalformedRequest(request_errors.FieldError("", code, detail))


_FROM_DJANGO: tuple[tuple[type[Exception], Callable[[], errors.LedgerError]], ...] = (
    (Http404, request_errors.NotFound),
    (django_errors.PermissionDenied, server_errors.Forbidden),
    (django_errors.RequestDataTooBig, lambda: request_errors.BodyTooLarge(limit_bytes=64 * 1024)),
    (django_errors.DisallowedHost, _malformed_error("host", "This server does not serve the host in the Host header.")),
    (django_errors.SuspiciousOperation, _malformed_error("suspicious", "The request looks forged.")),
    (django_errors.BadRequest, _malformed_error("bad-request", "The request is not well-formed.")),
    (UnreadablePostError, _malformed_error("truncated", "The body ended early.")),
)


# Error -> body -> response ---------------------------------------------------------------------------


class ProblemResponse(HttpResponse):
    """A response that carries `problem`, as application/problem+json."""

    def __init__(self, problem: dict[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(
            json_bytes(problem),
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
        request_id: of the current request; a recorded refusal has that of the first refused request.
    """
    answer = error.answer
    is_ours = answer.status == 500
    is_private = isinstance(error, errors.Misuse) and answer.status >= 500
    facts = {} if is_ours or is_private or isinstance(error, errors.Invalid) else error.facts
    problem: dict[str, Any] = {
        "type": TYPE_BASE + (server_errors.InternalError.code if is_ours else error.code),
        "title": server_errors.InternalError.title if is_ours else error.title,
        "status": answer.status,
        "detail": answer.detail.format_map(_Facts(facts)) or f"{error.title}.",
        "request_id": getattr(error, "request_id", "") or request_id,
        "outcome": answer.outcome,
    }
    for name in sorted(facts):
        problem.setdefault(name, in_key_order(facts[name]))
    field_errors = _field_errors(error)
    if field_errors:
        problem["errors"] = [field_error._asdict() for field_error in field_errors]
    return problem


class _Facts(dict[str, Any]):
    """Facts for a detail; a missing fact must not make a 500 of a 409."""

    def __getitem__(self, name: str) -> "_Fact":
        return _Fact(self.get(name, "?"))


class _Fact:
    """A fact that is written with its noun if the detail has one; see `Problem`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, nouns: str) -> str:
        one, _, many = nouns.partition("|")
        noun = one if self._value == 1 else many
        return f"{self._value} {noun}" if noun else str(self._value)


def _field_errors(error: errors.LedgerError) -> tuple[request_errors.FieldError, ...]:
    if isinstance(error, errors.Invalid):
        facts = error.facts
        return (request_errors.FieldError(facts["pointer"], facts["rule"], facts["detail"]),)
    return getattr(error, "field_errors", ())


def _headers(error: errors.LedgerError) -> dict[str, str]:
    headers: dict[str, str] = {}
    retry_after_seconds = error.facts.get("retry_after_seconds") or error.answer.retry_after_seconds
    if isinstance(retry_after_seconds, range):
        retry_after_seconds = random.choice(retry_after_seconds)
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


def problem_response(error: Exception, request: HttpRequest) -> ProblemResponse:
    """Return the response to a request that ended in `error`; log the traceback of an unexpected error, and of no other."""
    known = translated(error)
    status = known.answer.status
    if status == 500:
        facts = {"request_id": request_id(request)}
        log.error("%s %s: %s", request.method, request.path, known.code, exc_info=error, extra={"facts": facts})
    response = ProblemResponse(body(known, request_id(request)), _headers(known))
    if status >= 500:
        response.cause = next(iter(str(error).splitlines()), "")
    return response
