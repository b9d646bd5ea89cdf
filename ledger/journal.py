"""The room behind the lock: replay, load, append. The only writer of entries, refusals among them.

Every function here runs inside a transaction and under the holder's lock: either it takes the lock and hands out the proof
(`enter`), or it
demands it. A spend is two statements besides BEGIN and COMMIT: one call that takes the lock and then reads, and one INSERT.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import errors
from ledger.database.locks import Lock, holder_key, holding, keep_to_deadline, lock_number, waiting_for
from ledger.database.statements import Statement, array, boolean, instant_us, integer
from ledger.entry_rows import COLUMNS, READ_COLUMNS, TYPES, copy_line, entry_from_row, parameters, texts
from ledger.errors import AccountMovedOn, IdempotencyKeyReused, LedgerError, NotInTransaction, Refused
from ledger.rules import Account, Entry, Lot, Request, TransferRequest, debt_of
from ledger.rules.entries import REQUEST_DIGEST_BYTES
from ledger.rules.holds import decode_holds
from ledger.rules.instants import to_text, to_us
from ledger.rules.lots import decode
from ledger.rules.requests import key_hash

OPEN = Statement(
    "open",
    "SELECT * FROM ledger_open(%s, %s, %s, %s)",
    [instant_us, instant_us, integer, integer, integer, bytes.decode, bytes.decode, integer, bytes, integer, boolean],
)

OPEN_MANY = Statement(
    "open_many",
    "SELECT * FROM ledger_open_many(%s, %s, %s, %s)",
    [boolean, instant_us, instant_us, integer, integer, integer, bytes.decode, bytes.decode, integer, bytes, integer, boolean],
)

_PLACES = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
APPEND_ONE = Statement("append", f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({_PLACES})")

_ARRAYS = ", ".join(f"%s::{type_}[]" for type_ in TYPES.values())
APPEND_FEW = Statement("append_few", f"INSERT INTO ledger_entry ({COLUMNS}) SELECT * FROM unnest({_ARRAYS})")
FEW: Final = 64
"""Up to so many entries go as arrays into one prepared statement, which is one way to the server; more go by COPY."""

ENTRY_BY_SEQUENCE = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = %s"
# At most one: the keys of a holder are unique by their hash. Its key may be another text all the same.
ENTRY_BY_KEY = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %s AND ledger_key_hash(idempotency_key) = ledger_key_hash(%s) AND idempotency_key IS NOT NULL
"""

# The last refund of a spend carries how much has been given back in all, so that the cost does not grow with their number.
REFUNDED = """
SELECT refunded_total
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND refers_to = %s AND kind = 'refund'
ORDER BY sequence DESC
LIMIT 1
"""

# What has repaid or lowered an account's debt since an entry: each kind by the index of kinds, however many spends lie between.
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

COPY = f"COPY ledger_entry ({COLUMNS}) FROM STDIN"

ACCOUNTS = Statement(
    "accounts",
    """
SELECT
    asked.holder_id,
    asked.credit_type,
    clock_timestamp(),
    last.recorded_at,
    last.sequence,
    last.balance,
    last.held,
    last.lots::text,
    last.holds::text,
    last.overdraft,
    last.digest,
    CASE last.kind WHEN 'refusal' THEN (last.refusal ->> 'after')::bigint ELSE last.sequence END
FROM unnest(%s::text[], %s::text[]) AS asked (holder_id, credit_type)
LEFT JOIN LATERAL (
    SELECT *
    FROM ledger_entry e
    WHERE e.holder_id = asked.holder_id AND e.credit_type = asked.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last ON true
""",
    [
        bytes.decode,
        bytes.decode,
        instant_us,
        instant_us,
        integer,
        integer,
        integer,
        bytes.decode,
        bytes.decode,
        integer,
        bytes,
        integer,
    ],
)

ANSWERED = Statement(
    "answered",
    """
SELECT asked.holder_id, asked.idempotency_key
FROM unnest(%s::text[], %s::text[]) AS asked (holder_id, idempotency_key)
CROSS JOIN LATERAL (
    SELECT
    FROM ledger_entry e
    WHERE e.holder_id = asked.holder_id
        AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(asked.idempotency_key)
        AND e.idempotency_key IS NOT NULL
    LIMIT 1
) e
""",
    [bytes.decode, bytes.decode],
)

ENTRIES_BY_SEQUENCE = f"""
SELECT e.*
FROM unnest(%s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS asked (holder_id, credit_type, sequence, place)
CROSS JOIN LATERAL (
    SELECT {READ_COLUMNS}
    FROM ledger_entry e
    WHERE e.holder_id = asked.holder_id AND e.credit_type = asked.credit_type AND e.sequence = asked.sequence
    LIMIT 1
) e
ORDER BY asked.place
"""

