"""Grants that recur: their terms and periods, and how far an account has got with one."""

from ledger.rules.recurring.terms import RecurringGrant, RecurringTerms

__all__ = ["RecurringGrant", "RecurringTerms"]
