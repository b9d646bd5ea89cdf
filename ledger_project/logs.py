"""What a line of the log looks like: the time in UTC, the level, where it comes from, what happened, and the facts of it.

As text for people, or, with LEDGER_LOG_FORMAT=json, as one JSON object a line for programs. Facts are what a caller gives as
`extra={"facts": {...}}`; docs/OPERATIONS.md names those of a request.
"""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

FORMATS = ("text", "json")


class TextFormatter(logging.Formatter):
    """`2026-11-21T07:30:09.321Z INFO ledger.requests POST /v1/holders/ada/spends status=402 ...`, then the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback of an error that nobody expected."""
        facts = "".join(f" {name}={_one_word(value)}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}{facts}"
        traceback = _traceback(record)
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(logging.Formatter):
    """The same as one JSON object a line: `time`, `level`, `logger`, `message`, the facts, and `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        traceback = _traceback(record)
        if traceback:
            line["traceback"] = traceback
        return orjson.dumps(line, default=str).decode()


class WithTraceback(logging.Filter):
    """Lets through what has a traceback."""

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
            # What is wrong with a request is said on the request's own line; an error that nobody expected leaves its traceback.
            "django.request": {"filters": ["with-traceback"]},
            "django.security": {"level": "CRITICAL"},
        },
    }


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] | None = getattr(record, "facts", None)
    if facts is not None:
        return facts
    known = getattr(getattr(record, "request", None), "request_id", None)
    return {"request_id": known} if known else {}


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _one_line(text: str) -> str:
    """What a client sent must not look like a separate line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _one_word(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else orjson.dumps(text).decode()