RECORD_BATCH = """
INSERT INTO ledger_batch (idempotency_key, confined_to, request_digest, mode, outcomes, recorded_at, actor, request_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""

DECIDED_BY_STATE_ALONE = frozenset({"grant", "spend", "hold", "overdraft", "transfer"})
OPENS_LOTS = frozenset({"grant", "transfer"})

# The entry that opened a lot lists it among its lots as it was made.
OPENING_ENTRIES = """
SELECT sequence, lots::text FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


# A lot that could be spent from the first does not bear since when: its grant's entry does.
EFFECTIVE_TIMES = """
SELECT sequence, COALESCE(effective_at, recorded_at)
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


class OpenAccount(NamedTuple):
    """An account read under its holder's lock, and whether its request's key has an entry already.

    `is_answered` is true also where another key of the holder, with the same hash, has one: see `replay`.
    """

    lock: Lock
    state: Account
    is_answered: bool


class Recorded(NamedTuple):
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
        state, is_answered = _read(holder_id, credit_type, idempotency_key)
    keep_to_deadline()
    with holding(name) as lock:
        yield OpenAccount(lock, state, is_answered)


@contextmanager
def enter_many(requests: Sequence[Request]) -> Iterator["Room"]:
    """Take the locks of the requests' holders, as far as nobody else has them, until the transaction ends; read their accounts.

    One round trip, which waits for nobody. `Room.has` tells whose lock was got.

    Raises:
        NotInTransaction: no atomic() is open; nothing was sent.
    """
    names = [holder_key(request.holder_id) for request in requests]
    if not connection.in_atomic_block:
        raise NotInTransaction(key=names[0])
    rows = OPEN_MANY.rows(
        (
            array([str(lock_number(name)) for name in names]),
            array([request.holder_id for request in requests]),
            array([request.credit_type for request in requests]),
            array([request.idempotency_key for request in requests]),
        )
    )
    accounts: dict[tuple[str, str], Account] = {}
    answered: set[tuple[str, bytes]] = set()
    got = set()
    for name, request, (is_locked, *row) in zip(names, requests, rows, strict=True):
        if not is_locked:
            continue
        got.add(name)
        position = (request.holder_id, request.credit_type)
        if position not in accounts:
            accounts[position] = _account(*position, row)[0]
        if row[-1]:
            answered.add((request.holder_id, key_hash(request.idempotency_key)))
    with holding(*got) as lock, Room(lock, accounts, answered) as room:
        yield room


def read(lock: Lock, holder_id: str, credit_type: str, idempotency_key: str | None = None) -> OpenAccount:
    """The account, under a lock of its holder that is held already."""
    lock.ensure_held(holder_key(holder_id))
    return OpenAccount(lock, *_read(holder_id, credit_type, idempotency_key))


def _read(holder_id: str, credit_type: str, idempotency_key: str | None) -> tuple[Account, bool]:
    number = b"%d" % lock_number(holder_key(holder_id))
    key = None if idempotency_key is None else idempotency_key.encode()
    row = OPEN.execute((number, holder_id.encode(), credit_type.encode(), key))
    assert row is not None
    return _account(holder_id, credit_type, row)


def _account(holder_id: str, credit_type: str, row: Sequence[Any]) -> tuple[Account, bool]:
    now_us, recorded_us, sequence, balance, held, lots, holds, overdraft, digest, moved_by, is_answered = row
    if sequence is None:
        return Account(holder_id, credit_type, now_us), is_answered
    state = Account(
        holder_id,
        credit_type,
        now_us,
        sequence,
        balance,
        held,
        decode(lots),
        decode_holds(holds),
        overdraft,
        bytes(digest),
        recorded_us,
        moved_by,
    )
    return state, is_answered


def answer(account: OpenAccount, request: Request, decide: Callable[[OpenAccount], Sequence[Entry]]) -> Recorded:
    """Give the first answer again, or decide and store what came of it: entries, or the refusal.

    Args:
        decide: gives the next entries of the account, or raises Refused.

    Raises:
        LockNotHeld: the account's lock is no longer held here.
        IdempotencyKeyReused: the key belongs to another request; nothing was written.
        AccountMovedOn: the request expected another last entry; nothing was written.
    """
    if account.is_answered:
        return replay(account, request)
    _check_expectation(account, request)
    try:
        entries = decide(account)
    except Refused as refusal:
        _tell_effective_times(account, refusal, {})
        if not request.dry_run:
            refusal.request_id = request.request_id
            append(account.lock, [account.state.refused(request, refusal)])
        return Recorded(refusal=refusal)
    if not request.dry_run:
        append(account.lock, entries)
    return _recorded(entries, request)


def _recorded(entries: Sequence[Entry], request: Request) -> Recorded:
    """The one of the entries that bears the request's key: others may stand before it and behind it."""
    for entry in entries:
        if entry.idempotency_key == request.idempotency_key:
            return Recorded(entry)
    raise AssertionError(f"no entry bears the key of {request}")


