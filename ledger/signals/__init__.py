"""Signals: what happened in the ledger, sent to webhooks at least once, and in order for each holder. docs/how-to/signals.md.

`feed` makes signals of new entries, and `delivery` sends them. No write of credits knows of any of it: docs/adr/0077.
"""
