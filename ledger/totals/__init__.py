"""The sums over all accounts, by day and credit type: a job counts them from the entries, and a spend never waits for that."""

from ledger.totals.closing import close_months
from ledger.totals.costs import (
    CLOSING,
    OPENING,
    CostKey,
    CostRow,
    MonthCosts,
    changes_by_day,
    costs_at,
    costs_by_holder,
    late_by_month,
    month_costs,
)
from ledger.totals.counting import CountResult, count_entries
from ledger.totals.expiring import expired_credits
from ledger.totals.report import MonthReport, TypeReport, month_report

__all__ = [
    "CLOSING",
    "OPENING",
    "CostKey",
    "CostRow",
    "CountResult",
    "MonthCosts",
    "MonthReport",
    "TypeReport",
    "changes_by_day",
    "close_months",
    "costs_at",
    "costs_by_holder",
    "count_entries",
    "expired_credits",
    "late_by_month",
    "month_costs",
    "month_report",
]
