"""Storage under the lock: open, replay, append, refuse. The only writer of entries, refusals included.

Every function here runs inside a transaction and under the holder's lock. `open` takes the locks and yields `LockedAccounts`,
which contain the proof; the other functions demand the proof. A spend is two statements between BEGIN and COMMIT: a call that
locks and then reads, and an INSERT.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import conf, errors, previews
from ledger.database import lock_names
from ledger.database.locks import (
    Lock,
    holder_key,
    holding,
    keep_to_deadline,
    numbering,
    waiting_for,
    waiting_for_many,
)
from ledger.database.pacing import in_pieces, with_pauses
from ledger.database.statements import Statement, array, boolean, instant_us, integer, parameter
from ledger.entry_rows import COLUMNS, READ_COLUMNS, TYPES, copy_line, entry_from_row, parameters, texts
from ledger.errors import IdempotencyKeyReused, LedgerError, NotInTransaction, Refused
from ledger.previews import AccountRef, Preview
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import NO_STEPS, Budget, CounterKey, Counts, counting, decode_budgets, decode_counts, in_force
from ledger.rules.claims import decode_claims
from ledger.rules.cost_shares import decode_costs
from ledger.rules.entries import FROZEN, REQUEST_DIGEST_BYTES, Entry
from ledger.rules.holds import decode_holds
from ledger.rules.instants import to_text, to_us
from ledger.rules.lots import decode
from ledger.rules.overage import decode_overage
from ledger.rules.requests import BETWEEN_HOLDERS, Request

LOOKUPS_AT_ONCE: Final = 32
"""How many lookups go to the server at once from work that yields to other work."""
OPEN = Statement(
    "open",
    "SELECT * FROM ledger_open(%s, %s, %s, %s, %s, %s)",
    [
        boolean,
        instant_us,
        instant_us,
        *[integer] * 3,
        bytes.decode,
        bytes.decode,
        integer,
        bytes,
        integer,
        bytes.decode,
        bytes.decode,
        bytes.decode,
        bytes.decode,
        bytes.decode,
        instant_us,
        instant_us,
        boolean,
    ],
)

COUNTERS = Statement(
    "budget_counters", "SELECT * FROM ledger_budget_counters(%s, %s, %s, %s, %s, %s, %s)", [integer, integer, integer]
)
COUNTS_OF_HOLDS = Statement(
    "counts_of_holds",
    "SELECT sequence, counts FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)",
    [integer, bytes.decode],
)

_PLACES = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
APPEND_ONE = Statement("append", f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({_PLACES})")

_ARRAYS = ", ".join(f"%s::{type_}[]" for type_ in TYPES.values())
APPEND_FEW = Statement("append_few", f"INSERT INTO ledger_entry ({COLUMNS}) SELECT * FROM unnest({_ARRAYS})")
FEW: Final = 64
"""Up to this number, entries go as arrays into one prepared statement, in one round trip; more go by COPY, which is faster then.
Work that yields to other work stores this number at once."""
CHUNK: Final = 16
"""How many entries of a COPY are sent at once: the server stores them while the next ones are encoded."""

# At most one row, because the keys of a holder are unique by their hash. The row's key may be another text with the same hash.
# About the order see Note [Plans that stay right] in schema.sql.
ENTRY_BY_KEY = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %s
    AND ledger_key_hash(idempotency_key) BETWEEN ledger_key_hash(%s) AND ledger_key_hash(%s)
    AND idempotency_key IS NOT NULL
ORDER BY ledger_key_hash(idempotency_key)
LIMIT 1
"""

# The row repeats what the entry says, for the list of what is due; the audit compares them.
RECORD_RECURRING_GRANT = """
INSERT INTO ledger_recurring_grant AS known (holder_id, credit_type, name, setting, last, next_at)
VALUES (%(holder_id)s, %(credit_type)s, %(name)s, %(setting)s, %(last)s, %(next_at)s)
ON CONFLICT (holder_id, credit_type, name)
DO UPDATE SET setting = excluded.setting, last = excluded.last, next_at = excluded.next_at
"""

