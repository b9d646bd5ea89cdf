"""The operators' pages. Everything is read here; credits move only through `ledger.services`, with the operator's name."""

from ledger.admin import accounts, api_keys, batches, credit_types, entries, rates, refusals, staff_events

__all__ = ["accounts", "api_keys", "batches", "credit_types", "entries", "rates", "refusals", "staff_events"]
