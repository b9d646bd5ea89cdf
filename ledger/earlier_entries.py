"""Earlier entries that a decision needs besides the account's state, read under the lock: those that a request refers to."""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connection

from ledger.database.locks import Lock, holder_key
from ledger.database.statements import Statement, parameter
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.journal import LockedAccount, LockedAccounts, fetch_entry
from ledger.previews import Position
from ledger.rules import Entry, Lot, debt_of
from ledger.rules.lots import decode

ENTRY_BY_SEQUENCE = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = %s"

# The last refund of a spend has the total of all its refunds, so the cost does not grow with their number.
REFUNDED = """
SELECT refunded_total
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND refers_to = %s AND kind = 'refund'
ORDER BY sequence DESC
LIMIT 1
"""

# The repayments and refunds of an account since an entry, by the index of kinds, so that the spends in between are not read.
REPAYMENTS = f"""
SELECT * FROM (
    (
        SELECT {READ_COLUMNS}
        FROM ledger_entry
        WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND kind = 'adjust' AND sequence > %(sequence)s
        ORDER BY sequence
        LIMIT %(limit)s
    )
    UNION ALL
    (
        SELECT {READ_COLUMNS}
        FROM ledger_entry
        WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND kind = 'refund' AND sequence > %(sequence)s
        ORDER BY sequence
        LIMIT %(limit)s
    )
) AS later
ORDER BY sequence
LIMIT %(limit)s
"""
REPAYMENTS_AT_ONCE: Final = 100

LAST_CLOSING = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND refers_to = %s
ORDER BY sequence DESC
LIMIT 1
"""


ENTRIES_BY_SEQUENCE = f"""
SELECT {READ_COLUMNS}
FROM unnest(%s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS asked (holder_id, credit_type, sequence, place)
JOIN ledger_entry USING (holder_id, credit_type, sequence)
ORDER BY place
"""


MOST_OF_ONE_TRANSFER: Final = 2
"""Accounts that a single transfer opens."""

# The last entry that accepts or refuses transfers from others, by an index of such entries alone.
INCOMING_TRANSFERS: Final = Statement(
    "incoming_transfers",
    """
SELECT counterpart ->> 'incoming'
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND kind = 'adjust' AND counterpart IS NOT NULL
ORDER BY sequence DESC
LIMIT 1
""",
    [bytes.decode],
)

# The same of many accounts, for a batch.
INCOMING_TRANSFERS_OF_MANY: Final = """
SELECT DISTINCT ON (holder_id, credit_type) holder_id, credit_type, counterpart ->> 'incoming'
FROM ledger_entry
WHERE holder_id = ANY(%s) AND kind = 'adjust' AND counterpart IS NOT NULL
ORDER BY holder_id, credit_type, sequence DESC
"""

# The entry that opened a lot lists the lot as it was then.
OPENING_ENTRIES = """
SELECT sequence, lots::text FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


def entry(account: LockedAccount, sequence: int) -> Entry | None:
    """Return the entry of this account with this sequence, read under the lock, or None."""
    state = account.stored_state()
    known = next((entry for entry in account.among.previewed(state) if entry.sequence == sequence), None)
    return known or fetch_entry(ENTRY_BY_SEQUENCE, [state.holder_id, state.credit_type, sequence])


def refunded(account: LockedAccount, spend: int) -> int:
    """Return how much of the spend with this sequence has been refunded: 0 or more."""
    state = account.stored_state()
    for entry in reversed(account.among.previewed(state)):
        if entry.kind == "refund" and entry.refers_to == spend and entry.refunded_total is not None:
            return entry.refunded_total
    with connection.cursor() as cursor:
        cursor.execute(REFUNDED, [state.holder_id, state.credit_type, spend])
        (refunded_total,) = cursor.fetchone() or (0,)
    return int(refunded_total)


def repayments(account: LockedAccount, spend: Entry) -> list[Entry]:
    """Return the account's repayments and refunds after `spend`, up to the entry that repaid the spend's debt.

    Empty if the spend took nothing on the overdraft. Reading stops there, so the cost does not grow with the account's history.
    """
    state = account.stored_state()
    found: list[Entry] = []
    position: dict[str, Any] = {"holder_id": state.holder_id, "credit_type": state.credit_type, "limit": REPAYMENTS_AT_ONCE}
    debt = debt_of(spend)
    with connection.cursor() as cursor:
        while debt.unpaid:
            cursor.execute(REPAYMENTS, position | {"sequence": found[-1].sequence if found else spend.sequence})
            page = [entry_from_row(row) for row in cursor.fetchall()]
            found += page
            for entry in page:
                debt = debt.after(entry, spend.sequence)
            if len(page) < REPAYMENTS_AT_ONCE:
                break
    later = (entry for entry in account.among.previewed(state) if entry.sequence > spend.sequence)
    return [*found, *(entry for entry in later if debt.unpaid and entry.kind in ("adjust", "refund"))]


def last_closing(account: LockedAccount, sequence: int) -> Entry | None:
    """Return the last entry of this account that refers to the entry with this sequence, or None."""
    state = account.stored_state()
    known = next((entry for entry in reversed(account.among.previewed(state)) if entry.refers_to == sequence), None)
    return known or fetch_entry(LAST_CLOSING, [state.holder_id, state.credit_type, sequence])


def opening_lots(account: LockedAccount, grants: Sequence[int]) -> dict[int, Lot]:
    """Return the lots of these grants as their entries opened them."""
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(OPENING_ENTRIES, [state.holder_id, state.credit_type, list(grants)])
        rows = cursor.fetchall()
    opened = {sequence: decode(lots) for sequence, lots in rows}
    opened |= {entry.sequence: entry.lots for entry in account.among.previewed(state) if entry.sequence in grants}
    return {sequence: next(lot for lot in lots if lot.grant == sequence) for sequence, lots in opened.items()}


def entries(lock: Lock, wanted: Sequence[tuple[str, str, int]]) -> list[Entry]:
    """Return the entries with these (holder_id, credit_type, sequence), in this order."""
    lock.ensure_held(*{holder_key(holder_id) for holder_id, _, _ in wanted})
    columns = [list(column) for column in zip(*wanted, strict=True)] or [[], [], []]
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES_BY_SEQUENCE, columns)
        return [entry_from_row(row) for row in cursor.fetchall()]


def accepts_transfers(account: LockedAccount) -> bool:
    """Return whether the account accepts transfers from others. A transaction asks once, a batch for all of its accounts."""
    state, among = account.state, account.among
    position = (state.holder_id, state.credit_type)
    if position not in among.accepts_transfers:
        account.stored_state()
        asked = among.positions()
        if len(asked) > MOST_OF_ONE_TRANSFER:
            _look_up_many(among, asked)
        else:
            row = INCOMING_TRANSFERS.execute([parameter(state.holder_id), parameter(state.credit_type)])
            among.accepts_transfers[position] = row is None or row[0] == "accepted"
    return among.accepts_transfers[position]


def _look_up_many(among: LockedAccounts, asked: Sequence[Position]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INCOMING_TRANSFERS_OF_MANY, [sorted({holder_id for holder_id, _ in asked})])
        said = {(holder_id, credit_type): word == "accepted" for holder_id, credit_type, word in cursor.fetchall()}
    for position in asked:
        among.accepts_transfers.setdefault(position, said.get(position, True))
