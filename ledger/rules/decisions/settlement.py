"""Makes the entries that book the pending changes of an account: see `pending`."""

from collections.abc import Iterable
from typing import Any

from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import Counts, given_back
from ledger.rules.entries import Entry
from ledger.rules.kinds import KINDS
from ledger.rules.lots import postpaid
from ledger.rules.pending import Change, changes, expiries, repayment, settled_claims, unused_postpaid

Entries = list[Entry]
CLAIM_SETTLED = "claim settled"
"""The reason of a `revoke` that takes back claimed credits."""


def settle_due(account: AccountState, *, decided_us: int | None = None) -> tuple[Entries, AccountState]:
    """Return the entries that book all due changes, to be written before any other entry, and the account after them.

    Args:
        decided_us: the instant of the decision, if the account is taken as of an earlier one: what is taken back counts from it.
    """
    due = changes(account.lots, account.holds, account.owed, account.claims, account.now_us)
    return _book_pending(account, due, decided_us)


def settle_now(account: AccountState) -> Entries:
    """Return the entries to write after one that gave credits back.

    Postpaid ones go back to the overage, claimed ones are taken back and those of expired lots expire at once; the rest repays
    the debt.
    """
    given_back, account = _book_pending(account, unused_postpaid(account.lots, account.now_us))
    claimed, account = _settle_claims(account)
    expired, account = _book_pending(account, expiries(account.lots, account.now_us))
    return [*given_back, *claimed, *expired, *repay(account)]


def repay(account: AccountState) -> Entries:
    """Return the entries that take back what is claimed, and an `adjust` of 0 that repays the debt from spendable lots.

    Empty if nothing is claimed that is there, and without a debt or spendable lots.
    """
    claimed, account = _settle_claims(account)
    return [*claimed, *_book_pending(account, repayment(account.lots, account.owed, account.now_us))[0]]


def _settle_claims(account: AccountState) -> tuple[Entries, AccountState]:
    return _book_pending(account, settled_claims(account.lots, account.claims, account.now_us))


def _book_pending(
    account: AccountState, pending: Iterable[Change], decided_us: int | None = None
) -> tuple[Entries, AccountState]:
    entries: Entries = []
    decided_us = account.now_us if decided_us is None else decided_us
    for change in pending:
        booked = KINDS[change.kind].booked
        is_release = change.kind == "release"
        entry = account.next_entry(
            change.kind,
            {"release": change.amount, "revoke": -change.amount, "expire": -change.amount, "adjust": 0}[change.kind],
            lots=change.lots,
            drawn=change.drawn,
            held=account.held - change.amount if is_release else None,
            holds=tuple([hold for hold in account.holds if hold.sequence != change.refers_to]) if is_release else None,
            refers_to=change.refers_to,
            counts=_counts_of(account, change) if account.budgets else (),
            effective_us=decided_us if change.kind == "revoke" else change.effective_us,
            reason=CLAIM_SETTLED if change.claims is not None else booked[0] if booked else "",
            claims=change.claims,
            **_on_overage(account, change, decided_us),
        )
        entries.append(entry)
        account = account.after(entry)
    return entries, account


def _on_overage(account: AccountState, change: Change, decided_us: int) -> dict[str, Any]:
    """How many credits of a change are postpaid, and the overage after it."""
    if change.kind == "release":
        hold = next(hold for hold in account.holds if hold.sequence == change.refers_to)
        return {"postpaid": postpaid(hold.parts)}
    if change.kind != "revoke" or change.claims is not None:
        return {}
    (lot,) = [lot for lot in account.lots if lot.grant == change.refers_to]
    overage = None if account.overage is None else account.overage.given_back(lot, lot.remaining, decided_us)
    return {"postpaid": change.amount, "overage": overage}


def _counts_of(account: AccountState, change: Change) -> Counts:
    """What an expired hold gives back to the budgets that counted it."""
    if change.kind != "release" or change.refers_to is None:
        return ()
    return counts_of_release(account, change.refers_to, change.amount, at_us=change.effective_us)


def counts_of_release(account: AccountState, hold: int, amount: int, *, at_us: int) -> Counts:
    """Return what the budgets count of the release of `amount` of a hold at a time."""
    held = account.held_counts.get(hold, ())
    return given_back(account.budgets, held, amount, counters=account.counters, at_us=at_us)