COPY = f"COPY ledger_entry ({COLUMNS}) FROM STDIN"

RECORD_BATCH = """
INSERT INTO ledger_batch (idempotency_key, confined_to, request_digest, mode, outcomes, recorded_at, actor, request_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""

# A lot that could be spent as soon as it was recorded does not store that time: its grant's entry does.
EFFECTIVE_TIMES = """
SELECT sequence, COALESCE(effective_at, recorded_at)
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


WantedCounter = tuple[AccountState, Budget, str, int]
"""An account, one of its budgets, a subject, and when its window is."""


class Result(NamedTuple):
    """The stored result of a request: the entry, or the refusal."""

    entry: Entry | None = None
    refusal: Refused | None = None

    def unwrap(self) -> Entry:
        """Return the entry, or raise the recorded refusal. Call it only after the transaction has ended."""
        if self.refusal is not None:
            raise self.refusal
        assert self.entry is not None
        return self.entry


class LockedAccount(NamedTuple):
    """One account under its holder's lock, with the state after all entries that were collected for it."""

    state: AccountState
    among: "LockedAccounts"

    @property
    def lock(self) -> Lock:
        """The proof that the holder is locked."""
        return self.among.lock

    def stored_state(self) -> AccountState:
        """Return the state after storing all collected entries, so that a look-up finds them."""
        self.among.append()
        self.lock.ensure_held(holder_key(self.state.holder_id))
        return self.state


