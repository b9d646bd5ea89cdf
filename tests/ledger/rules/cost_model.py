"""A model of what entries move of the costs of lots, in fractions, written independently of `ledger.rules.cost_shares`.

It follows the entries as they were made, and states what each must have moved. It keeps the exact cost of what is left of a lot
as a fraction, where the rules keep a basis in whole numbers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from ledger.rules.entries import Entry

MILLION = 10**6


@dataclass
class Pile:
    """What is left of a lot: its credits, what they cost exactly, and the whole minor units of that cost that are not recognised.

    `most` is up to how many credits the price of a credit is the one at which they were sold.
    """

    currency: str
    credits: int
    exact: Fraction
    left: int
    most: int

    def take(self, amount: int) -> int:
        self.exact *= Fraction(self.credits - amount, self.credits)
        self.credits -= amount
        share = self.left - ceil(self.exact)
        self.left -= share
        return share

    def put(self, amount: int, minor: int) -> None:
        at_its_price = self.exact / self.credits * (self.credits + amount)
        leftover = Fraction(floor((self.left - self.exact) * MILLION), MILLION)
        self.credits += amount
        self.left += minor
        if self.credits <= self.most and ceil(at_its_price) == self.left:
            self.exact = at_its_price
        else:
            self.exact, self.most = self.left - leftover, self.credits


@dataclass
class Part:
    """Credits that a spend took from one lot, or that a lot repaid of its debt; of the debt itself without a currency."""

    amount: int
    cost: int = 0
    currency: str | None = None
    given_back: int = 0

    def give_back(self, amount: int) -> int:
        before, self.given_back = self.given_back, self.given_back + amount
        return _first(self.cost, self.amount, self.given_back) - _first(self.cost, self.amount, before)


def _first(cost: int, of: int, amount: int) -> int:
    """What the first `amount` of these credits cost."""
    return floor(Fraction(cost * amount, of))


class CostModel:
    """The costs of all accounts of a history, by the entries that it has followed."""

    def __init__(self, entry_of: Callable[[str, int], Entry | None]) -> None:
        self.entry_of = entry_of
        self.piles: dict[tuple[str, int], Pile] = {}
        self.taken: dict[tuple[str, int], list[Part]] = {}
        """By holder and spend, what it took, in order; what it took on the overdraft becomes parts when lots repay it."""
        self.owed: dict[tuple[str, int], int] = {}
        self.flows: Counter[tuple[str, str]] = Counter()

    def follow(self, entry: Entry) -> None:
        """Assert that the entry moved what it must, and that its costs are those of the model."""
        expected: Counter[tuple[int, str]] = Counter()
        match entry.kind:
            case "grant":
                self._sold(entry, expected)
            case "spend" | "capture" | "adjust" | "revoke" | "expire" | "transfer_out" | "reissue":
                self._taken(entry, expected)
            case "refund":
                self._refunded(entry, expected)
            case "transfer_in":
                self._received(entry, expected)
        found = {(change.lot, change.currency): change.minor for change in entry.cost_changes}
        assert found == {key: minor for key, minor in expected.items() if key in found or minor}, (entry, expected)
        self._check_state(entry)

    def _sold(self, entry: Entry, expected: Counter[tuple[int, str]]) -> None:
        if entry.sale is not None:
            self._put(entry, entry.sequence, entry.amount, entry.sale["paid_minor"], entry.sale["currency"])
            expected[entry.sequence, entry.sale["currency"]] += entry.sale["paid_minor"]

    def _taken(self, entry: Entry, expected: Counter[tuple[int, str]]) -> None:
        parts = []
        for lot, amount in entry.drawn:
            pile = self.piles.get((entry.holder_id, lot))
            if pile is None:
                parts.append(Part(amount))
                continue
            minor = pile.take(amount)
            parts.append(Part(amount, minor, pile.currency))
            expected[lot, pile.currency] -= minor
            self.flows[entry.kind, pile.currency] += minor
            if pile.credits == 0:
                del self.piles[entry.holder_id, lot]
            if entry.kind == "reissue":
                self._put(entry, entry.sequence, amount, minor, pile.currency)
                expected[entry.sequence, pile.currency] += minor
        if entry.kind in ("spend", "capture"):
            self.taken[entry.holder_id, entry.sequence] = parts
            self.owed[entry.holder_id, entry.sequence] = max(0, -entry.amount - sum(part.amount for part in parts))
        if entry.kind == "adjust":
            self._repay(entry.holder_id, parts)

    def _repay(self, holder: str, parts: list[Part]) -> None:
        """Give each spend on the overdraft, the oldest first, the part of the repayment that is its own."""
        for part in parts:
            for (debtor, spend), owed in self.owed.items():
                own = min(owed, part.amount - part.given_back) if debtor == holder else 0
                if own:
                    self.owed[debtor, spend] -= own
                    self.taken[debtor, spend].append(Part(own, part.give_back(own), part.currency))

    def _refunded(self, entry: Entry, expected: Counter[tuple[int, str]]) -> None:
        spend = entry.holder_id, entry.refers_to or 0
        on_debt = entry.amount - sum(amount for _, amount in entry.drawn)
        self.owed[spend] -= on_debt
        left, due = entry.amount - on_debt, Counter[str]()
        for part in reversed(self.taken[spend]):
            amount = min(left, part.amount - part.given_back)
            left -= amount
            minor = part.give_back(amount)
            if part.currency is not None:
                due[part.currency] += minor
        back = Counter[str]()
        for change in entry.cost_changes:
            back[change.currency] += change.minor
            expected[change.lot, change.currency] += change.minor
            self._put(entry, change.lot, dict(entry.drawn)[change.lot], change.minor, change.currency)
            self.flows["refund", change.currency] += change.minor
        assert +back == +due, (entry, due)

    def _received(self, entry: Entry, expected: Counter[tuple[int, str]]) -> None:
        other = entry.counterpart or {}
        sent = self.entry_of(other["holder_id"], other["sequence"])
        assert sent is not None
        lot = entry.drawn[0][0] if entry.drawn else entry.sequence
        for change in sent.cost_changes:
            if change.lot == other["grant"]:
                self._put(entry, lot, entry.amount, -change.minor, change.currency)
                expected[lot, change.currency] -= change.minor
                self.flows["transfer_in", change.currency] -= change.minor

    def _put(self, entry: Entry, lot: int, amount: int, minor: int, currency: str) -> None:
        if entry.kind == "grant":
            self.flows["grant", currency] += minor
        if (pile := self.piles.get((entry.holder_id, lot))) is None:
            self.piles[entry.holder_id, lot] = Pile(currency, amount, Fraction(minor), minor, amount)
        else:
            assert pile.currency == currency
            pile.put(amount, minor)

    def _check_state(self, entry: Entry) -> None:
        there = Counter[int]()
        for lot in (*entry.lots, *(part for hold in entry.holds for part in hold.parts)):
            there[lot.grant] += lot.remaining
        piles = {lot: pile for (holder, lot), pile in sorted(self.piles.items()) if holder == entry.holder_id}
        assert [(cost.lot, cost.left, cost.currency) for cost in entry.costs] == [
            (lot, pile.left, pile.currency) for lot, pile in piles.items()
        ]
        assert all(there[lot] == pile.credits and pile.left >= 0 and pile.left - pile.exact < 1 for lot, pile in piles.items())

    def check_sums(self, *, are_all_followed: bool = False) -> None:
        """Assert that each currency's paid amounts are what is left of them and what was recognised, revoked and expired.

        Args:
            are_all_followed: also the entries of the other side of transfers.
        """
        for currency in {currency for _, currency in self.flows}:
            flows = {kind: minor for (kind, of), minor in self.flows.items() if of == currency}
            recognised = flows.get("spend", 0) + flows.get("capture", 0) + flows.get("adjust", 0) - flows.get("refund", 0)
            left = sum(pile.left for pile in self.piles.values() if pile.currency == currency)
            assert recognised >= 0
            came = flows.get("transfer_in", 0) - flows.get("transfer_out", 0)
            assert came == 0 or not are_all_followed
            assert flows.get("grant", 0) + came == left + recognised + flows.get("revoke", 0) + flows.get("expire", 0)
