"""What the clock has brought about since the last entry: holds and lots that have expired, debts that can be repaid.

All of it counts from its instant on, booked or not; the next writer, or the sweeper, books it first of all.
"""

from ledger.rules.accounts import Account
from ledger.rules.entries import Entry
from ledger.rules.lots import as_drawn, put_back, remove, take

Entries = list[Entry]


def dues(account: Account) -> Entries:
    """The entries to be booked before any other: none when nothing has come due.

    Expired holds first, whose credits go back to their lots; then expired lots, the soonest first; then the repayment of what
    is owed.
    """
    entries: Entries = []
    for hold in account.holds:
        if hold.is_expired(account.now_us):
            entry = account.next_entry(
                "release",
                hold.amount,
                lots=put_back(account.lots, hold.parts),
                drawn=as_drawn(hold.parts),
                held=account.held - hold.amount,
                holds=tuple([other for other in account.holds if other.sequence != hold.sequence]),
                refers_to=hold.sequence,
                effective_us=hold.expires_us,
                reason="hold expired",
            )
            entries.append(entry)
            account = account.after(entry)
    expired = [lot for lot in account.lots if lot.is_expired(account.now_us)]
    expired.sort(key=lambda lot: (lot.expires_us, lot.grant))
    for lot in expired:
        entry = account.next_entry(
            "expire",
            -lot.remaining,
            lots=remove(account.lots, lot.grant, lot.remaining),
            drawn=((lot.grant, lot.remaining),),
            refers_to=lot.grant,
            effective_us=lot.expires_us,
            reason="lot expired",
        )
        entries.append(entry)
        account = account.after(entry)
    return entries + repayment(account)


def repayment(account: Account) -> Entries:
    """An `adjust` entry of 0 that uses spendable lots to repay what is owed; none when there is neither."""
    if account.owed == 0:
        return []
    lots, drawn = take(account.lots, account.owed, account.now_us)
    if not drawn:
        return []
    return [account.next_entry("adjust", 0, lots=lots, drawn=drawn, reason="overdraft repaid")]