class LockedAccounts:
    """Accounts that were read under the locks of their holders, and the entries collected for them.

    All collected entries are stored together: by `append`, or earlier if an older entry must be looked up.
    """

    def __init__(self, lock: Lock, states: dict[AccountRef, AccountState], used_keys: set[tuple[str, bytes]]) -> None:
        """Begin with the states that were read under the lock.

        Args:
            states: the states of the accounts whose holders the lock covers.
            used_keys: holders, each with the hash of a key that already has an entry.
        """
        self.lock = lock
        self._states = states
        self._used_keys = used_keys
        self._collected: list[Entry] = []
        self._last: dict[AccountRef, Entry] = {}
        """The last entry collected for an account, until `account` is called for it."""
        self._recurring: list[Entry] = []
        """The collected entries that set or end recurring grants, or handle a period of one."""
        self._effective_us: dict[tuple[AccountRef, int], int] = {}
        self._counted: set[tuple[AccountRef, CounterKey, range]] = set()
        """The counters that were read, each with the window that was."""
        self.accepts_transfers: dict[AccountRef, bool] = {}
        """Whether each account accepts transfers from others, for the accounts that were looked up."""

    def covers(self, *account_refs: AccountRef) -> bool:
        """Return whether the holders of these accounts are locked."""
        return self._states.keys() >= set(account_refs)

    def account_refs(self) -> list[AccountRef]:
        """Return the accounts whose holders are locked."""
        return list(self._states)

    def covers_request(self, request: Request) -> bool:
        """Return whether the holders of the request's accounts are locked."""
        return self.covers(*accounts_of(request))

    def account(self, holder_id: str, credit_type: str) -> LockedAccount:
        """Return the account after all entries that were collected for it."""
        account_ref = (holder_id, credit_type)
        if account_ref in self._last:
            self._states[account_ref] = self._states[account_ref].after(self._last.pop(account_ref))
        state = self._states[account_ref]
        if state.budgets and state.holds:
            self._read_expired(state)
        return LockedAccount(self._states[account_ref], self)

    def count_for(self, account_ref: AccountRef, asking: Request | Entry) -> AccountState:
        """Return the account with the counters that a request needs, or what is done with the hold of an entry."""
        state = self._states[account_ref]
        now_us = state.now_us
        wanted = [(state, budget, subject, now_us) for budget, subject in counting(state.present_budgets, asking)]
        if isinstance(asking, Entry) and asking.counts:
            wanted += self._count_holds(state, {asking.sequence: (asking.counts, now_us)})
        self._read_counters(wanted)
        return self._states[account_ref]

    def count_for_all(self, requests: Iterable[Request]) -> None:
        """Read the counters that the requests of a group need, for all of them at once."""
        wanted: list[WantedCounter] = []
        for request in requests:
            state = self._states.get((request.holder_id, request.credit_type))
            if state is not None and state.budgets:
                present = counting(state.present_budgets, request)
                wanted += [(state, budget, subject, state.now_us) for budget, subject in present]
        self._read_counters(wanted)

    def _read_expired(self, state: AccountState) -> None:
        """Read what the budgets counted of holds that have expired: they are released before anything else."""
        expired = {hold.sequence: hold.expires_us for hold in state.holds if hold.is_expired(state.now_us)}
        unknown = [sequence for sequence in expired if sequence not in state.held_counts]
        counts = {sequence: state.held_counts.get(sequence, ()) for sequence in expired}
        if unknown:
            numbers = array([str(each) for each in unknown])
            for sequence, text in COUNTS_OF_HOLDS.rows([parameter(state.holder_id), parameter(state.credit_type), numbers]):
                counts[sequence] = () if text is None else decode_counts(text)
        self._read_counters(self._count_holds(state, {each: (held, expired[each]) for each, held in counts.items()}))

    def _count_holds(self, state: AccountState, held: Mapping[int, tuple[Counts, int]]) -> list[WantedCounter]:
        """Have the account know what its budgets counted of holds; return the counters to which they give back, and when."""
        held_counts = {**state.held_counts, **{sequence: counts for sequence, (counts, _) in held.items()}}
        self._states[state.holder_id, state.credit_type] = state._replace(held_counts=held_counts)
        return [
            (state, budget, each.subject, at_us)
            for counts, at_us in held.values()
            for each in counts
            for budget in in_force(state.budgets, at_us)
            if budget.setting == each.setting
        ]

    def _read_counters(self, wanted: Iterable[WantedCounter]) -> None:
        """Read the steps that count then. What collected entries have changed since stays as it is."""
        windows = dict.fromkeys(
            ((state.holder_id, state.credit_type), (budget.setting, subject), budget.window_at(at_us))
            for state, budget, subject, at_us in wanted
        )
        missing = [each for each in windows if each not in self._counted]
        if not missing:
            return
        rows = [
            (*account_ref, str(setting), subject, str(window[0]), str(window[-1]), str(window.step))
            for account_ref, (setting, subject), window in missing
        ]
        found: dict[AccountRef, dict[CounterKey, dict[int, int]]] = {}
        for account_ref, key, _ in missing:
            found.setdefault(account_ref, {})[key] = {}
        for place, start_us, used in COUNTERS.rows([array(column) for column in zip(*rows, strict=True)]):
            account_ref, key, _ = missing[place - 1]
            found[account_ref][key][start_us] = used
        for account_ref, counters in found.items():
            state = self._states[account_ref]
            known = state.counters
            merged = {key: {**steps, **known.get(key, NO_STEPS)} for key, steps in counters.items()}
            self._states[account_ref] = state._replace(counters={**known, **merged})
        self._counted.update(missing)

    def decide_at(self, account_ref: AccountRef, now_us: int, *, server_us: int = 0) -> None:
        """Have the account's next requests decided as of a time, until the next call.

        Args:
            server_us: the server's time, if `now_us` is another.
        """
        self._states[account_ref] = self.account(*account_ref).state._replace(now_us=now_us, server_us=server_us)

    def is_used(self, request: Request) -> bool:
        """Return whether the request's key, or another key of the holder with the same hash, already has an entry."""
        return (request.holder_id, key_hash(request.idempotency_key)) in self._used_keys

    def collect(self, entries: Sequence[Entry]) -> None:
        """Collect entries that follow from the accounts' states, in their order."""
        self._collected += entries
        for entry in entries:
            account_ref = (entry.holder_id, entry.credit_type)
            # An entry has the whole state after it, but for what budgets count of those before it.
            before = self._last.get(account_ref)
            if before is not None and before.counts:
                self._states[account_ref] = self._states[account_ref].counting(before)
            self._last[account_ref] = entry
            if entry.idempotency_key is not None:
                self._used_keys.add((entry.holder_id, key_hash(entry.idempotency_key)))
            if entry.kind == "adjust" and entry.counterpart is not None:
                self._note_setting(entry)
            elif entry.kind == "grant" and entry.is_recurring_period:
                self._recurring.append(entry)

    def _note_setting(self, entry: Entry) -> None:
        """Have the requests after it see what the entry sets: of its account, or of all accounts of its holder."""
        if entry.accepts_transfers is not None:
            self.accepts_transfers[entry.holder_id, entry.credit_type] = entry.accepts_transfers
        if entry.recurring_grant is not None:
            self._recurring.append(entry)
        if entry.freezes is not None:
            for account_ref, state in self._states.items():
                if account_ref[0] == entry.holder_id:
                    self._states[account_ref] = state._replace(is_frozen=entry.freezes)
        if entry.clock_us is not None:
            for account_ref, state in self._states.items():
                if account_ref[0] == entry.holder_id:
                    # Also where they were opened before: the order of their times says what came after the move.
                    server_us = max(state.server_us or state.now_us, entry.recorded_us)
                    self._states[account_ref] = state._replace(now_us=entry.clock_us, server_us=server_us)

    def refuse(self, request: Request, refusal: Refused) -> None:
        """Complete the facts of a refusal, and collect its entry unless the request is a dry run."""
        state = self.account(request.holder_id, request.credit_type).state
        self._add_effective_times(state, refusal)
        if not request.dry_run:
            refusal.request_id = request.request_id
            self.collect([state.refused(request, refusal)])

    def append(self) -> None:
        """Store all collected entries; see the function `append`."""
        self.lock.ensure_held()  # it covers all accounts of this object
        collected, self._collected = self._collected, []
        _insert(collected)
        if self._recurring:
            settings, self._recurring = self._recurring, []
            record_recurring_grants(settings)

    def stored_with(self, request: Request) -> Entry | None:
        """Return the stored entry that has the request's key, or another key of the holder with the same hash."""
        return fetch_entry(ENTRY_BY_KEY, [request.holder_id, request.idempotency_key, request.idempotency_key])

    def previewed(self, state: AccountState) -> Sequence[Entry]:
        """Return the entries of the account that only exist in a preview, in their order."""
        return ()

    def _add_effective_times(self, state: AccountState, refusal: Refused) -> None:
        """Add to the facts the effective times of lots that do not store them."""
        lots = [lot for lot in refusal.facts.get("lots", ()) if lot["effective_at"] is None]
        account_ref = (state.holder_id, state.credit_type)
        missing = [lot["grant"] for lot in lots if (account_ref, lot["grant"]) not in self._effective_us]
        if missing:
            self.append()
            with connection.cursor() as cursor:
                cursor.execute(EFFECTIVE_TIMES, [*account_ref, missing])
                self._effective_us |= {(account_ref, grant): to_us(effective_at) for grant, effective_at in cursor.fetchall()}
        for lot in lots:
            lot["effective_at"] = to_text(self._effective_us[account_ref, lot["grant"]])