def _check_expectation(account: OpenAccount, request: Request) -> None:
    if request.expected_sequence is not None and request.expected_sequence != account.state.sequence:
        raise AccountMovedOn(expected=request.expected_sequence, sequence=account.state.sequence)


def replay(account: OpenAccount, request: Request) -> Recorded:
    """The answer that the key has had before, marked as replayed; writes nothing.

    Raises:
        IdempotencyKeyReused: the key belongs to another request; or its hash to another key, so that it cannot be used.
    """
    account.lock.ensure_held(holder_key(request.holder_id))
    entry = _entry(ENTRY_BY_KEY, [request.holder_id, request.idempotency_key])
    assert entry is not None
    is_same_request = entry.request_digest == request.digest()[:REQUEST_DIGEST_BYTES]
    if entry.idempotency_key != request.idempotency_key or not is_same_request:
        raise IdempotencyKeyReused(idempotency_key=request.idempotency_key)
    if entry.refusal is None:
        return Recorded(entry=entry._replace(replayed=True))
    refusal = refusal_from_record(entry.refusal["code"], entry.refusal["facts"], entry.refusal["request_id"])
    refusal.replayed = True
    return Recorded(refusal=refusal)


def refusal_from_record(code: str, facts: dict[str, Any], request_id: str) -> Refused:
    """The refusal as it was raised first."""
    refusal = errors.REFUSALS[code](**facts)
    refusal.request_id = request_id
    return refusal


def append(lock: Lock, entries: Sequence[Entry]) -> None:
    """Store entries of holders whom the lock covers, all or none.

    Raises:
        LockNotHeld: the lock is on others, or no longer held here.
        django.db.IntegrityError: somebody without the lock has taken a sequence number; roll back and decide anew.
    """
    lock.ensure_held(*{holder_key(entry.holder_id) for entry in entries})
    if len(entries) > FEW:
        with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(COPY) as copy:
            # Some at a time: the server stores them while the next are being written.
            for first in range(0, len(entries), FEW):
                copy.write("".join(map(copy_line, entries[first : first + FEW])))
        return
    if len(entries) == 1:
        APPEND_ONE.execute(parameters(entries[0]))
    elif entries:
        APPEND_FEW.execute([array(column) for column in zip(*map(texts, entries), strict=True)])


def _tell_effective_times(account: OpenAccount, refusal: Refused, known: dict[tuple[str, str, int], int]) -> None:
    """Fill in, among the facts, from when the lots could be spent that do not bear it.

    Args:
        known: by holder, credit type and grant, in microseconds; what is looked up is added.
    """
    position = (account.state.holder_id, account.state.credit_type)
    lots = [lot for lot in refusal.facts.get("lots", ()) if lot["effective_at"] is None]
    missing = [lot["grant"] for lot in lots if (*position, lot["grant"]) not in known]
    if missing:
        with connection.cursor() as cursor:
            cursor.execute(EFFECTIVE_TIMES, [*position, missing])
            known |= {(*position, grant): to_us(effective_at) for grant, effective_at in cursor.fetchall()}
    for lot in lots:
        lot["effective_at"] = to_text(known[*position, lot["grant"]])


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


def repayments(account: OpenAccount, spend: Entry) -> list[Entry]:
    """The repayments and refunds of the account since `spend`, until what it took on the overdraft has been repaid.

    Empty where it took nothing on an overdraft. Reading ends with the debt, so that it does not grow with the account's history.
    """
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
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
    return found


def last_closing(account: OpenAccount, sequence: int) -> Entry | None:
    """The last entry of this account that refers to that one."""
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
    return _entry(LAST_CLOSING, [state.holder_id, state.credit_type, sequence])


def opening_lots(account: OpenAccount, grants: Sequence[int]) -> dict[int, Lot]:
    """The lots of these grants as they were made."""
    state = account.state
    account.lock.ensure_held(holder_key(state.holder_id))
    with connection.cursor() as cursor:
        cursor.execute(OPENING_ENTRIES, [state.holder_id, state.credit_type, list(grants)])
        rows = cursor.fetchall()
    return {sequence: next(lot for lot in decode(lots) if lot.grant == sequence) for sequence, lots in rows}


# Many at once ----------------------------------------------------------------------------------------


