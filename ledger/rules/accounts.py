"""Accounts: the state of one holder's entries in one credit type, after the last entry."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ledger.errors import Refused
from ledger.rules import lots as lot_rules
from ledger.rules.budget_states import Budgets, Counters, Counts, after, in_force
from ledger.rules.claims import Claims
from ledger.rules.cost_moves import moved
from ledger.rules.cost_shares import Cost, CostChanges, LotCosts
from ledger.rules.entries import BY_THE_LEDGER, GENESIS, REQUEST_DIGEST_BYTES, Entry
from ledger.rules.holds import Hold, Holds
from ledger.rules.lots import POSTPAID, Drawn, Lot, Lots
from ledger.rules.overage import Overage
from ledger.rules.pending import SettledState, settled
from ledger.rules.purposes import Use
from ledger.rules.requests import Request

NO_CHANGES: CostChanges = ()


class AccountState(NamedTuple):
    """The state after the last entry, and the time at which it is decided.

    `now_us` is the server's clock after the lock was taken, or the holder's test clock; every decision uses it.
    `recorded_us` is when the last entry was
    recorded; it is later than `now_us` if the clock has been set back since. An account without entries has sequence 0.
    `overdraft` is None if the account never had an overdraft.
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
    """The sequence of the last entry that is not a refusal."""
    is_frozen: bool = False
    """Of the holder, in all credit types: nothing can be spent, held or transferred."""
    budgets: Budgets = ()
    """With those that are not in force yet, or have ended."""
    server_us: int = 0
    """The server's clock, if `now_us` is the holder's test clock; otherwise 0."""
    costs: LotCosts = ()
    overage: Overage | None = None
    """The last agreed overage, also after its end; None if the account never had one."""
    claims: Claims = ()
    """What is taken back of the credits that come back to some lots."""
    counters: Counters = {}
    """What subjects have used of budgets: of those that the request needs. It is not on an entry."""
    held_counts: Mapping[int, Counts] = {}
    """What the budgets counted of open holds, by hold: of those that the request needs. It is not on an entry."""
    next_grant_us: int | None = None
    """When a recurring grant of the account is due next; None: never."""

    @property
    def owed(self) -> int:
        """How much of the overdraft is used, 0 or more. The lots add up to the balance plus this."""
        return 0 if self.overdraft is None else lot_rules.total(self.lots) - self.balance

    @property
    def own_available(self) -> int:
        """The credits that can be transferred now, without the overdraft: 0 or more; due entries count, booked or not."""
        return max(0, self._spendable_beyond_debt)

    @property
    def available(self) -> int:
        """The credits that can be spent on everything now, with the overdraft: 0 or more; due entries count, booked or not."""
        return max(0, self._spendable_beyond_debt + (self.overdraft or 0))

    def own_available_for(self, use: Use | None) -> int:
        """As `own_available`, with the credits that can pay for this use and not for everything; None: for no certain thing."""
        return self.own_available + self.restricted(use)

    def available_for(self, use: Use | None) -> int:
        """As `available`, with the credits that can pay for this use and not for everything."""
        return self.available + self.restricted(use)

    def restricted(self, use: Use | None) -> int:
        """The credits that can be spent now on this use, and not on everything: 0 or more. They repay no debt."""
        # Every spend passes through here, and hardly any account has such lots.
        if not [lot for lot in (self.lots_and_held_parts if self.holds else self.lots) if lot.applies_to is not None]:
            return 0
        return lot_rules.restricted(self.settled.lots, self.now_us, use)

    @property
    def has_due_grants(self) -> bool:
        """Whether a recurring grant is due now that no entry has made."""
        return self.next_grant_us is not None and self.next_grant_us <= self.now_us

    @property
    def present_budgets(self) -> Budgets:
        """The budgets that are in force now: they count, and refuse."""
        return in_force(self.budgets, self.now_us)

    @property
    def settled(self) -> SettledState:
        """The lots, the holds, the debt and the claims now, with all that is due of them."""
        return settled(self.lots, self.holds, self.owed, self.claims, self.now_us)

    @property
    def _spendable_beyond_debt(self) -> int:
        """Spendable credits, those of expired holds included, minus the debt; below 0 while the debt is larger."""
        if self.owed or self.claims:
            lots, _, owed, _ = self.settled
            return lot_rules.available(lots, self.now_us) - owed
        spendable = lot_rules.available(self.lots, self.now_us)
        if self.holds:
            spendable += lot_rules.available(
                tuple([part for part in self._parts_of_expired_holds if part.source != POSTPAID]), self.now_us
            )
        return spendable

    @property
    def _parts_of_expired_holds(self) -> list[Lot]:
        return [part for hold in self.holds if hold.is_expired(self.now_us) for part in hold.parts]

    @property
    def present_overage(self) -> Overage | None:
        """The overage in the present period, with what expired holds give back, booked or not; None if there is none now."""
        present = None if self.overage is None else self.overage.at(self.now_us, since=self.sequence + 1)
        if present is not None:
            for part in self._parts_of_expired_holds:
                present = present.given_back(part, part.remaining, self.now_us)
        return present

    @property
    def overage_left(self) -> int:
        """The credits that can be used now beyond `available`: 0 or more."""
        present = self.present_overage
        return 0 if present is None else present.left

    @property
    def lots_and_held_parts(self) -> Lots:
        """The open lots, and the parts of lots that open holds set aside."""
        return (*self.lots, *(part for hold in self.holds for part in hold.parts))

    def lot(self, grant: int) -> Lot | None:
        """Return the lot of a grant, or None if it is not open."""
        return next((lot for lot in self.lots if lot.grant == grant), None)

    def hold(self, sequence: int) -> Hold | None:
        """Return the hold of an entry, or None if it was captured in full or released, or has expired by now."""
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
        requested: int | None = None,
        budgets: Budgets | None = None,
        counts: Counts = (),
        sale: dict[str, Any] | None = None,
        brought: Mapping[int, Cost] | None = None,
        overage: Overage | None = None,
        postpaid: int = 0,
        claims: Claims | None = None,
        keyless: bool = False,
    ) -> Entry:
        """Return the next entry: numbered, with the state after it, and with its digest.

        Args:
            amount: the change of the balance, signed.
            held, holds, overdraft, budgets, overage, claims: their values after the entry; unchanged by default.
            request: gives the entry its actor, reason, reference, metadata and key. Without a request the actor is the ledger.
            counts: what budgets count of it.
            brought: what the credits cost that it brings, by lot, those of lots that were sold.
            postpaid: how many of its credits are postpaid.
            keyless: True leaves the key out, because another entry of the request has it.
        """
        costs, changes = self.costs, NO_CHANGES
        if brought or (costs and drawn):
            costs, changes = moved(costs, self.lots_and_held_parts, kind, self.sequence + 1, amount, drawn, brought or {})
        # Positional: with keywords, a NamedTuple of this many fields takes several times as long to create.
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
            max(self.server_us or self.now_us, self.recorded_us),  # recorded_us: it never goes back
            BY_THE_LEDGER if request is None else request.actor,
            reason if request is None else request.reason,
            "" if request is None else request.reference,
            {} if request is None else request.metadata,
            counterpart,
            rating,
            refusal,
            requested,
            self.budgets if budgets is None else budgets,
            sale,
            costs,
            changes,
            self.overage if overage is None else overage,
            postpaid or None,
            self.claims if claims is None else claims,
            counts,
            self.next_grant_us,
        ).sealed(self.digest)

    def refused(self, request: Request, refusal: Refused) -> Entry:
        """Return the entry that records a refusal: it changes nothing, books nothing, and has the request's key.

        Expired lots and holds stay unbooked in its state; the refusal's facts say how many credits could be spent.
        """
        stored = {
            "after": self.moved_by,
            "code": refusal.code,
            "facts": refusal.facts,
            "operation": request.operation,
            "request": request.content(),
            "request_id": request.request_id,
        }
        return self.next_entry("refusal", 0, lots=self.lots, request=request, refusal=stored)

    def after(self, entry: Entry) -> "AccountState":
        """Return the account after `entry`, at the same time."""
        account = self if entry.clock_us is None else self._replace(now_us=entry.clock_us, server_us=entry.recorded_us)
        if entry.counts:
            account = account.counting(entry)
        return account._replace(
            sequence=entry.sequence,
            balance=entry.balance,
            held=entry.held,
            lots=entry.lots,
            holds=entry.holds,
            overdraft=entry.overdraft,
            digest=entry.digest,
            recorded_us=entry.recorded_us,
            moved_by=entry.sequence if entry.refusal is None else entry.refusal["after"],
            is_frozen=self.is_frozen if entry.kind != "adjust" or entry.freezes is None else entry.freezes,
            budgets=entry.budgets,
            costs=entry.costs,
            overage=entry.overage,
            claims=entry.claims,
            next_grant_us=entry.next_grant_us,
        )

    def counting(self, entry: Entry) -> "AccountState":
        """Return the account with what its budgets count of an entry, and nothing else of it."""
        held = {**self.held_counts, entry.sequence: entry.counts} if entry.kind == "hold" else self.held_counts
        return self._replace(counters=after(self.counters, entry.counts), held_counts=held)

    def after_all(self, entries: Sequence[Entry]) -> "AccountState":
        """Return the account after the last of `entries`; the same account if there are no entries."""
        account = self
        for entry in entries[:-1]:
            if entry.counts:
                account = account.counting(entry)
        return account.after(entries[-1]) if entries else self