class PreviewedAccounts(LockedAccounts):
    """Accounts of a preview: read without a lock, and never stored. See `ledger.previews`."""

    def __init__(
        self, lock: Lock, states: dict[AccountRef, AccountState], used_keys: set[tuple[str, bytes]], preview: Preview
    ) -> None:
        known = {account_ref: preview.accounts.setdefault(account_ref, state) for account_ref, state in states.items()}
        super().__init__(lock, known, used_keys)
        self._preview = preview

    def is_used(self, request: Request) -> bool:
        return (request.holder_id, request.idempotency_key) in self._preview.by_key or super().is_used(request)

    def append(self) -> None:
        """Keep all collected entries in memory."""
        self.lock.ensure_held()
        collected, self._collected = self._collected, []
        self._preview.keep(collected)

    def stored_with(self, request: Request) -> Entry | None:
        return self._preview.by_key.get((request.holder_id, request.idempotency_key)) or super().stored_with(request)

    def previewed(self, state: AccountState) -> Sequence[Entry]:
        return self._preview.entries.get((state.holder_id, state.credit_type), ())

    def _add_effective_times(self, state: AccountState, refusal: Refused) -> None:
        account_ref = (state.holder_id, state.credit_type)
        self.append()
        self._effective_us |= {(account_ref, entry.sequence): entry.effective_us for entry in self.previewed(state)}
        super()._add_effective_times(state, refusal)


