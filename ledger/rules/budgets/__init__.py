"""Budgets: how much of an account may be spent in a window of time, as part of the account's state."""

from ledger.rules.budgets.states import Budget, Budgets, Counter, Share, decode_budgets, encode_budgets
