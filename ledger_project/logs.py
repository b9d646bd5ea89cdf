"""The form of a line of the log: the time in UTC, the level, the logger, the event, and its facts.

As text for people, or, with LEDGER_LOG_FORMAT=json, as one JSON object a line for programs. A caller passes facts as
`extra={"facts": {...}}`; docs/how-to/operations/monitoring.md names those of a request.
"""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

FORMATS = ("text", "json")
NUMBERS = frozenset({int, float})
"""Types whose text is one printable word."""


def text_line(created: float, level: str, logger: str, message: str, facts: Mapping[str, Any]) -> str:
    """Return `2026-11-21T07:30:09.321Z INFO ledger.requests POST /v1/holders/ada/spends status=402 ...`."""
    words = "".join([f" {name}={value if type(value) in NUMBERS else _one_word(value)}" for name, value in facts.items()])
    line = message if message.isprintable() else _one_line(message)
    return f"{_time(created)} {level} {logger} {line}{words}"


def json_line(created: float, level: str, logger: str, message: str, facts: Mapping[str, Any]) -> str:
    """Return the same as one JSON object: `time`, `level`, `logger`, `message`, and the facts."""
    line = {"time": _time(created), "level": level.lower(), "logger": logger, "message": message, **facts}
    return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """A line of text, then the traceback of an unexpected error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback."""
        line = text_line(record.created, record.levelname, record.name, record.getMessage(), _facts(record))
        traceback = _traceback(record)
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        facts, traceback = _facts(record), _traceback(record)
        if traceback:
            facts = {**facts, "traceback": traceback}
        return json_line(record.created, record.levelname, record.name, record.getMessage(), facts)


class WithTraceback(logging.Filter):
    """Lets records with a traceback pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record has one."""
        return bool(record.exc_info)


def configuration(*, form: str, level: str) -> dict[str, Any]:
    """Return Django's LOGGING: every line goes to the standard error, in one form.

    Args:
        form: one of `FORMATS`; level: the lowest level that is written, such as `INFO`.

    Raises:
        ValueError: the form is another.
    """
    if form not in FORMATS:
        raise ValueError(f"LEDGER_LOG_FORMAT is {form!r}: {' or '.join(FORMATS)}")
    formatter = TextFormatter if form == "text" else JsonFormatter
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"with-traceback": {"()": WithTraceback}},
        "formatters": {"line": {"()": formatter}},
        "handlers": {"standard-error": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["standard-error"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": level, "propagate": True},
            # The request's own line has its error. Only an unexpected error also logs its traceback.
            "django.request": {"filters": ["with-traceback"]},
            "django.security": {"level": "CRITICAL"},
        },
    }


# Note [Lines without records]
#     Each request leaves a line. The record, the filters and the formatter that `logging` takes for it cost half as much as all
#     else that the event loop does for a health check. So where only our handler would get the record, the line is made
#     and written here, with the same bytes. A deployment that adds a handler or a filter gets records.


class LineWriter:
    """Writes lines without records; see the note. Only one thread uses it."""

    def __init__(self, logger: logging.Logger, handler: "logging.StreamHandler[Any]") -> None:
        """Write as this handler, which has one of our formatters, would write this logger's records."""
        assert handler.lock is not None
        self._logger, self._handler, self._alone, self._lock = logger, handler, [handler], handler.lock
        self._line_of = text_line if isinstance(handler.formatter, TextFormatter) else json_line
        self._descriptor = handler.stream.fileno()
        self._held: list[str] | None = None

    def __call__(self, level: str, message: str, facts: Mapping[str, Any]) -> bool:
        """Write a line, or hold it back; return False, with nothing written, while the logger has another handler or filter."""
        logger = self._logger
        is_watched = logger.handlers or logger.filters or self._handler.filters or not logger.propagate or logger.disabled
        if logging.root.handlers != self._alone or is_watched:
            return False
        line = f"{self._line_of(time.time(), level, logger.name, message, facts)}\n"
        if self._held is None:
            self._write(line)
        else:
            self._held.append(line)
        return True

    def hold(self) -> None:
        """Hold lines back until `release`."""
        self._held = []

    def release(self) -> None:
        """Write the lines that were held back, by one system call for all."""
        held, self._held = self._held, None
        if held:
            self._write("".join(held))

    def _write(self, lines: str) -> None:
        left = lines.encode(errors="backslashreplace")
        # In pieces if a pipe takes no more at once. A log that cannot be written stops no work.
        with self._lock, suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]


def write_without_record(logger: logging.Logger) -> LineWriter | None:
    """Return what writes a line (level, message, facts) without a record; None if the log is set up otherwise."""
    handler = next((each for each in logging.root.handlers if isinstance(each.formatter, TextFormatter | JsonFormatter)), None)
    if not isinstance(handler, logging.StreamHandler) or handler.lock is None:
        return None
    return LineWriter(logger, handler)


def _time(created: float) -> str:
    second = int(created)
    return f"{_second(second)}.{int((created - second) * 1000):03d}Z"


@lru_cache(8)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] | None = getattr(record, "facts", None)
    if facts is not None:
        return facts
    known = getattr(getattr(record, "request", None), "request_id", None)
    return {"request_id": known} if known else {}


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _one_line(text: str) -> str:
    """Escape what a client sent, so that it does not look like a separate line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _one_word(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else orjson.dumps(text).decode()
