"""Imports rows as entries, each once, and history at its own times.

A row becomes a request with the key `import/` and the row's id, so a repeated or continued import stores nothing twice. The ids
of rows are global: a row whose holder was corrected is not imported again for the other holder. A row that says
when it happened is decided as of that time: its entry has it as `effective_at`, and `recorded_at` is the time of the import.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connection, connections

from ledger import journal
from ledger.database.locks import holder_key
from ledger.database.transactions import in_transaction
from ledger.errors import HolderBusy, IdempotencyKeyReused, Invalid, LedgerError, Refused, SequenceTaken
from ledger.exchange.import_rows import KEY_PREFIX, OF, ImportRow
from ledger.journal import LockedAccounts, key_hash
from ledger.previews import AccountRef, preview
from ledger.rules.entries import BY_AN_IMPORT, BY_THE_LEDGER, Entry
from ledger.rules.instants import to_us
from ledger.rules.requests import GrantRequest, Request
from ledger.services.execute import execute_one

ROWS_AT_ONCE: Final = 1_000
"""The rows of one transaction."""
MOST_TRIES: Final = 10
"""How often a transaction is tried while others write to the same holders."""

# When the last entry of each account was decided. A grant can count from another time, so an entry before it says it.
LAST_TIMES: Final = """
SELECT wanted.holder_id, wanted.credit_type, last.decided_at
FROM unnest(%(holders)s::text[], %(types)s::text[]) AS wanted (holder_id, credit_type)
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN starts_with(e.actor, %(import)s) THEN COALESCE(e.effective_at, e.recorded_at) ELSE e.recorded_at END
            AS decided_at
    FROM ledger_entry e
    WHERE e.holder_id = wanted.holder_id AND e.credit_type = wanted.credit_type
        AND e.actor <> %(ledger)s AND (e.kind <> 'grant' OR e.sequence = 1)
    ORDER BY e.sequence DESC
    LIMIT 1
) AS last
"""

# Which holders have rows of these keys, by the index of imported rows.
HOLDERS_OF_ROWS: Final = """
SELECT e.idempotency_key, e.holder_id
FROM ledger_entry e
WHERE starts_with(e.actor, 'import:')
    AND e.idempotency_key IS NOT NULL
    AND ledger_key_hash(e.idempotency_key) = ANY(%s)
