"""The operators' pages. Everything is read here; credits move only through `ledger.services`, with the operator's name."""

from ledger.admin import accounts, api_keys, batches, entries, rates, refusals

__all__ = ["accounts", "api_keys", "batches", "entries", "rates", "refusals"]
