"""Converts entries to rows of `ledger_entry`, in PostgreSQL's text form, and rows back to entries."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from ledger.database.statements import Loader, instant_us, integer
from ledger.rules.budget_states import decode_budgets, decode_counts, encode_budgets, encode_counts
from ledger.rules.claims import decode_claims, encode_claims
from ledger.rules.cost_shares import decode_changes, decode_costs, encode_costs
from ledger.rules.entries import Entry
from ledger.rules.holds import decode_holds, encode_holds
from ledger.rules.instants import to_text, to_us
from ledger.rules.lots import decode, decode_drawn, encode, encode_drawn
from ledger.rules.overage import decode_overage, encode_overage
from ledger.values import encode_json

COLUMNS = (
    "holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, holds, overdraft, refers_to, refunded_total, "
    "idempotency_key, request_digest, effective_at, recorded_at, actor, reason, reference, metadata, counterpart, rating, "
    "refusal, requested, budgets, sale, costs, cost_changes, overage, postpaid, claims, counts, next_grant_at, digest"
)
"""In the order of `Entry`'s fields."""

READ_COLUMNS = (
    COLUMNS.replace("lots, drawn, holds", "lots::text, drawn::text, COALESCE(holds::text, '[]')")
    .replace("effective_at", "COALESCE(effective_at, recorded_at)")
    .replace("metadata", "COALESCE(metadata::text, '{}')")
    .replace("counterpart, rating, refusal", "counterpart::text, rating::text, refusal::text")
    .replace(
        "budgets, sale, costs, cost_changes, overage, postpaid, claims, counts",
        "COALESCE(budgets::text, '[]'), sale::text, COALESCE(costs::text, '[]'), COALESCE(cost_changes::text, '[]'), "
        "overage::text, postpaid, COALESCE(claims::text, '[]'), COALESCE(counts::text, '[]')",
    )
)

LOADERS: tuple[Loader, ...] = (
    bytes.decode, bytes.decode, integer, bytes.decode, integer, integer, integer, decode, decode_drawn, decode_holds, integer,
    integer, integer, bytes.decode, bytes, instant_us, instant_us, bytes.decode, bytes.decode, bytes.decode,
    json.loads, json.loads, json.loads, json.loads, integer, decode_budgets, json.loads,
    decode_costs, decode_changes, decode_overage, integer, decode_claims, decode_counts, instant_us, bytes,
)  # fmt: skip
"""For READ_COLUMNS of a prepared statement; its row is made by `entry_of`."""

TYPES = {
    **dict.fromkeys(COLUMNS.split(", "), "text"),
    **dict.fromkeys(
        ("sequence", "amount", "balance", "held", "overdraft", "refers_to", "refunded_total", "requested", "postpaid"), "bigint"
    ),
    **dict.fromkeys(("lots", "drawn", "holds", "metadata", "counterpart", "rating", "refusal"), "json"),
    **dict.fromkeys(("budgets", "sale", "costs", "cost_changes", "overage", "claims", "counts"), "json"),
    **dict.fromkeys(("request_digest", "digest"), "bytea"),
    **dict.fromkeys(("effective_at", "recorded_at", "next_grant_at"), "timestamptz"),
}

COPY_NULL: Final = r"\N"


def texts(entry: Entry) -> list[str | None]:
    """Return the values of COLUMNS in PostgreSQL's text form; None for null.

    Every entry passes through here, so the encoding is written out: for a line of COPY the driver's `write_row` takes more than
    twice as long.
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
        encode_holds(entry.holds) if entry.holds else None,
        None if entry.overdraft is None else str(entry.overdraft),
        None if entry.refers_to is None else str(entry.refers_to),
        None if entry.refunded_total is None else str(entry.refunded_total),
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
        None if entry.requested is None else str(entry.requested),
        encode_budgets(entry.budgets) if entry.budgets else None,
        None if entry.sale is None else encode_json(entry.sale),
        encode_costs(entry.costs) if entry.costs else None,
        encode_costs(entry.cost_changes) if entry.cost_changes else None,
        None if entry.overage is None else encode_overage(entry.overage),
        None if entry.postpaid is None else str(entry.postpaid),
        encode_claims(entry.claims) if entry.claims else None,
        encode_counts(entry.counts) if entry.counts else None,
        None if entry.next_grant_us is None else to_text(entry.next_grant_us),
        rf"\x{entry.digest.hex()}",
    ]


def parameters(entry: Entry) -> list[bytes | None]:
    """Return the values of COLUMNS as parameters of a statement."""
    return [None if value is None else value.encode() for value in texts(entry)]


def copy_line(entry: Entry) -> str:
    """Return the entry as one line of COPY's text format, with its line feed.

    Source: PostgreSQL's documentation of COPY.
    """
    return "\t".join([COPY_NULL if value is None else _escape_text(value) for value in texts(entry)]) + "\n"


def _escape_text(value: str) -> str:
    if "\\" in value or "\n" in value or "\t" in value or "\r" in value:
        # `str.translate` takes ten times as long.
        return value.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")
    return value


def entry_of(values: Sequence[Any]) -> Entry:
    """Return the `Entry` of what LOADERS have loaded."""
    return Entry(*values)


CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "lots": decode,
    "drawn": decode_drawn,
    "holds": decode_holds,
    "budgets": decode_budgets,
    "costs": decode_costs,
    "cost_changes": decode_changes,
    "overage": decode_overage,
    "claims": decode_claims,
    "counts": decode_counts,
    **dict.fromkeys(("request_digest", "digest"), bytes),
    **dict.fromkeys(("effective_at", "recorded_at", "next_grant_at"), to_us),
    **dict.fromkeys(("metadata", "counterpart", "rating", "refusal", "sale"), json.loads),
}
"""Converts the values that the driver has loaded into those of an entry; the other columns stay unchanged."""

_CONVERTED: Final = [(place, CONVERTERS[name]) for place, name in enumerate(COLUMNS.split(", ")) if name in CONVERTERS]


def entry_from_row(row: Sequence[Any]) -> Entry:
    """Return the `Entry` of a row of READ_COLUMNS."""
    values = list(row)
    for place, convert in _CONVERTED:
        if values[place] is not None:
            values[place] = convert(values[place])
    return Entry(*values)
