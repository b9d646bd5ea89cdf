"""Billing as a Django application."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Money: what a subscription owes, and the invoices that say so."""

    name = "billing"
    verbose_name = "Billing"