def key_hash(idempotency_key: str) -> bytes:
    """Return the first 8 bytes of SHA-256 over a key, by which a holder's keys are unique; `ledger_key_hash` in the server."""
    return hashlib.sha256(idempotency_key.encode()).digest()[:8]


# The one entry point ----------------------------------------------------------------------------------------


class Lookup(NamedTuple):
    """One element of the arrays of `ledger_open`: a lock to take, and an account to read, a key to look for, or both."""

    number: int
    name: str
    holder_id: str | None = None
    credit_type: str | None = None
    key: str | None = None


@contextmanager
def open(  # noqa: A001 - what it is
    requests: Sequence[Request] = (),
    *,
    accounts: Iterable[AccountRef] = (),
    names: Iterable[str] = (),
    wait: bool = True,
    held: Lock | None = None,
) -> Iterator[LockedAccounts]:
    """Lock holders until the transaction ends, then read their accounts and look for the requests' keys, in one statement.

    A batch beside quicker work does so in several, still in the order of the locks' numbers (docs/explanation/architecture.md).

    Args:
        requests: their accounts are read (for a transfer both), and their keys are looked for.
        accounts: further accounts to read.
        names: further locks to take, each at its place in the order of the numbers.
        wait: True waits for each lock up to lock_timeout; False only tries them, and `covers` says which holders are locked.
        held: a lock that already covers the holders; then no lock is taken.

    Raises:
        NotInTransaction: no atomic() is open; nothing was sent.
        HolderBusy: lock_timeout passed; the transaction is aborted.
        LockNotHeld: `held` does not cover the holders.
    """
    lookups = _lookups(requests, accounts, names)
    all_names = list(dict.fromkeys(lookup.name for lookup in lookups))
    if not connection.in_atomic_block:
        raise NotInTransaction(key=all_names[0])
    if held is not None:
        held.ensure_held(*all_names)
    preview = previews.current()
    if preview is not None:
        with nullcontext(held) if held is not None else holding(*all_names) as lock:
            yield _open_accounts(lock, lookups, OPEN.rows(_parameters(None, lookups)), requests, preview)
    elif held is not None:
        yield _open_accounts(held, lookups, OPEN.rows(_parameters(None, lookups)), requests)
    elif wait:
        rows: list[Any] = []
        for piece in in_pieces(lookups, LOOKUPS_AT_ONCE):
            with waiting_for(all_names[0]) if len(all_names) == 1 else waiting_for_many(_all_of(all_names)):
                rows += OPEN.rows(_parameters(b"t", piece))
        keep_to_deadline()
        with holding(*all_names) as lock:
            yield _open_accounts(lock, lookups, rows, requests)
    else:
        rows = OPEN.rows(_parameters(b"f", lookups))
        got = [lookup.name for lookup, (is_locked, *_) in zip(lookups, rows, strict=True) if is_locked]
        with holding(*got) as lock:
            yield _open_accounts(lock, lookups, rows, requests)


def read(lock: Lock, holder_id: str, credit_type: str) -> LockedAccount:
    """Read an account under a lock of its holder that is already held."""
    with open(accounts=[(holder_id, credit_type)], held=lock) as accounts:
        return accounts.account(holder_id, credit_type)


