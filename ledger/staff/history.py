"""Pages of the growing table of entries and refusals: bounded reads, the newest first.

Note [Looked at, and found]
    If a filter has an index, the index finds the rows. If it has none (a kind over all holders, say), the page reads the newest
    WINDOW_ROWS rows behind the cursor, shows those that fit, and says how far it searched; the link "older" continues there. So
    no click costs more than WINDOW_ROWS rows read in the order of an index, and no row is left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Model

from ledger.staff.kit.bounded_reads import WINDOW_ROWS
from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.filters import WrongFilter, instant_cursor, read_instant_cursor
from ledger.staff.kit.pages import PAGE_ROWS, Page

SEQUENCE = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Conditions:
    """Parts of a WHERE clause, and the values for their placeholders."""

    parts: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, part: str, *values: Any) -> None:
        self.parts.append(part)
        self.values.extend(values)

    def sql(self) -> str:
        return " AND ".join(self.parts) or "true"


NOTHING_ELSE = Conditions()


class Sum(NamedTuple):
    """The sums of entries of a credit type: their number, what came and what went (below 0)."""

    credit_type: str
    rows: int
    plus: int
    minus: int


@dataclass(frozen=True, kw_only=True)
class History:
    """A table in the order of `order`: its first column is recorded_at, its last columns distinguish rows of the same instant.

    `slot` names the function of recorded_at that is indexed, if recorded_at itself is not: it never decreases while recorded_at
        rises.
    """

    model: type[Model]
    order: tuple[str, ...]
    slot: str = ""

    def rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return instances of the model, with further columns of the query as attributes."""
        return list(self.model._default_manager.raw(sql, list(values)))

    def searched(
        self, sql: str, by_word: Iterable[str], word: str, conditions: Conditions, *, most: int = PAGE_ROWS
    ) -> list[list[Any]]:
        """The newest `most` + 1 rows for each condition on the word, by its index.

        See Note [Never by reading the whole table].
        """
        found = []
        with never_reading_whole_tables():
            for each in by_word:
                text = sql.format(by_word=each, conditions=conditions.sql(), order=self.newest_first, limit=most + 1)
                found.append(self.rows(text, [*[word] * each.count("%s"), *conditions.values]))
        return found

    @property
    def newest_first(self) -> str:
        by_index = (f"{self.slot}(recorded_at)",) if self.slot else ()
        return ", ".join(f"{column} DESC" for column in (*by_index, *self.order))

    def position(self, row: Any) -> tuple[Any, ...]:
        """Return the row's position in the list."""
        return tuple(getattr(row, column) for column in self.order)

    def cursor(self, position: Sequence[Any]) -> str:
        """Return the position as text for an address."""
        at, *rest = position
        return "/".join([instant_cursor(at), *map(str, rest)])

    def read_cursor(self, text: str) -> tuple[Any, ...] | None:
        """Return the position of a cursor; None without a cursor; or raise WrongFilter."""
        if not text:
            return None
        at, *rest = text.split("/", len(self.order) - 1)
        is_numbered = self.order[-1] in ("sequence", "id")
        if len(rest) != len(self.order) - 1 or "\x00" in text or (is_numbered and not SEQUENCE.fullmatch(rest[-1])):
            raise WrongFilter("The page link is not valid for this list.")
        return (read_instant_cursor(at), *rest[:-1], int(rest[-1]) if is_numbered else rest[-1])

    def bounds(self, *, since: datetime | None, until: datetime | None, before: tuple[Any, ...] | None) -> Conditions:
        """Return the conditions: recorded in [since, until), and behind the cursor."""
        conditions = Conditions()
        if since is not None:
            self._add_bound(conditions, ">=", since)
            conditions.add("recorded_at >= %s", since)
        if until is not None:
            self._add_bound(conditions, "<=", until)
            conditions.add("recorded_at < %s", until)
        if before is not None:
            places = ", ".join(["%s"] * len(self.order))
            self._add_bound(conditions, "<=", before[0])
            conditions.add(f"recorded_at <= %s AND ({', '.join(self.order)}) < ({places})", before[0], *before)
        return conditions

    def _add_bound(self, conditions: Conditions, comparison: str, at: datetime) -> None:
        """Add the bound in the form of the index."""
        if self.slot:
            conditions.add(f"{self.slot}(recorded_at) {comparison} {self.slot}(%s)", at)

    def first_page(self, rows: Sequence[Any], *, note: str = "", most: int = PAGE_ROWS) -> Page:
        """Return the page of rows that were read with one more than fits."""
        shown = rows[:most]
        return Page(rows=shown, older=self.cursor(self.position(shown[-1])) if len(rows) > most else None, note=note)

    def page(self, bounds: Conditions, filters: Conditions, *, most: int = PAGE_ROWS) -> Page:
        """The newest rows within bounds that pass the filters, as far as WINDOW_ROWS rows go. See Note [Looked at, and found]."""
        table = self.model._meta.db_table
        if not filters.parts:
            sql = f"SELECT * FROM {table} WHERE {bounds.sql()} ORDER BY {self.newest_first} LIMIT {most + 1}"
            return self.first_page(self.rows(sql, bounds.values), most=most)
        return self._searched(table, bounds, filters, most)

    def sums(self, bounds: Conditions, filters: Conditions) -> "tuple[list[Sum], bool]":
        """The sums of the rows within bounds that pass the filters, over the newest WINDOW_ROWS, and whether these are all."""
        looked_at = f"SELECT * FROM {self.model._meta.db_table} WHERE {bounds.sql()} ORDER BY {self.newest_first}"
        return self.sums_of(f"{looked_at} LIMIT {WINDOW_ROWS}", bounds.values, filters)

    def sums_of(self, looked_at: str, values: Sequence[Any], filters: Conditions = NOTHING_ELSE) -> "tuple[list[Sum], bool]":
        """Return the sums over the rows of a statement, at most WINDOW_ROWS."""
        sql = f"""
            WITH looked_at AS MATERIALIZED ({looked_at})
            SELECT credit_type, count(*), coalesce(sum(amount) FILTER (WHERE amount > 0), 0),
                coalesce(sum(amount) FILTER (WHERE amount < 0), 0), (SELECT count(*) FROM looked_at)
            FROM looked_at WHERE {filters.sql()} GROUP BY credit_type ORDER BY credit_type
        """
        with connection.cursor() as cursor:
            cursor.execute(sql, [*values, *filters.values])
            rows = cursor.fetchall()
        sums = [Sum(credit_type, count, int(plus), int(minus)) for credit_type, count, plus, minus, _ in rows]
        return sums, all(looked_at < WINDOW_ROWS for *_, looked_at in rows)

    def _searched(self, table: str, bounds: Conditions, filters: Conditions, most: int) -> Page:
        oldest_first = ", ".join(f"{column} ASC" for column in self.order)
        last = ", ".join(f"last.{column} AS last_{column}" for column in self.order)
        sql = f"""
            WITH looked_at AS MATERIALIZED (
                SELECT * FROM {table} WHERE {bounds.sql()} ORDER BY {self.newest_first} LIMIT {WINDOW_ROWS}
            )
            SELECT found.*, {last}, (SELECT count(*) FROM looked_at) AS looked_at
            FROM (SELECT * FROM looked_at ORDER BY {oldest_first} LIMIT 1) AS last
            LEFT JOIN (
                SELECT * FROM looked_at WHERE {filters.sql()} ORDER BY {self.newest_first} LIMIT {most + 1}
            ) AS found ON true
            ORDER BY {", ".join(f"found.{column} DESC" for column in self.order)}
        """
        rows = self.rows(sql, [*bounds.values, *filters.values])
        page_rows = [row for row in rows if row.pk is not None]
        if not rows or rows[0].looked_at < WINDOW_ROWS or len(page_rows) > most:
            return self.first_page(page_rows, most=most)
        last_position = [getattr(rows[0], f"last_{column}") for column in self.order]
        until = instant_words(last_position[0])
        note = f"The search covers {WINDOW_ROWS:,} rows, back to {until}. “Older” continues it."
        return Page(rows=page_rows, older=self.cursor(last_position), note=note)


@contextmanager
def never_reading_whole_tables() -> Iterator[None]:
    """Make the server plan the block's reads without sequential scans; nothing that the block writes is kept.

    Note [Never by reading the whole table]
        The server's estimates for a Bloom filter, or for skipping in an index, come close to the cost of the whole table. Only
        for a word that many entries have, a search from the newest entries is better; the statistics show that.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        yield
        # So that the setting ends here, even inside another transaction.
        transaction.set_rollback(True)


def merged(history: History, *parts: Sequence[Any], note: str = "", most: int = PAGE_ROWS) -> Page:
    """Return one page from several reads of `most` + 1 rows each, every row once."""
    by_key = {row.pk: row for rows in parts for row in rows}
    return history.first_page(sorted(by_key.values(), key=history.position, reverse=True), note=note, most=most)
