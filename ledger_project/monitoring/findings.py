"""The result of a check of the deployment: its state, one sentence, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a check; the worst decides the exit code of `manage.py doctor`."""

    OK = "OK"
    WARNING = "WARNING"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        check: its name, in one or two words.
        text: one sentence.
        advice: what to do; empty if the check passed.
    """

    check: str
    state: State
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    """Return that the check passed."""
    return Finding(check, State.OK, text)


def warning(check: str, text: str, advice: str) -> Finding:
    """Return that the deployment works, but somebody should look at it."""
    return Finding(check, State.WARNING, text, advice)


def failed(check: str, text: str, advice: str) -> Finding:
    """Return that the deployment does not keep a promise."""
    return Finding(check, State.FAILED, text, advice)
