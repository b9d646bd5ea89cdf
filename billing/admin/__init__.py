"""Billing's pages for operators. They show everything; the services of the REST API and the generator make the changes.

They are registered where the ledger's pages are.
"""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from billing.admin import (
        catalogue,
        credit_notes,
        customers,
        invoice_payments,
        invoices,
        meters,
        runs,
        sellers,
        subscriptions,
        taxes,
    )

    __all__ = [
        "catalogue", "credit_notes", "customers", "invoice_payments", "invoices", "meters", "runs", "sellers",
        "subscriptions", "taxes",
    ]  # fmt: skip
