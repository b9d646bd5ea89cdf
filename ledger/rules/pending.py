"""Pending changes of an account: over time holds and lots expire, lots become effective, and spendable lots repay the debt.

A change counts from its time on, whether it has been booked or not. So the changes are computed in the order of their times: a
lot that was effective for an hour has repaid a debt in that hour, even if the next request comes a day later.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ledger.rules.claims import Claims, lowered, parts_of
from ledger.rules.holds import Hold, Holds
from ledger.rules.lots import POSTPAID, Drawn, Lots, as_drawn, put_back, remove, take


class Change(NamedTuple):
    """One pending change.

    `kind` is the kind of the entry that books it: "release" of an expired hold, "revoke" of its postpaid credits or of claimed
    ones, "expire" of a lot, "adjust" for a repayment.
    `drawn` lists the lots that got credits back or gave them, `lots` are the lots after the change, and
    `claims` the claims, if it settles one.
    """

    kind: str
    effective_us: int
    lots: Lots
    drawn: Drawn
    refers_to: int | None = None
    claims: Claims | None = None

    @property
    def amount(self) -> int:
        """The number of credits: more than 0, except for the release of a hold of 0."""
        return sum([amount for _, amount in self.drawn])


class SettledState(NamedTuple):
    """The lots, the holds, the debt and the claims of an account after all changes that are due by some time."""

    lots: Lots
    holds: Holds
    owed: int
    claims: Claims


def settled(lots: Lots, holds: Holds, owed: int, claims: Claims, now_us: int) -> SettledState:
    """Return the open lots, the open holds, the debt and the claims at `now_us`, if no request comes until then."""
    for change in changes(lots, holds, owed, claims, now_us):
        lots = change.lots
        claims = claims if change.claims is None else change.claims
        if change.kind == "adjust":
            owed -= change.amount
    return SettledState(lots, tuple([hold for hold in holds if not hold.is_expired(now_us)]), owed, claims)


def changes(lots: Lots, holds: Holds, owed: int, claims: Claims, now_us: int) -> Iterator[Change]:
    """Yield all changes that are due up to `now_us`, in the order of their times.

    At the same time holds expire first (their credits go back to their lots, postpaid ones to the overage, and claimed ones are
    taken back), then lots expire, then debts are repaid.

    Args:
        owed: how much of an overdraft is used, 0 or more.
    """
    for instant_us in _instants(lots, holds, owed, claims, now_us):
        for hold in holds:
            if hold.expires_us == instant_us:
                lots = put_back(lots, hold.parts)
                yield _release(hold, lots)
        for change in unused_postpaid(lots, now_us):
            lots = change.lots
            yield change
        for change in settled_claims(lots, claims, now_us):
            lots, claims = change.lots, change.claims or ()
            yield change
        for change in expiries(lots, instant_us):
            lots = change.lots
            yield change
        for change in repayment(lots, owed, instant_us):
            lots = change.lots
            owed -= change.amount
            yield change


def unused_postpaid(lots: Lots, now_us: int) -> Iterator[Change]:
    """Yield the revocations of postpaid credits that came back: nobody bought them, so they go back to the overage at once."""
    for lot in lots:
        if lot.source == POSTPAID:
            lots = remove(lots, lot.grant, lot.remaining)
            yield Change("revoke", now_us, lots, ((lot.grant, lot.remaining),), lot.grant)


def settled_claims(lots: Lots, claims: Claims, now_us: int) -> Iterator[Change]:
    """Yield the revocations of claimed credits that came back, one for each claim and lot."""
    if not claims:
        return
    for lot in lots:
        for setting, part in parts_of(claims, lot.grant, lot.remaining):
            lots = remove(lots, lot.grant, part)
            claims = lowered(claims, setting, part)
            yield Change("revoke", now_us, lots, ((lot.grant, part),), lot.grant, claims)


def expiries(lots: Lots, now_us: int) -> Iterator[Change]:
    """Yield the expiries of the lots that have expired at `now_us`, the earliest first, each with the time of its lot."""
    expired = [
        (lot.expires_us, lot.grant, lot.remaining) for lot in lots if lot.expires_us is not None and lot.is_expired(now_us)
    ]
    for expires_us, grant, remaining in sorted(expired):
        lots = remove(lots, grant, remaining)
        yield Change("expire", expires_us, lots, ((grant, remaining),), grant)


def repayment(lots: Lots, owed: int, now_us: int) -> Iterator[Change]:
    """Yield the repayment of the debt from lots that are spendable on everything at `now_us`; nothing without a debt or these."""
    if owed == 0:
        return
    lots, drawn = take(lots, owed, now_us)
    if drawn:
        yield Change("adjust", now_us, lots, drawn)


def _release(hold: Hold, lots: Lots) -> Change:
    return Change("release", hold.expires_us, lots, as_drawn(hold.parts), hold.sequence)


def _instants(lots: Lots, holds: Holds, owed: int, claims: Claims, now_us: int) -> list[int]:
    """Return the times up to `now_us` at which a change may be due."""
    instants = {lot.expires_us for lot in lots if lot.expires_us is not None and lot.is_expired(now_us)}
    for hold in holds:
        if hold.is_expired(now_us):
            instants.add(hold.expires_us)
            expiring = [part.expires_us for part in hold.parts if part.expires_us is not None and part.is_expired(now_us)]
            instants.update([expires_us for expires_us in expiring if expires_us > hold.expires_us])
    if owed or claims:
        instants.add(now_us)
    if owed:
        instants.update([lot.effective_us for lot in lots if 0 < lot.effective_us <= now_us])
    return sorted(instants)
