"""The result of a check of the deployment: its state, one sentence, and advice."""

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    """The state of a check; the worst decides the exit code of `manage.py doctor`."""

    OK = "OK"
    WARNING = "WARNING"
    FAILED = "FAILED"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Args:
        check: its name, in one or two words.
        text: one sentence.
        advice: the remedy; empty if the check passed.
    """

    check: str
    state: CheckState
    text: str
    advice: str = ""


def ok(check: str, text: str) -> CheckResult:
    """Return the result of a check that passed."""
    return CheckResult(check, CheckState.OK, text)


def warning(check: str, text: str, advice: str) -> CheckResult:
    """Return the result of a check that found something to look at, although the deployment works."""
    return CheckResult(check, CheckState.WARNING, text, advice)


def failed(check: str, text: str, advice: str) -> CheckResult:
    """Return the result of a check that found a broken promise."""
    return CheckResult(check, CheckState.FAILED, text, advice)
