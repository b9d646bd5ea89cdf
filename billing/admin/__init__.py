"""Billing's pages for operators. They show everything; changes go through the services of the REST API and the generator."""

from billing.admin import runs
from billing.admin.documents import credit_notes, invoices
from billing.admin.orders import catalogue, customers, subscriptions

__all__ = ["catalogue", "credit_notes", "customers", "invoices", "runs", "subscriptions"]
