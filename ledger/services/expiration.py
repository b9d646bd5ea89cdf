"""Books expired lots and holds of all accounts, for accounts that have no writes.

A lot or hold counts as expired from its expiry on, booked or not, and the next write books it. Without writes it stays in the
account's `balance` until this runs. A late run is harmless.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db import Error, connection, connections

from ledger.clocks import holders_time
from ledger.errors import LedgerError, Misuse, Retryable, describe_failure
from ledger.rules.entries import Entry
from ledger.services.credits import book_expirations

ACCOUNTS_PER_PAGE = 1_000

Place = tuple[str, str]
"""A holder and a credit type: the last account of a page."""
BEGINNING: Final[Place] = ("", "")
BEHIND_ALL: Final[Place] = ("\x7f", "")
"""Sorts behind each holder: an id has no such character."""

# The last account of a page, by the index of first entries alone. Each shard of a cluster gives as many rows as a page has, and
# would read as many last entries if the page itself had no end.
PAGE_END = """
SELECT holder_id, credit_type
FROM ledger_entry
WHERE sequence = 1 AND (holder_id, credit_type) > (%(holder_id)s, %(credit_type)s)
ORDER BY holder_id, credit_type
OFFSET %(limit)s - 1
LIMIT 1
"""
# Walks the index of first entries and reads only the last entry of each account: the cost grows with the number of accounts, not
# with their histories. The path is strict: a lax filter would search the members of each hold, and find nothing.
PAGE = """
SELECT
    first.holder_id,
    first.credit_type,
    lot.expired,
    hold.expired,
    (lot.spendable > 0 AND lot.total > last.balance) OR last.has_ended_holds
FROM ledger_entry first
CROSS JOIN LATERAL (
    SELECT
        e.balance,
        e.lots,
        clock.now_us,
        jsonb_path_query_array(
            e.holds::jsonb, 'strict $[*] ? (@[1] <= $now)[2][*][1]', jsonb_build_object('now', clock.now_us)
        ) AS held_too_long,
        -- Also one of 0.
        COALESCE(jsonb_path_exists(
            e.holds::jsonb, 'strict $[*] ? (@[1] <= $now)', jsonb_build_object('now', clock.now_us)
        ), false) AS has_ended_holds
    FROM ledger_entry e
    CROSS JOIN (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint - %(late_us)s AS now_us) AS clock
    WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) AS last
CROSS JOIN LATERAL (
    SELECT
        COALESCE(sum((l ->> 1)::numeric) FILTER (WHERE (l ->> 3)::numeric <= last.now_us), 0) AS expired,
        COALESCE(sum((l ->> 1)::numeric) FILTER (WHERE (l ->> 2)::numeric <= last.now_us AND l ->> 7 IS NULL), 0) AS spendable,
        COALESCE(sum((l ->> 1)::numeric), 0) AS total
    FROM json_array_elements(last.lots) AS l
) AS lot
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(part::text::numeric), 0) AS expired
    FROM jsonb_array_elements(last.held_too_long) AS part
) AS hold
WHERE first.sequence = 1
    AND (first.holder_id, first.credit_type) > (%(holder_id)s, %(credit_type)s)
    AND (first.holder_id, first.credit_type) <= (%(last_holder_id)s, %(last_credit_type)s)
