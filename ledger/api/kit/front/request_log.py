"""One line of the log for each request: what was asked for, how it ended, how long it took. A refusal has its code."""

import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from ledger.api.kit.reading.requests import Request
from ledger.api.kit.writing.rendering import AnyResponse

log = logging.getLogger("ledger.requests")

WriteLine = Callable[[str, str, Mapping[str, Any]], bool]
"""Writes a line (level, message, facts) and returns True, or returns False where `logging` must have a record."""
_write_line: WriteLine = lambda level, message, facts: False  # noqa: E731


def write_lines_by(write_line: WriteLine) -> None:
    """Have the lines written by this, wherever it does: a record of `logging` for each request costs more than the line."""
    global _write_line
    _write_line = write_line


def log_request(request: Request, response: AnyResponse, *, started_at: float) -> None:
    """Write the line: a warning for 503 and the like, an error for 500, information for everything else.

    Args:
        started_at: what `time.perf_counter` said when the request came.
    """
    status = response.status_code
    level = logging.INFO if status < 500 else logging.ERROR if status == 500 else logging.WARNING
    if log.isEnabledFor(level):
        milliseconds = round((perf_counter() - started_at) * 1000, 3)
        message, facts = f"{request.method} {request.path}", _facts(request, response, milliseconds)
        if not _write_line(logging.getLevelName(level), message, facts):
            log.log(level, "%s", message, extra={"facts": facts})


def client_address(request: HttpRequest) -> str:
    """Return the address of the client: the connection's, or the one that the outermost trusted proxy saw.

    Behind n proxies of ours (`settings.LEDGER["TRUSTED_PROXIES"]`) that is the n-th address of X-Forwarded-For from the right;
    what stands before it comes from the client, who may write what it likes.
    """
    peer: str = request.META.get("REMOTE_ADDR", "")
    proxies: int = settings.LEDGER.get("TRUSTED_PROXIES", 0)
    if not proxies:
        return peer
    passed_on = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    return passed_on[-proxies] if len(passed_on) >= proxies and passed_on[-proxies] else peer


def _facts(request: Request, response: AnyResponse, milliseconds: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "status": response.status_code,
        "ms": milliseconds,
        "client": client_address(request),
        "request_id": request.request_id,
    }
    problem = getattr(response, "problem", None)
    if problem:
        facts["problem"] = problem["type"].rsplit("/", 1)[1]
        cause = getattr(response, "cause", "")
        if cause:
            facts["cause"] = cause
    elif response.headers.get("Idempotency-Replayed"):
        facts["replayed"] = True
    return facts
