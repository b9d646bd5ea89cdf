"""Shares of a cost: exact for any history of an account, in whole minor units.

A lot that was sold has a basis: what was paid for how many credits. While credits only leave it, what has left with them is the
paid amount times the credits that left, divided by all credits, rounded down; so the last credit takes the remainder, and the
shares add up to the paid amount. Credits that come back bring the share that they took with them, and credits of another receipt
bring theirs. Then the basis becomes what the lot costs and has at that moment, unless the old one says the same: see `put`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson

from ledger.errors import BalanceLimit
from ledger.values import MAX_AMOUNT

MILLION: Final = 1_000_000
"""Millionths of a minor unit: in these, a basis keeps what rounding has left over. Without it a lot into which small receipts
come and out of which small spends go would recognise nothing."""


class Cost(NamedTuple):
    """An amount in minor units of a currency, 0 or more."""

    minor: int
    currency: str


class CostChange(NamedTuple):
    """By how much an entry changed the cost of a lot, held credits included: below 0 for a share that left it."""

    lot: int
    minor: int
    currency: str


class LotCost(NamedTuple):
    """What the credits that are left of a lot cost, those in holds included.

    `left` is in minor units of `currency`. The basis is `paid` minor units, less `fraction` millionths of one, for `of` credits.
    A lot without this was not sold: its credits cost nothing, and no entry recognises anything for them.
    """

    lot: int
    left: int
    currency: str
    paid: int
    of: int
    fraction: int = 0

    def left_of(self, amount: int) -> int:
        """Return what this many credits of the lot cost, at most `of`: rounded up, so that revenue is never recognised early."""
        return -(-(self.paid * MILLION - self.fraction) * amount // (self.of * MILLION))

    def leftover(self, amount: int) -> int:
        """Return by how many millionths of a minor unit `left` is above the exact cost of this many credits: below a million."""
        return (self.left * MILLION * self.of - (self.paid * MILLION - self.fraction) * amount) // self.of


LotCosts = tuple[LotCost, ...]
"""Of the open and held lots that were sold, the oldest first."""
CostChanges = tuple[CostChange, ...]


def put(known: LotCost | None, lot: int, *, there: int, amount: int, cost: Cost) -> LotCost:
    """Return the cost of a lot after credits came into it.

    Args:
        known: its cost before; None if it had no credits.
        there: how many credits it had, held ones included.
        amount: how many come, 1 or more. cost: what they cost.

    Raises:
        BalanceLimit: the lot would cost more than the largest amount.
    """
    if known is None:
        return LotCost(lot, cost.minor, cost.currency, cost.minor, amount)
    left, total = known.left + cost.minor, there + amount
    if total <= known.of and known.left_of(total) == left:
        return known._replace(left=left)
    if left > MAX_AMOUNT:
        raise BalanceLimit(limit=MAX_AMOUNT)
    return LotCost(lot, left, cost.currency, left, total, known.leftover(there))


def part_of(minor: int, *, of: int, before: int, amount: int) -> int:
    """Return the share of `amount` credits among `of` that cost `minor`, after a share for `before` of them: 0 or more."""
    return minor * (before + amount) // of - minor * before // of


def cost_of(changes: Iterable[CostChange], lot: int) -> Cost | None:
    """Return what an entry moved for a lot, without its sign; None if the lot was not sold."""
    return next((Cost(abs(change.minor), change.currency) for change in changes if change.lot == lot), None)


# Stored forms ----------------------------------------------------------------------------------------


def encode_costs(costs: Iterable[LotCost | CostChange]) -> str:
    """Return JSON arrays: of lots `[lot, left, currency, paid, of, fraction]`, of changes `[lot, change, currency]`.

    A fraction of 0 is left out. An entry without them stores null.
    """
    return "[" + ",".join([_encode_cost(cost) for cost in costs]) + "]"


def _encode_cost(cost: LotCost | CostChange) -> str:
    head = f'[{cost[0]},{cost[1]},"{cost.currency}"'
    if isinstance(cost, CostChange):
        return f"{head}]"
    return f"{head},{cost.paid},{cost.of},{cost.fraction}]" if cost.fraction else f"{head},{cost.paid},{cost.of}]"


def decode_costs(text: str | bytes) -> LotCosts:
    """Return the costs of lots of a stored form: the inverse of `encode_costs`."""
    return tuple([LotCost(*fields) for fields in orjson.loads(text)])


def decode_changes(text: str | bytes) -> CostChanges:
    """Return the changes of a stored form: the inverse of `encode_costs`."""
    return tuple([CostChange(*fields) for fields in orjson.loads(text)])
