"""What a period used on overage, for who invoices it: granted, less what came back, less what holds still set aside."""

from collections.abc import Sequence
from datetime import datetime

from ledger.database.statements import Statement, array, instant, integer, parameter

USED = Statement(
    "overage_used",
    """
WITH held AS (
    SELECT (part ->> 0)::bigint AS lot, sum((part ->> 1)::bigint) AS credits
    FROM (
        SELECT holds
        FROM ledger_entry
        WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s
        ORDER BY sequence DESC
        LIMIT 1
    ) AS last
    CROSS JOIN json_array_elements(last.holds) AS hold
    CROSS JOIN json_array_elements(hold -> 2) AS part
    WHERE part ->> 5 = '2'
    GROUP BY 1
)
SELECT stretch.place, used_by.rate,
    COALESCE(sum(granted.postpaid - COALESCE(back.credits, 0) - COALESCE(held.credits, 0)), 0)::bigint AS credits
FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) WITH ORDINALITY AS stretch (starts_at, ends_at, place)
LEFT JOIN LATERAL (
    SELECT sequence, postpaid
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s
        AND kind = 'grant' AND postpaid IS NOT NULL
        AND COALESCE(effective_at, recorded_at) >= stretch.starts_at AND COALESCE(effective_at, recorded_at) < stretch.ends_at
        AND overage ->> 10 = %(reference)s
    OFFSET 0
) AS granted ON true
LEFT JOIN LATERAL (
    SELECT sum(postpaid) AS credits
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND refers_to = granted.sequence AND kind = 'revoke'
) AS back ON true
LEFT JOIN held ON held.lot = granted.sequence
-- What a grant was for is the entry after it; a capture without quantities is by the rate of its hold.
LEFT JOIN LATERAL (
    SELECT COALESCE(next.rating ->> 'rate', (
        SELECT hold.rating ->> 'rate'
        FROM ledger_entry AS hold
        WHERE hold.holder_id = %(holder_id)s AND hold.credit_type = %(credit_type)s AND hold.sequence = next.refers_to
            AND next.kind = 'capture'
    )) AS rate
    FROM ledger_entry AS next
    WHERE next.holder_id = %(holder_id)s AND next.credit_type = %(credit_type)s AND next.sequence = granted.sequence + 1
) AS used_by ON true
GROUP BY stretch.place, used_by.rate
ORDER BY stretch.place, credits DESC, used_by.rate
""",
    [integer, bytes.decode, integer],
)

# The instants of the grants about which something was recorded: themselves, what came back of them, what a hold of them captured.
CHANGED = Statement(
    "overage_changed",
    """
WITH recent AS (
    SELECT sequence, kind, refers_to, drawn
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s
        AND kind IN ('grant', 'revoke', 'capture') AND postpaid IS NOT NULL AND recorded_at >= %(since)s
    OFFSET 0
), named AS (
    SELECT CASE kind WHEN 'grant' THEN sequence WHEN 'revoke' THEN refers_to END AS sequence FROM recent WHERE kind <> 'capture'
    UNION
    SELECT (part ->> 0)::bigint FROM recent CROSS JOIN json_array_elements(drawn) AS part WHERE kind = 'capture'
)
SELECT DISTINCT COALESCE(granted.effective_at, granted.recorded_at)
FROM named
CROSS JOIN LATERAL (
    SELECT effective_at, recorded_at
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND sequence = named.sequence
        AND kind = 'grant' AND postpaid IS NOT NULL
    OFFSET 0
) AS granted
""",
    [instant],
)


def overage_used(
    *, holder_id: str, credit_type: str, reference: str, stretches: Sequence[tuple[datetime, datetime]]
) -> list[dict[str | None, int]]:
    """Return how many credits were used on overage in each stretch `[start, end)`, by the rate of the spend or hold.

    Each number is above 0, the largest first; the rate is None for what was used without one.

    They count where they were granted: a capture or refund later belongs to the stretch of its hold or spend. What an open hold
    sets aside is not used yet.

    Args:
        reference: of the overage's terms. stretches: apart from each other, or not.
    """
    if not stretches:
        return []
    starts, ends = zip(*stretches, strict=True)
    rows = USED.rows(
        _account(holder_id, credit_type)
        | {
            "reference": parameter(reference),
            "starts": array([start.isoformat() for start in starts]),
            "ends": array([end.isoformat() for end in ends]),
        }
    )
    used: list[dict[str | None, int]] = [{} for _ in stretches]
    for place, rate, credits_ in rows:
        if credits_:
            used[place - 1][rate] = credits_
    return used


def overage_changed(*, holder_id: str, credit_type: str, since: datetime) -> list[datetime]:
    """Return the instants of use about which something was recorded since then: later use, a refund, a capture, a release."""
    return [at for (at,) in CHANGED.rows(_account(holder_id, credit_type) | {"since": parameter(since)})]


def _account(holder_id: str, credit_type: str) -> dict[str, bytes | None]:
    return {"holder_id": parameter(holder_id), "credit_type": parameter(credit_type)}
