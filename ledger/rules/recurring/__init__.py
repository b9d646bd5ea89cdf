"""Grants that recur: their terms and periods, and how far an account has got with one."""
