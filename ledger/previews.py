"""Previews: the effect of a use-case, computed in a transaction that is rolled back, with the credits folded in memory.

A write that takes a holder's lock and is rolled back makes all spends of the holder wait until then: a dry run over a customer
with hundreds of subscriptions would stop that customer. So a preview takes no holder's lock and inserts no entry, for which
others would also have to wait. It reads the accounts once, the same rules decide, and memory keeps their entries, where the next
decision of the preview finds them. See docs/explanation/ledger.md.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.db import connection, transaction

from ledger.database.locks import previewing
from ledger.database.transactions import joins, own_or_joined
from ledger.rules.accounts import AccountState
from ledger.rules.entries import Entry

ONE_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

AccountRef = tuple[str, str]
"""A holder and a credit type, which identify an account."""


class Preview:
    """The decisions of a preview: the accounts as they would be, and the entries, by account and by holder and key.

    `kept` is for what others fold beside the accounts: values that never change, by a name. `is_whole` says that no transaction
    was open when it began, so that nothing that is written around it stays.
    """

    def __init__(self) -> None:
        self.is_whole = not joins()
        self.accounts: dict[AccountRef, AccountState] = {}
        self.entries: dict[AccountRef, tuple[Entry, ...]] = {}
        self.by_key: dict[tuple[str, str], Entry] = {}
        self.kept: dict[Hashable, Any] = {}

    def keep(self, entries: Sequence[Entry]) -> None:
        """Take entries as if they were stored."""
        for entry in entries:
            account_ref = (entry.holder_id, entry.credit_type)
            self.accounts[account_ref] = self.accounts[account_ref].after(entry)
            self.entries[account_ref] = (*self.entries.get(account_ref, ()), entry)
            if entry.idempotency_key is not None:
                self.by_key[entry.holder_id, entry.idempotency_key] = entry

    def rows_stay(self) -> None:
        """Forget what others keep: the rows that the preview has written so far stay until it ends, and reads find them."""
        self.kept.clear()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Forget the decisions of the block if it raises."""
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
    """Run the block, then roll back all that it has written; its exceptions pass through, and nothing is written either.

    Inside another preview the block is a part of it: its rows and locks are rolled back, and its decisions about credits stay in
        memory, unless it raises.

    Args:
        one_snapshot: every read is as of the first statement. What others commit after it is invisible, and a row that they have
            changed cannot be written: 40001. Only without a transaction of the caller.
    """
    known = _current.get()
    shown = known or Preview()
    token = _current.set(shown)
    try:
        with shown.attempt(), own_or_joined(), previewing():
            if one_snapshot and len(connection.atomic_blocks) == 1:
                with connection.cursor() as cursor:
                    cursor.execute(ONE_SNAPSHOT)
            yield shown
            transaction.set_rollback(True)
    finally:
        _current.reset(token)
