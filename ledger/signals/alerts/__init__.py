"""Alerts: who is told when a balance is low, or credits expire soon. docs/how-to/signals.md, docs/explanation/ledger.md.

`declarations` declares and ends alerts, `states` decides what an account crosses, and `watching` asks it for each entry that the
feed reads. `budgets` reports budgets that were exceeded. No write of credits knows of any of it.
"""
