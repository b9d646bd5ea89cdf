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
SELECT stretch.place, COALESCE(sum(granted.postpaid - COALESCE(back.credits, 0) - COALESCE(held.credits, 0)), 0)::bigint
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
GROUP BY stretch.place
ORDER BY stretch.place
""",
    [integer, integer],
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
) -> list[int]:
    """Return how many credits were used on overage in each stretch `[start, end)`, 0 or more.

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
    return [used for _, used in rows]


def overage_changed(*, holder_id: str, credit_type: str, since: datetime) -> list[datetime]:
    """Return the instants of use about which something was recorded since then: later use, a refund, a capture, a release."""
    return [at for (at,) in CHANGED.rows(_account(holder_id, credit_type) | {"since": parameter(since)})]


def _account(holder_id: str, credit_type: str) -> dict[str, bytes | None]:
    return {"holder_id": parameter(holder_id), "credit_type": parameter(credit_type)}
