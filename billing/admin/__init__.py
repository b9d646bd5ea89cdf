"""Billing for operators: everything is shown; intent, usage and documents are changed through the API and the generator alone."""

from billing.admin import catalogue, credit_notes, customers, invoices, runs, subscriptions

__all__ = ["catalogue", "credit_notes", "customers", "invoices", "runs", "subscriptions"]
