"""Entries of a holder: one, or a page of them; and refusals, which are entries too."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import orjson

from ledger.database.statements import Loader, Statement, instant_us, integer, parameter
from ledger.entry_rows import LOADERS, READ_COLUMNS, entry_of
from ledger.rules.cost_shares import CostChanges, decode_changes
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.lots import Drawn, decode_drawn
from ledger.rules.overage import Overage, decode_overage
from ledger.values import MAX_SEQUENCE

__all__ = ["EntryPosition", "Refusal", "ShownEntry", "entries", "entry", "refusals", "shown_entry"]

EntryPosition = tuple[datetime, str, int]
"""The position of an entry in a listing: recorded_at, credit_type, sequence."""


class ShownEntry(NamedTuple):
    """The shown columns of an entry: all except the state that it carries, which grows with the account's open lots."""

    holder_id: str
    credit_type: str
    sequence: int
    kind: str
    amount: int
    balance: int
    held: int
    drawn: Drawn
    refers_to: int | None
    refunded_total: int | None
    overdraft: int | None
    requested: int | None
    hold_expires_us: int | None
    effective_us: int
    recorded_us: int
    actor: str
    reason: str
    reference: str
    metadata: dict[str, Any]
    counterpart: dict[str, Any] | None
    rating: dict[str, Any] | None
    sale: dict[str, Any] | None
    cost_changes: CostChanges
    overage: Overage | None
    postpaid: int | None
    idempotency_key: str | None
    digest: bytes

    @property
    def position(self) -> EntryPosition:
        """The columns that order a listing."""
        return from_us(self.recorded_us), self.credit_type, self.sequence

    @property
    def other_side(self) -> dict[str, Any] | None:
        """Of a transfer: its other side."""
        return None if self.kind == "adjust" else self.counterpart

    accepts_transfers = Entry.accepts_transfers  # type: ignore[misc]  # mypy wants fields only
    freezes = Entry.freezes  # type: ignore[misc]
    clock_us = Entry.clock_us  # type: ignore[misc]
    shown_overage = Entry.shown_overage  # type: ignore[misc]
    budget = Entry.budget  # type: ignore[misc]
    recurring_grant = Entry.recurring_grant  # type: ignore[misc]
    recognised = Entry.recognised  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was refused."""

    holder_id: str
    credit_type: str
    sequence: int
    idempotency_key: str
    recorded_at: datetime
    operation: str
    code: str
    facts: dict[str, Any]
    request: dict[str, Any]
    request_id: str
    actor: str

    @property
    def position(self) -> EntryPosition:
        """The columns that order a listing."""
        return self.recorded_at, self.credit_type, self.sequence


# The expiry of a hold, from the entry of kind hold itself.
HOLD_EXPIRES_US = """
    CASE WHEN e.kind = 'hold' THEN (
        SELECT (hold ->> 1)::bigint
        FROM json_array_elements(e.holds) AS hold
        WHERE (hold ->> 0)::bigint = COALESCE(e.refers_to, e.sequence)
    ) END"""

SHOWN: dict[str, tuple[str, Loader]] = {
    "holder_id": ("e.holder_id", bytes.decode),
    "credit_type": ("e.credit_type", bytes.decode),
    "sequence": ("e.sequence", integer),
    "kind": ("e.kind", bytes.decode),
    "amount": ("e.amount", integer),
    "balance": ("e.balance", integer),
    "held": ("e.held", integer),
    "drawn": ("e.drawn::text", decode_drawn),
    "refers_to": ("e.refers_to", integer),
    "refunded_total": ("e.refunded_total", integer),
    "overdraft": ("e.overdraft", integer),
    "requested": ("e.requested", integer),
    "hold_expires_us": (HOLD_EXPIRES_US, integer),
    "effective_us": ("COALESCE(e.effective_at, e.recorded_at)", instant_us),
    "recorded_us": ("e.recorded_at", instant_us),
    "actor": ("e.actor", bytes.decode),
    "reason": ("e.reason", bytes.decode),
    "reference": ("e.reference", bytes.decode),
    "metadata": ("COALESCE(e.metadata::text, '{}')", orjson.loads),
    "counterpart": ("e.counterpart::text", orjson.loads),
    "rating": ("e.rating::text", orjson.loads),
    "sale": ("e.sale::text", orjson.loads),
    "cost_changes": ("COALESCE(e.cost_changes::text, '[]')", decode_changes),
    # Only of an entry that changes it: on all others it is state.
    "overage": (
        "CASE WHEN e.postpaid IS NOT NULL OR e.counterpart ->> 'overage' IS NOT NULL THEN e.overage::text END",
        decode_overage,
    ),
    "postpaid": ("e.postpaid", integer),
    "idempotency_key": ("e.idempotency_key", bytes.decode),
    "digest": ("e.digest", bytes),
}
REFUSED: dict[str, tuple[str, Loader]] = {
    **{name: SHOWN[name] for name in ("holder_id", "credit_type", "sequence", "idempotency_key")},
    "recorded_at": ("e.recorded_at", lambda value: from_us(instant_us(value))),
    "refusal": ("e.refusal::text", orjson.loads),
    "actor": SHOWN["actor"],
}


def select_list(columns: dict[str, tuple[str, Loader]]) -> str:
    """Return the columns of a statement, each under its name."""
    return ", ".join(f"{column} AS {name}" for name, (column, _) in columns.items())


ENTRY = Statement(
    "entry",
    f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = %s
""",
    LOADERS,
    row=entry_of,
)

