"""The sweeper: books what the clock has brought about for accounts that nobody writes to.

Expired lots and holds count as expired from their instant on, booked or not; the next writer books them. An account without
writers keeps them in its `balance` until this is run. Nothing depends on its being run in time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import Error, connection, connections

from ledger import services
from ledger.errors import LedgerError, Misuse, Retryable
from ledger.rules import Entry

ACCOUNTS_PER_PAGE = 1_000

# From first entry to first entry, which have an index, and of each account only the last one: what it costs grows with the number
# of accounts, not with their history.
PAGE = """
WITH account AS (
    SELECT holder_id, credit_type
    FROM ledger_entry
    WHERE sequence = 1 AND (holder_id, credit_type) > (%(holder_id)s, %(credit_type)s)
    ORDER BY holder_id, credit_type
    LIMIT %(limit)s
), clock AS (
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now_us
)
SELECT account.holder_id, account.credit_type, lot.expired, hold.expired, lot.spendable > 0 AND lot.total > last.balance
FROM account
CROSS JOIN clock
CROSS JOIN LATERAL (
    SELECT e.balance, e.lots, e.holds, e.overdraft
    FROM ledger_entry e
    WHERE e.holder_id = account.holder_id AND e.credit_type = account.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) AS last
CROSS JOIN LATERAL (
    SELECT
        COALESCE(sum((l ->> 1)::numeric) FILTER (WHERE (l ->> 3)::numeric <= clock.now_us), 0) AS expired,
        COALESCE(sum((l ->> 1)::numeric) FILTER (WHERE (l ->> 2)::numeric <= clock.now_us), 0) AS spendable,
        COALESCE(sum((l ->> 1)::numeric), 0) AS total
    FROM json_array_elements(last.lots) AS l
) AS lot
CROSS JOIN LATERAL (
    SELECT COALESCE(sum((part ->> 1)::numeric), 0) AS expired
    FROM json_array_elements(last.holds) AS h, json_array_elements(h -> 2) AS part
    WHERE (h ->> 1)::bigint <= clock.now_us
) AS hold
ORDER BY account.holder_id, account.credit_type
"""


class DueAccount(NamedTuple):
    """An account that has something to be booked, as it was seen without a lock."""

    holder_id: str
    credit_type: str
    expired: int
    """Credits of lots that have expired."""
    held: int
    """Credits of holds that have expired."""


@dataclass
class Summary:
    """What a sweep came to."""

    looked_at: int = 0
    due: int = 0
    booked: int = 0
    entries: int = 0
    expired_credits: int = 0
    released_credits: int = 0
    nothing_left: int = 0
    busy: int = 0
    failed: int = 0
    limit_reached: bool = False
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    by_kind: dict[str, int] = field(default_factory=dict)

    def add_entries(self, entries: list[Entry]) -> None:
        """Count what was booked for one account; nothing, when somebody else had done it meanwhile."""
        self.booked += bool(entries)
        self.nothing_left += not entries
        self.entries += len(entries)
        for entry in entries:
            self.by_kind[entry.kind] = self.by_kind.get(entry.kind, 0) + 1
            if entry.kind == "expire":
                self.expired_credits -= entry.amount
            elif entry.kind == "release":
                self.released_credits += entry.amount


def sweep(
    *,
    limit: int | None = None,
    dry_run: bool = False,
    workers: int = 1,
    progress: Callable[[Summary], None] = lambda summary: None,
    stop: Callable[[], bool] = lambda: False,
) -> Summary:
    """Book what has come due, account by account, each in a short transaction of its own.

    Any number of these may run at once: an account whose holder is busy is passed by, and tried again at the end, then waiting as
    long as lock_timeout says. What one of them has booked the others find done.

    Args:
        limit: book at most so many accounts.
        dry_run: count what is due and write nothing.
        workers: sessions at once.
        progress: told after each account, from whichever thread.
        stop: asked before each account; true ends the sweep after those that are under way.
    """
    started = time.monotonic()
    run = _Run(limit, progress, stop)
    if dry_run:
        for account in run.due_accounts():
            run.summary.expired_credits += account.expired
            run.summary.released_credits += account.held
    else:
        run.book_all(workers)
    run.summary.seconds = time.monotonic() - started
    return run.summary


class _Run:
    """One sweep: the walk over the accounts, and what came of it so far."""

    def __init__(self, limit: int | None, progress: Callable[[Summary], None], stop: Callable[[], bool]) -> None:
        self.summary = Summary()
        self._left = limit
        self._progress = progress
        self._stop = stop
        self._merging = threading.Lock()
        self._finding = threading.Lock()
        self._busy: list[DueAccount] = []

    def due_accounts(self) -> Iterator[DueAccount]:
        """Accounts with something to book, found page by page without a lock, until the limit is reached."""
        for account, is_due in _accounts():
            self.summary.looked_at += 1
            if not is_due:
                continue
            if self._left == 0:
                self.summary.limit_reached = True
                return
            if self._left is not None:
                self._left -= 1
            self.summary.due += 1
            yield account

    def book_all(self, workers: int) -> None:
        """Book each due account at once where its holder is free; then those that were busy, waiting."""
        self._share(workers, self.due_accounts(), wait=False)
        busy, self._busy = self._busy, []
        self._share(workers, iter(busy), wait=True)
        self.summary.busy = len(self._busy)

    def _share(self, workers: int, accounts: Iterator[DueAccount], *, wait: bool) -> None:
        if workers == 1:
            self._work(accounts, wait)
            return
        with ThreadPoolExecutor(workers) as pool:
            for each in [pool.submit(self._work_in_thread, accounts, wait) for _ in range(workers)]:
                each.result()

    def _work_in_thread(self, accounts: Iterator[DueAccount], wait: bool) -> None:
        try:
            self._work(accounts, wait)
        finally:
            connections.close_all()

    def _work(self, accounts: Iterator[DueAccount], wait: bool) -> None:
        while not self._stop():
            # A generator runs in one thread at a time; who asks for the next account reads the page, on a connection of his own.
            with self._finding:
                account = next(accounts, None)
            if account is None:
                return
            self._book(account, wait=wait)

    def _book(self, account: DueAccount, *, wait: bool) -> None:
        entries: list[Entry] | None = None
        failure = ""
        try:
            entries = services.book_expirations(holder_id=account.holder_id, credit_type=account.credit_type, wait=wait)
        except Misuse:
            raise
        except Retryable:
            pass
        except (LedgerError, Error) as error:
            failure = f"{account.holder_id}/{account.credit_type}: {type(error).__name__}: {str(error).strip()}"
        with self._merging:
            if failure:
                self.summary.failed += 1
                self.summary.failures.append(failure)
            elif entries is None:
                self._busy.append(account)
            else:
                self.summary.add_entries(entries)
            self._progress(self.summary)


def _accounts() -> Iterator[tuple[DueAccount, bool]]:
    """All accounts in the order of the primary key, and whether something is to be booked; one page in memory."""
    position: dict[str, Any] = {"holder_id": "", "credit_type": "", "limit": ACCOUNTS_PER_PAGE}
    while True:
        with connection.cursor() as cursor:
            cursor.execute(PAGE, position)
            rows = cursor.fetchall()
        for holder_id, credit_type, expired, held, can_repay in rows:
            account = DueAccount(holder_id, credit_type, int(expired), int(held))
            yield account, bool(expired or held or can_repay)
        if len(rows) < ACCOUNTS_PER_PAGE:
            return
        position["holder_id"], position["credit_type"] = rows[-1][:2]
