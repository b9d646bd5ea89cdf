"""A second opinion: what credits do, told unit by unit, without looking at how `ledger.rules` does it.

Slow and simple on purpose: a spend is a list with one element per credit, naming the lot that it came from.
"""

from collections import Counter
from dataclasses import dataclass, field

FOREVER = float("inf")
OVERDRAFT = 0
"""Stands for a lot where a credit was taken on the overdraft."""

DAY_US = 86_400 * 1_000_000


@dataclass(frozen=True)
class Terms:
    """What a lot's credits are bound to."""

    effective_us: int
    expires_us: int | None
    priority: int
    promotional: bool

    def spendable(self, now_us: int) -> bool:
        return self.effective_us <= now_us and not self.expired(now_us)

    def expired(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us

    def rank(self, lot: int) -> tuple[int, float, int, int]:
        return (self.priority, FOREVER if self.expires_us is None else self.expires_us, 0 if self.promotional else 1, lot)


@dataclass
class OpenHold:
    """Credits set aside, one element per credit, and the terms that their lots had then."""

    expires_us: int
    units: list[int]
    terms: dict[int, Terms]


@dataclass
class ModelAccount:
    """One account, as it should be."""

    lots: dict[int, int] = field(default_factory=dict)
    terms: dict[int, Terms] = field(default_factory=dict)
    as_granted: dict[int, Terms] = field(default_factory=dict)
    holds: dict[int, OpenHold] = field(default_factory=dict)
    taken: dict[int, list[int]] = field(default_factory=dict)
    grants: set[int] = field(default_factory=set)
    overdraft: int | None = None
    debt: int = 0
    flows: Counter[str] = field(default_factory=Counter)

    # What it comes to

    @property
    def balance(self) -> int:
        return sum(self.lots.values()) - self.debt

    @property
    def held(self) -> int:
        return sum(len(hold.units) for hold in self.holds.values())

    def own_available(self, now_us: int) -> int:
        return max(0, self._spendable(now_us) - self.debt)

    def available(self, now_us: int) -> int:
        return max(0, self._spendable(now_us) - self.debt + (self.overdraft or 0))

    def _spendable(self, now_us: int) -> int:
        in_lots = sum(count for lot, count in self.lots.items() if self.terms[lot].spendable(now_us))
        in_lapsed_holds = sum(
            1
            for hold in self.holds.values()
            if now_us >= hold.expires_us
            for lot in hold.units
            if hold.terms[lot].spendable(now_us)
        )
        return in_lots + in_lapsed_holds

    def is_open_hold(self, hold: int, now_us: int) -> bool:
        return hold in self.holds and now_us < self.holds[hold].expires_us

    # What happens to it

    def catch_up(self, now_us: int) -> None:
        """What the clock has brought about: lapsed holds, lapsed lots, debts repaid."""
        for number in [number for number, hold in self.holds.items() if now_us >= hold.expires_us]:
            hold = self.holds.pop(number)
            self._give_back(hold.units, hold.terms)
        for lot in [lot for lot in self.lots if self.terms[lot].expired(now_us)]:
            self.flows["expired"] += self.lots.pop(lot)
        self.repay(now_us)

    def repay(self, now_us: int) -> None:
        self.debt -= len(self.take(min(self.debt, self._in_lots(now_us)), now_us))

    def _in_lots(self, now_us: int) -> int:
        return sum(count for lot, count in self.lots.items() if self.terms[lot].spendable(now_us))

    def put(self, lot: int, amount: int, terms: Terms) -> None:
        self.lots[lot] = amount
        self.terms[lot] = self.as_granted[lot] = terms

    def take(self, amount: int, now_us: int) -> list[int]:
        """Take credits one by one, always the one that burns first; fewer when fewer are there."""
        units: list[int] = []
        in_order = sorted(
            (lot for lot in self.lots if self.terms[lot].spendable(now_us)), key=lambda lot: self.terms[lot].rank(lot)
        )
        for lot in in_order:
            while self.lots[lot] and len(units) < amount:
                self.lots[lot] -= 1
                units.append(lot)
        self._close_empty_lots()
        return units

    def spend(self, number: int, amount: int, now_us: int) -> list[int]:
        units = self.take(amount, now_us)
        on_overdraft = amount - len(units)
        self.debt += on_overdraft
        self.taken[number] = units + [OVERDRAFT] * on_overdraft
        self.flows["spent"] += amount
        return units

    def refund(self, number: int, spend: int, amount: int, now_us: int, reopen_for_us: int | None) -> None:
        """The last credit taken comes back first."""
        for _ in range(amount):
            lot = self.taken[spend].pop()
            if lot != OVERDRAFT:
                self._return_one(lot, now_us, reopen_for_us)
            elif self.debt:
                self.debt -= 1
            else:
                if number not in self.lots:
                    self.put(number, 0, Terms(now_us, None, 100, False))
                self.lots[number] += 1
        self.flows["refunded"] += amount

    def _return_one(self, lot: int, now_us: int, reopen_for_us: int | None) -> None:
        if lot not in self.lots:
            terms = self.as_granted[lot]
            if terms.expired(now_us) and reopen_for_us is not None:
                terms = Terms(terms.effective_us, now_us + reopen_for_us, terms.priority, terms.promotional)
            self.lots[lot], self.terms[lot] = 0, terms
        self.lots[lot] += 1

    def revoke(self, lot: int, amount: int) -> None:
        self.lots[lot] -= amount
        self._close_empty_lots()
        self.flows["revoked"] += amount

    def set_aside(self, number: int, amount: int, expires_us: int, now_us: int) -> list[int]:
        units = self.take(amount, now_us)
        self.holds[number] = OpenHold(expires_us, units, {lot: self.terms[lot] for lot in units})
        return list(units)

    def capture(self, number: int, hold: int, amount: int, final: bool, now_us: int) -> None:
        """The credits that were set aside first are captured first."""
        units = self.holds[hold].units
        captured, rest = units[:amount], units[amount:]
        beyond = amount - len(captured)
        if final or not rest:
            lapsed = self.holds.pop(hold)
            if rest:
                self._give_back(rest, lapsed.terms)
                self.catch_up(now_us)
        else:
            self.holds[hold].units = rest
        # What was captured of a lot, from the hold or beyond it, stands on the entry as one part.
        self.taken[number] = _grouped(captured + self.take(beyond, now_us))
        self.flows["spent"] += amount

    def release(self, hold: int) -> None:
        released = self.holds.pop(hold)
        self._give_back(released.units, released.terms)

    def _give_back(self, units: list[int], terms: dict[int, Terms]) -> None:
        for lot in units:
            if lot not in self.lots:
                self.lots[lot], self.terms[lot] = 0, terms[lot]
            self.lots[lot] += 1

    def _close_empty_lots(self) -> None:
        self.lots = {lot: count for lot, count in self.lots.items() if count}

    @property
    def identity_holds(self) -> bool:
        """granted + arrived + refunded = balance + held + spent + expired + revoked + departed."""
        came = self.flows["granted"] + self.flows["arrived"] + self.flows["refunded"]
        went = self.flows["spent"] + self.flows["expired"] + self.flows["revoked"] + self.flows["departed"]
        return came == self.balance + self.held + went


def _grouped(units: list[int]) -> list[int]:
    """The same credits, those of one lot side by side where the lot comes first."""
    return [lot for lot, count in Counter(units).items() for _ in range(count)]