SHOWN_ENTRY = Statement(
    "shown_entry",
    f"""
SELECT {select_list(SHOWN)}
FROM ledger_entry e
WHERE holder_id = %s AND credit_type = %s AND sequence = %s
""",
    [load for _, load in SHOWN.values()],
    row=ShownEntry._make,
)

# A page of a holder's entries, over all accounts or one. It reads no more of each account's primary key than the page needs: each
# bound in time is a bound on the account's numbers, with which recorded_at rises. Entries of one instant are in the order of
# their credit types, then of their numbers.
PAGE = """
SELECT {columns}
FROM (
    SELECT credit_type
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND sequence = 1 AND (credit_type = %(credit_type)s OR %(credit_type)s::text IS NULL)
) AS account
CROSS JOIN LATERAL (
    SELECT GREATEST({above}) AS above, LEAST({below}) AS below
) AS bounds
CROSS JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = account.credit_type AND {condition}
    ORDER BY sequence {direction}
    LIMIT %(limit)s::integer
) AS e
ORDER BY e.recorded_at {direction}, e.credit_type {direction}, e.sequence {direction}
LIMIT %(limit)s::integer
"""
SINCE = """
    CASE WHEN %(since)s::timestamptz IS NOT NULL
    THEN ledger_sequence_at(%(holder_id)s, account.credit_type, %(since)s::timestamptz - interval '1 microsecond')
    END"""
UNTIL = """
    CASE WHEN %(until)s::timestamptz IS NOT NULL
    THEN ledger_sequence_at(%(holder_id)s, account.credit_type, %(until)s::timestamptz - interval '1 microsecond') + 1
    END"""
# A page continues from a number of the position's own account. Of another account it continues from the last entry up to that
# instant; the order of the credit types decides whether entries of the same instant are in front of the position or behind it.
AFTER_POSITION = """
    CASE WHEN account.credit_type = %(type)s::text THEN %(sequence)s::bigint ELSE ledger_sequence_at(
        %(holder_id)s,
        account.credit_type,
        %(at)s::timestamptz - CASE WHEN account.credit_type > %(type)s::text THEN interval '1 microsecond' ELSE interval '0' END
    ) END"""
BEFORE_POSITION = """
    CASE WHEN account.credit_type = %(type)s::text THEN %(sequence)s::bigint ELSE 1 + ledger_sequence_at(
        %(holder_id)s,
        account.credit_type,
        %(at)s::timestamptz - CASE WHEN account.credit_type < %(type)s::text THEN interval '0' ELSE interval '1 microsecond' END
    ) END"""
# By a subquery, so that it is computed once for the account and its result looked up in the primary key.
MOVEMENTS = """sequence = ANY ((
        SELECT ledger_movements(
            %(holder_id)s, account.credit_type, bounds.above, bounds.below, %(limit)s::integer, {newest}
        )
    )::bigint[])"""
