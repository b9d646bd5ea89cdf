"""What all accounts add up to, by day and credit type: counted from the entries by a job, never on the way of a spend."""

from ledger.totals.closing import close_months
from ledger.totals.counting import CountResult, count_entries
from ledger.totals.expiring import expired_credits
from ledger.totals.report import MonthReport, TypeReport, month_report

__all__ = ["CountResult", "MonthReport", "TypeReport", "close_months", "count_entries", "expired_credits", "month_report"]
