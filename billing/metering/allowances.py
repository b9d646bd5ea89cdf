"""Use that an allowance pays for and that callers have decided themselves: credits of the allowance were spent at the gate.

A usage price with `credits` has a run spend the credits for reported events. If callers also spend the credits of the plan's
allowance, one use could be told twice. Unless the price says that they are spent for something else (`also_spent`), the spends
count, and events are refused. See adr/0166.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger.database.statements import fetch_rows
from ledger.services.lots_taken import lots_taken

TOLD_BY_SPENDS: Final = "told-by-spends"
"""The code of an event whose allowance callers have spent."""

# The allowances that pay for the usage of meters, each with its time and its lots in the ledger.
PAYING: Final = """
    SELECT DISTINCT c.subscription_id, p.meter, greatest(c.starts_at, v.starts_at), least(c.ends_at, v.ends_at),
        c.snapshot ->> 'holder_id', c.snapshot ->> 'credit_type', (c.snapshot ->> 'grant')::bigint,
        coalesce(c.snapshot -> 'rollover_grants' -> (c.snapshot ->> 'credit_type'), '[]')::text
    FROM billing_claim AS c
    JOIN billing_itemversion AS v ON v.subscription_id = c.subscription_id AND v.superseded_at IS NULL
        AND v.starts_at < c.ends_at AND coalesce(v.ends_at, 'infinity') > c.starts_at
    JOIN billing_price AS p ON p.id = v.price_id AND p.definition -> 'credits' ->> 'credit_type' = c.snapshot ->> 'credit_type'
        AND p.definition -> 'credits' ->> 'also_spent' IS DISTINCT FROM 'true' AND p.meter = ANY(%s)
    WHERE c.subscription_id = ANY(%s) AND c.kind = 5 AND c.released_at IS NULL AND (c.snapshot ->> 'pays_usage')::boolean
        AND c.snapshot ->> 'grant' IS NOT NULL AND c.starts_at <= %s AND c.ends_at > %s
"""


class Spent(NamedTuple):
    """A stretch of time in which the allowance that pays for the use of a meter was spent by callers."""

    subscription_id: int
    meter: str
    start: datetime
    end: datetime
    credit_type: str

    def concerns(self, subscription_id: int, meter: str, at: datetime) -> bool:
        """Return whether a use of a meter at an instant is paid by the allowance."""
        return (subscription_id, meter) == (self.subscription_id, self.meter) and self.start <= at < self.end


class _Paying(NamedTuple):
    """A row of PAYING."""

    subscription_id: int
    meter: str
    start: datetime
    end: datetime
    holder_id: str
    credit_type: str
    grant: int
    rollover_grants: str

    @property
    def lots(self) -> list[int]:
        rolled_over: list[Any] = json.loads(self.rollover_grants)
        return [self.grant, *(int(grant) for grant in rolled_over)]


def spent_allowances(
    subscription_ids: Collection[int], meters: Collection[str], *, since: datetime, until: datetime
) -> list[Spent]:
    """Return the times, from `since` to `until`, in which callers have spent the allowance that pays for a meter's use."""
    values = [sorted(meters), sorted(subscription_ids), until, since]
    paying: Sequence[_Paying] = fetch_rows(_Paying, PAYING, values)
    lots: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in paying:
        lots[one.holder_id, one.credit_type].update(one.lots)
    taken = {
        account: lots_taken(holder_id=account[0], credit_type=account[1], lots=sorted(of_account), but_by="billing")
        for account, of_account in lots.items()
    }
    return [
        Spent(one.subscription_id, one.meter, one.start, one.end, one.credit_type)
        for one in paying
        if taken[one.holder_id, one.credit_type] & {*one.lots}
    ]
