"""What can be exported, one declaration for each kind of rows. Another application registers its own in `AppConfig.ready`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ledger.database.copies import FileColumn, copy_out, select
from ledger.entry_rows import COLUMNS, TYPES
from ledger.errors import Invalid
from ledger.rules.lots import DEFAULT_PRIORITY, POSTPAID, PROMOTIONAL, PURCHASED, SINCE_ITS_GRANT

Filter = str | datetime


@dataclass(frozen=True, kw_only=True)
class Export:
    """Rows of one kind.

    Args:
        name: what the command calls them.
        row: what one row is, for people.
        fields: the columns of the file, in their order.
        source: from FROM on, without conditions and order.
        filters: the condition in SQL of each filter; `%(name)s` is its value.
        parameters: filters that `source` uses itself; None where they are not given.
        order: the columns that order the rows.
        always: a condition for all rows.
    """

    name: str
    row: str
    fields: Mapping[str, FileColumn]
    source: str
    filters: Mapping[str, str]
    order: str
    parameters: tuple[str, ...] = ()
    always: str = "true"

    def query(self, chosen: Mapping[str, Filter], file_format: str) -> str:
        """Return the query for these filters."""
        conditions = " AND ".join([self.always, *(self.filters[name] for name in chosen if name in self.filters)])
        return select(self.fields, f"{self.source}\nWHERE {conditions}\nORDER BY {self.order}", file_format)

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of all its filters."""
        return (*self.filters, *self.parameters)


OF_ACCOUNT: Final = {"holder": "e.holder_id = %(holder)s", "credit_type": "e.credit_type = %(credit_type)s"}

_WRITTEN: Final = {"bigint": "{0}", "json": "{0}", "bytea": "encode({0}, 'hex')", "timestamptz": "{0}", "text": "{0}"}
_FORMS: Final = {"json": "json", "timestamptz": "time", "text": "text"}


def _instant(microseconds: str) -> str:
    return f"(timestamptz 'epoch' + ({microseconds})::double precision * interval '1 microsecond')"


def _of_entry(name: str) -> FileColumn:
    column = "COALESCE(e.effective_at, e.recorded_at)" if name == "effective_at" else f"e.{name}"
    return FileColumn(_WRITTEN[TYPES[name]].format(column), _FORMS.get(TYPES[name], "plain"))  # type: ignore[arg-type]


ENTRIES: Final = Export(
    name="entries",
    row="an entry, refusals included, with all that is under its digest",
    fields={name: _of_entry(name) for name in COLUMNS.split(", ")},
    source="FROM ledger_entry AS e",
    filters={**OF_ACCOUNT, "since": "e.recorded_at >= %(since)s", "until": "e.recorded_at < %(until)s"},
    order="e.holder_id, e.credit_type, e.sequence",
)

# The last entry of each account, or the last one that was recorded by `at`. An account that has only refusals is left out.
LAST_ENTRIES: Final = """FROM ledger_entry AS first
JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = first.holder_id AND credit_type = first.credit_type
        AND (%(at)s::timestamptz IS NULL OR sequence = ledger_sequence_at(first.holder_id, first.credit_type, %(at)s))
    ORDER BY sequence DESC
    LIMIT 1
) AS e ON true"""
HAS_MOVED: Final = "first.sequence = 1 AND e.refusal ->> 'after' IS DISTINCT FROM '0'"

BALANCES: Final = Export(
    name="balances",
    row="an account, as of its last entry",
    fields={
        "holder_id": FileColumn("e.holder_id"),
        "credit_type": FileColumn("e.credit_type"),
        "sequence": FileColumn("e.sequence"),
        "balance": FileColumn("e.balance"),
        "held": FileColumn("e.held"),
        "overdraft": FileColumn("e.overdraft"),
        "owed": FileColumn(
            "CASE WHEN e.overdraft IS NULL THEN 0 ELSE (SELECT COALESCE(sum((lot ->> 1)::bigint), 0)"
            " FROM json_array_elements(e.lots) AS lot)::bigint - e.balance END"
        ),
        "recorded_at": FileColumn("e.recorded_at", "time"),
        "digest": FileColumn("encode(e.digest, 'hex')"),
    },
    source=LAST_ENTRIES,
    filters=OF_ACCOUNT,
    parameters=("at",),
    order="e.holder_id, e.credit_type",
    always=HAS_MOVED,
)

