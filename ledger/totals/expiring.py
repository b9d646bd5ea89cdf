"""The credits of all accounts by their expiry: kept with the totals, so that the clock shows what has expired before it is
booked.

Note [What has expired and is not booked]
    The credits of a lot leave `available` at its expiry, and the balance when an entry books that: with the account's next write,
        or by the worker within a minute. Until then the totals, which add up entries, include them. `ledger_expiring_total` has
        the credits of open lots, by the instant of their expiry, as of the instant up to which entries are counted; the credits
        whose instant has passed are what the totals have too much. Counting adds, for each account with entries, the lots after
        the last entry less the lots before the first; both are on the entries, and no others are read. If the clock was set back,
        an entry may lie before that instant, and no count includes it: so closing a month adds up the lots of all accounts again.
"""

from datetime import datetime
from typing import Any, Final

from django.db import connection

from ledger.rules.instants import to_us

EXPIRY: Final = "(lot ->> 3)::numeric::bigint"
HELD_BY_LOT: Final = "(lot ->> 1)::numeric"

# Refusals change no lot. The entry before the first may be a refusal: it also has the state of the account.
ADD: Final = f"""
    WITH moved AS (
        SELECT e.holder_id, e.credit_type, min(e.sequence) AS first, max(e.sequence) AS last
        FROM ledger_entry AS e
        WHERE e.kind <> 'refusal'
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
            AND e.recorded_at >= %(since)s AND e.recorded_at < %(until)s
        GROUP BY e.holder_id, e.credit_type
    )
    INSERT INTO ledger_expiring_total AS total (expires_us, credit_type, credits)
    SELECT changed.expires_us, changed.credit_type, sum(changed.credits)
    FROM (
        SELECT e.credit_type, {EXPIRY} AS expires_us, {HELD_BY_LOT} AS credits
        FROM moved
        JOIN ledger_entry AS e
            ON e.holder_id = moved.holder_id AND e.credit_type = moved.credit_type AND e.sequence = moved.last
        CROSS JOIN LATERAL json_array_elements(e.lots) AS lot
        UNION ALL
        SELECT e.credit_type, {EXPIRY}, -{HELD_BY_LOT}
        FROM moved
        JOIN ledger_entry AS e
            ON e.holder_id = moved.holder_id AND e.credit_type = moved.credit_type AND e.sequence = moved.first - 1
        CROSS JOIN LATERAL json_array_elements(e.lots) AS lot
    ) AS changed
    WHERE changed.expires_us IS NOT NULL
    GROUP BY changed.expires_us, changed.credit_type
    HAVING sum(changed.credits) <> 0
    ON CONFLICT (expires_us, credit_type) DO UPDATE SET credits = total.credits + EXCLUDED.credits
"""
FORGET: Final = "DELETE FROM ledger_expiring_total WHERE credits = 0"
EXPIRED: Final = "SELECT credit_type, sum(credits) FROM ledger_expiring_total WHERE expires_us <= %s GROUP BY credit_type"

# Each account by its first entry, with the last of its entries before an instant: the newest, or the result of a binary search.
# The accounts are those whose first entry is before the instant.
LAST_BEFORE: Final = """
    FROM ledger_entry AS first
    CROSS JOIN LATERAL (
        SELECT e.sequence, e.recorded_at FROM ledger_entry AS e
        WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
        ORDER BY e.sequence DESC LIMIT 1
    ) AS newest
    CROSS JOIN LATERAL (
        SELECT e.* FROM ledger_entry AS e
        WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type AND e.sequence = CASE
            WHEN newest.recorded_at < %(until)s THEN newest.sequence
            ELSE ledger_sequence_at(first.holder_id, first.credit_type, %(until)s - interval '1 microsecond')
        END
        LIMIT 1
    ) AS last
"""
RECOUNT: Final = f"""
    INSERT INTO ledger_expiring_total (expires_us, credit_type, credits)
    SELECT {EXPIRY}, first.credit_type, sum({HELD_BY_LOT})
    {LAST_BEFORE}
    CROSS JOIN LATERAL json_array_elements(last.lots) AS lot
    WHERE first.sequence = 1 AND first.recorded_at < %(until)s AND lot ->> 3 IS NOT NULL
    GROUP BY 1, 2
"""


def add_expiring(cursor: Any, *, since: datetime, until: datetime) -> None:
    """Add to the totals of expiring credits what the entries of `[since, until)` changed, in the count's transaction."""
    cursor.execute(ADD, {"since": since, "until": until})
    cursor.execute(FORGET)


def recount_expiring(cursor: Any, *, until: datetime) -> None:
    """Compute the totals of expiring credits again, from the accounts at `until`, the instant up to which entries are counted."""
    cursor.execute("DELETE FROM ledger_expiring_total")
    cursor.execute(RECOUNT, {"until": until})


def expired_credits(at: datetime) -> dict[str, int]:
    """By credit type, the credits that expired up to `at` and that no counted entry books. See Note [What has expired …]."""
    with connection.cursor() as cursor:
        cursor.execute(EXPIRED, [to_us(at)])
        return {credit_type: int(amount) for credit_type, amount in cursor.fetchall()}
