"""What the clock brings about in an account: holds and lots expire, lots become effective, and spendable lots repay what is owed.

All of it counts from its instant on, whether it has been booked or not. So it is worked out in the order of the instants: a lot
that was effective for an hour has repaid a debt in that hour, although the next writer comes a day later.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ledger.rules.holds import Hold, Holds
from ledger.rules.lots import Drawn, Lots, as_drawn, put_back, remove, take


class Change(NamedTuple):
    """One thing that the clock brings about.

    `kind` is that of the entry which books it: "release" of an expired hold, "expire" of a lot, "adjust" for a repayment.
    `drawn` says which lots got something back or gave it, `lots` is what they are afterwards.
    """

    kind: str
    effective_us: int
    lots: Lots
    drawn: Drawn
    refers_to: int | None = None

    @property
    def amount(self) -> int:
        """How many credits it is about: more than 0."""
        return sum([amount for _, amount in self.drawn])


class Settled(NamedTuple):
    """What the clock has made of an account by some instant."""

    lots: Lots
    holds: Holds
    owed: int


def settled(lots: Lots, holds: Holds, owed: int, now_us: int) -> Settled:
    """The open lots, the open holds and the debt at `now_us`, if nobody does anything until then."""
    for change in changes(lots, holds, owed, now_us):
        lots = change.lots
        if change.kind == "adjust":
            owed -= change.amount
    return Settled(lots, tuple([hold for hold in holds if not hold.is_expired(now_us)]), owed)


def changes(lots: Lots, holds: Holds, owed: int, now_us: int) -> Iterator[Change]:
    """All that comes about up to `now_us`, in the order of the instants.

    At one instant holds expire first, whose credits go back to their lots, then lots expire, then debts are repaid.

    Args:
        owed: how much of an overdraft is used, 0 or more.
    """
    for instant_us in _instants(lots, holds, owed, now_us):
        for hold in holds:
            if hold.expires_us == instant_us:
                lots = put_back(lots, hold.parts)
                yield _release(hold, lots)
        for change in expiries(lots, instant_us):
            lots = change.lots
            yield change
        for change in repayment(lots, owed, instant_us):
            lots = change.lots
            owed -= change.amount
            yield change


def expiries(lots: Lots, now_us: int) -> Iterator[Change]:
    """The lots that have expired at `now_us`, the soonest first, each from its own instant on."""
    expired = [
        (lot.expires_us, lot.grant, lot.remaining) for lot in lots if lot.expires_us is not None and lot.is_expired(now_us)
    ]
    for expires_us, grant, remaining in sorted(expired):
        lots = remove(lots, grant, remaining)
        yield Change("expire", expires_us, lots, ((grant, remaining),), grant)


def repayment(lots: Lots, owed: int, now_us: int) -> Iterator[Change]:
    """What spendable lots repay of a debt at `now_us`: one change, or none where there is no debt or nothing to repay it with."""
    if owed == 0:
        return
    lots, drawn = take(lots, owed, now_us)
    if drawn:
        yield Change("adjust", now_us, lots, drawn)


def _release(hold: Hold, lots: Lots) -> Change:
    return Change("release", hold.expires_us, lots, as_drawn(hold.parts), hold.sequence)


def _instants(lots: Lots, holds: Holds, owed: int, now_us: int) -> list[int]:
    """When something comes about, up to `now_us`."""
    instants = {lot.expires_us for lot in lots if lot.expires_us is not None and lot.is_expired(now_us)}
    for hold in holds:
        if hold.is_expired(now_us):
            instants.add(hold.expires_us)
            expiring = [part.expires_us for part in hold.parts if part.expires_us is not None and part.is_expired(now_us)]
            instants.update([expires_us for expires_us in expiring if expires_us > hold.expires_us])
    if owed:
        instants.add(now_us)
        instants.update([lot.effective_us for lot in lots if 0 < lot.effective_us <= now_us])
    return sorted(instants)
