"""Builds histories by the rules alone, changes them as a tamperer would, and audits the result."""

from collections.abc import Callable, Sequence

from psycopg import Connection

from ledger.audit.auditing import audit
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.requests import Request
from tests.ledger.random_histories import RulesLedger

Tampering = Callable[[list[Entry]], list[Entry]]


def execute(ledger: RulesLedger, kind: type[Request], key: str, **fields) -> Entry:
    """Let the rules execute a request (of the holder `ada`, unless it names another), and return the entry with its key."""
    fields.setdefault("holder_id", "ada")
    return next(entry for entry in ledger.execute(kind(idempotency_key=key, **fields)) if entry.idempotency_key == key)


def changed(sequence: int, **values) -> Tampering:
    """Return a tampering that gives the entry of this sequence other values."""
    return lambda entries: [entry._replace(**values) if entry.sequence == sequence else entry for entry in entries]


def rechained(entries: Sequence[Entry]) -> list[Entry]:
    """Return the same entries with digests that form an unbroken chain, as a careful tamperer would compute them."""
    chain: list[Entry] = []
    for entry in entries:
        chain.append(entry.sealed(chain[-1].digest if chain else GENESIS))
    return chain


def laws_broken(session: Connection, **options) -> dict[str, set[int | None]]:
    """Audit the ledger, and return for each broken law the sequences of the findings."""
    found: dict[str, set[int | None]] = {}
    for finding in audit([session], **options).findings:
        found.setdefault(finding.law, set()).add(finding.sequence)
    return found
