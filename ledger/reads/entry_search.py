"""Entries of all holders by what they say, page by page in both orders: no page looks at more than SCANNED_ROWS entries.

A holder has an index, a reference has one, and time is the order. All else is looked for among the next SCANNED_ROWS entries; a
page that ends there says so, and the next one goes on. So a page costs what it looks at, whatever the ledger holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

import orjson

from ledger.database.statements import Loader, Statement, boolean, integer, parameter
from ledger.reads.history import OF_ANY_KIND, SHOWN, ShownEntry, page_sql, select_list
from ledger.rules.kinds import KINDS
from ledger.values import encode_json

__all__ = ["SCANNED_ROWS", "EntryFilter", "FeedEntry", "search_entries"]

SCANNED_ROWS: Final = 5_000
"""How many entries one page looks at."""

EntryPlace = tuple[datetime, str, str, int]
"""The position of an entry among those of all holders: recorded_at, holder, credit type, sequence."""

RECORDED: Final = (
    "ledger_recorded({newest}, %(at)s, %(holder)s, %(type)s, %(sequence)s, %(bound)s, %(many)s, %(movements)s, %(refusals)s)"
)
REFERENCED: Final = "ledger_referenced(%(reference)s, %(many)s::integer + 1)"
BEHIND: Final = {
    True: "(e.recorded_at, e.holder_id, e.credit_type, e.sequence) < (%(at)s, %(holder)s, %(type)s, %(sequence)s::bigint)"
    " AND e.recorded_at >= %(bound)s",
    False: "(e.recorded_at, e.holder_id, e.credit_type, e.sequence) > (%(at)s, %(holder)s, %(type)s, %(sequence)s::bigint)"
    " AND e.recorded_at < %(bound)s",
}
"""By whether the newest come first: what `ledger_recorded` looks for by the index of time."""

# The last entry that was looked at is among the rows, wanted or not: the next page goes on from there.
SCAN: Final = """
SELECT {columns}, e.is_wanted, e.scanned
FROM (
    SELECT
        e.*,
        row_number() OVER (ORDER BY {order}) AS place,
        count(*) OVER () AS scanned,
        COALESCE(
            CASE e.kind WHEN 'refusal' THEN %(refusals)s::boolean ELSE %(movements)s::boolean END
            AND (e.kind = %(kind)s OR %(kind)s::text IS NULL)
            AND (e.credit_type = %(credit_type)s OR %(credit_type)s::text IS NULL)
            AND (e.reference = %(reference)s OR %(reference)s::text IS NULL)
            AND (e.idempotency_key = %(key)s OR %(key)s::text IS NULL)
            AND (e.actor = %(actor)s OR %(actor)s::text IS NULL)
            AND (%(name)s::text IS NULL OR e.metadata ->> %(name)s::text = %(value)s)
            AND NOT EXISTS (
                SELECT FROM json_each_text(%(labels)s::json) AS label WHERE e.metadata ->> label.key IS DISTINCT FROM label.value
            )
            AND {behind},
            false
        ) AS is_wanted
    FROM {source} AS e
) AS e
WHERE e.place <= %(many)s::bigint AND (e.is_wanted OR e.place = LEAST(e.scanned, %(many)s::bigint))
ORDER BY e.place
LIMIT %(shown)s::bigint
"""
ORDER: Final = ("recorded_at", "holder_id", "credit_type", "sequence")


class FeedEntry(NamedTuple):
    """An entry with what a refusal says."""

    entry: ShownEntry
    refusal: dict[str, Any] | None
    """Of a refusal: the operation, the request, the problem's code and facts, the request's id."""

    @property
    def place(self) -> EntryPlace:
        """The columns by which entries of all holders are ordered."""
        at, credit_type, sequence = self.entry.position
        return at, self.entry.holder_id, credit_type, sequence


COLUMNS: Final = {**SHOWN, "refusal": ("e.refusal::text", orjson.loads)}


class _ScannedRow(NamedTuple):
    found: FeedEntry
    is_wanted: bool
    scanned: int


@dataclass(frozen=True, kw_only=True)
class EntryFilter:
    """Which entries are wanted; what is None does not matter.

    Args:
        kind: only that kind; None for all but refusals, and these too `with_refusals`.
        metadata: a key of the metadata, and its value as text.
        labels: more of these, all of which an entry must have.
    """

    holder_id: str | None = None
    credit_type: str | None = None
    kind: str | None = None
    with_refusals: bool = False
    reference: str | None = None
    idempotency_key: str | None = None
    actor: str | None = None
    metadata: tuple[str, str] | None = None
    labels: Mapping[str, str] | None = None

    @property
    def says_more(self) -> bool:
        """True if entries have to be looked at that may not be wanted."""
        others = [self.reference, self.idempotency_key, self.actor, self.metadata, self.labels or None]
        if self.holder_id is None:
            others += [self.credit_type, None if self.kind == "refusal" else self.kind]
        return any(other is not None for other in others)

    @property
    def has_refusals(self) -> bool:
        """Whether refusals are wanted."""
        return self.with_refusals or self.kind == "refusal"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of SCAN that say what is wanted."""
        name, value = self.metadata or (None, None)
        return {
            "holder_id": self.holder_id,
            "credit_type": self.credit_type,
            "kind": self.kind,
            "reference": self.reference,
            "key": self.idempotency_key,
            "actor": self.actor,
            "name": name,
            "value": value,
            "labels": encode_json(dict(self.labels)) if self.labels else None,
            "movements": "f" if self.kind == "refusal" else "t",
            "refusals": "t" if self.has_refusals else "f",
        }