def accounts_of(request: Request) -> list[AccountRef]:
    """The accounts of the request: the one that gets its entry, and of a transfer or its reversal the other holder's."""
    account_ref = (request.holder_id, request.credit_type)
    return [account_ref, (request.to, request.credit_type)] if isinstance(request, BETWEEN_HOLDERS) else [account_ref]


def _lookups(requests: Sequence[Request], accounts: Iterable[AccountRef], names: Iterable[str]) -> list[Lookup]:
    """Return the lookups in the order of the locks' numbers; each account is read once, and each key is looked for once."""
    number_of, key_of = numbering(), lock_names.HOLDER.spelling()
    lookups = [Lookup(number_of(name), name) for name in names]
    known: dict[str, tuple[int, str]] = {}
    read: set[AccountRef] = set()

    def add(holder_id: str, credit_type: str, key: str | None = None) -> None:
        if holder_id not in known:
            name = key_of(holder_id)
            known[holder_id] = (number_of(name), name)
        is_new = (holder_id, credit_type) not in read
        if is_new or key is not None:
            read.add((holder_id, credit_type))
            lookups.append(Lookup(*known[holder_id], holder_id, credit_type if is_new else None, key))

    for request in requests:
        add(request.holder_id, request.credit_type, request.idempotency_key)
        for other in accounts_of(request)[1:]:
            add(*other)
    for account_ref in accounts:
        add(*account_ref)
    # Sorted by name alone, two locks with one number could be taken in two orders; by number alone, on two nodes of a cluster.
    return sorted(lookups, key=lambda lookup: (lookup.number, lookup.name))


def _all_of(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) == 2 else f"{len(names)} locks"


def _parameters(wait: bytes | None, lookups: Sequence[Lookup]) -> list[bytes | None]:
    return [
        wait,
        array([str(lookup.number) for lookup in lookups]),
        array([lookup.holder_id for lookup in lookups]),
        array([lookup.credit_type for lookup in lookups]),
        array([lookup.key for lookup in lookups]),
        b"t" if conf.TEST_CLOCKS.value else b"f",
    ]


def _open_accounts(
    lock: Lock,
    lookups: Sequence[Lookup],
    rows: Sequence[Sequence[Any]],
    requests: Sequence[Request],
    preview: Preview | None = None,
) -> LockedAccounts:
    states: dict[AccountRef, AccountState] = {}
    used_keys: set[tuple[str, bytes]] = set()
    has_budgets = False
    for lookup, (is_locked, *state, is_used) in zip(lookups, rows, strict=True):
        if not is_locked or lookup.holder_id is None:
            continue
        if lookup.credit_type is not None:
            states[lookup.holder_id, lookup.credit_type] = account = _account(lookup.holder_id, lookup.credit_type, state)
            if account.budgets:
                has_budgets = True
        if is_used and lookup.key is not None:
            used_keys.add((lookup.holder_id, key_hash(lookup.key)))
    accounts = LockedAccounts(lock, states, used_keys) if preview is None else PreviewedAccounts(lock, states, used_keys, preview)
    if has_budgets:
        accounts.count_for_all(requests)
    return accounts


def _account(holder_id: str, credit_type: str, row: Sequence[Any]) -> AccountState:
    (
        server_us,
        recorded_us,
        sequence,
        balance,
        held,
        lots,
        holds,
        overdraft,
        digest,
        moved_by,
        freeze,
        budgets,
        costs,
        overage,
        claims,
        next_grant_us,
        clock_us,
    ) = row
    now_us = server_us if clock_us is None else clock_us
    if clock_us is None:
        server_us = 0
    if sequence is None:
        return AccountState(holder_id, credit_type, now_us, is_frozen=freeze == FROZEN, server_us=server_us)
    return AccountState(
        holder_id,
        credit_type,
        now_us,
        sequence,
        balance,
        held,
        decode(lots),
        () if holds is None else decode_holds(holds),
        overdraft,
        bytes(digest),
        recorded_us,
        moved_by,
        freeze == FROZEN,
        () if budgets is None else decode_budgets(budgets),
        server_us,
        () if costs is None else decode_costs(costs),
        None if overage is None else decode_overage(overage),
        () if claims is None else decode_claims(claims),
        next_grant_us=next_grant_us,
    )


