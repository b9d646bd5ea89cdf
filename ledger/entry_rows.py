"""Entries as rows of `ledger_entry`: what is sent of them, in PostgreSQL's text form, and back."""

import json
from collections.abc import Sequence
from typing import Any, Final

from ledger.rules import Entry
from ledger.rules.holds import decode_holds, encode_holds
from ledger.rules.instants import to_text, to_us
from ledger.rules.lots import decode, decode_drawn, encode, encode_drawn
from ledger.rules.requests import encode_json

COLUMNS = (
    "holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, holds, overdraft, refers_to, refunded_total, "
    "idempotency_key, request_digest, effective_at, recorded_at, actor, reason, reference, metadata, counterpart, rating, "
    "refusal, digest"
)
"""In the order of `Entry`'s fields."""

READ_COLUMNS = (
    COLUMNS.replace("lots, drawn, holds", "lots::text, drawn::text, holds::text")
    .replace("effective_at", "COALESCE(effective_at, recorded_at)")
    .replace("metadata", "metadata::text")
    .replace("counterpart, rating, refusal", "counterpart::text, rating::text, refusal::text")
)

TYPES = {
    **dict.fromkeys(COLUMNS.split(", "), "text"),
    **dict.fromkeys(("sequence", "amount", "balance", "held", "overdraft", "refers_to", "refunded_total"), "bigint"),
    **dict.fromkeys(("lots", "drawn", "holds", "metadata", "counterpart", "rating", "refusal"), "json"),
    **dict.fromkeys(("request_digest", "digest"), "bytea"),
    **dict.fromkeys(("effective_at", "recorded_at"), "timestamptz"),
}

COPY_NULL: Final = r"\N"


def texts(entry: Entry) -> list[str | None]:
    """The values of COLUMNS in PostgreSQL's text form; None for null.

    By hand, for every entry comes through here: the driver's `write_row` takes a line of COPY more than twice as long.
    """
    return [
        entry.holder_id,
        entry.credit_type,
        str(entry.sequence),
        entry.kind,
        str(entry.amount),
        str(entry.balance),
        str(entry.held),
        encode(entry.lots),
        encode_drawn(entry.drawn),
        encode_holds(entry.holds),
        _number(entry.overdraft),
        _number(entry.refers_to),
        _number(entry.refunded_total),
        entry.idempotency_key,
        None if entry.request_digest is None else rf"\x{entry.request_digest.hex()}",
        None if entry.effective_us == entry.recorded_us else to_text(entry.effective_us),
        to_text(entry.recorded_us),
        entry.actor,
        entry.reason,
        entry.reference,
        encode_json(entry.metadata) if entry.metadata else None,
        encode_json(entry.counterpart) if entry.counterpart else None,
        encode_json(entry.rating) if entry.rating else None,
        encode_json(entry.refusal) if entry.refusal else None,
        rf"\x{entry.digest.hex()}",
    ]


def parameters(entry: Entry) -> list[bytes | None]:
    """The values of COLUMNS as parameters of a statement."""
    return [None if value is None else value.encode() for value in texts(entry)]


def copy_line(entry: Entry) -> str:
    """The entry as COPY's text format has it, its line feed included. Source: PostgreSQL's documentation of COPY."""
    return "\t".join([COPY_NULL if value is None else _escaped(value) for value in texts(entry)]) + "\n"


def _escaped(value: str) -> str:
    if "\\" in value or "\n" in value or "\t" in value or "\r" in value:
        # `str.translate` takes ten times as long.
        return value.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")
    return value


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def entry_from_row(row: Sequence[Any]) -> Entry:
    """An `Entry` from a row of READ_COLUMNS."""
    values = list(row)
    values[7] = decode(row[7])
    values[8] = decode_drawn(row[8])
    values[9] = decode_holds(row[9])
    values[14] = None if row[14] is None else bytes(row[14])
    values[15] = to_us(row[15])
    values[16] = to_us(row[16])
    values[20] = {} if row[20] is None else json.loads(row[20])
    values[21] = None if row[21] is None else json.loads(row[21])
    values[22] = None if row[22] is None else json.loads(row[22])
    values[23] = None if row[23] is None else json.loads(row[23])
    values[24] = bytes(row[24])
    return Entry(*values)
