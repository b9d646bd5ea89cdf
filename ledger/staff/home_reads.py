"""The reads of the first page: bounded, by an index, however many entries and holders there are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from ledger import reads
from ledger.reads import Balance
from ledger.rules.instants import to_us
from ledger.rules.kinds import taken_by
from ledger.rules.usage_rates import BurnRate, burn_rate, stocks_of
from ledger.staff.history import never_reading_whole_tables

REFUSALS_COUNTED = 5_000
"""The most refusals that are counted by hour, the newest ones."""
HOURS = 24
ENTRIES_LOOKED_AT = 2_000
"""The newest entries of all holders: their accounts are checked for running dry."""
ACCOUNTS_LOOKED_AT = 200
PACE = timedelta(days=30)
"""Older entries do not count for the current pace."""
SOON = timedelta(days=7)
DRY_DAYS = 3

# The newest first by the index of refusals, in whole hours.
REFUSED = f"""
SELECT refused.recorded_at, refused.code
FROM (
    SELECT recorded_at, refusal ->> 'code' AS code
    FROM ledger_entry
    WHERE kind = 'refusal' AND ledger_slot(recorded_at) >= ledger_slot(%s)
    ORDER BY ledger_slot(recorded_at) DESC
    LIMIT {REFUSALS_COUNTED}
) AS refused
WHERE refused.recorded_at >= %s
"""

# The newest entries by the index of time; the used credits are added up by account. Imported history was used at its own times.
LATELY = f"""
SELECT holder_id, credit_type, kind, amount, drawn, recorded_at, COALESCE(effective_at, recorded_at),
    COALESCE(metadata ->> 'model', rating ->> 'rate', '')
FROM ledger_entry
WHERE kind <> 'refusal'
ORDER BY ledger_slot(recorded_at) DESC
LIMIT {ENTRIES_LOOKED_AT}
"""


@dataclass(frozen=True)
class RefusalCounts:
    """Refusals of the last HOURS hours: per hour, the oldest first, and by code; `is_all` if all were counted."""

    since: datetime
    by_hour: list[int]
    by_code: list[tuple[str, int]]
    is_all: bool

    @property
    def total(self) -> int:
        return sum(self.by_hour)


@dataclass(frozen=True)
class Running:
    """An account in use: its credits and its pace."""

    balance: Balance
    pace: BurnRate

    @property
    def lasts_days(self) -> int | None:
        """For how many days what is available lasts; 0 for used credits of which none are left; None without a forecast."""
        if self.balance.available == 0:
            return 0 if self.pace.used > 0 else None
        forecast = self.pace.forecast(stocks_of(self.balance))
        return None if forecast is None else forecast.days


@dataclass(frozen=True)
class Lately:
    """The accounts of the newest entries, and what they used since `since`, by credit type: by model and by holder.

    A model is what the metadata of a spend call "model", or its rate; "" without either.
    """

    accounts: list[Running]
    since: datetime | None
    now: datetime
    by_model: dict[str, Counter[str]] = field(default_factory=dict)
    by_holder: dict[str, Counter[str]] = field(default_factory=dict)

    def dry(self) -> list[Running]:
        """Those that last at most DRY_DAYS days at their pace, the soonest first."""
        found = [each for each in self.accounts if each.lasts_days is not None and each.lasts_days <= DRY_DAYS]
        return sorted(found, key=lambda each: (each.lasts_days or 0, each.balance.available))

    def expiring(self) -> list[Running]:
        """Those whose credits expire within SOON, the soonest first."""
        found = [each for each in self.accounts if (at := _next_expiry_at(each.balance)) and at <= self.now + SOON]
        return sorted(found, key=lambda each: _next_expiry_at(each.balance) or self.now)

    def unbooked(self) -> list[Running]:
        """Those with a lot or hold that expired more than an hour ago and is not booked yet."""
        limit_us = to_us(self.now - timedelta(hours=1))
        return [each for each in self.accounts if _has_expired(each.balance, limit_us)]


def refused(*, now: datetime) -> RefusalCounts:
    """Count the refusals of the last HOURS hours."""
    since = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    with never_reading_whole_tables(), connection.cursor() as cursor:
        cursor.execute(REFUSED, [since, since])
        rows = cursor.fetchall()
    hours = [0] * HOURS
    for at, _ in rows:
        hours[min(int((at - since) / timedelta(hours=1)), HOURS - 1)] += 1
    return RefusalCounts(since, hours, Counter(code for _, code in rows).most_common(5), len(rows) < REFUSALS_COUNTED)


class _RecordedUse(NamedTuple):
    """The use that an entry records."""

    kind: str
    amount: int
    drawn: Any


def lately(*, now: datetime) -> Lately:
    """Return the accounts of the newest entries, at most ACCOUNTS_LOOKED_AT, the most used first."""
    with never_reading_whole_tables(), connection.cursor() as cursor:
        cursor.execute(LATELY)
        rows = cursor.fetchall()
    if not rows:
        return Lately([], None, now)
    since = max(min(recorded_at for *_, recorded_at, _, _ in rows), now - PACE)
    used: dict[tuple[str, str], list[_RecordedUse]] = {}
    by_model: dict[str, Counter[str]] = {}
    by_holder: dict[str, Counter[str]] = {}
    for holder_id, credit_type, kind, amount, drawn, recorded_at, effective_at, model in rows:
        if recorded_at < since:
            continue
        of_account = used.setdefault((holder_id, credit_type), [])
        if effective_at >= since:
            entry = _RecordedUse(kind, amount, drawn)
            of_account.append(entry)
            if taken := taken_by(entry):
                by_model.setdefault(credit_type, Counter())[model] += taken
                by_holder.setdefault(credit_type, Counter())[holder_id] += taken
    chosen = sorted(used, key=lambda account: len(used[account]), reverse=True)[:ACCOUNTS_LOOKED_AT]
    balances = reads.balances(chosen) if chosen else []
    return Lately([_running(balance, used, since, now) for balance in balances], since, now, by_model, by_holder)


def _running(balance: Balance, used: dict[tuple[str, str], list[_RecordedUse]], since: datetime, now: datetime) -> Running:
    entries: Sequence[_RecordedUse] = used[balance.holder_id, balance.credit_type]
    return Running(balance, burn_rate(entries, since=since, now=now))


def _next_expiry_at(balance: Balance) -> datetime | None:
    return None if balance.next_expiry is None else balance.next_expiry.at


def _has_expired(balance: Balance, limit_us: int) -> bool:
    return any(lot.is_expired(limit_us) for lot in balance.lots) or any(hold.is_expired(limit_us) for hold in balance.holds)