"""

RESULTS: Final = {
    "imported": "imported",
    "known": "imported before",
    "refused": "refused",
    "changed": "imported before with other content",
    "moved": "imported before for another holder",
    "invalid": "invalid at this time",
}
"""What each result of a row is called."""


class ImportedForAnother(Invalid):
    """A row with this id was imported for another holder."""


class RowOutcome(NamedTuple):
    """The result of a row: its entry, which may exist since an earlier import, or why nothing was imported."""

    row: ImportRow
    entry: Entry | None = None
    error: LedgerError | None = None

    @property
    def result(self) -> str:
        """One of RESULTS."""
        if self.entry is not None:
            return "known" if self.entry.replayed else "imported"
        if isinstance(self.error, IdempotencyKeyReused):
            return "changed"
        if isinstance(self.error, ImportedForAnother):
            return "moved"
        return "refused" if isinstance(self.error, Refused) else "invalid"


@dataclass(slots=True)
class ImportSummary:
    """What an import did, or a dry run would do.

    Args:
        most_errors: how many rows that were not imported it keeps.
        credits: the sum of the imported amounts by credit type and kind of entry.
    """

    most_errors: int
    rows: Counter[str] = field(default_factory=Counter)
    credits: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: list[RowOutcome] = field(default_factory=list)

    def add(self, outcome: RowOutcome) -> None:
        """Count a row."""
        self.rows[outcome.result] += 1
        if outcome.entry is None:
            if len(self.errors) < self.most_errors:
                self.errors.append(outcome)
        elif not outcome.entry.replayed:
            self.credits[outcome.entry.credit_type, outcome.entry.kind] += outcome.entry.amount

    @property
    def not_imported(self) -> int:
        """How many rows were imported neither now nor before."""
        return sum(self.rows[result] for result in RESULTS if result not in ("imported", "known"))


class Difference(NamedTuple):
    """An account that has another number of spendable credits than its source."""

    holder_id: str
    credit_type: str
    expected: int
    available: int


@dataclass(slots=True)
class Importer:
    """Imports rows; the rows of one holder in their order.

    Args:
        times: when the last row of each account was decided, so that its history goes forward.
    """

    summary: ImportSummary
    times: dict[AccountRef, int] = field(default_factory=dict)

    def import_all(self, rows: Iterable[ImportRow], *, workers: int, done: Callable[[int], None] = lambda _: None) -> None:
        """Import all rows, ROWS_AT_ONCE in a transaction.

        Args:
            workers: the number of threads, each with a connection; 1 uses the caller's thread, also for a preview.
            done: is called with the number of rows that are done.

        Raises:
            HolderBusy, SequenceTaken: others keep writing to the same holders; run the import again, which continues.
            OutcomeUnknown: the connection was lost during COMMIT; run the import again.
        """
        with ExitStack() as stack:
            threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(workers)] if workers > 1 else []
            waiting: list[list[ImportRow]] = [[] for _ in range(workers)]
            running: list[Future[list[RowOutcome]] | None] = [None] * workers
            count = 0

            def finish(number: int) -> None:
                nonlocal count
                future, running[number] = running[number], None
                for outcome in [] if future is None else future.result():
                    self.summary.add(outcome)
                    count += 1
                done(count)

            def start(number: int) -> None:
                nonlocal count
                chunk, waiting[number] = waiting[number], []
                if threads:
                    finish(number)
                    running[number] = threads[number].submit(self._in_thread, chunk)
                    return
                for outcome in self.import_chunk(chunk):
                    self.summary.add(outcome)
                count += len(chunk)
                done(count)

            for row in rows:
                number = zlib.crc32(row.request.holder_id.encode()) % workers
                waiting[number].append(row)
                if len(waiting[number]) == ROWS_AT_ONCE:
                    start(number)
            for number in range(workers):
                if waiting[number]:
                    start(number)
            for number in range(workers):
                finish(number)
            for thread in threads:
                thread.submit(connections.close_all)

    def _in_thread(self, rows: Sequence[ImportRow]) -> list[RowOutcome]:
        for _ in range(MOST_TRIES - 1):
            try:
                return self.import_chunk(rows)
            except (HolderBusy, SequenceTaken):
                continue
        return self.import_chunk(rows)

    def import_chunk(self, rows: Sequence[ImportRow]) -> list[RowOutcome]:
        """Import rows in their order in one transaction, or raise and write nothing.

        A refused row is on record as a refusal of its account. A row that is invalid at this time writes nothing.
        """
        requests = [row.request for row in rows]

        def once() -> tuple[list[RowOutcome], dict[AccountRef, int]]:
            with journal.open(requests) as accounts:
                execution = _Execution(accounts, self._last_times(rows), _holders_of(requests))
                outcomes = [execution.outcome_of(row) for row in rows]
                accounts.append()
                return outcomes, execution.times

        locks = dict.fromkeys(holder_key(request.holder_id) for request in requests)
        outcomes, times = in_transaction(once, locks=locks)
        self.times |= times
        return outcomes

    def _last_times(self, rows: Iterable[ImportRow]) -> dict[AccountRef, int]:
        refs = {_account_of(row) for row in rows if row.occurred_at is not None}
        known = {ref: self.times[ref] for ref in refs if ref in self.times}
        unknown = sorted(refs - known.keys())
        if unknown:
            holders, types = map(list, zip(*unknown, strict=True))
            with connection.cursor() as cursor:
                parameters: dict[str, Any] = {"holders": holders, "types": types, "import": BY_AN_IMPORT, "ledger": BY_THE_LEDGER}
                cursor.execute(LAST_TIMES, parameters)
                known |= {(holder_id, credit_type): to_us(at) for holder_id, credit_type, at in cursor.fetchall()}
        return known


@dataclass(slots=True)
class _Execution:
    """One transaction of an import, under the locks of all its holders.

    Args:
        times: when the last entry of each account was decided.
        holders: of the rows that were imported before, by their keys.
    """

    accounts: LockedAccounts
    times: dict[AccountRef, int]
    holders: dict[str, str]

    def outcome_of(self, row: ImportRow) -> RowOutcome:
        """Decide a row, and collect its entries."""
        account_ref = _account_of(row)
        now_us = self.accounts.account(*account_ref).state.now_us
        is_new = not self.accounts.is_used(row.request)
        try:
            self._check_holder(row)
            request = row.request if row.of is None else self._referring(row)
            if row.occurred_at is not None and is_new:
                self._go_back(row, row.occurred_at)
            outcome = execute_one(self.accounts, request)
        except Invalid as invalid:
            return RowOutcome(row, error=invalid)
        finally:
            if row.occurred_at is not None:
                self.accounts.decide_at(account_ref, now_us)
        if isinstance(outcome, LedgerError):
            return RowOutcome(row, error=outcome)
        assert outcome is not None
        if row.occurred_at is None and is_new and not isinstance(request, GrantRequest):
            # As LAST_TIMES says it to the next import.
            self.times[account_ref] = now_us
        return RowOutcome(row, outcome.entry, outcome.refusal)

    def _check_holder(self, row: ImportRow) -> None:
        holder_id = self.holders.get(row.request.idempotency_key, row.request.holder_id)
        if holder_id != row.request.holder_id:
            detail = f"was imported for {holder_id}; transfer the credits, or give the corrected row an id of its own"
            raise ImportedForAnother(pointer="/row", rule="imported-for-another", detail=detail)

    def _referring(self, row: ImportRow) -> Any:
        """Return the request with the number of the entry that it refers to."""
        self.accounts.append()
        earlier = self.accounts.stored_with(replace(row.request, idempotency_key=f"{KEY_PREFIX}{row.of}"))
        if earlier is None or earlier.refusal is not None or earlier.credit_type != row.request.credit_type:
            raise Invalid(pointer="/of", rule="not-found", detail=f"names no row of this account that was imported: {row.of}")
        of: dict[str, Any] = {OF[row.request.operation]: earlier.sequence}
        return replace(row.request, **of)

    def _go_back(self, row: ImportRow, occurred_at: datetime) -> None:
        """Have the row decided as of its own time."""
        account_ref, at_us = _account_of(row), to_us(occurred_at)
        state = self.accounts.account(*account_ref).state
        if state.server_us:
            raise Invalid(pointer="/holder", rule="test-clock", detail="has a test clock, so its history cannot be imported")
        if at_us > state.now_us:
            raise Invalid(pointer="/occurred_at", rule="in-the-future", detail="lies in the future")
        if at_us < self.times.get(account_ref, at_us):
            raise Invalid(pointer="/occurred_at", rule="out-of-order", detail="is earlier than the account's last entry")
        self.times[account_ref] = at_us
        self.accounts.decide_at(account_ref, at_us, server_us=state.now_us)


def _holders_of(requests: Iterable[Request]) -> dict[str, str]:
    """Return which holder has a row of that key already, by key."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDERS_OF_ROWS, [[key_hash(request.idempotency_key) for request in requests]])
        return dict(cursor.fetchall())


