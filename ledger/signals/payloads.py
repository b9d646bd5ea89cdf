"""What receivers get: the body of a signal, in the form of Standard Webhooks."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from ledger.database.statements import fetch_rows
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.json_values import with_exact_integers
from ledger.rules.entries import Entry
from ledger.values import encode_json

EntryBody = Callable[[Entry], dict[str, Any]]

_body_of_entry: EntryBody = Entry._asdict

ENTRY: Final = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = %s"


def register_entry_body(given: EntryBody) -> None:
    """Have entries and refusals shown as by this function: as the API shows them, which is above this package."""
    global _body_of_entry
    _body_of_entry = given


class StoredSignal(NamedTuple):
    """A signal as it is stored: with data, or with the entry that it reports."""

    number: int
    id: UUID
    type: str
    holder_id: str | None
    credit_type: str | None
    sequence: int | None
    data: Any
    occurred_at: datetime


SIGNAL_COLUMNS: Final = "s.number, s.id, s.type, s.holder_id, s.credit_type, s.sequence, s.data, s.occurred_at"


def payload(signal: StoredSignal) -> dict[str, Any]:
    """Return the body of a signal. Source: standard-webhooks spec 1.0.0, "Payload structure"."""
    data = signal.data
    if signal.sequence is not None:
        [entry] = fetch_rows(lambda *row: entry_from_row(row), ENTRY, [signal.holder_id, signal.credit_type, signal.sequence])
        data = _body_of_entry(entry)
    occurred_at = signal.occurred_at.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    return {"type": signal.type, "timestamp": occurred_at, "data": data}


def body(signal: StoredSignal) -> str:
    """Return the bytes, as text, that are signed and sent: the same each time, because entries never change."""
    return encode_json(with_exact_integers(payload(signal)))
