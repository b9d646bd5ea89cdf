"""What the use of a rate cost lately, and what it would have cost at other prices."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ledger.database.statements import fetch_rows
from ledger.models import Rate
from ledger.rules.rates import WHOLE, Prices, Quantities, cost_of

__all__ = ["MOST_ENTRIES", "RateTrial", "try_rate"]

MOST_ENTRIES: Final = 20_000
"""The newest entries of all holders, among which the uses of the rate are sought."""

# The newest first by the index of time. A capture by amount has no quantities.
USES: Final = """
    SELECT newest.holder_id, newest.rating, newest.recorded_at
    FROM (
        SELECT holder_id, credit_type, kind, rating, recorded_at
        FROM ledger_entry
        WHERE kind <> 'refusal'
        ORDER BY ledger_slot(recorded_at) DESC
        LIMIT %(most)s
    ) AS newest
    WHERE newest.kind IN ('spend', 'capture') AND newest.credit_type = %(credit_type)s AND newest.rating ->> 'rate' = %(code)s
"""


class _TriedUse(NamedTuple):
    """A row of USES."""

    holder_id: str
    rating: dict[str, Any]
    recorded_at: datetime

    def quantities(self) -> Quantities:
        """Return what was used, by component, without what was not."""
        if "quantity" in self.rating:
            return {WHOLE: self.rating["quantity"]}
        numbers = {name: Decimal(number) for name, number in self.rating["quantities"].items()}
        return {name: number for name, number in numbers.items() if number}


@dataclass(slots=True)
class RateTrial:
    """What the uses of a rate among the newest entries cost, and would have cost, before refunds.

    Args:
        since: when the oldest of the uses was recorded; None without any.
        before, after: credits, at the versions that priced the uses and at the other prices.
        lacking: the components that were used and that the other prices lack; the sums are without these uses.
    """

    uses: int = 0
    holders: set[str] = field(default_factory=set)
    since: datetime | None = None
    before: int = 0
    after: int = 0
    lacking: set[str] = field(default_factory=set)


def try_rate(code: str, credit_type: str, prices: Prices) -> RateTrial:
    """Return what the uses of a rate would have cost at other prices. A partial spend counts as a whole."""
    named = {"code": code, "credit_type": credit_type, "most": MOST_ENTRIES}
    uses = fetch_rows(_TriedUse, USES, named)
    versions = {use.rating["version"] for use in uses}
    rows = Rate.objects.filter(code=code, credit_type=credit_type, version__in=versions)
    priced_by = {row.version: row.unit_prices for row in rows}
    trial = RateTrial(since=min((use.recorded_at for use in uses), default=None))
    for use in uses:
        quantities = use.quantities()
        lacking = quantities.keys() - prices.keys()
        trial.lacking |= lacking
        if not lacking:
            trial.uses += 1
            trial.holders.add(use.holder_id)
            trial.before += cost_of(priced_by[use.rating["version"]], quantities)
            trial.after += cost_of(prices, quantities)
    return trial
