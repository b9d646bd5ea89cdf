"""Costs: what was paid for the credits of a lot, and which share of it each entry moves."""

from ledger.rules.costs.moves import Moved, moved, recognised
from ledger.rules.costs.shares import (
    Cost,
    CostChange,
    CostChanges,
    LotCost,
    LotCosts,
    cost_of,
    decode_changes,
    decode_costs,
    encode_costs,
    part_of,
)

__all__ = [
    "Cost",
    "CostChange",
    "CostChanges",
    "LotCost",
    "LotCosts",
    "Moved",
    "cost_of",
    "decode_changes",
    "decode_costs",
    "encode_costs",
    "moved",
    "part_of",
    "recognised",
]
