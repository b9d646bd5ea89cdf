"""The room behind the lock: replay, load, append. The only writer of entries and refusals.

Every function here runs inside a transaction and under the holder's lock: either it takes the lock and hands out the proof
(`enter`), or it
demands it. A spend is two statements besides BEGIN and COMMIT: one call that takes the lock and then reads, and one INSERT.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from ledger import errors
from ledger.errors import IdempotencyKeyReused, NotInTransaction, Refused
from ledger.locks import Lock, holder_key, holding, lock_number, waiting_for
from ledger.rules import Account, Entry, Lot, Request
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import decode, decode_drawn, encode, encode_drawn
from ledger.rules.requests import encode_json

COLUMNS = (
    "holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, closes, settled, idempotency_key, "
    "request_digest, effective_at, recorded_at, actor, reason, reference, metadata, previous_digest, digest"
)
"""In the order of `Entry`'s fields."""

READ_COLUMNS = COLUMNS.replace("lots, drawn", "lots::text, drawn::text").replace("metadata", "metadata::text")

OPEN = "SELECT * FROM ledger_open(%s, %s, %s, %s)"

_PLACES = "(" + ", ".join(["%s"] * (COLUMNS.count(",") + 1)) + ")"
APPEND = f"INSERT INTO ledger_entry ({COLUMNS}) VALUES "

