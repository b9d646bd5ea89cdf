"""The search for entries by holder, reference, key and filters: a page of them, and their sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger import reads
from ledger.models import EntryListing
from ledger.staff.history import Conditions, History, Sum, merged
from ledger.staff.kit.bounded_reads import WINDOW_ROWS
from ledger.staff.kit.filters import WrongFilter, read_instant
from ledger.staff.kit.pages import PAGE_ROWS, Page

ACCOUNTS_SEARCHED = 50
SCANNED = f"The search covers the newest {WINDOW_ROWS:,} entries of these accounts; “recorded before” leads further back."
HISTORY = History(model=EntryListing, order=("recorded_at", "holder_id", "credit_type", "sequence"), slot="ledger_slot")

# One read of the primary key per account, whatever its length. Kinds other than spends have a separate index. The accounts come
# by their first entries, so that each shard of a distributed ledger looks for its own.
OF_ACCOUNTS = """
SELECT *
FROM (
    SELECT e.*
    FROM ledger_entry account
    CROSS JOIN LATERAL (
        SELECT *
        FROM (
            SELECT *
            FROM ledger_entry_listing
            WHERE holder_id = account.holder_id AND credit_type = account.credit_type AND {conditions}
            ORDER BY sequence DESC
            LIMIT {scanned}
        ) AS scanned
        WHERE {wanted}
        ORDER BY sequence DESC
        LIMIT {limit}
    ) AS e
    WHERE account.sequence = 1
        AND account.holder_id = ANY(%s)
        AND account.holder_id || '/' || account.credit_type = ANY(%s)
) AS found
ORDER BY {order}
LIMIT {limit}
"""

# By reference: a Bloom filter per 64 pages of the table. By key: the unique index of its hash, skipping from holder to holder.
BY_REFERENCE = "reference = %s"
BY_KEY = "ledger_key_hash(idempotency_key) = ledger_key_hash(%s) AND idempotency_key = %s"
BY_WORD = """
SELECT *
FROM ledger_entry_listing
WHERE {by_word} AND {conditions}
ORDER BY {order}
LIMIT {limit}
"""


def split_entry_id(text: str) -> tuple[str, str, int] | None:
    """Return holder, credit type and sequence of an entry's key; None if it is not one."""
    parts = text.split("/")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 18 or "\x00" in text:
        return None
    return parts[0], parts[1], int(parts[2])


@dataclass(frozen=True)
class EntryBounds:
    """The time of the list: [since, until), and behind a row already shown."""

    since: datetime | None
    until: datetime | None
    before: tuple[Any, ...] | None
    refusals: bool = False
    """Refusals are listed only if the kind is refusal, and then alone."""

    @property
    def conditions(self) -> Conditions:
        found = HISTORY.bounds(since=self.since, until=self.until, before=self.before)
        found.add(f"kind {'=' if self.refusals else '<>'} 'refusal'")
        return found


def search(query: str, values: dict[str, str], cursor: str, *, most: int = PAGE_ROWS) -> Page:
    """Return a page of entries, the newest first.

    Args:
        query: nothing; or a holder, a reference or an idempotency key in full; or `holder*`, the beginning of a holder's id; or
            `holder/credit type/number`.
        values: of the filters kind, credit_type, since, until, actor, metadata.
        cursor: where the page before ended.
        most: how many rows.

    Raises:
        WrongFilter: a value is not valid for its filter.
    """
    refusals = values.get("kind") == "refusal"
    bounds = EntryBounds(read_instant(values, "since"), read_instant(values, "until"), HISTORY.read_cursor(cursor), refusals)
    filters = _filters(values)
    if not query:
        return HISTORY.page(bounds.conditions, filters, most=most)
    if split_entry_id(query):
        return HISTORY.first_page([row for row in [find(query)] if row is not None])
    if query.endswith("*"):
        return _of_accounts_like(query.removesuffix("*"), values, bounds, most)
    accounts = [(found.holder_id, found.credit_type) for found in reads.holders(prefix=query, limit=ACCOUNTS_SEARCHED)]
    own = [account for account in accounts if account[0] == query]
    of_holder = _of_accounts(own, values, bounds, most)
    conditions = Conditions([*bounds.conditions.parts, *filters.parts], [*bounds.conditions.values, *filters.values])
    by_word = HISTORY.searched(BY_WORD, (BY_REFERENCE, BY_KEY), query, conditions, most=most)
    note = SCANNED if own and _without_index(values).parts else ""
    return merged(HISTORY, of_holder, *by_word, note=note, most=most)


