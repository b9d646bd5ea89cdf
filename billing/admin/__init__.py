"""Billing's pages for operators. They show everything; changes go through the services of the REST API and the generator."""

from billing.admin import catalogue, credit_notes, customers, invoices, runs, subscriptions

__all__ = ["catalogue", "credit_notes", "customers", "invoices", "runs", "subscriptions"]
