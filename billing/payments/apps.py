"""Packs, purchases, providers of payments and top-ups as a Django application."""

from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.checks import register as register_check

from ledger import applications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from billing.additions import CustomerPart, TransferOrders
    from ledger.operators.additions import Attention, SearchResult
    from ledger.services.coming_credits import Lack, UnderWay

SIGNALS: Final = {
    "top_up.paused": "Automatic top-ups of an account are paused after declines, and wait for a person.",
    "payment_intent.waiting": "A payment waits for the customer: at a checkout, or for a confirmation.",
    "payment_intent.succeeded": "The money of a payment is in.",
    "payment_intent.failed": "A payment was declined.",
    "purchase.paid": "The money of a purchase is in, and recorded.",
    "purchase.granted": "The credits of a purchase were added.",
    "purchase.returned": "Money of a purchase was returned, and what it had bought was revoked as far as it was unspent.",
}
"""The types of signals; triggers write them in the transaction of their cause (migrations/schema.sql)."""


class PaymentsConfig(applications.LedgerApplication):
    """Sells packs of credits, has providers take money for them and for invoices, and tops accounts up."""

    name = "billing.payments"
    label = "billing_payments"
    verbose_name = "Packs and payments"
    needs = ("ledger", "billing")
    calls = "billing.payments.api.urls"
    operators_pages = (
        "billing.payments.intent_pages",
        "billing.payments.pack_pages",
        "billing.payments.purchase_pages",
        "billing.payments.topup_pages",
    )
    permissions = "billing.payments.permissions"

    def ready(self) -> None:
        """Register tables and laws for the audit, exports, types of signals, and what pages show about packs and payments."""
        super().ready()
        from billing import additions as billing_additions
        from billing.payments.exports import EXPORTS
        from billing.payments.intent_laws import PROVIDER_LAWS
        from billing.payments.permissions import REFUND_PAYMENTINTENT, VIEW_PACK, VIEW_PURCHASE
        from billing.payments.purchase_laws import NAMED_ENTRIES, PURCHASE_LAWS
        from ledger import conf, exports
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.operators import additions
        from ledger.operators.additions import ReferenceList
        from ledger.services import coming_credits

        register_check(_check_providers, "billing", conf.CHECKS)
        for name in ("pack", "purchase", "purchasegrant", "purchasereturn", "returnsettlement", "providercustomer"):
            register_table(RegisteredTable(f"billing_{name}", is_fixed=True))
        for name in ("paymentintent", "providerrefund", "providerevent", "topup"):
            register_table(RegisteredTable(f"billing_{name}"))
        billing_additions.register_laws(PURCHASE_LAWS | PROVIDER_LAWS)
        billing_additions.register_named_entries(NAMED_ENTRIES)
        billing_additions.register_payments(_find_purchase)
        billing_additions.register_transfer_orders(_transfer_orders)
        billing_additions.register_sales(
            billing_additions.Sales(what="packs", permission=VIEW_PURCHASE, table="billing_purchase", minor="paid_minor")
        )
        billing_additions.INVOICE_PAGE.register_operation(
            billing_additions.RowOperation(
                name="refund_payment",
                title="Refund",
                icon="currency_exchange",
                permission=REFUND_PAYMENTINTENT,
                url_path="refund-payment",
                view=_refund_payment_of,
                is_possible=_has_refundable_payment,
                stands_out=True,
            )
        )
        exports.register(*EXPORTS)
        if apps.is_installed("ledger.signals"):
            from ledger.signals import types as signals

            signals.register(*(signals.SignalType(name, text) for name, text in SIGNALS.items()))
        additions.register_attention(_attention)
        additions.register_search(_search)
        additions.register_guesses(_guess)
        additions.register_references("pack", ReferenceList(_packs, VIEW_PACK))
        if apps.is_installed("ledger.portal"):
            from billing.documents import pay_links

            billing_additions.register_customer_payments(_customer_payments)
            pay_links.register(_pay_link)
        coming_credits.register(_top_up_under_way)


# Each imports its part only when it is asked for the first time.


def _check_providers(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Run the checks of the providers of payments."""
    from billing.payments.providers.configured import check_providers

    return check_providers(app_configs)


def _find_purchase(provider: str, payment: str) -> tuple[str, str] | None:
    from billing.payments.models import Purchase

    purchase = Purchase.objects.filter(provider=provider, payment=payment).first()
    return None if purchase is None else ("purchase", str(purchase.pk))


def _transfer_orders() -> "TransferOrders":
    from billing.payments.transfer_orders import ORDERS

    return ORDERS


def _attention(request: Any) -> "list[Attention]":
    from billing.payments.attention import list_problems

    return list_problems(request)


def _refund_payment_of(model_admin: Any, request: Any, invoice: Any) -> Any:
    from billing.payments.intent_forms import invoice_refund_view

    return invoice_refund_view(model_admin, request, invoice)


def _has_refundable_payment(invoice: Any) -> bool:
    from billing.payments.intent_orders import refundable_intent_of

    return refundable_intent_of(invoice) is not None


def _search(request: Any, word: str) -> "list[SearchResult]":
    from billing.payments.search import find

    return find(request, word)


def _guess(request: Any, word: str) -> "list[SearchResult]":
    from billing.payments.search import guess

    return guess(request, word)


def _packs(word: str) -> "Sequence[tuple[str, str]]":
    from billing.payments.references import list_packs

    return list_packs(word)


def _customer_payments(customer: Any) -> "CustomerPart":
    from billing.payments.customer_page import CustomerPayments

    return CustomerPayments(customer)


def _pay_link(customer: Any, invoice: Any) -> str | None:
    from billing.payments.customer_page import pay_link

    return pay_link(customer, invoice)


def _top_up_under_way(lack: "Lack") -> "UnderWay | None":
    from billing.payments.topups_under_way import top_up_under_way

    return top_up_under_way(lack)