def _account_of(row: ImportRow) -> AccountRef:
    return row.request.holder_id, row.request.credit_type


def differences(expected: Iterable[tuple[AccountRef, int]]) -> Iterator[Difference]:
    """Yield the accounts whose spendable credits are not what their source says.

    Args:
        expected: the credits of each account that can be spent now.
    """
    for chunk in _chunks(expected):
        for ref, amount, available in _available(chunk):
            if amount != available:
                yield Difference(*ref, amount, available)


class Compared(NamedTuple):
    """An account in its source and here: what its source says, what can be spent here before the import, and after it."""

    holder_id: str
    credit_type: str
    source: int
    before: int
    after: int

    @property
    def differs(self) -> bool:
        """Whether the import would not make what the source says."""
        return self.source != self.after


def compare_first(expected: Iterable[tuple[AccountRef, int]], import_all: Callable[[], None]) -> list[Compared]:
    """Return each account in its source and here, before anything is imported: the import is done in a preview.

    Args:
        import_all: imports the rows, within the preview.
    """
    wanted = list(expected)
    with preview(one_snapshot=True):
        before = {ref: available for chunk in _chunks(wanted) for ref, _, available in _available(chunk)}
        import_all()
        return [
            Compared(*ref, amount, before[ref], after) for chunk in _chunks(wanted) for ref, amount, after in _available(chunk)
        ]


def _available(chunk: Sequence[tuple[AccountRef, int]]) -> list[tuple[AccountRef, int, int]]:
    """Return accounts with what is expected of them, and what can be spent."""

    def once() -> list[tuple[AccountRef, int, int]]:
        with journal.open(accounts=[ref for ref, _ in chunk]) as accounts:
            return [(ref, amount, accounts.account(*ref).state.available) for ref, amount in chunk]

    return in_transaction(once)


def _chunks(items: Iterable[tuple[AccountRef, int]]) -> Iterator[list[tuple[AccountRef, int]]]:
    chunk: list[tuple[AccountRef, int]] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == ROWS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
