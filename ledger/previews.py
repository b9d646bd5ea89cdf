"""Previews: what a use-case would do, worked out in a transaction that is rolled back, with the credits folded in memory.

A write that takes a holder's lock and is rolled back refuses all spends of the holder until then: a dry run over a customer with
hundreds of subscriptions would stop that customer. In a preview no holder's lock is taken, and no entry is inserted, which others
would have to wait for as well. The accounts are read once, the same rules decide on them, and their entries are kept in memory,
where the next decision of the preview finds them. See docs/adr/0055.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.db import connection, transaction

from ledger.database.locks import previewing
from ledger.database.transactions import outermost
from ledger.rules import Account, Entry

ONE_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

Position = tuple[str, str]
"""A holder and a credit type, which identify an account."""


class Preview:
    """What has been decided in a preview: the accounts as they would be, and the entries, by account and by holder and key.

    `kept` is for what others fold beside the accounts: by a name of theirs, values that never change.
    """

    def __init__(self) -> None:
        self.accounts: dict[Position, Account] = {}
        self.entries: dict[Position, tuple[Entry, ...]] = {}
        self.by_key: dict[tuple[str, str], Entry] = {}
        self.kept: dict[Hashable, Any] = {}

    def keep(self, entries: Sequence[Entry]) -> None:
        """Take entries as if they were stored."""
        for entry in entries:
            position = (entry.holder_id, entry.credit_type)
            self.accounts[position] = self.accounts[position].after(entry)
            self.entries[position] = (*self.entries.get(position, ()), entry)
            if entry.idempotency_key is not None:
                self.by_key[entry.holder_id, entry.idempotency_key] = entry

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Forget what the block has decided if it raises."""
        before = (dict(self.accounts), dict(self.entries), dict(self.by_key), dict(self.kept))
        try:
            yield
        except BaseException:
            self.accounts, self.entries, self.by_key, self.kept = before
            raise


_current: ContextVar[Preview | None] = ContextVar("preview", default=None)


def current() -> Preview | None:
    """Return the preview that is open on this thread, or None."""
    return _current.get()


@contextmanager
def preview(*, one_snapshot: bool = False) -> Iterator[Preview]:
    """Run the block, then undo all that it has written; what it raises passes through, and nothing is written either.

    Inside another preview the block is a part of it: its rows and locks go, and what it decided about credits stays in memory,
    unless it raises.

    Args:
        one_snapshot: everything is read as of the first statement. What others commit meanwhile is not seen, and a row that they
            have changed cannot be written: 40001. Only without a transaction of the caller.
    """
    known = _current.get()
    shown = known or Preview()
    token = _current.set(shown)
    try:
        with shown.attempt(), _transaction(), previewing():
            if one_snapshot and len(connection.atomic_blocks) == 1:
                with connection.cursor() as cursor:
                    cursor.execute(ONE_SNAPSHOT)
            yield shown
            transaction.set_rollback(True)
    finally:
        _current.reset(token)


def _transaction() -> AbstractContextManager[None]:
    return transaction.atomic() if connection.in_atomic_block else outermost()
