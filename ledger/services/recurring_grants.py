"""Makes the recurring grants that are due, one period of one recurring grant in each transaction.

A period is granted as of its start, whenever this runs: see `grant_period`. Any number of these runs may work at the same
time; each period is granted once, because a run reads under the holder's lock what is due, and each grant has the key of its
period.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from django.db import Error, connection

from ledger import due_grants, journal
from ledger.clocks import holders_time
from ledger.database.locks import holder_key
from ledger.database.transactions import in_transaction
from ledger.errors import (
    IdempotencyKeyReused,
    LedgerError,
    LockBusy,
    LotLimit,
    Misuse,
    RecurringGrantDue,
    Retryable,
    describe_failure,
)
from ledger.records import UseCase, check
from ledger.rules.entries import Entry
from ledger.rules.requests import EndRecurringGrantRequest, RecurringGrantRequest
from ledger.services.execute import execute_once
from ledger.values import CreditType, Holder

ACCOUNTS_PER_PAGE: Final = 500
DUE: Final = """
SELECT holder_id, credit_type, count(*)
FROM ledger_recurring_grant
WHERE next_at <= statement_timestamp() AND (holder_id, credit_type) > (%s, %s)
GROUP BY holder_id, credit_type
ORDER BY holder_id, credit_type
LIMIT %s
"""


# One account -----------------------------------------------------------------------------------------


def grant_due_period(*, holder_id: str, credit_type: str = "credits", wait: bool = True) -> list[Entry]:
    """Grant the period of an account that has been due for longest.

    Args:
        wait: True waits for the holder's lock up to lock_timeout; False fails at once if another session holds it.

    Returns:
        The entries, the last ones of the grant itself; an empty list if nothing is due.

    Raises:
        HolderBusy, LockBusy, SequenceTaken, LotLimit: nothing was written.
        IdempotencyKeyReused: another request has used the key of the period; nothing was written.
    """
    check(Holder(), holder_id, "/holder_id")
    check(CreditType(), credit_type, "/credit_type")

    def grant() -> list[Entry]:
        with journal.open(accounts=[(holder_id, credit_type)], wait=wait) as accounts:
            if not accounts.covers((holder_id, credit_type)):
                raise LockBusy(key=holder_key(holder_id))
            return _grant_under(accounts.account(holder_id, credit_type))

    return in_transaction(grant, locks=[holder_key(holder_id)], holder_id=holder_id)


def _grant_under(account: journal.LockedAccount) -> list[Entry]:
    known = due_grants.recurring_grants(account)
    recurring = due_grants.due_grant(account, known)
    if recurring is None:
        return []
    entries = due_grants.collect_period(account, recurring, known).entries
    account.among.append()
    return entries


def _after_due_grants(request: RecurringGrantRequest | EndRecurringGrantRequest) -> Entry:
    """Execute the request after the grants that are due by the present terms. An end drops one that cannot be made.

    Other terms that begin within a period get its share at once; if that fails, a worker makes it.

    Raises: as for `execute_once`; for other terms, as for `grant_due_period`.
    """
    while True:
        try:
            return _with_its_share(execute_once(request), request)
        except RecurringGrantDue:
            try:
                grant_due_period(holder_id=request.holder_id, credit_type=request.credit_type)
            except (LotLimit, IdempotencyKeyReused):
                if isinstance(request, RecurringGrantRequest):
                    raise
                request = replace(request, drops_due=True)


def _with_its_share(setting: Entry, request: RecurringGrantRequest | EndRecurringGrantRequest) -> Entry:
    if not request.dry_run and not setting.replayed and "begins_at" in (setting.counterpart or {}):
        with suppress(LedgerError):
            grant_due_period(holder_id=request.holder_id, credit_type=request.credit_type)
    return setting


set_recurring_grant = UseCase(RecurringGrantRequest, _after_due_grants)
end_recurring_grant = UseCase(EndRecurringGrantRequest, _after_due_grants)


# All accounts ----------------------------------------------------------------------------------------


class DueRecurringGrants(NamedTuple):
    """An account with grants that are due, as read without a lock."""

    holder_id: str
    credit_type: str
    grants: int


@dataclass
class RecurringSummary:
    """The counts of one run; credits by type, in its smallest unit. `skipped` counts periods that have left nothing by now."""

    due: int = 0
    periods: int = 0
    skipped: int = 0
    granted_by_type: dict[str, int] = field(default_factory=dict)
    revoked_by_type: dict[str, int] = field(default_factory=dict)
    busy: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, entries: list[Entry]) -> None:
        """Count the entries of one period, or of those that were skipped together."""
        skipped = (entries[-1].counterpart or {}).get("periods")
        self.periods += not skipped
        self.skipped += skipped or 0
        for entry in entries:
            by_type = {"grant": self.granted_by_type, "revoke": self.revoked_by_type}.get(entry.kind)
            if by_type is not None:
                by_type[entry.credit_type] = by_type.get(entry.credit_type, 0) + abs(entry.amount)


def grant_all_due(
    *,
    dry_run: bool = False,
    progress: Callable[[RecurringSummary], None] = lambda summary: None,
    stop: Callable[[], bool] = lambda: False,
) -> RecurringSummary:
    """Make all grants that are due, each in a short transaction.

    Any number of these runs may work at the same time: each skips accounts whose holder is busy, and retries them at the end,
    when it waits up to lock_timeout.

    Args:
        dry_run: count the recurring grants that are due, and write nothing.
        progress: called after each account.
        stop: called before each period; True ends the run after the period that is under way.
    """
    started = time.monotonic()
    summary = RecurringSummary()
    busy: list[DueRecurringGrants] = []
    for account in _due_accounts():
        summary.due += account.grants
        if stop():
            break
        if not dry_run and not _grant_all_of(account, summary, stop, wait=False):
            busy.append(account)
        progress(summary)
    for account in busy:
        if stop() or not _grant_all_of(account, summary, stop, wait=True):
            summary.busy += 1
    summary.seconds = time.monotonic() - started
    return summary


def _due_accounts() -> Iterator[DueRecurringGrants]:
    last = ("", "")
    while True:
        with connection.cursor() as cursor:
            cursor.execute(holders_time(DUE, holder="holder_id"), [*last, ACCOUNTS_PER_PAGE])
            page = [DueRecurringGrants(*row) for row in cursor.fetchall()]
        yield from page
        if len(page) < ACCOUNTS_PER_PAGE:
            return
        last = page[-1][:2]


def _grant_all_of(account: DueRecurringGrants, summary: RecurringSummary, stop: Callable[[], bool], *, wait: bool) -> bool:
    """Grant all periods of an account that are due; return False if its holder is busy."""
    try:
        while not stop():
            entries = grant_due_period(holder_id=account.holder_id, credit_type=account.credit_type, wait=wait)
            if not entries:
                return True
            summary.add(entries)
    except Misuse:
        raise
    except Retryable:
        return False
    except (LedgerError, Error) as error:
        summary.failed += 1
        summary.failures.append(f"{account.holder_id}/{account.credit_type}: {describe_failure(error)}")
    return True
