"""What was used by a rate in a time, for the party that invoices it: spends and captures, less what refunds gave back of them."""

from datetime import datetime
from typing import Final

from ledger.database.statements import Statement, instant, parameter

# The kinds of entries that use something by a rate. A capture without quantities uses a share of those of its hold.
_USED: Final = "('spend', 'capture')"

# An entry counts at its effective time, which is stored only if it is not the time of its recording: then an index has it.
_ENTRIES: Final = f"""
            SELECT sequence, kind, refers_to, amount, requested, drawn, rating, metadata, recorded_at, recorded_at AS effective_at
            FROM ledger_entry
            WHERE holder_id = {{holder}} AND credit_type = {{credit_type}} AND kind IN {_USED} AND effective_at IS NULL
                AND sequence > ledger_sequence_at({{holder}}, {{credit_type}}, {{starts}} - interval '1 microsecond')
                AND sequence <= ledger_sequence_at({{holder}}, {{credit_type}}, {{ends}} - interval '1 microsecond')
            UNION ALL
            SELECT sequence, kind, refers_to, amount, requested, drawn, rating, metadata, recorded_at, effective_at
            FROM ledger_entry
            WHERE holder_id = {{holder}} AND credit_type = {{credit_type}} AND kind IN {_USED} AND kind <> 'grant'
                AND actor <> 'ledger' AND effective_at <> recorded_at AND effective_at >= {{starts}} AND effective_at < {{ends}}
"""

# Of the quantity of a request, an entry used the share of the credits that it took and that no refund gave back, rounded half up
# to 12 decimals. `div` is exact, `/` is not.
_RATED_USE: Final = f"""
    SELECT used.sequence, used.effective_at AS occurred_at, used.recorded_at, used.labels AS properties,
        CASE
            WHEN used.asked IN (0, used.kept) THEN used.quantity
            ELSE div(used.quantity * used.kept * 2000000000000 + used.asked, used.asked * 2) * 0.000000000001
        END AS value
    FROM (
        SELECT e.sequence, e.effective_at, e.recorded_at, coalesce(held.metadata, e.metadata, '{{{{}}}}')::jsonb AS labels,
            CASE
                WHEN {{component}}::text IS NOT NULL THEN coalesce(
                    (rated.rating -> 'quantities' ->> {{component}})::numeric,
                    CASE WHEN {{component}} = 'quantity' THEN (rated.rating ->> 'quantity')::numeric END,
                    0)
                ELSE coalesce((rated.rating ->> 'quantity')::numeric, (
                    SELECT sum(part.value::numeric) FROM json_each_text(rated.rating -> 'quantities') AS part))
            END AS quantity,
            CASE
                WHEN e.kind = 'spend' THEN coalesce(e.requested, -e.amount)
                WHEN e.rating IS NULL THEN -held.amount
                ELSE taken.credits
            END AS asked,
            taken.credits - coalesce(refunded.credits, 0) AS kept
        FROM (
            {_ENTRIES}
        ) AS e
        LEFT JOIN ledger_entry AS held ON held.holder_id = {{holder}} AND held.credit_type = {{credit_type}}
            AND held.sequence = e.refers_to AND e.kind = 'capture'
        LEFT JOIN (
            SELECT refers_to, max(refunded_total) AS credits
            FROM ledger_entry
            WHERE holder_id = {{holder}} AND credit_type = {{credit_type}} AND kind = 'refund'
            GROUP BY refers_to
        ) AS refunded ON refunded.refers_to = e.sequence
        CROSS JOIN LATERAL (
            SELECT CASE e.kind
                WHEN 'spend' THEN -e.amount
                ELSE (SELECT coalesce(sum((part ->> 1)::numeric), 0) FROM json_array_elements(e.drawn) AS part)
            END AS credits
        ) AS taken
        CROSS JOIN LATERAL (SELECT coalesce(e.rating, held.rating) AS rating) AS rated
        WHERE rated.rating ->> 'rate' = {{rate}}
    ) AS used
    -- What was given back as a whole was not used.
    WHERE used.kept > 0 OR used.asked = 0
"""


def rated_use(*, holder: str, credit_type: str, rate: str, component: str, starts: str, ends: str) -> str:
    """Return the query of what was used by a rate in `[starts, ends)`, for a place in a larger statement.

    Its rows have `sequence`, `occurred_at` (the effective time), `recorded_at`, `value` (the quantity, 0 or more, of at most 12
    decimals) and `properties` (the metadata, of a capture those of its hold). A capture counts at its own time. A partial spend,
    and what was refunded in part, count in the proportion of credits.

    Args:
        holder, credit_type, rate, component, starts, ends: the expressions of the statement for each. A component that is null
            stands for all components of the rate together; `quantity` is the only one of a rate without components.
    """
    return _RATED_USE.format(holder=holder, credit_type=credit_type, rate=rate, component=component, starts=starts, ends=ends)


# Late entries, and what refunds changed. Use that counts after `until` is in no period that was looked at.
CHANGED: Final = Statement(
    "rated_use_changed",
    f"""
WITH recent AS (
    SELECT CASE kind WHEN 'refund' THEN refers_to ELSE sequence END AS sequence
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND kind IN ('spend', 'capture', 'refund')
        AND sequence > ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(since)s::timestamptz - interval '1 microsecond')
        AND (kind = 'refund' OR coalesce(effective_at, recorded_at) < %(until)s)
    OFFSET 0
)
SELECT DISTINCT coalesce(used.effective_at, used.recorded_at)
FROM recent
JOIN ledger_entry AS used ON used.holder_id = %(holder_id)s AND used.credit_type = %(credit_type)s
    AND used.sequence = recent.sequence AND used.kind IN {_USED}
LEFT JOIN ledger_entry AS held ON held.holder_id = %(holder_id)s AND held.credit_type = %(credit_type)s
    AND held.sequence = used.refers_to AND used.kind = 'capture'
WHERE coalesce(used.rating, held.rating) ->> 'rate' = %(rate)s AND coalesce(used.effective_at, used.recorded_at) < %(until)s
""",
    [instant],
)


def rated_use_changed(*, holder_id: str, credit_type: str, rate: str, since: datetime, until: datetime) -> list[datetime]:
    """Return the instants before `until` of what was used by a rate and about which something was recorded since then."""
    values = {
        "holder_id": parameter(holder_id),
        "credit_type": parameter(credit_type),
        "rate": parameter(rate),
        "since": parameter(since),
        "until": parameter(until),
    }
    return [at for (at,) in CHANGED.rows(values)]
