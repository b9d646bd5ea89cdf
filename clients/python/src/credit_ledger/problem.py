"""The base classes of this package's errors. `credit_ledger.problems` has a class for each problem of the server."""

from collections.abc import Mapping
from copyreg import __newobj__ as new_object  # type: ignore[attr-defined]
from typing import Any, ClassVar, Final


class CreditLedgerError(Exception):
    """Anything that this package raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy it with its attributes, without the constructor, so that other processes get it whole."""
        return new_object, (type(self), *self.args), vars(self)


class Unreachable(CreditLedgerError):
    """No answer came within the time, and nothing was written by this call."""


class OutcomeUnknown(CreditLedgerError):
    """It is unknown whether a write is stored: a response was lost, and no repetition within the time settled it.

    Send the same call with `idempotency_key` again later, never with another key: it could then take effect twice.
    """

    def __init__(self, *, idempotency_key: str, attempts: int, last: "Problem | None", reason: str) -> None:
        super().__init__(
            f"After {attempts} attempts, it is unknown whether the request with the key {idempotency_key!r} is stored: {reason}"
        )
        self.idempotency_key = idempotency_key
        self.attempts = attempts
        self.last = last


class Problem(CreditLedgerError):
    """The server answered with an error.

    Args:
        status: as in the status line.
        body: problem+json, or anything else that came with the status.
    """

    SLUG: ClassVar[str] = ""

    def __init__(self, status: int, body: Any) -> None:
        facts = body if isinstance(body, Mapping) else {}
        self.status = status
        self.slug = str(facts.get("type") or "").rsplit("/", 1)[-1]
        self.title = str(facts.get("title") or f"HTTP {status}")
        self.detail = str(facts.get("detail") or "")
        self.request_id = str(facts.get("request_id") or "")
        self.outcome: str | None = facts.get("outcome")
        """`not_executed` or `unknown`; None if something other than the ledger answered."""
        self.errors: list[dict[str, str]] = facts.get("errors") or []
        self.facts = {name: value for name, value in facts.items() if name not in MEMBERS}
        for name in facts_of(type(self)):
            setattr(self, name, facts.get(name))
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        """Return one sentence; of a wrong request, with each field and the rule that it breaks."""
        faults = [f"{_field(each)}: {each.get('detail', '').rstrip('.')} ({each.get('code', '')})" for each in self.errors]
        why = "; ".join(faults) or self.detail.rstrip(".")
        return f"{self.title}: {why}." if why else f"{self.title}."


def _field(fault: Mapping[str, str]) -> str:
    return fault.get("pointer", "").lstrip("/").replace("/", ".") or "the request"


MEMBERS: Final = frozenset({"type", "title", "status", "detail", "request_id", "outcome", "errors"})


def facts_of(problem: type[Problem]) -> list[str]:
    """Return the names of the facts that a class of problems has."""
    between = [base for base in problem.__mro__ if issubclass(base, Problem) and base is not Problem]
    return [name for base in between for name in vars(base).get("__annotations__", {})]


class Busy(Problem):
    """The server was busy for as long as the client repeated the request. Nothing was written."""
