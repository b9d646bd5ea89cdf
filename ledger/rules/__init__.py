"""The rules of credits: pure functions from an account's state and a request to the next entries, or a refusal.

No Django, no I/O, no clock: the time is part of the state. So property tests run them a hundred thousand times without a
database. The code around them (`ledger.journal`, `ledger.services`) only locks, loads and stores.
"""
