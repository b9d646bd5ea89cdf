"""What an entry moves of the costs of lots: from its kind and the lots that it drew from or gave to."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ledger.rules.cost_shares import Cost, CostChange, CostChanges, LotCost, LotCosts, put
from ledger.rules.kinds import KINDS
from ledger.rules.lots import Drawn, Lot


class Moved(NamedTuple):
    """The costs of an account's lots after an entry, and the entry's changes of them, in the order of its drawn lots."""

    costs: LotCosts
    changes: CostChanges


def moved(
    costs: LotCosts, lots: Iterable[Lot], kind: str, sequence: int, amount: int, drawn: Drawn, brought: Mapping[int, Cost]
) -> Moved:
    """Return the costs after an entry.

    Args:
        costs: those before it. lots: the open lots and the held parts before it.
        amount: of the entry, which a lot that it opens gets if it drew from no lot.
        brought: what the credits cost that the entry brings, by lot; those of other lots cost nothing.
    """
    if KINDS[kind].cost is None:
        return Moved(costs, ())
    by_lot = {known.lot: known for known in costs}
    there = dict.fromkeys([lot for lot, _ in drawn] or brought, 0)
    for lot in lots:
        if lot.grant in there:
            there[lot.grant] += lot.remaining
    if KINDS[kind].brings:
        changes = _put(by_lot, there, dict(drawn or [(sequence, amount)]), brought)
    else:
        changes = _take(by_lot, there, drawn)
        if KINDS[kind].opens_lots:
            taken = [Cost(-change.minor, change.currency) for change in changes]
            changes += [change for cost in taken for change in _put(by_lot, {}, {sequence: drawn[0][1]}, {sequence: cost})]
    return Moved(tuple(sorted(by_lot.values())), tuple(changes))


def recognised(kind: str, changes: Iterable[CostChange]) -> tuple[Cost, ...]:
    """Return what an entry recognised as revenue, one amount for each currency; below 0 what a refund takes back."""
    sums: dict[str, int] = {}
    if KINDS[kind].cost in ("recognised", "refunded"):
        for change in changes:
            sums[change.currency] = sums.get(change.currency, 0) - change.minor
    return tuple([Cost(minor, currency) for currency, minor in sorted(sums.items())])


def _take(by_lot: dict[int, LotCost], there: Mapping[int, int], drawn: Drawn) -> list[CostChange]:
    changes = []
    for lot, amount in drawn:
        if (known := by_lot.pop(lot, None)) is None:
            continue
        rest = there[lot] - amount
        left = known.left_of(rest)
        if rest:
            by_lot[lot] = known._replace(left=left)
        changes.append(CostChange(lot, left - known.left, known.currency))
    return changes


def _put(
    by_lot: dict[int, LotCost], there: Mapping[int, int], amounts: Mapping[int, int], brought: Mapping[int, Cost]
) -> list[CostChange]:
    for lot, cost in brought.items():
        by_lot[lot] = put(by_lot.get(lot), lot, there=there.get(lot, 0), amount=amounts[lot], cost=cost)
    return [CostChange(lot, brought[lot].minor, brought[lot].currency) for lot in amounts if lot in brought]
