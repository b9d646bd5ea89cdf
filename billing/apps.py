"""Billing as a Django application."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

if TYPE_CHECKING:
    from ledger.operator_pages import Attention, Found, Section


class BillingConfig(AppConfig):
    """Money: what subscriptions cost, and their invoices."""

    name = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        """Register what billing adds: chains for the audit and its anchor, parts of pages, a letterhead."""
        from billing.documents.chain import DOCUMENTS, REGISTERED, TRANSITIONS
        from billing.documents.printing.letterhead import letterhead
        from billing.reads.month_end import payments, usage
        from ledger import operator_pages
        from ledger.audit.chains import register, register_table
        from ledger.statements.letterheads import register_letterhead
        from ledger.totals.ties import register_ties

        register_ties(payments)
        register_ties(usage)
        register_letterhead(letterhead)
        register(DOCUMENTS)
        operator_pages.register_holder_sections(_holder_sections)
        operator_pages.register_attention(_attention)
        operator_pages.register_search(_search)
        operator_pages.register_money(_money)
        register(TRANSITIONS)
        for table in REGISTERED:
            register_table(table)

    def lock_names(self, limit: int) -> Iterable[str]:
        """The names of the locks on at most `limit` subscriptions, for `manage.py locks --names`."""
        from billing.models import Subscription
        from ledger.database.lock_names import INVOICE_GENERATION, SUBSCRIPTION_INTENT

        for ref in Subscription.objects.order_by("-id").values_list("ref", flat=True)[:limit]:
            yield INVOICE_GENERATION(ref)
            yield SUBSCRIPTION_INTENT(ref)


def _holder_sections(request: Any, holder_id: str) -> "list[Section]":
    """Import the sections with the first page: a command without pages starts faster."""
    from billing.admin.holders import sections

    return sections(request, holder_id)


def _attention(request: Any) -> "list[Attention]":
    from billing.admin.attention import items

    return items(request)


def _money(amount_minor: int, currency: str) -> str:
    from billing.admin.cells import money_text

    return money_text(amount_minor, currency)


def _search(request: Any, word: str) -> "list[Found]":
    from billing.admin.search import find

    return find(request, word)