OF_KIND = "kind = '{kind}' AND sequence > bounds.above AND sequence < bounds.below"


OF_ANY_KIND = "any"


def page_sql(columns: str, kind: str | None, going: str) -> str:
    """Return the SQL of a page of a holder's entries.

    Args:
        kind: entries of that kind only, a literal so that the index of kinds can serve it; None for all but refusals, OF_ANY_KIND
            for those too.
        going: "first" for the newest entries, "older" for those before a position, "newer" for those after it, or the oldest.
    """
    newest = going != "newer"
    of_kind = OF_KIND.format(kind=kind) if kind != OF_ANY_KIND else OF_KIND.partition(" AND ")[2]
    return PAGE.format(
        columns=columns,
        above="0," + SINCE + ("" if newest else "," + AFTER_POSITION),
        below=f"{MAX_SEQUENCE}," + UNTIL + ("," + BEFORE_POSITION if going == "older" else ""),
        condition=MOVEMENTS.format(newest=newest) if kind is None else of_kind,
        direction="DESC" if newest else "ASC",
    )


@cache
def page_statement(listing: str, kind: str | None, going: str) -> Statement:
    """The statement of a page; see `page_sql`.

    Args:
        listing: "entries", which are shown, or "refusals".
    """
    columns, row = {"entries": (SHOWN, ShownEntry._make), "refusals": (REFUSED, _refusal)}[listing]
    sql = page_sql(select_list(columns), kind, going)
    loaders = [load for _, load in columns.values()]
    return Statement(f"page_of_{listing}_{kind}_{going}", sql, loaders, row=row)


def entry(holder_id: str, credit_type: str, sequence: int) -> Entry | None:
    """Return the entry of that number, if the account has it, with the state that it carries."""
    return ENTRY.first([parameter(holder_id), parameter(credit_type), parameter(sequence)])


def shown_entry(holder_id: str, credit_type: str, sequence: int) -> ShownEntry | None:
    """Return the entry of that number, if the account has it, with the shown columns."""
    return SHOWN_ENTRY.first([parameter(holder_id), parameter(credit_type), parameter(sequence)])


def entries(
    holder_id: str,
    *,
    credit_type: str | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: EntryPosition | None = None,
    after: EntryPosition | None = None,
    limit: int = 50,
) -> list[ShownEntry]:
    """Return a page of a holder's entries, the newest first.

    Args:
        kind: entries of that kind only; by default all but refusals.
        since, until: recorded in [since, until).
        before: only entries older than that position; `after`: only the next newer ones.
        limit: at most this number, 1 or more.
    """
    return _page("entries", kind, holder_id, credit_type, before, after, limit, since, until)


def refusals(
    holder_id: str, *, before: EntryPosition | None = None, after: EntryPosition | None = None, limit: int = 50
) -> list[Refusal]:
    """Return a page of a holder's refusals, the newest first.

    Args:
        before: only refusals older than that position; `after`: only the next newer ones.
    """
    return _page("refusals", "refusal", holder_id, None, before, after, limit)


def _page(
    listing: str,
    kind: str | None,
    holder_id: str,
    credit_type: str | None,
    before: EntryPosition | None,
    after: EntryPosition | None,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Any]:
    at, type_, sequence = before or after or (None, None, None)
    values = {
        "holder_id": holder_id,
        "credit_type": credit_type,
        "since": since,
        "until": until,
        "at": at,
        "type": type_,
        "sequence": sequence,
        "limit": limit,
    }
    going = "older" if before else "newer" if after else "first"
    found = page_statement(listing, kind, going).read({name: parameter(value) for name, value in values.items()})
    return found[::-1] if after else found


def _refusal(row: list[Any]) -> Refusal:
    holder_id, credit_type, sequence, idempotency_key, recorded_at, refusal, actor = row
    recorded = {name: refusal[name] for name in ("operation", "code", "facts", "request", "request_id")}
    return Refusal(
        holder_id=holder_id,
        credit_type=credit_type,
        sequence=sequence,
        idempotency_key=idempotency_key,
        recorded_at=recorded_at,
        actor=actor,
        **recorded,
    )
