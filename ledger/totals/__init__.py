"""The sums over all accounts, by day and credit type: a job counts them from the entries, and a spend never waits for that."""

from ledger.totals.closing import close_months
from ledger.totals.counting import CountResult, count_entries
from ledger.totals.expiring import expired_credits
from ledger.totals.report import MonthReport, TypeReport, month_report

__all__ = ["CountResult", "MonthReport", "TypeReport", "close_months", "count_entries", "expired_credits", "month_report"]
