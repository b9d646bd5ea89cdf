"""Holders and their accounts with balances, from account to account by their first entries.

An account that had only refusals and no movement is in no list. `history.refusals` has its refusals.
"""

from datetime import datetime
from typing import NamedTuple

from ledger.clocks import TimedStatement
from ledger.database.statements import Statement, instant_us, integer, parameter
from ledger.reads.account_state import ACCOUNT_LOADERS, ACCOUNT_STATE, AccountRow, Balance, present_balance
from ledger.rules.entries import FROZEN
from ledger.rules.instants import from_us

__all__ = ["accounts", "clock", "freeze", "holders", "incoming_transfers", "is_known", "seen"]

ACCOUNTS_AT_ONCE = 100

# From first entry to first entry, which have an index, and only the last entry of each account: the cost grows with the page, not
# with the history. `beyond` is an id behind all that begin with the prefix, at which the scan ends.
# The last entry of an account that began with a refusal says whether it has moved since.
PAGE = f"""
SELECT
    account.holder_id,
    account.credit_type,{ACCOUNT_STATE}
FROM (
    SELECT first.holder_id, first.credit_type
    FROM ledger_entry first
    WHERE first.sequence = 1
        AND (
            first.kind <> 'refusal'
            OR (
                SELECT last.refusal ->> 'after' IS DISTINCT FROM '0'
                FROM ledger_entry last
                WHERE last.holder_id = first.holder_id AND last.credit_type = first.credit_type
                ORDER BY last.sequence DESC
                LIMIT 1
            )
        )
        AND (first.holder_id, first.credit_type) {{comparison}} (%(holder_id)s, %(credit_type)s)
        AND first.holder_id >= %(prefix)s
        AND first.holder_id < %(beyond)s
        AND (first.credit_type = %(type)s OR %(type)s::text IS NULL)
    ORDER BY first.holder_id {{direction}}, first.credit_type {{direction}}
    LIMIT %(limit)s::integer
) AS account
CROSS JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = account.holder_id AND credit_type = account.credit_type
    ORDER BY sequence DESC
    LIMIT 1
) AS e
ORDER BY account.holder_id {{direction}}, account.credit_type {{direction}}
"""
ACCOUNTS_AFTER = TimedStatement(
    "accounts_after",
    PAGE.format(comparison=">", direction="ASC"),
    ACCOUNT_LOADERS,
    holder="account.holder_id",
    row=AccountRow._make,
)
ACCOUNTS_BEFORE = TimedStatement(
    "accounts_before",
    PAGE.format(comparison="<", direction="DESC"),
    ACCOUNT_LOADERS,
    holder="account.holder_id",
    row=AccountRow._make,
)
BEHIND_ALL_CHARACTERS = "\x7f"
"""Sorts behind each character that a holder's id may have."""

# A holder's accounts by their first entries, each with its last entry by the primary key.
SEEN = Statement(
    "seen",
    """
SELECT min(first.recorded_at), max(last.recorded_at)
FROM ledger_entry first
CROSS JOIN LATERAL (
    SELECT e.recorded_at, e.refusal
    FROM ledger_entry e
    WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last
WHERE first.holder_id = %s AND first.sequence = 1 AND last.refusal ->> 'after' IS DISTINCT FROM '0'
""",
    [instant_us, instant_us],
)

INCOMING_TRANSFERS = Statement(
    "incoming_transfers_read",
    """
SELECT counterpart ->> 'incoming', sequence, recorded_at
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND kind = 'adjust' AND counterpart IS NOT NULL
    AND counterpart ->> 'incoming' IS NOT NULL
ORDER BY sequence DESC
LIMIT 1
""",
    [bytes.decode, integer, instant_us],
)

FREEZE = Statement(
    "freeze_read",
    """
SELECT counterpart ->> 'holder', credit_type, sequence, recorded_at
FROM ledger_entry
WHERE holder_id = %s AND kind = 'adjust' AND counterpart ->> 'change' IS NOT NULL
ORDER BY (counterpart ->> 'change')::integer DESC
LIMIT 1
""",
    [bytes.decode, bytes.decode, integer, instant_us],
)

