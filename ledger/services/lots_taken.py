"""Whether callers have used credits of certain lots, for the party that granted these for another use."""

from collections.abc import Sequence
from typing import Final

from ledger.database.statements import Statement, array, integer, parameter

TAKEN: Final = Statement(
    "lots_taken",
    """
SELECT lot.sequence
FROM unnest(%(lots)s::bigint[]) AS lot (sequence)
CROSS JOIN LATERAL (
    SELECT 1
    FROM ledger_entry AS used
    WHERE used.holder_id = %(holder_id)s AND used.credit_type = %(credit_type)s AND used.sequence > lot.sequence
        AND used.kind IN ('spend', 'capture') AND used.actor <> %(but_by)s
        AND EXISTS (SELECT FROM json_array_elements(used.drawn) AS part WHERE (part ->> 0)::bigint = lot.sequence)
        -- What was given back as a whole was not used.
        AND coalesce((
            SELECT max(back.refunded_total)
            FROM ledger_entry AS back
            WHERE back.holder_id = %(holder_id)s AND back.credit_type = %(credit_type)s AND back.refers_to = used.sequence
                AND back.kind = 'refund'
        ), 0) < (SELECT sum((part ->> 1)::bigint) FROM json_array_elements(used.drawn) AS part)
    ORDER BY used.sequence
    LIMIT 1
) AS first_use
""",
    [integer],
)


def lots_taken(*, holder_id: str, credit_type: str, lots: Sequence[int], but_by: str) -> set[int]:
    """Return those of the lots from which spends or captures took credits that no refund has given back as a whole.

    Args:
        lots: the sequences of their grants.
        but_by: an actor whose entries do not count.
    """
    if not lots:
        return set()
    rows = TAKEN.rows(
        {
            "holder_id": parameter(holder_id),
            "credit_type": parameter(credit_type),
            "lots": array([str(lot) for lot in lots]),
            "but_by": parameter(but_by),
        }
    )
    return {lot for (lot,) in rows}
