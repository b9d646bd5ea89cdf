"""Billing as a Django application."""

from collections.abc import Iterable

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

    def lock_names(self, limit: int) -> Iterable[str]:
        """The names of the locks on at most `limit` subscriptions, for `manage.py locks --names`."""
        from billing.models import Subscription
        from ledger.database.lock_names import INVOICE_GENERATION, SUBSCRIPTION_INTENT

        for ref in Subscription.objects.order_by("-id").values_list("ref", flat=True)[:limit]:
            yield INVOICE_GENERATION(ref)
            yield SUBSCRIPTION_INTENT(ref)
