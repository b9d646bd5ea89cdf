"""Accounts: one holder's entries in one credit type, as they stand after the last one."""

from collections.abc import Sequence
from typing import NamedTuple

from ledger.rules import lots as lot_rules
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.lots import Drawn, Lot, Lots
from ledger.rules.requests import Request


class Account(NamedTuple):
    """The state after the last entry, and the instant at which it is looked at.

    `now_us` is the server's clock after the lock was taken, never before the last entry's `recorded_us`. An account without
    entries has
    sequence 0. `next_sequence` is what the next entry gets.
    """

    holder_id: str
    credit_type: str
    now_us: int
    sequence: int = 0
    balance: int = 0
    held: int = 0
    lots: Lots = ()
    digest: bytes = GENESIS

    @property
    def available(self) -> int:
        """What can be spent at this instant: 0 or more."""
        return lot_rules.available(self.lots, self.now_us)

    def lot(self, grant: int) -> Lot | None:
        """The open lot of that grant, if it is open."""
        return next((lot for lot in self.lots if lot.grant == grant), None)

    def next_entry(
        self,
        kind: str,
        amount: int,
        *,
        lots: Lots,
        drawn: Drawn = (),
        closes: int | None = None,
        settled: int | None = None,
        effective_us: int | None = None,
        request: Request | None = None,
        reason: str = "",
    ) -> Entry:
        """The entry that follows, sealed: numbered, with the state after it, chained to the one before.

        Args:
            amount: signed, what it does to the balance.
            request: whose actor, reason, reference, metadata and key the entry bears; without one it is the ledger's own.
        """
        return Entry(
            holder_id=self.holder_id,
            credit_type=self.credit_type,
            sequence=self.sequence + 1,
            kind=kind,
            amount=amount,
            balance=self.balance + amount,
            held=self.held,
            lots=lots,
            drawn=drawn,
            closes=closes,
            settled=settled,
            idempotency_key=None if request is None else request.idempotency_key,
            request_digest=None if request is None else request.digest(),
            effective_us=self.now_us if effective_us is None else effective_us,
            recorded_us=self.now_us,
            actor="ledger" if request is None else request.actor,
            reason=reason if request is None else request.reason,
            reference="" if request is None else request.reference,
            metadata={} if request is None else request.metadata,
            previous_digest=self.digest,
        ).sealed()

    def after(self, entry: Entry) -> "Account":
        """The account once `entry` is its last one, at the same instant."""
        return self._replace(
            sequence=entry.sequence, balance=entry.balance, held=entry.held, lots=entry.lots, digest=entry.digest
        )

    def after_all(self, entries: Sequence[Entry]) -> "Account":
        return self.after(entries[-1]) if entries else self