def _filters(values: dict[str, str]) -> Conditions:
    """The filters as conditions; the kind of refusals is one of the bounds."""
    unindexed = _without_index(values)
    for column in ("credit_type",) if values.get("kind") == "refusal" else ("kind", "credit_type"):
        if column in values:
            unindexed.add(f"{column} = %s", values[column])
    return unindexed


def _without_index(values: dict[str, str]) -> Conditions:
    """The filters that no index serves, of an account neither."""
    conditions = Conditions()
    if "actor" in values:
        conditions.add("actor = %s", values["actor"])
    if "metadata" in values:
        name, colon, wanted = values["metadata"].partition(":")
        if not (name and colon):
            raise WrongFilter(f"“{values['metadata'][:40]}” is not a key and a value of the metadata; write it as order:7781.")
        conditions.add("metadata ->> %s::text = %s", name, wanted)
    return conditions


def _of_accounts_like(prefix: str, values: dict[str, str], bounds: EntryBounds, most: int) -> Page:
    holders = reads.holders(prefix=prefix, limit=ACCOUNTS_SEARCHED + 1)
    note = SCANNED if _without_index(values).parts else ""
    if len(holders) > ACCOUNTS_SEARCHED:
        note = f"The search covers only the first {ACCOUNTS_SEARCHED} accounts that begin with “{prefix}”; type a longer prefix."
    accounts = [(each.holder_id, each.credit_type) for each in holders[:ACCOUNTS_SEARCHED]]
    return merged(HISTORY, _of_accounts(accounts, values, bounds, most), note=note, most=most)


def _of_accounts(accounts: Sequence[tuple[str, str]], values: dict[str, str], bounds: EntryBounds, most: int) -> list[Any]:
    sql, parameters = _statement_of(accounts, values, bounds, most + 1)
    return HISTORY.rows(sql, parameters)


def _statement_of(
    accounts: Sequence[tuple[str, str]], values: dict[str, str], bounds: EntryBounds, limit: int
) -> tuple[str, list[Any]]:
    conditions = Conditions([*bounds.conditions.parts], [*bounds.conditions.values])
    # The same bounds of time as bounds on the account's numbers, which the primary key serves.
    number_at = "ledger_sequence_at(account.holder_id, account.credit_type, %s)"
    if bounds.since is not None:
        conditions.add(f"sequence > {number_at}", bounds.since - timedelta(microseconds=1))
    for at in (bounds.until, bounds.before and bounds.before[0]):
        if at is not None:
            conditions.add(f"sequence <= {number_at}", at)
    if "kind" in values:
        conditions.add("kind = %s", values["kind"])
    of_type = [account for account in accounts if values.get("credit_type") in (None, account[1])]
    wanted = _without_index(values)
    scanned = max(limit, WINDOW_ROWS // max(1, len(of_type))) if wanted.parts else limit
    sql = OF_ACCOUNTS.format(
        conditions=conditions.sql(), wanted=wanted.sql(), scanned=scanned, order=HISTORY.newest_first, limit=limit
    )
    holders, ids = [holder for holder, _ in of_type], ["/".join(account) for account in of_type]
    return sql, [*conditions.values, *wanted.values, holders, ids]


def sums(query: str, values: dict[str, str]) -> tuple[list[Sum], bool] | None:
    """Return the sums of a search, and whether they cover all; None for a search by word or without any filter.

    At most WINDOW_ROWS entries are read, the newest ones, so it costs as much as a page of `search`.
    """
    bounds = EntryBounds(read_instant(values, "since"), read_instant(values, "until"), None, values.get("kind") == "refusal")
    if bounds.refusals or (not query and not values):
        return None
    if not query:
        return HISTORY.sums(bounds.conditions, _filters(values))
    accounts = [(found.holder_id, found.credit_type) for found in reads.holders(prefix=query, limit=ACCOUNTS_SEARCHED)]
    of_holder = [account for account in accounts if account[0] == query]
    if not of_holder:
        return None
    return HISTORY.sums_of(*_statement_of(of_holder, values, bounds, WINDOW_ROWS))


def find(key: str) -> EntryListing | None:
    """Return the entry of that key, found by the primary key of its table."""
    parts = split_entry_id(key)
    if parts is None:
        return None
    return EntryListing.objects.filter(holder_id=parts[0], credit_type=parts[1], sequence=parts[2]).first()