ALL: Final = EntryFilter(with_refusals=True)


class Scan(NamedTuple):
    """The entries that were found, in order."""

    found: list[FeedEntry]
    last: FeedEntry | None
    """The last entry that was looked at, wanted or not; None if there was none."""
    ended: bool
    """True if there is nothing more to look at within the bounds."""


def search_entries(
    wanted: EntryFilter, *, at: datetime, place: EntryPlace | None, bound: datetime, newest: bool, limit: int
) -> Scan:
    """Return the next entries that are wanted, of all holders or one, looking at SCANNED_ROWS at most.

    Args:
        at: without a `place`, the instant from which on: before it if the newest come first, else at it or later.
        place: the entry to go on from, exclusively.
        bound: recorded before that instant; at it or later, if the newest come first.
        limit: at most this many, 1 or more.
    """
    place = place or (at, "", "", 0)
    many = SCANNED_ROWS if wanted.says_more else limit
    values = wanted.parameters() | dict(zip(("at", "holder", "type", "sequence"), place, strict=True))
    values |= {"bound": bound, "many": many, "shown": limit + 1}
    if wanted.holder_id is not None:
        return _scan(_of_holder(wanted, newest, place), values | _within_holder(wanted, place, bound, newest, many), limit)
    if wanted.reference is not None:
        scan = _scan(_statement("referenced", newest), values, limit)
        if scan.ended:
            return scan
    return _scan(_statement("recorded", newest), values, limit)


def _scan(statement: Statement, values: dict[str, Any], limit: int) -> Scan:
    rows: list[_ScannedRow] = statement.read({name: parameter(values[name]) for name in statement.parameters})
    wanted_rows = [row.found for row in rows if row.is_wanted]
    ended = len(wanted_rows) <= limit and (not rows or rows[0].scanned < values["many"])
    return Scan(wanted_rows[:limit], rows[-1].found if rows else None, ended)


@cache
def _statement(source: str, newest: bool) -> Statement:
    text = {"recorded": RECORDED.format(newest=newest), "referenced": REFERENCED}[source]
    return _make_statement(f"{source}_{newest}", text, newest, BEHIND[newest] if source == "referenced" else "true")


@cache
def _statement_of_holder(kind: str | None, going: str) -> Statement:
    return _make_statement(f"of_holder_{kind}_{going}", f"({page_sql('e.*', kind, going)})", going != "newer", "true")


def _make_statement(name: str, source: str, newest: bool, behind: str) -> Statement:
    order = ", ".join(f"e.{column}{' DESC' if newest else ''}" for column in ORDER)
    sql = SCAN.format(columns=select_list(COLUMNS), order=order, behind=behind, source=source)
    loaders: list[Loader] = [*(load for _, load in COLUMNS.values()), boolean, integer]
    return Statement(f"entries_{name}", sql, loaders, row=_row)


def _row(values: list[Any]) -> _ScannedRow:
    *shown, refusal, is_wanted, scanned = values
    return _ScannedRow(FeedEntry(ShownEntry._make(shown), refusal), is_wanted, scanned)


# Of one holder ---------------------------------------------------------------------------------------


def _of_holder(wanted: EntryFilter, newest: bool, place: EntryPlace) -> Statement:
    kind = wanted.kind and KINDS[wanted.kind].name
    if kind is None and wanted.with_refusals:
        kind = OF_ANY_KIND
    is_first = place[1] != wanted.holder_id
    return _statement_of_holder(kind, "newer" if not newest else "first" if is_first else "older")


def _within_holder(wanted: EntryFilter, place: EntryPlace, bound: datetime, newest: bool, many: int) -> dict[str, Any]:
    """The bounds of `page_sql`. A place at another holder's entry is a bound in time."""
    at, holder, credit_type, sequence = place
    is_own = holder == wanted.holder_id
    # Whether the holder's entries of that very instant are ahead of the place.
    behind = at + timedelta(microseconds=1) if holder > str(wanted.holder_id) else at
    return {
        "since": bound if newest else None if is_own else behind,
        "until": (None if is_own else behind) if newest else bound,
        "at": at if is_own else None,
        "type": credit_type if is_own else None,
        "sequence": sequence if is_own else None,
        "limit": many,
    }
