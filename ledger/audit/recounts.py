"""What an application has counted of the entries: the audit compares it with the sums of the entries that it reads anyway.

An application registers it in `AppConfig.ready`, so the ledger imports no application.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from ledger.audit.laws import add_law
from ledger.audit.reports import Finding
from ledger.audit.sessions import Session
from ledger.rules.kinds import KINDS


class Recount(Protocol):
    """What an application has counted of the entries, as it was when the audit began, and the sums of the audited entries.

    Args:
        until: it has counted the entries recorded before this instant; the sums of these have their day.
    """

    until: datetime

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of sums.sql."""

    def differences(self) -> Iterator[Finding]:
        """Yield where both differ, after the last row."""


class NothingCounted:
    """No application has counted entries."""

    until: datetime = datetime(2000, 1, 1, tzinfo=UTC)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count nothing."""

    def differences(self) -> Iterator[Finding]:
        """Yield nothing."""
        return iter(())


def moved_by(row: Mapping[str, Any]) -> int:
    """Return by how much the entries of a row of sums.sql change the credits, including held ones."""
    return KINDS[row["kind"]].moved(int(row["amount"]), int(row["captured"]))


_readers: list[Callable[[Session], Recount]] = []
"""At most one."""


def register_recount(name: str, law: str, read: Callable[[Session], Recount]) -> None:
    """Let the audit compare what an application has counted with the sums of the entries.

    Args:
        name, law: of the law that findings break, and its sentence.
        read: reads what is counted, before the audit reads any entry: on a cluster neither side then has what is counted later.
    """
    add_law(name, law)
    _readers[:] = [read]


def read_recount(session: Session) -> Recount:
    """Return what the registered application has counted, or NothingCounted."""
    return next((read(session) for read in _readers), NothingCounted())