RECORD_REFUSAL = """
INSERT INTO ledger_refusal
    (holder_id, idempotency_key, recorded_at, operation, credit_type, code, facts, request, request_digest, request_id, actor)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

ENTRY_BY_SEQUENCE = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = %s"
ENTRY_BY_KEY = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND idempotency_key = %s"

REFUSAL_BY_KEY = """
SELECT code, facts::text, request_digest, request_id FROM ledger_refusal WHERE holder_id = %s AND idempotency_key = %s
"""

# The last refund of a spend carries how much has been given back in all, so that the cost does not grow with their number.
REFUNDED = """
SELECT settled
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND closes = %s AND kind = 'refund'
ORDER BY sequence DESC
LIMIT 1
"""

# The entry that opened a lot lists it among its lots as it was made.
OPENING_ENTRIES = """
SELECT sequence, lots::text FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class OpenAccount:
    """An account read under its holder's lock, and the answer that its request's key has had before, if any."""

    lock: Lock
    state: Account
    answered_by: str | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a request came to, once it is stored: the entry, or the no."""

    entry: Entry | None = None
    refusal: Refused | None = None

    def unwrap(self) -> Entry:
        """The entry; or the refusal raised, which by now is on record. Call it when the transaction has ended."""
        if self.refusal is not None:
            raise self.refusal
        assert self.entry is not None
        return self.entry


@contextmanager
def enter(holder_id: str, credit_type: str, idempotency_key: str | None = None) -> Iterator[OpenAccount]:
    """Take the holder's lock until the transaction ends, then read the account, in one round trip.

    Args:
        idempotency_key: look whether it was answered before; none when nobody asked.

    Raises:
        NotInTransaction: no atomic() is open; nothing was sent.
        HolderBusy: lock_timeout passed; the transaction is aborted.
    """
    name = holder_key(holder_id)
    if not connection.in_atomic_block:
        raise NotInTransaction(key=name)
    with waiting_for(name):
        state, answered_by = _read(holder_id, credit_type, idempotency_key)
    with holding(name) as lock:
        yield OpenAccount(lock, state, answered_by)


def read(lock: Lock, holder_id: str, credit_type: str, idempotency_key: str | None = None) -> OpenAccount:
    """The account, under a lock of its holder that is held already."""
    lock.ensure_held(holder_key(holder_id))
    return OpenAccount(lock, *_read(holder_id, credit_type, idempotency_key))


def _read(holder_id: str, credit_type: str, idempotency_key: str | None) -> tuple[Account, str | None]:
    with connection.cursor() as cursor:
        cursor.execute(OPEN, (lock_number(holder_key(holder_id)), holder_id, credit_type, idempotency_key))
        now, sequence, balance, held, lots, digest, answered_by = cursor.fetchone()
    if sequence is None:
        return Account(holder_id, credit_type, to_us(now)), answered_by
    return Account(holder_id, credit_type, to_us(now), sequence, balance, held, decode(lots), bytes(digest)), answered_by


def answer(account: OpenAccount, request: Request, decide: Callable[[OpenAccount], Sequence[Entry]]) -> Recorded:
    """Give the first answer again, or decide and store what came of it: entries, or the refusal.

    Args:
        decide: gives the next entries of the account, or raises Refused.

    Raises:
        LockNotHeld: the account's lock is no longer held here.
        IdempotencyKeyReused: the key belongs to another request; nothing was written.
    """
    if account.answered_by is not None:
        return replay(account, request)
    try:
        entries = decide(account)
    except Refused as refusal:
        return Recorded(refusal=record_refusal(account, request, refusal))
    append(account.lock, entries)
    return Recorded(entry=next(entry for entry in entries if entry.idempotency_key == request.idempotency_key))


def replay(account: OpenAccount, request: Request) -> Recorded:
    """The answer that the key has had before, marked as replayed; writes nothing."""
    account.lock.ensure_held(holder_key(request.holder_id))
    if account.answered_by == "entry":
        entry = _entry(ENTRY_BY_KEY, [request.holder_id, request.idempotency_key])
        assert entry is not None
        _check_same_request(request, entry.request_digest)
        return Recorded(entry=entry._replace(replayed=True))
    with connection.cursor() as cursor:
        cursor.execute(REFUSAL_BY_KEY, [request.holder_id, request.idempotency_key])
        code, facts, digest, request_id = cursor.fetchone()
    _check_same_request(request, bytes(digest))
    refusal = refusal_from_record(code, json.loads(facts), request_id)
    refusal.replayed = True
    return Recorded(refusal=refusal)


def refusal_from_record(code: str, facts: dict[str, Any], request_id: str) -> Refused:
    """The refusal as it was raised first."""
    refusal = errors.REFUSALS[code](**facts)
    refusal.request_id = request_id
    return refusal


def _check_same_request(request: Request, digest: bytes | None) -> None:
    if digest != request.digest():
        raise IdempotencyKeyReused(idempotency_key=request.idempotency_key)


def append(lock: Lock, entries: Sequence[Entry]) -> None:
    """Store the entries of one holder, all or none.

    Raises:
        LockNotHeld: the lock is another's, or no longer held here.
        django.db.IntegrityError: somebody without the lock has taken a sequence number; roll back and decide anew.
    """
    if not entries:
        return
    lock.ensure_held(holder_key(entries[0].holder_id))
    sql = APPEND + (_PLACES if len(entries) == 1 else ", ".join([_PLACES] * len(entries)))
    values: list[Any] = []
    for entry in entries:
        values += _row(entry)
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def _row(entry: Entry) -> tuple[Any, ...]:
    return (
        *entry[:7],
        encode(entry.lots),
        encode_drawn(entry.drawn),
        *entry[9:13],
        entry.effective_at,
        entry.recorded_at,
        *entry[15:18],
        encode_json(entry.metadata) if entry.metadata else None,
        entry.previous_digest,
        entry.digest,
    )


def record_refusal(account: OpenAccount, request: Request, refusal: Refused) -> Refused:
    """Put the no on record in this transaction, which must be let commit."""
    account.lock.ensure_held(holder_key(request.holder_id))
    refusal.request_id = request.request_id
    row = (
        request.holder_id,
        request.idempotency_key,
        from_us(account.state.now_us),
        request.operation,
        request.credit_type,
        refusal.code,
        encode_json(refusal.facts),
        encode_json(request.asked()),
        request.digest(),
        request.request_id,
        request.actor,
    )
    with connection.cursor() as cursor:
        cursor.execute(RECORD_REFUSAL, row)
    return refusal


def entry(account: OpenAccount, sequence: int) -> Entry | None:
    """The entry of that number of this account, read under the lock."""
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
    return _entry(ENTRY_BY_SEQUENCE, [state.holder_id, state.credit_type, sequence])


def refunded(account: OpenAccount, spend: int) -> int:
    """How much of the spend of that number has been given back: 0 or more."""
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
    with connection.cursor() as cursor:
        cursor.execute(REFUNDED, [state.holder_id, state.credit_type, spend])
        row = cursor.fetchone()
    return row[0] if row else 0


def opening_lots(account: OpenAccount, grants: Sequence[int]) -> dict[int, Lot]:
    """The lots of these grants as they were made."""
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
    with connection.cursor() as cursor:
        cursor.execute(OPENING_ENTRIES, [state.holder_id, state.credit_type, list(grants)])
        rows = cursor.fetchall()
    return {sequence: next(lot for lot in decode(lots) if lot.grant == sequence) for sequence, lots in rows}


def _entry(sql: str, parameters: list[Any]) -> Entry | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    return None if row is None else entry_from_row(row)


def entry_from_row(row: Sequence[Any]) -> Entry:
    """An `Entry` from a row of READ_COLUMNS."""
    values = list(row)
    values[7] = decode(row[7])
    values[8] = decode_drawn(row[8])
    values[12] = None if row[12] is None else bytes(row[12])
    values[13] = to_us(row[13])
    values[14] = to_us(row[14])
    values[18] = {} if row[18] is None else json.loads(row[18])
    values[19] = bytes(row[19])
    values[20] = bytes(row[20])
    return Entry(*values)