# What was stored before ------------------------------------------------------------------------------


def replay(accounts: LockedAccounts, request: Request) -> Result:
    """Return the result of the key's first request, marked as replayed; writes nothing.

    Raises:
        IdempotencyKeyReused: the key belongs to another request, or another key of the holder has the same hash.
    """
    accounts.append()
    accounts.lock.ensure_held(holder_key(request.holder_id))
    entry = accounts.stored_with(request)
    assert entry is not None
    is_same_request = entry.request_digest == request.digest()[:REQUEST_DIGEST_BYTES]
    if entry.idempotency_key != request.idempotency_key or not is_same_request:
        raise IdempotencyKeyReused(idempotency_key=request.idempotency_key)
    if entry.refusal is None:
        return Result(entry=entry._replace(replayed=True))
    refusal = refusal_from_record(entry.refusal["code"], entry.refusal["facts"], entry.refusal["request_id"])
    refusal.replayed = True
    return Result(refusal=refusal)


def refusal_from_record(code: str, facts: dict[str, Any], request_id: str) -> Refused:
    """Return the refusal as it was raised first."""
    refusal = errors.REFUSALS[code](**facts)
    refusal.request_id = request_id
    return refusal


def append(lock: Lock, entries: Sequence[Entry]) -> None:
    """Store entries of holders that the lock covers, all or none.

    Raises:
        LockNotHeld: the lock is on others, or no longer held here.
        django.db.IntegrityError: a session without the lock has taken a sequence number; roll back and decide again.
    """
    lock.ensure_held(*{holder_key(entry.holder_id) for entry in entries})
    _insert(entries)


def _insert(entries: Sequence[Entry]) -> None:
    for piece in in_pieces(entries, FEW):
        _insert_at_once(piece)


def _insert_at_once(entries: Sequence[Entry]) -> None:
    if len(entries) > FEW:
        with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(COPY) as copy:
            for first in with_pauses(range(0, len(entries), CHUNK)):
                copy.write("".join(map(copy_line, entries[first : first + CHUNK])))
    elif len(entries) == 1:
        APPEND_ONE.execute(parameters(entries[0]))
    else:
        APPEND_FEW.execute([array(column) for column in zip(*map(texts, entries), strict=True)])


def record_recurring_grants(entries: Iterable[Entry]) -> None:
    """Write for each recurring grant which entry set it, which was its last one, and when the next grant is due.

    Args:
        entries: that set or end one, or handle a period; each the last one of its recurring grant.
    """
    with connection.cursor() as cursor:
        for entry in entries:
            counterpart = entry.counterpart or {}
            facts = entry.metadata if entry.kind == "grant" or "period_start" in counterpart else counterpart
            row = {
                "holder_id": entry.holder_id,
                "credit_type": entry.credit_type,
                "name": facts["recurring_grant"],
                "setting": facts.get("setting", entry.sequence),
                "last": entry.sequence,
                "next_at": facts.get("next_at"),
            }
            cursor.execute(RECORD_RECURRING_GRANT, row)


def record_batch(row: tuple[Any, ...]) -> None:
    """Store a batch's outcomes in this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(RECORD_BATCH, row)


def error_from_record(code: str, facts: dict[str, Any]) -> LedgerError:
    """Return the error as it was raised first."""
    return {**errors.REFUSALS, **errors.REJECTIONS}[code](**facts)


def fetch_entry(sql: str, parameters: list[Any]) -> Entry | None:
    """Return the entry that a statement of READ_COLUMNS finds, or None."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    return None if row is None else entry_from_row(row)
