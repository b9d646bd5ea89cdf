"""Reads the earlier entries that a decision needs besides the account's state, under the lock."""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connection

from ledger.database.locks import Lock, holder_key
from ledger.database.statements import Statement, parameter
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.journal import LockedAccount, LockedAccounts, fetch_entry
from ledger.previews import AccountRef
from ledger.rules.decisions.refunds import debt_of
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.kinds import KINDS
from ledger.rules.lots import Lot, decode

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
FROM unnest(%s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS account_refs (holder_id, credit_type, sequence, place)
JOIN ledger_entry USING (holder_id, credit_type, sequence)
ORDER BY place
"""


MOST_OF_ONE_TRANSFER: Final = 2
"""Accounts that a single transfer opens."""

# What a transfer became on the other side: in the same transaction, so at that time, or later where the clock had been ahead.
ARRIVES_WITHIN_SECONDS: Final = 30
ARRIVALS: Final = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND kind = 'transfer_in'
    AND sequence > ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(at)s - interval '{ARRIVES_WITHIN_SECONDS} seconds')
    AND counterpart ->> 'holder_id' = %(sender)s
    AND counterpart ->> 'sequence' = %(sequence)s
    AND refers_to IS NULL
ORDER BY sequence
LIMIT %(limit)s
"""

REVERSED: Final = """
SELECT refers_to, -sum(amount)
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND refers_to = ANY(%s) AND kind = 'transfer_out'
GROUP BY refers_to
"""

# The last entry that accepts or refuses transfers from others, by an index of such entries alone.
INCOMING_TRANSFERS: Final = Statement(
    "incoming_transfers",
    """
SELECT counterpart ->> 'incoming'
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND kind = 'adjust' AND counterpart IS NOT NULL
    AND counterpart ->> 'incoming' IS NOT NULL
ORDER BY sequence DESC
LIMIT 1
""",
    [bytes.decode],
)

# How many entries of a holder have frozen it or ended that: the last one has its number.
FREEZES: Final = """
SELECT (counterpart ->> 'change')::integer
FROM ledger_entry
WHERE holder_id = %s AND kind = 'adjust' AND counterpart ->> 'change' IS NOT NULL
ORDER BY (counterpart ->> 'change')::integer DESC
LIMIT 1
"""

# How many times the test clock of a holder was moved: the last move has its number.
CLOCK_MOVES: Final = """
SELECT (counterpart ->> 'tick')::integer
FROM ledger_entry
WHERE holder_id = %s AND kind = 'adjust' AND counterpart ->> 'tick' IS NOT NULL
ORDER BY (counterpart ->> 'tick')::integer DESC
LIMIT 1
"""

# The same for many accounts, for a batch.
INCOMING_TRANSFERS_OF_MANY: Final = """
SELECT DISTINCT ON (holder_id, credit_type) holder_id, credit_type, counterpart ->> 'incoming'
FROM ledger_entry
WHERE holder_id = ANY(%s) AND kind = 'adjust' AND counterpart IS NOT NULL
    AND counterpart ->> 'incoming' IS NOT NULL
ORDER BY holder_id, credit_type, sequence DESC
"""

# The entry that opened a lot lists the lot in its first state.
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
    parameters: dict[str, Any] = {"holder_id": state.holder_id, "credit_type": state.credit_type, "limit": REPAYMENTS_AT_ONCE}
    debt = debt_of(spend)
    with connection.cursor() as cursor:
        while debt.unpaid:
            cursor.execute(REPAYMENTS, parameters | {"sequence": found[-1].sequence if found else spend.sequence})
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


def lots_after(account: LockedAccount, lot: int) -> list[int]:
    """Return the lots that had the credits of this lot, it first, one after the other: each of the others by other terms."""
    lots = [lot]
    while (closing := last_closing(account, lots[-1])) is not None and KINDS[closing.kind].opens_lots:
        lots.append(closing.sequence)
    return lots


def opening_lots(account: LockedAccount, grants: Sequence[int]) -> dict[int, Lot]:
    """Return the lots of these grants as their entries opened them."""
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(OPENING_ENTRIES, [state.holder_id, state.credit_type, list(grants)])
        rows = cursor.fetchall()
    opened = {sequence: decode(lots) for sequence, lots in rows}
    opened |= {entry.sequence: entry.lots for entry in account.among.previewed(state) if entry.sequence in grants}
    return {sequence: next(lot for lot in lots if lot.grant == sequence) for sequence, lots in opened.items()}


def entries(lock: Lock, entry_keys: Sequence[tuple[str, str, int]]) -> list[Entry]:
    """Return the entries with these (holder_id, credit_type, sequence), in this order."""
    lock.ensure_held(*{holder_key(holder_id) for holder_id, _, _ in entry_keys})
    columns = [list(column) for column in zip(*entry_keys, strict=True)] or [[], [], []]
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES_BY_SEQUENCE, columns)
        return [entry_from_row(row) for row in cursor.fetchall()]


