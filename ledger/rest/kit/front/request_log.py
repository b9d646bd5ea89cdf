"""Logs one line for each request: the request, its result, and its duration. A refusal has its code."""

import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Protocol

from ledger.rest.kit.rendering import AnyResponse
from ledger.rest.kit.requests import FastRequest
from ledger.telemetry.request_origins import client_address

log = logging.getLogger("ledger.requests")


class WritesLines(Protocol):
    """Writes the lines of requests, in the thread of the event loop."""

    def __call__(self, level: str, message: str, facts: Mapping[str, Any]) -> bool:
        """Write a line and return True, or return False if `logging` must have a record."""

    def hold(self) -> None:
        """Hold lines back until `release`."""

    def release(self) -> None:
        """Write the lines that were held back."""


class _WritesNothing:
    """Has `logging` make a record of each line."""

    def __call__(self, level: str, message: str, facts: Mapping[str, Any]) -> bool:
        return False

    def hold(self) -> None:
        """Do nothing."""

    release = hold


_lines: WritesLines = _WritesNothing()


def write_lines_by(lines: WritesLines) -> None:
    """Let this write the lines if it can: a record of `logging` for each request costs more than the line."""
    global _lines
    _lines = lines


def hold_lines() -> None:
    """Hold the lines of requests back until `release_lines`, which writes them at once."""
    _lines.hold()


def release_lines() -> None:
    """Write the lines that were held back, before their responses are sent."""
    _lines.release()


def log_request(request: FastRequest, response: AnyResponse, *, started_at: float) -> None:
    """Write the line: a warning for 503 and the like, an error for 500, information for everything else.

    Args:
        started_at: `time.perf_counter()` at the start of the request.
    """
    status = response.status_code
    level = logging.INFO if status < 500 else logging.ERROR if status == 500 else logging.WARNING
    if log.isEnabledFor(level):
        milliseconds = round((perf_counter() - started_at) * 1000, 3)
        message, facts = f"{request.method} {request.path}", _facts(request, response, milliseconds)
        if not _lines(logging.getLevelName(level), message, facts):
            log.log(level, "%s", message, extra={"facts": facts})


def _facts(request: FastRequest, response: AnyResponse, milliseconds: float) -> dict[str, Any]:
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
