"""Billing as a Django application."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Money: what a subscription owes, and the invoices that say so."""

    name = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        """Have the ledger's audit verify the chain of documents, and its anchor hold their heads."""
        from billing.documents.chain import DOCUMENTS
        from ledger.audit.chains import register

        register(DOCUMENTS)
