"""Booking what the clock has brought about since the last entry: see `pending`."""

from collections.abc import Iterable

from ledger.rules.accounts import Account
from ledger.rules.entries import Entry
from ledger.rules.pending import Change, changes, expiries, repayment

Entries = list[Entry]

REASONS = {"release": "hold expired", "expire": "lot expired", "adjust": "overdraft repaid"}


def settle_due(account: Account) -> Entries:
    """The entries to be booked before any other, by the next writer or by the sweeper: none when nothing has come due."""
    return _booked(account, changes(account.lots, account.holds, account.owed, account.now_us))


def settle_now(account: Account) -> Entries:
    """The entries to be booked behind one that gave credits back: of those, expired lots expire at once, and the rest repays."""
    expired = _booked(account, expiries(account.lots, account.now_us))
    return [*expired, *repay(account.after_all(expired))]


def repay(account: Account) -> Entries:
    """An `adjust` entry of 0 that uses spendable lots to repay what is owed; none when there is neither."""
    return _booked(account, repayment(account.lots, account.owed, account.now_us))


def _booked(account: Account, pending: Iterable[Change]) -> Entries:
    entries: Entries = []
    for change in pending:
        is_release = change.kind == "release"
        entry = account.next_entry(
            change.kind,
            {"release": change.amount, "expire": -change.amount, "adjust": 0}[change.kind],
            lots=change.lots,
            drawn=change.drawn,
            held=account.held - change.amount if is_release else None,
            holds=tuple([hold for hold in account.holds if hold.sequence != change.refers_to]) if is_release else None,
            refers_to=change.refers_to,
            effective_us=change.effective_us,
            reason=REASONS[change.kind],
        )
        entries.append(entry)
        account = account.after(entry)
    return entries