def arrivals(account: LockedAccount, transfer: Entry) -> list[Entry]:
    """Return the entries of this account that a transfer of another holder became, one for each lot that it drew from."""
    state = account.stored_state()
    values: dict[str, Any] = {
        "holder_id": state.holder_id,
        "credit_type": state.credit_type,
        "at": from_us(min(transfer.decided_us, transfer.recorded_us)),
        "sender": transfer.holder_id,
        "sequence": str(transfer.sequence),
        "limit": len(transfer.drawn),
    }
    with connection.cursor() as cursor:
        cursor.execute(ARRIVALS, values)
        return [entry_from_row(row) for row in cursor.fetchall()]


def reversed_of(account: LockedAccount, arrived: Sequence[int]) -> dict[int, int]:
    """Return how much of each of these arrivals was taken back: 1 or more, for those of which something was."""
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(REVERSED, [state.holder_id, state.credit_type, list(arrived)])
        return {sequence: int(amount) for sequence, amount in cursor.fetchall()}


def freezes(account: LockedAccount) -> int:
    """Return how many entries of the account's holder, in any credit type, have frozen it or ended that."""
    return _last_number(account, FREEZES) + sum(entry.freezes is not None for entry in _preview_entries(account))


def clock_moves(account: LockedAccount) -> int:
    """Return how many entries of the account's holder, in any credit type, have moved its test clock."""
    return _last_number(account, CLOCK_MOVES) + sum(entry.clock_us is not None for entry in _preview_entries(account))


def _last_number(account: LockedAccount, sql: str) -> int:
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(sql, [state.holder_id])
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def _preview_entries(account: LockedAccount) -> Sequence[Entry]:
    return account.among.previewed(account.state)


def accepts_transfers(account: LockedAccount) -> bool:
    """Return whether the account accepts transfers from others. A transaction reads it once, a batch for all of its accounts."""
    state, among = account.state, account.among
    account_ref = (state.holder_id, state.credit_type)
    if account_ref not in among.accepts_transfers:
        account.stored_state()
        account_refs = among.account_refs()
        if len(account_refs) > MOST_OF_ONE_TRANSFER:
            _look_up_many(among, account_refs)
        else:
            row = INCOMING_TRANSFERS.execute([parameter(state.holder_id), parameter(state.credit_type)])
            among.accepts_transfers[account_ref] = row is None or row[0] == "accepted"
    return among.accepts_transfers[account_ref]


def _look_up_many(among: LockedAccounts, account_refs: Sequence[AccountRef]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INCOMING_TRANSFERS_OF_MANY, [sorted({holder_id for holder_id, _ in account_refs})])
        accepted = {(holder_id, credit_type): word == "accepted" for holder_id, credit_type, word in cursor.fetchall()}
    for account_ref in account_refs:
        among.accepts_transfers.setdefault(account_ref, accepted.get(account_ref, True))