ORDER BY first.holder_id, first.credit_type
LIMIT %(limit)s
"""


class DueAccount(NamedTuple):
    """An account with something to book, as read without a lock."""

    holder_id: str
    credit_type: str
    expired: int
    """The credits of its expired lots."""
    held: int
    """The credits of its expired holds."""


@dataclass
class ExpirationSummary:
    """The counts of one run. The credits of all types together mean little; those by type are in its smallest unit."""

    looked_at: int = 0
    due: int = 0
    booked: int = 0
    entries: int = 0
    expired_credits: int = 0
    released_credits: int = 0
    expired_by_type: dict[str, int] = field(default_factory=dict)
    released_by_type: dict[str, int] = field(default_factory=dict)
    nothing_left: int = 0
    busy: int = 0
    failed: int = 0
    limit_reached: bool = False
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    by_kind: dict[str, int] = field(default_factory=dict)

    def add_entries(self, entries: list[Entry]) -> None:
        """Count the entries booked for one account; no entries if another session has booked them first."""
        self.booked += bool(entries)
        self.nothing_left += not entries
        self.entries += len(entries)
        for entry in entries:
            self.by_kind[entry.kind] = self.by_kind.get(entry.kind, 0) + 1
            if entry.kind == "expire":
                self.add_credits(entry.credit_type, expired=-entry.amount)
            elif entry.kind == "release":
                self.add_credits(entry.credit_type, released=entry.amount)

    def add_credits(self, credit_type: str, *, expired: int = 0, released: int = 0) -> None:
        """Count credits of a type, in its smallest unit."""
        self.expired_credits += expired
        self.released_credits += released
        for amount, by_type in ((expired, self.expired_by_type), (released, self.released_by_type)):
            if amount:
                by_type[credit_type] = by_type.get(credit_type, 0) + amount


def book_all_expirations(
    *,
    limit: int | None = None,
    dry_run: bool = False,
    workers: int = 1,
    progress: Callable[[ExpirationSummary], None] = lambda summary: None,
    stop: Callable[[], bool] = lambda: False,
) -> ExpirationSummary:
    """Book what is due, account by account, each in a short transaction.

    Any number of these runs may work at the same time: each skips accounts whose holder is busy, and retries them at the end,
    when it waits up to lock_timeout. A run finds nothing to book where another run was first.

    Args:
        limit: book at most this many accounts.
        dry_run: count the due accounts and write nothing.
        workers: the number of parallel sessions.
        progress: called after each account, from any thread.
        stop: called before each account; True ends the run after the accounts that are under way.
    """
    started = time.monotonic()
    run = _Run(limit, progress, stop)
    if dry_run:
        for account in run.due_accounts():
            run.summary.add_credits(account.credit_type, expired=account.expired, released=account.held)
    else:
        run.book_all(workers)
    run.summary.seconds = time.monotonic() - started
    return run.summary


class _Run:
    """One run: its walk over the accounts, and its counts so far."""

    def __init__(self, limit: int | None, progress: Callable[[ExpirationSummary], None], stop: Callable[[], bool]) -> None:
        self.summary = ExpirationSummary()
        self._left = limit
        self._progress = progress
        self._stop = stop
        self._merging = threading.Lock()
        self._finding = threading.Lock()
        self._busy: list[DueAccount] = []

    def due_accounts(self) -> Iterator[DueAccount]:
        """Yield the accounts with something to book, read page by page without a lock, up to the limit."""
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
        """Book the accounts whose holders are free; then retry the busy ones, waiting for their locks."""
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
            # A generator runs in only one thread at a time. The thread that requests the next account reads the page.
            with self._finding:
                account = next(accounts, None)
            if account is None:
                return
            self._book(account, wait=wait)

    def _book(self, account: DueAccount, *, wait: bool) -> None:
        entries: list[Entry] | None = None
        failure = ""
        try:
            entries = book_expirations(holder_id=account.holder_id, credit_type=account.credit_type, wait=wait)
        except Misuse:
            raise
        except Retryable:
            pass
        except (LedgerError, Error) as error:
            failure = f"{account.holder_id}/{account.credit_type}: {describe_failure(error)}"
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
    """Yield all accounts in the order of the primary key, and whether something is due; keeps one page in memory."""
    place: Place | None = BEGINNING
    while place is not None:
        rows = _page(place)
        for holder_id, credit_type, expired, held, is_due in rows:
            account = DueAccount(holder_id, credit_type, int(expired), int(held))
            yield account, bool(expired or held or is_due)
        place = _following(rows)


def count_overdue(after: Place, *, late: timedelta) -> tuple[int, Place | None]:
    """Look at one page of accounts without a lock: how many have a lot or hold that expired longer ago than `late`, unbooked.

    Returns:
        The number, and the place behind the page; None after the last account.
    """
    rows = _page(after, late=late)
    return sum(bool(expired or held) for _, _, expired, held, _ in rows), _following(rows)


def _page(after: Place, *, late: timedelta = timedelta(0)) -> list[Any]:
    late_us = late // timedelta(microseconds=1)
    parameters: dict[str, str | int] = {
        "holder_id": after[0],
        "credit_type": after[1],
        "limit": ACCOUNTS_PER_PAGE,
        "late_us": late_us,
    }
    with connection.cursor() as cursor:
        cursor.execute(PAGE_END, parameters)
        last_holder_id, last_credit_type = cursor.fetchone() or BEHIND_ALL
        cursor.execute(
            holders_time(PAGE, holder="first.holder_id"),
            parameters | {"last_holder_id": last_holder_id, "last_credit_type": last_credit_type},
        )
        return cursor.fetchall()


def _following(rows: list[Any]) -> Place | None:
    return rows[-1][:2] if len(rows) == ACCOUNTS_PER_PAGE else None