class Room:
    """Many requests under one lock that covers all their holders: accounts are read at once, entries are stored at once.

    A request that has to look at earlier entries first has what is pending stored, so that it sees what the ones before it did.
    Left without an error, the room stores the rest.
    """

    def __init__(self, lock: Lock, accounts: dict[tuple[str, str], Account], answered: set[tuple[str, bytes]]) -> None:
        """Begin with what was read under the lock.

        Args:
            accounts: by holder and credit type.
            answered: the holders and hashes of idempotency keys that have an entry already.
        """
        self.lock = lock
        self._accounts = accounts
        self._followed_by: dict[tuple[str, str], list[Entry]] = {}
        """What has happened since to accounts; most are asked for once, and need not know."""
        self._answered = answered
        self._effective_us: dict[tuple[str, str, int], int] = {}
        self._entries: list[Entry] = []

    @classmethod
    def opened(cls, lock: Lock, requests: Sequence[Request]) -> "Room":
        """Read the accounts, those of both sides of a transfer, and the earlier answers of all requests, in two statements."""
        accounts = {(request.holder_id, request.credit_type) for request in requests}
        accounts |= {(request.to, request.credit_type) for request in requests if isinstance(request, TransferRequest)}
        lock.ensure_held(*{holder_key(holder_id) for holder_id, _ in accounts})
        return cls(
            lock,
            _read_accounts(accounts),
            _read_answered([(request.holder_id, request.idempotency_key) for request in requests]),
        )

    def __enter__(self) -> "Room":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.store()

    def has(self, request: Request) -> bool:
        """Whether the lock covers the request's holder."""
        return holder_key(request.holder_id) in self.lock.names

    def answer(self, request: Request, decide: Callable[[OpenAccount], Sequence[Entry]]) -> Recorded:
        """As `answer`, but what comes of it is kept until `store`. The entries may be of several accounts."""
        key = (request.holder_id, key_hash(request.idempotency_key))
        account = OpenAccount(self.lock, self.state(request.holder_id, request.credit_type), key in self._answered)
        if account.is_answered:
            self.store()
            return replay(account, request)
        _check_expectation(account, request)
        if request.operation not in DECIDED_BY_STATE_ALONE:
            self.store()
        try:
            entries = decide(account)
        except Refused as refusal:
            _tell_effective_times(account, refusal, self._effective_us)
            refusal.request_id = request.request_id
            self._keep(key, [account.state.refused(request, refusal)])
            return Recorded(refusal=refusal)
        if request.operation in OPENS_LOTS:
            self._effective_us |= {(entry.holder_id, entry.credit_type, entry.sequence): entry.effective_us for entry in entries}
        self._keep(key, entries)
        return _recorded(entries, request)

    def _keep(self, key: tuple[str, bytes], entries: Sequence[Entry]) -> None:
        self._entries += entries
        for entry in entries:
            self._followed_by.setdefault((entry.holder_id, entry.credit_type), []).append(entry)
        self._answered.add(key)

    def state(self, holder_id: str, credit_type: str) -> Account:
        """The account after all that has been answered here."""
        position = (holder_id, credit_type)
        if position not in self._accounts:
            self._accounts |= _read_accounts({position})
        if position in self._followed_by:
            self._accounts[position] = self._accounts[position].after_all(self._followed_by.pop(position))
        return self._accounts[position]

    def store(self) -> None:
        """Write what is pending."""
        if self._entries:
            append(self.lock, self._entries)
        self._entries = []


def _read_accounts(positions: set[tuple[str, str]]) -> dict[tuple[str, str], Account]:
    holders, types = zip(*positions, strict=True) if positions else ((), ())
    rows = ACCOUNTS.rows([array(holders), array(types)])
    return {(holder, credit_type): _account(holder, credit_type, [*state, False])[0] for holder, credit_type, *state in rows}


def _read_answered(keys: Sequence[tuple[str, str]]) -> set[tuple[str, bytes]]:
    """Of those, the holders and hashes of keys that have an entry already."""
    holders, texts = (array(column) for column in (zip(*keys, strict=True) if keys else ((), ())))
    return {(holder, key_hash(key)) for holder, key in ANSWERED.rows([holders, texts])}


def entries(lock: Lock, wanted: Sequence[tuple[str, str, int]]) -> list[Entry]:
    """The entries of those (holder_id, credit_type, sequence), in that order."""
    lock.ensure_held(*{holder_key(holder_id) for holder_id, _, _ in wanted})
    columns = [list(column) for column in zip(*wanted, strict=True)] or [[], [], []]
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES_BY_SEQUENCE, columns)
        return [entry_from_row(row) for row in cursor.fetchall()]


def record_batch(row: tuple[Any, ...]) -> None:
    """Put a batch's outcomes on record in this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(RECORD_BATCH, row)


def error_from_record(code: str, facts: dict[str, Any]) -> LedgerError:
    """The error as it was raised first."""
    return {**errors.REFUSALS, **errors.REJECTIONS}[code](**facts)


# Rows ------------------------------------------------------------------------------------------------


def _entry(sql: str, parameters: list[Any]) -> Entry | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    return None if row is None else entry_from_row(row)
