"""The first page about each credit type: the outstanding credits, the totals of this month, and the last 30 days as a line."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from ledger.rules.credit_units import CreditUnit
from ledger.rules.kinds import LINES
from ledger.staff.history import never_reading_whole_tables
from ledger.staff.kit import charts
from ledger.staff.kit.charts import FAINT, MONOTONE, STRONG
from ledger.totals.counting import counted_until
from ledger.totals.expiring import expired_credits
from ledger.totals.models import DailyTotal
from ledger.totals.permissions import VIEW_DAILYTOTAL
from ledger.totals.report import TypeReport, month_report
from ledger.units import units_of

NOTHING_COUNTED = datetime(2000, 1, 1, tzinfo=UTC)
SCHEDULED_COUNTED = 2_000
"""The most grants that become effective later whose outstanding credits are shown."""
TYPES_SHOWN = 4
DAYS = 30
LINES_SHOWN = ("granted_purchased", "granted_promotional", "spent", "refunded", "expired")

# Grants that become effective later, the soonest first, less what was revoked of them, by the index of references.
SCHEDULED = """
WITH coming AS MATERIALIZED (
    SELECT holder_id, credit_type, sequence, amount
    FROM ledger_entry
    WHERE effective_at > recorded_at AND effective_at > %s AND kind = 'grant'
    ORDER BY effective_at
    LIMIT {limit}
),
revoked AS MATERIALIZED (
    SELECT e.holder_id, e.credit_type, e.refers_to AS sequence, sum(-e.amount) AS amount
    FROM coming
    JOIN ledger_entry e
        ON e.holder_id = coming.holder_id
        AND e.credit_type = coming.credit_type
        AND e.refers_to = coming.sequence
        AND e.kind = 'revoke'
    GROUP BY e.holder_id, e.credit_type, e.refers_to
)
SELECT coming.credit_type, sum(coming.amount - coalesce(revoked.amount, 0)), count(*)
FROM coming
LEFT JOIN revoked USING (holder_id, credit_type, sequence)
GROUP BY coming.credit_type
"""


@dataclass(frozen=True)
class Scheduled:
    """The credits that become effective later, by credit type; `is_all` if no grant was left out."""

    credits: dict[str, int]
    is_all: bool


def render_cards(request: HttpRequest, *, now: datetime) -> SafeString | str:
    """Return the part of the first page about credit types; empty for an operator who may not see totals, and without any."""
    shown = _cards(now=now) if request.user.has_perm(VIEW_DAILYTOTAL) else {}
    return render_to_string("admin/ledger/totals/home_cards.html", shown, request) if shown.get("totals") else ""


def _cards(*, now: datetime) -> dict[str, Any]:
    """The credit types with the largest movements this month, from the daily totals, and the instant up to which those count."""
    until = counted_until()
    if until <= NOTHING_COUNTED:
        return {}
    today = min(now, until).astimezone(UTC).date()
    report = month_report(today.replace(day=1))
    shown = sorted(report.types, key=lambda each: each.entries, reverse=True)[:TYPES_SHOWN]
    units = units_of(each.credit_type for each in shown)
    days = _days([each.credit_type for each in shown], today)
    coming, expired = _sum_scheduled(now=now), expired_credits(now)
    return {
        "totals": [
            _card(each, units[each.credit_type], days[each.credit_type], coming, expired.get(each.credit_type, 0))
            for each in shown
        ],
        "totals_as_of": until,
        "more_types": max(0, len(report.types) - TYPES_SHOWN),
        "month": f"{today:%B}",
    }


def _days(credit_types: list[str], today: date) -> dict[str, list[tuple[date, int, int]]]:
    """Return granted and spent by day, the oldest first, of the last DAYS days; days without entries are 0."""
    first = today - timedelta(days=DAYS - 1)
    rows = {
        (row.credit_type, row.day): row
        for row in DailyTotal.objects.filter(day__gte=first, day__lte=today, credit_type__in=credit_types)
    }
    days = [first + timedelta(days=number) for number in range(DAYS)]
    return {each: [_day(day, rows.get((each, day))) for day in days] for each in credit_types}


def _day(day: date, row: DailyTotal | None) -> tuple[date, int, int]:
    if row is None:
        return day, 0, 0
    granted, spent = (
        sum(int(getattr(row, name)) for name, line in LINES.items() if line.total == total) for total in ("granted", "spent")
    )
    return day, granted, spent


def _coming(total: int, is_all: bool, unit: CreditUnit) -> str:
    return f"{'' if is_all else 'at least '}{unit.number(total)}" if total else ""


def _spendable(outstanding: int, report: TypeReport, coming: Scheduled, unit: CreditUnit) -> str:
    """Return what is neither held nor starts later; empty if not all credits that start later were counted."""
    spendable = outstanding - report.held - coming.credits.get(report.credit_type, 0)
    return unit.number(spendable) if coming.is_all and 0 <= spendable < outstanding else ""


def _card(
    report: TypeReport, unit: CreditUnit, days: list[tuple[date, int, int]], coming: Scheduled, expired: int
) -> dict[str, Any]:
    """Return the content about a credit type; `expired` is in its totals, but nobody can spend it any more."""
    outstanding = report.closing - expired
    divisor = 10**unit.scale
    spent = charts.line("Spent", [used / divisor for _, _, used in days], look=STRONG, shape=MONOTONE)
    granted = charts.line("Granted", [given / divisor for _, given, _ in days], look=FAINT, shape=MONOTONE)
    return {
        "name": unit.name,
        "outstanding": unit.amount(outstanding),
        "spendable": _spendable(outstanding, report, coming, unit),
        "expired": unit.number(expired) if expired else "",
        "held": unit.number(report.held) if report.held else "",
        "coming": _coming(coming.credits.get(report.credit_type, 0), coming.is_all, unit),
        "moved": [(LINES[name].words, unit.number(int(report.movements[name]))) for name in LINES_SHOWN],
        "chart": charts.data([f"{day.day} {day:%b}" for day, _, _ in days], spent, granted),
        "chart_options": charts.options(unit=unit.unit, decimals=unit.scale),
        "chart_text": (
            f"Spent in the last {DAYS} days: {unit.number(sum(used for _, _, used in days))}, "
            f"most on one day {unit.number(max(used for _, _, used in days))}."
        ),
    }


def _sum_scheduled(*, now: datetime) -> Scheduled:
    """Add up the granted credits that are not yet effective, of at most SCHEDULED_COUNTED grants, the soonest first."""
    with never_reading_whole_tables(), connection.cursor() as cursor:
        cursor.execute(SCHEDULED.format(limit=SCHEDULED_COUNTED), [now])
        rows = cursor.fetchall()
    by_type = {credit_type: int(total) for credit_type, total, _ in rows}
    return Scheduled(by_type, sum(grants for _, _, grants in rows) < SCHEDULED_COUNTED)