LOTS: Final = Export(
    name="lots",
    row="an open lot, or the part of a lot that an open hold has set aside",
    fields={
        "holder_id": FileColumn("e.holder_id"),
        "credit_type": FileColumn("e.credit_type"),
        "grant": FileColumn("(open.lot ->> 0)::bigint"),
        "remaining": FileColumn("(open.lot ->> 1)::bigint"),
        "hold": FileColumn("open.hold"),
        "source": FileColumn(
            f"CASE open.lot ->> 5 WHEN '1' THEN '{PROMOTIONAL}' WHEN '2' THEN '{POSTPAID}' ELSE '{PURCHASED}' END"
        ),
        "priority": FileColumn(f"COALESCE((open.lot ->> 4)::integer, {DEFAULT_PRIORITY})"),
        "effective_at": FileColumn("COALESCE(open.effective_at, opened.effective_at, opened.recorded_at)", "time"),
        "expires_at": FileColumn(_instant("open.lot ->> 3"), "time"),
        "cost_minor": FileColumn("(cost ->> 1)::bigint"),
        "currency": FileColumn("cost ->> 2"),
        "received": FileColumn("COALESCE(open.lot ->> 6, '0') = '1'"),
        "applies_to": FileColumn("open.lot ->> 7", "text"),
        "reference": FileColumn("opened.reference", "text"),
    },
    source=f"""{LAST_ENTRIES}
CROSS JOIN LATERAL (
    SELECT
        parts.hold, parts.lot, {_instant(f"NULLIF(parts.lot ->> 2, '{SINCE_ITS_GRANT}')")} AS effective_at
    FROM (
        SELECT NULL::bigint AS hold, lot FROM json_array_elements(e.lots) AS lot
        UNION ALL
        SELECT (hold ->> 0)::bigint, part
        FROM json_array_elements(e.holds) AS hold
        CROSS JOIN LATERAL json_array_elements(hold -> 2) AS part
    ) AS parts
) AS open
-- What a hold has set aside costs is part of what its lot costs.
LEFT JOIN LATERAL json_array_elements(e.costs) AS cost
    ON (cost ->> 0)::bigint = (open.lot ->> 0)::bigint AND open.hold IS NULL
JOIN ledger_entry AS opened
    ON opened.holder_id = e.holder_id AND opened.credit_type = e.credit_type AND opened.sequence = (open.lot ->> 0)::bigint""",
    filters=OF_ACCOUNT,
    parameters=("at",),
    order="e.holder_id, e.credit_type, open.hold NULLS FIRST, (open.lot ->> 0)::bigint",
    always=HAS_MOVED,
)

EXPORTS: Final[dict[str, Export]] = {one.name: one for one in (ENTRIES, BALANCES, LOTS)}


def register(*exports: Export) -> None:
    """Add exports of another application."""
    EXPORTS.update({one.name: one for one in exports})


def export(name: str, *, file_format: str, **filters: Filter | None) -> Iterator[bytes]:
    """Yield a file in pieces, of one snapshot.

    Args:
        name: one of EXPORTS.
        file_format: `csv` or `ndjson`.
        filters: those that the export takes; None for one that is not used.

    Raises:
        Invalid: the export has no such filter; raised at once, not by the first piece.
    """
    chosen = {filter_name: value for filter_name, value in filters.items() if value is not None}
    one = EXPORTS[name]
    for filter_name in chosen:
        if filter_name not in one.takes:
            detail = f"does not apply to {name}, which can be chosen by: {', '.join(one.takes)}"
            raise Invalid(pointer=f"/{filter_name}", rule="unknown", detail=detail)
    parameters: dict[str, Any] = dict.fromkeys(one.parameters) | chosen
    return copy_out(one.query(chosen, file_format), parameters, file_format)
