"""Budgets: how much of an account may be spent in a window of time, as part of the account's state."""