CLOCK = Statement(
    "clock_read",
    """
SELECT (counterpart ->> 'clock')::timestamptz, credit_type, sequence, recorded_at
FROM ledger_entry
WHERE holder_id = %s AND kind = 'adjust' AND counterpart ->> 'tick' IS NOT NULL
ORDER BY (counterpart ->> 'tick')::integer DESC
LIMIT 1
""",
    [instant_us, bytes.decode, integer, instant_us],
)


def holders(
    *,
    prefix: str = "",
    credit_type: str | None = None,
    after: tuple[str, str] | None = None,
    before: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[Balance]:
    """Return a page of accounts with their balances, by holder and credit type, without those that never had a movement.

    Args:
        prefix: only holders whose id begins with it.
        after: only accounts behind that (holder_id, credit_type); `before`: only the next accounts ahead of it.
    """
    start = before or after or ("", "")
    values = {
        "holder_id": start[0],
        "credit_type": start[1],
        "prefix": prefix,
        "beyond": prefix + BEHIND_ALL_CHARACTERS,
        "type": credit_type,
        "limit": limit,
    }
    statement = ACCOUNTS_BEFORE if before is not None else ACCOUNTS_AFTER
    rows: list[AccountRow] = statement.present.read({name: parameter(value) for name, value in values.items()})
    found = [present_balance(row) for row in rows]
    return found[::-1] if before is not None else found


def accounts(holder_id: str) -> list[Balance]:
    """Return all accounts of a holder with their balances, by credit type."""
    balances: list[Balance] = []
    page = holders(prefix=holder_id, limit=ACCOUNTS_AT_ONCE)
    while page:
        # The holder whose id equals the prefix comes before all ids that begin with it.
        own = [account for account in page if account.holder_id == holder_id]
        balances += own
        if len(own) < ACCOUNTS_AT_ONCE:
            break
        page = holders(prefix=holder_id, after=(holder_id, own[-1].credit_type), limit=ACCOUNTS_AT_ONCE)
    return balances


def seen(holder_id: str) -> tuple[datetime, datetime] | None:
    """Return the times of the holder's first and last entries, over all accounts with a movement; None without such accounts."""
    [(first_us, last_us)] = SEEN.read([parameter(holder_id)])
    return None if first_us is None else (from_us(first_us), from_us(last_us))


class IncomingTransferSetting(NamedTuple):
    """Whether an account accepts transfers from others, and the entry that last set this; None if no entry has set it."""

    holder_id: str
    credit_type: str
    accepted: bool = True
    changed_by: int | None = None
    changed_at: datetime | None = None


def incoming_transfers(holder_id: str, credit_type: str = "credits") -> IncomingTransferSetting:
    """Return whether the account accepts transfers from others. It does until an entry changes that."""
    account = IncomingTransferSetting(holder_id, credit_type)
    rows = INCOMING_TRANSFERS.read([parameter(holder_id), parameter(credit_type)])
    if not rows:
        return account
    [(incoming, sequence, recorded_us)] = rows
    return account._replace(accepted=incoming == "accepted", changed_by=sequence, changed_at=from_us(recorded_us))


class FreezeState(NamedTuple):
    """Whether a holder is frozen, and by which entry; the last three are None if no entry ever changed that."""

    holder_id: str
    frozen: bool = False
    credit_type: str | None = None
    changed_by: int | None = None
    changed_at: datetime | None = None


def freeze(holder_id: str) -> FreezeState:
    """Whether the holder is frozen, in all credit types."""
    rows = FREEZE.read([parameter(holder_id)])
    if not rows:
        return FreezeState(holder_id)
    [(word, credit_type, sequence, recorded_us)] = rows
    return FreezeState(holder_id, word == FROZEN, credit_type, sequence, from_us(recorded_us))


class ClockState(NamedTuple):
    """The holder's test clock, and which entry moved it last; all None if the holder has none."""

    holder_id: str
    now: datetime | None = None
    credit_type: str | None = None
    changed_by: int | None = None
    changed_at: datetime | None = None


def clock(holder_id: str) -> ClockState:
    """The test clock of the holder, which counts in all credit types."""
    rows = CLOCK.read([parameter(holder_id)])
    if not rows:
        return ClockState(holder_id)
    [(now_us, credit_type, sequence, recorded_us)] = rows
    return ClockState(holder_id, from_us(now_us), credit_type, sequence, from_us(recorded_us))


def is_known(holder_id: str) -> bool:
    """Return whether the holder has an account with a movement, in any credit type."""
    return seen(holder_id) is not None
