"""Accounts: one holder's entries in one credit type, as they stand after the last one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ledger.errors import Refused
from ledger.rules import lots as lot_rules
from ledger.rules.entries import GENESIS, REQUEST_DIGEST_BYTES, Entry
from ledger.rules.holds import Hold, Holds
from ledger.rules.lots import Drawn, Lot, Lots
from ledger.rules.pending import Settled, settled
from ledger.rules.requests import Request


class Account(NamedTuple):
    """The state after the last entry, and the instant at which it is looked at.

    `now_us` is the server's clock after the lock was taken; everything is decided by it. `recorded_us` is when the last entry was
    recorded: later than `now_us` where the clock has been set back since. An account without entries has sequence 0.
    `overdraft` is None where none was ever agreed.
    """

    holder_id: str
    credit_type: str
    now_us: int
    sequence: int = 0
    balance: int = 0
    held: int = 0
    lots: Lots = ()
    holds: Holds = ()
    overdraft: int | None = None
    digest: bytes = GENESIS
    recorded_us: int = 0
    moved_by: int = 0
    """The last entry that is no refusal."""

    @property
    def owed(self) -> int:
        """How much of the overdraft is used: 0 or more. The lots add up to the balance and this."""
        return 0 if self.overdraft is None else lot_rules.total(self.lots) - self.balance

    @property
    def own_available(self) -> int:
        """What can be held or transferred at this instant, without the overdraft: 0 or more, booked or not."""
        return max(0, self._spendable_beyond_debt)

    @property
    def available(self) -> int:
        """What can be spent at this instant, the overdraft included: 0 or more, booked or not."""
        return max(0, self._spendable_beyond_debt + (self.overdraft or 0))

    @property
    def settled(self) -> Settled:
        """The lots, the holds and the debt at this instant, with everything that the clock has brought about."""
        return settled(self.lots, self.holds, self.owed, self.now_us)

    @property
    def _spendable_beyond_debt(self) -> int:
        """Spendable credits less what is owed, expired holds given back: below 0 while more is owed than can be repaid."""
        if self.owed:
            lots, _, owed = self.settled
            return lot_rules.available(lots, self.now_us) - owed
        spendable = lot_rules.available(self.lots, self.now_us)
        if self.holds:
            spendable += sum(lot_rules.available(hold.parts, self.now_us) for hold in self.holds if hold.is_expired(self.now_us))
        return spendable

    def lot(self, grant: int) -> Lot | None:
        """The open lot of that grant, if it is open."""
        return next((lot for lot in self.lots if lot.grant == grant), None)

    def hold(self, sequence: int) -> Hold | None:
        """The hold of that entry, if it is open: not captured in whole, released, or expired at this instant."""
        return next((hold for hold in self.holds if hold.sequence == sequence and not hold.is_expired(self.now_us)), None)

    def next_entry(
        self,
        kind: str,
        amount: int,
        *,
        lots: Lots,
        drawn: Drawn = (),
        held: int | None = None,
        holds: Holds | None = None,
        overdraft: int | None = None,
        refers_to: int | None = None,
        refunded_total: int | None = None,
        effective_us: int | None = None,
        request: Request | None = None,
        reason: str = "",
        counterpart: dict[str, Any] | None = None,
        rating: dict[str, Any] | None = None,
        refusal: dict[str, Any] | None = None,
        keyless: bool = False,
    ) -> Entry:
        """The entry that follows, sealed: numbered, with the state after it, chained to the one before.

        Args:
            amount: signed, what it does to the balance.
            held, holds, overdraft: what they are after it; as before by default.
            request: whose actor, reason, reference, metadata and key the entry bears; without one it is the ledger's own.
            keyless: all of that but the key, which is another entry's.
        """
        # By place: by name, a NamedTuple of so many fields takes several times as long to make.
        return Entry(
            self.holder_id,
            self.credit_type,
            self.sequence + 1,
            kind,
            amount,
            self.balance + amount,
            self.held if held is None else held,
            lots,
            drawn,
            self.holds if holds is None else holds,
            self.overdraft if overdraft is None else overdraft,
            refers_to,
            refunded_total,
            None if request is None or keyless else request.idempotency_key,
            None if request is None or keyless else request.digest()[:REQUEST_DIGEST_BYTES],
            self.now_us if effective_us is None else effective_us,  # effective_us
            max(self.now_us, self.recorded_us),  # recorded_us: it never goes back
            "ledger" if request is None else request.actor,
            reason if request is None else request.reason,
            "" if request is None else request.reference,
            {} if request is None else request.metadata,
            counterpart,
            rating,
            refusal,
        ).sealed(self.digest)

    def refused(self, request: Request, refusal: Refused) -> Entry:
        """The entry that puts a refusal on record: it changes nothing, books nothing, and bears the request's key.

        Lots and holds that have expired by now stay on it as they are; the facts say what could be spent.
        """
        told = {
            "after": self.moved_by,
            "code": refusal.code,
            "facts": refusal.facts,
            "operation": request.operation,
            "request": request.asked(),
            "request_id": request.request_id,
        }
        return self.next_entry("refusal", 0, lots=self.lots, request=request, refusal=told)

    def after(self, entry: Entry) -> "Account":
        """The account once `entry` is its last one, at the same instant."""
        return self._replace(
            sequence=entry.sequence,
            balance=entry.balance,
            held=entry.held,
            lots=entry.lots,
            holds=entry.holds,
            overdraft=entry.overdraft,
            digest=entry.digest,
            recorded_us=entry.recorded_us,
            moved_by=entry.sequence if entry.refusal is None else entry.refusal["after"],
        )

    def after_all(self, entries: Sequence[Entry]) -> "Account":
        """The account once the last of `entries` is its last one; itself when there are none."""
        return self.after(entries[-1]) if entries else self
