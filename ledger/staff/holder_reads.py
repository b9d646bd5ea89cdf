"""The reads of a holder's page: a bounded number of rows by the primary key, however long the history is."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from ledger import conf
from ledger.models import EntryListing
from ledger.rules import lots as lot_rules
from ledger.rules.accounts import AccountState
from ledger.rules.holds import decode_holds
from ledger.rules.instants import to_us
from ledger.rules.kinds import KINDS
from ledger.rules.lots import decode
from ledger.rules.usage_rates import BurnRate, burn_rate

CHART_POINTS = 90
BURN_ENTRIES = 2_000
"""At most how many entries of the last BURN_DAYS days the pace is computed from, the newest ones."""
BURN_DAYS = 30

# The account at each instant: one search by halving, and one row. The lots are added up here, since there may be hundreds at each
# instant; only of an account in debt are they read.
_AT_INSTANTS = """
SELECT
    instants.at, e.balance, e.spendable, COALESCE(e.holds::text, '[]'), COALESCE(e.overdraft, 0),
    CASE WHEN e.overdraft IS NOT NULL AND e.in_lots <> e.balance THEN e.lots::text END
FROM unnest(%(instants)s::timestamptz[]) AS instants (at)
LEFT JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    CROSS JOIN LATERAL (
        SELECT
            COALESCE(sum((lot ->> 1)::bigint), 0)::bigint AS in_lots,
            COALESCE(sum((lot ->> 1)::bigint) FILTER (
                WHERE (lot ->> 2)::numeric <= now.us
                    AND (lot ->> 3 IS NULL OR now.us < (lot ->> 3)::numeric)
                    AND lot -> 7 IS NULL
            ), 0)::bigint AS spendable
        FROM json_array_elements(lots) AS lot CROSS JOIN (SELECT extract(epoch FROM instants.at) * 1000000 AS us) AS now
    ) AS sums
    WHERE holder_id = %(holder)s AND credit_type = %(type)s AND sequence = ledger_sequence_at(%(holder)s, %(type)s, {at})
    LIMIT 1
) e ON true
ORDER BY instants.at
"""
AT_INSTANTS = _AT_INSTANTS.format(at="instants.at")
# With a test clock the instants, and the times of entries, are the clock's.
AT_INSTANTS_OF_CLOCK = _AT_INSTANTS.format(at="ledger_recorded_by(%(holder)s, instants.at)")

NEWEST = f"""
SELECT kind, amount, drawn, COALESCE(effective_at, recorded_at)
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s
ORDER BY sequence DESC
LIMIT {BURN_ENTRIES}
"""

TIME_LINE = """
SELECT *
FROM ledger_entry_listing
WHERE holder_id = %s AND credit_type = %s AND sequence < %s
ORDER BY sequence DESC
LIMIT %s
"""

GRANTS = """
SELECT sequence, kind, amount, actor, reason, reference, recorded_at, lots
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
"""


class StateAt(NamedTuple):
    """The credits that could be spent at an instant, and the balance at that time."""

    at: datetime
    available: int
    balance: int


class GrantOf(NamedTuple):
    """The entry that opened a lot: how many credits, and who, why and when."""

    amount: int
    actor: str
    reason: str
    reference: str
    recorded_at: datetime


def available_over_time(holder_id: str, credit_type: str, *, since: datetime, now: datetime) -> list[StateAt]:
    """Return the spendable credits at CHART_POINTS + 1 instants from `since` until `now`, at even distances."""
    step = (now - since) / CHART_POINTS
    instants = [now - step * place for place in range(CHART_POINTS, -1, -1)]
    named: dict[str, Any] = {"instants": instants, "holder": holder_id, "type": credit_type}
    with connection.cursor() as cursor:
        cursor.execute(AT_INSTANTS_OF_CLOCK if conf.TEST_CLOCKS.value else AT_INSTANTS, named)
        return [_state_at(*row) for row in cursor.fetchall()]


def _state_at(at: datetime, balance: int | None, spendable: int, holds: str, overdraft: int, lots: str | None) -> StateAt:
    """Return the account at an instant.

    Args:
        spendable: the credits of all lots that can be spent then.
        lots: those of an account in debt: what is due then repays it.
    """
    if balance is None:
        return StateAt(at, 0, 0)
    now_us, set_aside = to_us(at), decode_holds(holds)
    if lots is not None:
        account = AccountState("", "", now_us, balance=balance, lots=decode(lots), holds=set_aside, overdraft=overdraft)
        return StateAt(at, account.available, balance)
    released = sum(lot_rules.available(hold.parts, now_us) for hold in set_aside if hold.is_expired(now_us))
    return StateAt(at, spendable + released + overdraft, balance)


class _CreditsUsed(NamedTuple):
    kind: str
    amount: int
    drawn: list[list[int]]
    effective_at: datetime


def pace(holder_id: str, credit_type: str, *, first_at: datetime | None, now: datetime) -> BurnRate:
    """Return how fast the account is used, by its newest entries of the last BURN_DAYS days, at their effective times.

    Args:
        first_at: when the holder's first entry was recorded: the pace of a newer account counts from its first use or from there.
    """
    with connection.cursor() as cursor:
        cursor.execute(NEWEST, [holder_id, credit_type])
        newest = [_CreditsUsed(*row) for row in cursor.fetchall()]
    # A grant can count from any time; all others count from their decision, in the order of their numbers.
    rows = [row for row in newest if not KINDS[row.kind].has_own_time]
    times = [row.effective_at for row in rows[-1:]]
    since = max(now - timedelta(days=BURN_DAYS), min([first_at or now, *times]))
    if len(newest) == BURN_ENTRIES:
        since = max([since, *times])
    return burn_rate((row for row in rows if row.effective_at >= since), since=since, now=now)


def time_line(holder_id: str, credit_type: str, *, before: int, limit: int) -> list[EntryListing]:
    """Return entries and refusals of the account behind that number, the newest first."""
    return list(EntryListing.objects.raw(TIME_LINE, [holder_id, credit_type, before, limit]))


def grants(holder_id: str, credit_type: str, sequences: Sequence[int]) -> dict[int, GrantOf]:
    """Return the entries that opened those lots, by their numbers."""
    if not sequences:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(GRANTS, [holder_id, credit_type, list(sequences)])
        return {
            sequence: GrantOf(_opened_credits(sequence, amount, lots), actor, reason, reference, recorded_at)
            for sequence, _, amount, actor, reason, reference, recorded_at, lots in cursor.fetchall()
        }


def _opened_credits(sequence: int, amount: int, lots: Any) -> int:
    """The credits with which the entry opened its lot: fewer than its amount if the rest repaid a debt."""
    return max(next((lot[1] for lot in lots if lot[0] == sequence), 0), 0) or amount
