"""A model of accounts, credit by credit, written independently of `ledger.rules` to check the rules against it.

It is slow and simple on purpose: a spend is a list with one element per credit, the lot that the credit came from.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

FOREVER = float("inf")
MAX_AMOUNT = 2**53 - 1

DAY_US = 86_400 * 1_000_000


@dataclass(frozen=True)
class Terms:
    """The terms of a lot: effective time, expiry, priority, source, the currency in which it was sold, if it was, and what for.

    `purposes` are the values of the label PURPOSE that its credits can pay for; None: everything.
    """

    effective_us: int
    expires_us: int | None
    priority: int
    promotional: bool
    currency: str | None = None
    postpaid: bool = False
    purposes: frozenset[str] | None = None

    def pays_for(self, purpose: str | None) -> bool:
        return self.purposes is None or purpose in self.purposes

    def spendable(self, now_us: int) -> bool:
        return self.effective_us <= now_us and not self.expired(now_us)

    def expired(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us

    def shares_with(self, other: "Terms") -> bool:
        """Whether receipts of both terms share a lot: what arrives can be spent at once, so the effective time does not count."""
        return replace(self, effective_us=0) == replace(other, effective_us=0)

    def rank(self, lot: int) -> tuple[int, float, int, int]:
        expires = FOREVER if self.expires_us is None else self.expires_us
        return (40_000 if self.postpaid else self.priority, expires, 0 if self.promotional else 1, lot)


@dataclass(eq=False)
class Owed:
    """One credit that was taken on the overdraft, and the lot that repaid it, if any."""

    repaid_by: int | None = None


@dataclass
class OpenHold:
    """Credits set aside, one element per credit."""

    expires_us: int
    units: list[int]
    purpose: str | None = None


@dataclass
class ModelAccount:
    """The expected state of one account."""

    lots: dict[int, int] = field(default_factory=dict)
    terms: dict[int, Terms] = field(default_factory=dict)
    holds: dict[int, OpenHold] = field(default_factory=dict)
    taken: dict[int, list[int | Owed]] = field(default_factory=dict)
    grants: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    """The lots that transfers opened."""
    overdraft: int | None = None
    debts: list[Owed] = field(default_factory=list)
    """The debts, credit by credit, the oldest first."""
    flows: Counter[str] = field(default_factory=Counter)
    overage: tuple[int | None, int | None] | None = None
    """The limit for each day, and when it ends."""
    days: dict[int, int] = field(default_factory=dict)
    """Of each postpaid lot: the day on which it was granted."""
    out: Counter[int] = field(default_factory=Counter)
    """How many credits of each postpaid lot are spent or held."""
    claims: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each claim: its lot, and how many credits are claimed of it, the oldest first."""

    # State

    @property
    def debt(self) -> int:
        return len(self.debts)

    @property
    def balance(self) -> int:
        return sum(self.lots.values()) - self.debt

    @property
    def held(self) -> int:
        return sum(len(hold.units) for hold in self.holds.values())

    def own_available(self, now_us: int) -> int:
        return max(0, self._spendable_less_debt(now_us))

    def available(self, now_us: int) -> int:
        return max(0, self._spendable_less_debt(now_us) + (self.overdraft or 0))

    def restricted(self, now_us: int, purpose: str | None) -> int:
        """How many credits can pay for the purpose, and not for everything: they are no part of a debt."""
        caught_up = self.as_of(now_us)
        found = [(count, caught_up.terms[lot]) for lot, count in caught_up.lots.items()]
        return sum(
            count for count, terms in found if terms.purposes is not None and terms.spendable(now_us) and terms.pays_for(purpose)
        )

    def overage_left(self, now_us: int) -> int:
        """How many credits can be used beyond the lots: what is out of the lots of this day counts against the limit."""
        if self.overage is None or (self.overage[1] is not None and now_us >= self.overage[1]):
            return 0
        caught_up, limit = self.as_of(now_us), MAX_AMOUNT if self.overage[0] is None else self.overage[0]
        return max(0, limit - sum(count for lot, count in caught_up.out.items() if caught_up.days[lot] == now_us // DAY_US))

    def for_other_things(self, now_us: int, purpose: str | None) -> int:
        """How many credits can be spent, but not on the purpose."""
        caught_up = self.as_of(now_us)
        found = [(count, caught_up.terms[lot]) for lot, count in caught_up.lots.items()]
        return sum(count for count, terms in found if terms.spendable(now_us) and not terms.pays_for(purpose))

    def usable(self, now_us: int, purpose: str | None = None) -> int:
        return self.available(now_us) + self.restricted(now_us, purpose) + self.overage_left(now_us)

    def usable_by_a_hold(self, now_us: int, purpose: str | None = None) -> int:
        return self.own_available(now_us) + self.restricted(now_us, purpose) + self.overage_left(now_us)

    def sufficient_from(self, amount: int, now_us: int, purpose: str | None = None) -> int | None:
        """Return from when `amount` can be spent if no request comes, by trying every time at which the account changes."""
        later = {us for us in self._instants() if us > now_us}
        if self.overage is not None:
            later.add((now_us // DAY_US + 1) * DAY_US)
        return next((us for us in sorted(later) if self.usable(us, purpose) >= amount), None)

    def _spendable_less_debt(self, now_us: int) -> int:
        caught_up = self.as_of(now_us)
        return caught_up._in_lots(now_us) - caught_up.debt

    def as_of(self, now_us: int) -> "ModelAccount":
        """Return a copy at this time, without history and with all due changes made."""
        copy = ModelAccount(
            lots=dict(self.lots),
            terms=self.terms,
            holds={number: OpenHold(hold.expires_us, hold.units) for number, hold in self.holds.items()},
            overdraft=self.overdraft,
            debts=[Owed() for _ in self.debts],
            days=self.days,
            out=Counter(self.out),
            claims=dict(self.claims),
        )
        copy.catch_up(now_us)
        return copy

    def is_open_hold(self, hold: int, now_us: int) -> bool:
        return hold in self.holds and now_us < self.holds[hold].expires_us

    # Operations

    def catch_up(self, now_us: int) -> None:
        """Make all changes that are due by now, in the order of time: expired holds, expired lots, repaid debts."""
        for us in sorted(us for us in self._instants() | {now_us} if us <= now_us):
            for number in [number for number, hold in self.holds.items() if us >= hold.expires_us]:
                self._give_back(self.holds.pop(number).units)
            self.lose_expired(us)
            self.repay(us)

    def _instants(self) -> set[int]:
        bound = [self.terms[lot] for lot in self.lots] + [self.terms[lot] for hold in self.holds.values() for lot in hold.units]
        expiries = {terms.expires_us for terms in bound if terms.expires_us is not None}
        return expiries | {terms.effective_us for terms in bound} | {hold.expires_us for hold in self.holds.values()}

    def lose_expired(self, now_us: int) -> None:
        for lot in [lot for lot in self.lots if self.terms[lot].expired(now_us)]:
            self.flows["expired"] += self.lots.pop(lot)

    def repay(self, now_us: int) -> None:
        """Repay the oldest debts from the lots that are first in burn order."""
        for lot in self.take(self.debt, now_us):
            self.debts.pop(0).repaid_by = lot

    def _in_lots(self, now_us: int) -> int:
        return sum(
            count for lot, count in self.lots.items() if self.terms[lot].spendable(now_us) and self.terms[lot].pays_for(None)
        )

    def put(self, lot: int, amount: int, terms: Terms) -> None:
        self.lots[lot] = amount
        self.terms[lot] = terms

    def receive(self, lot: int, amount: int, terms: Terms) -> int:
        """Put credits that another holder sent into the lot that receipts of these terms share, or into a new one; return it."""
        shared = self._shared(terms)
        if shared is not None:
            self.lots[shared] = self.lots.get(shared, 0) + amount
            return shared
        self.put(lot, amount, terms)
        self.received.add(lot)
        return lot

    def send_back(self, lot: int, amount: int) -> None:
        """Give received credits back to their sender."""
        self.lots[lot] = self.lots.get(lot, 0) - amount
        self._close_empty_lots()
        self.flows["departed"] += amount

    def get_back(self, lot: int, amount: int) -> None:
        """Get credits back that were sent from this lot."""
        if lot in self.received:
            shared = self._shared(self.terms[lot])
            lot = lot if shared is None else shared
        self._give_back([lot] * amount)
        self.flows["arrived"] += amount

    def _shared(self, terms: Terms) -> int | None:
        there = {*self.lots, *(lot for hold in self.holds.values() for lot in hold.units)}
        found = [lot for lot in self.received & there if self.terms[lot].shares_with(terms)]
        assert len(found) <= 1
        return found[0] if found else None

    def take(self, amount: int, now_us: int, purpose: str | None = None) -> list[int]:
        """Take credits one by one in burn order, of those that can pay for the purpose; take fewer if there are fewer."""
        units: list[int] = []
        usable = (lot for lot in self.lots if self.terms[lot].spendable(now_us) and self.terms[lot].pays_for(purpose))
        in_order = sorted(usable, key=lambda lot: self.terms[lot].rank(lot))
        for lot in in_order:
            while self.lots[lot] and len(units) < amount:
                self.lots[lot] -= 1
                units.append(lot)
        self._close_empty_lots()
        return units

    def take_with_overage(self, number: int, amount: int, now_us: int, purpose: str | None = None) -> list[int]:
        """As `take`; what the lots lack is granted on overage by the entry before `number`, as far as the limit allows."""
        left = self.overage_left(now_us)
        units = self.take(amount, now_us, purpose)
        missing = min(left, amount - len(units))
        if missing:
            self.terms[number - 1] = Terms(0, None, 100, promotional=False, postpaid=True)
            self.days[number - 1] = now_us // DAY_US
            self.out[number - 1] = missing
            self.grants.add(number - 1)
            self.flows["granted"] += missing
        return units + [number - 1] * missing

    def spend(self, number: int, amount: int, now_us: int, purpose: str | None = None) -> list[int]:
        units = self.take_with_overage(number, amount, now_us, purpose)
        owed = [Owed() for _ in range(amount - len(units))]
        self.debts += owed
        self.taken[number] = [*units, *owed]
        self.flows["spent"] += amount
        return units

    def refund(self, numbers: Iterator[int], spend: int, amount: int, now_us: int, new_lot_for_us: int | None) -> None:
        """Give credits of a spend back, the credit taken last first.

        Args:
            numbers: the sequences of the refund's entries; each entry opens at most one lot.
            new_lot_for_us: the lifetime of a new lot for credits of expired lots; None gives them back to the expired lots.
        """
        opened: int | None = None
        number = next(numbers)
        for _ in range(amount):
            unit = self.taken[spend].pop()
            lot = unit.repaid_by if isinstance(unit, Owed) else unit
            if lot is None:
                self.debts.remove(unit)
                continue
            terms = self.terms[lot]
            if terms.expired(now_us) and new_lot_for_us is not None and not self._claim_on(lot):
                terms = replace(terms, effective_us=now_us, expires_us=now_us + new_lot_for_us)
                if opened is not None and self.terms[opened] != terms:
                    number = next(numbers)
                opened = lot = number
                self.terms[lot] = terms
            elif lot in self.received:
                shared = self._shared(terms)
                lot = lot if shared is None else shared
            self._give_back([lot])
        self.flows["refunded"] += amount

    def revoke(self, lot: int, amount: int) -> None:
        self.lots[lot] -= amount
        self._close_empty_lots()
        self.flows["revoked"] += amount

    def void(self) -> None:
        self.flows["revoked"] += sum(self.lots.values())
        self.lots = {}

    def reissue(self, number: int, lot: int, terms: Terms) -> None:
        self.put(number, self.lots.pop(lot), terms)

    def set_aside(self, number: int, amount: int, expires_us: int, now_us: int, purpose: str | None = None) -> list[int]:
        units = self.take_with_overage(number, amount, now_us, purpose)
        self.holds[number] = OpenHold(expires_us, units, purpose)
        return list(units)

    def capture(self, number: int, hold: int, amount: int, final: bool, now_us: int) -> None:
        """Capture the credits in the order in which they were set aside."""
        units, purpose = self.holds[hold].units, self.holds[hold].purpose
        captured, rest = units[:amount], units[amount:]
        beyond = amount - len(captured)
        if final or not rest:
            del self.holds[hold]
            if rest:
                self._give_back(rest)
                self.lose_expired(now_us)
                self.repay(now_us)
        else:
            self.holds[hold].units = rest
        # The entry has one part per lot, whether the credits came from the hold or from beyond it.
        self.taken[number] = [*_grouped(captured + self.take_with_overage(number, beyond, now_us, purpose))]
        self.flows["spent"] += amount

    def release(self, hold: int) -> None:
        self._give_back(self.holds.pop(hold).units)

    def _give_back(self, units: list[int]) -> None:
        for lot in units:
            if lot in self.days:
                self.out[lot] -= 1
                self.flows["revoked"] += 1
            elif claim := self._claim_on(lot):
                self.claims[claim] = lot, self.claims[claim][1] - 1
                self.flows["revoked"] += 1
            else:
                self.lots[lot] = self.lots.get(lot, 0) + 1

    def claim(self, number: int, lot: int, amount: int) -> None:
        """Claim credits of a lot: what is in it is taken at once, the rest when it comes back."""
        there = min(amount, self.lots.get(lot, 0))
        if there:
            self.revoke(lot, there)
        self.claims[number] = lot, amount - there

    def _claim_on(self, lot: int) -> int | None:
        return next((number for number, (claimed, left) in self.claims.items() if claimed == lot and left), None)

    def _close_empty_lots(self) -> None:
        self.lots = {lot: count for lot, count in self.lots.items() if count}

    @property
    def identity_holds(self) -> bool:
        """granted + arrived + refunded = balance + held + spent + expired + revoked + departed."""
        came = self.flows["granted"] + self.flows["arrived"] + self.flows["refunded"]
        went = self.flows["spent"] + self.flows["expired"] + self.flows["revoked"] + self.flows["departed"]
        return came == self.balance + self.held + went


def _grouped(units: list[int]) -> list[int]:
    """Return the same credits, with those of one lot moved together to the lot's first place."""
    return [lot for lot, count in Counter(units).items() for _ in range(count)]
