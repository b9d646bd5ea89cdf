"""Billing as a Django application."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import register as register_check
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.operators.additions import Attention, Overview, PageSection, SearchResult
    from ledger.portal.parts import PortalCustomer


SIGNALS: Final = {
    "customer.vat_id_checked": "VIES answered about a customer's VAT id for the first time, or differently than before.",
    "invoice.finalized": "A draft became an invoice with a number.",
    "invoice.paid": "An invoice was paid: by payments, by credits or by a credit note.",
    "invoice.reopened": "Money of a paid invoice went back, so that it is due again.",
    "invoice.void": "An invoice was voided.",
    "invoice.uncollectible": "An invoice was marked uncollectible.",
    "payment.recorded": "Money came in for an invoice.",
    "payment.returned": "Money of an invoice's payment went back: a refund or a dispute.",
    "subscription.started": "The first invoice of a subscription was paid, so that it starts.",
    "subscription.expired": "The first invoice of a subscription was not paid in time, so that it never starts.",
    "subscription.canceled": "The order of a subscription was canceled before its first invoice was paid.",
    "subscription.suspended": "The billing of a subscription was suspended, and waits for a person.",
    "subscription.resumed": "A person resumed the billing of a subscription.",
}
"""The types of signals; triggers write them in the transaction of their cause (schema.sql)."""


class BillingConfig(AppConfig):
    """Money: the costs of subscriptions, and their invoices."""

    name = "billing"
    verbose_name = "Billing"
    default_auto_field = "django.db.models.BigAutoField"
    operators_pages = (
        "billing.admin.catalogue",
        "billing.admin.credit_notes",
        "billing.admin.customers",
        "billing.admin.invoice_payments",
        "billing.admin.invoices",
        "billing.admin.meters",
        "billing.admin.runs",
        "billing.admin.sellers",
        "billing.admin.subscriptions",
        "billing.admin.taxes",
    )

    def ready(self) -> None:
        """Register billing's parts: chains for the audit and its anchor, sections of pages, a letterhead.

        Raises:
            ImproperlyConfigured: the ledger, on which billing builds, is not installed, or a column of a table about people does
                not say whether it is personal.
        """
        if not apps.is_installed("ledger"):
            raise ImproperlyConfigured('"billing" needs "ledger" in INSTALLED_APPS')
        from billing.documents.chain import DOCUMENTS, REGISTERED, TRANSITIONS
        from billing.documents.letterhead import letterhead
        from billing.exports import EXPORTS
        from billing.models.personal import ensure_declared, tables_about_people
        from billing.orders.starting import start_with_the_payment
        from billing.orders.subscriptions import follow_at_once
        from billing.permissions import VIEW_PLAN
        from ledger import conf, exports
        from ledger.audit.chains import register, register_table
        from ledger.operators import additions
        from ledger.operators.additions import ReferenceList
        from ledger.typesetting.letterheads import register_letterhead

        ensure_declared(tables_about_people())
        register_check(_check_limits, "billing", conf.CHECKS)
        register_check(_check_lookups, "billing", conf.CHECKS)
        register_check(_check_payments, "billing", conf.CHECKS)
        register_check(_check_tax_provider, "billing", conf.CHECKS)
        exports.register(*EXPORTS)
        register_letterhead(letterhead)
        if apps.is_installed("ledger.signals"):
            from ledger.signals import types as signals

            signals.register(*(signals.SignalType(name, text) for name, text in SIGNALS.items()))
        register(DOCUMENTS)
        additions.register_holder_sections(_holder_sections)
        additions.register_attention(_attention)
        additions.register_overview(_overview)
        additions.register_holder_groups("plan", _plans_of_holders)
        additions.register_search(_search)
        additions.register_guesses(_guess)
        additions.register_money(_money)
        additions.register_default_currency(_usual_currency)
        for noun in ("customer", "plan", "coupon", "seller", "meter", "subscription"):
            additions.register_references(noun, ReferenceList(partial(_references, noun), f"billing.view_{noun}"))
        additions.register_references("price_key", ReferenceList(partial(_references, "price_key"), VIEW_PLAN))
        for noun in ("tax_class", "tax_category", "country", "currency", "language"):
            additions.register_references(noun, ReferenceList(partial(_references, noun)))
        if apps.is_installed("ledger.portal"):
            from ledger.portal import parts

            parts.register(_customer)
        follow_at_once(_set_terms_of)
        start_with_the_payment(_set_terms_at_start)
        register(TRANSITIONS)
        for table in REGISTERED:
            register_table(table)

    def lock_names(self, limit: int) -> Iterable[str]:
        """Return the names of the locks on at most `limit` subscriptions, for `manage.py locks --names`."""
        from billing.models import Subscription
        from ledger.database.lock_names import INVOICE_GENERATION, SUBSCRIPTION_INTENT

        for ref in Subscription.objects.order_by("-id").values_list("ref", flat=True)[:limit]:
            yield INVOICE_GENERATION(ref)
            yield SUBSCRIPTION_INTENT(ref)


def _set_terms_at_start(ref: str) -> None:
    """Set what the plan of a subscription brings that a payment has started; import the generator only for that."""
    from billing.generator.state.plan_terms import set_terms_at_start

    set_terms_at_start(ref)


def _set_terms_of(ref: str) -> None:
    """Set what the plan of a subscription brings after an order; import the generator only for that."""
    from billing.generator.state.plan_terms import set_terms_of

    set_terms_of(ref)


def _check_limits(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Run the checks of the generator; import it only for them."""
    from billing.generator.difference.run_limits import check_limits

    return check_limits()


def _check_lookups(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report that VAT ids are to be looked up, and the application that does it is not installed (billing.E004)."""
    from ledger import conf

    if not conf.VIES_URL.value or apps.is_installed("billing.tax_services"):
        return []
    return [Error("LEDGER_VIES_URL needs 'billing.tax_services' in INSTALLED_APPS.", id="billing.E004")]


def _check_payments(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report providers of payments that no installed application calls (billing.E006)."""
    if not getattr(settings, "PAYMENT_PROVIDERS", {}) or apps.is_installed("billing.payments"):
        return []
    return [Error("settings.PAYMENT_PROVIDERS needs 'billing.payments' in INSTALLED_APPS.", id="billing.E006")]


def _check_tax_provider(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Run the check of the provider of taxes."""
    from billing.configured_tax_provider import check_tax_provider

    return check_tax_provider(app_configs)


def _holder_sections(request: Any, holder_id: str) -> "list[PageSection]":
    """Return the sections; import them only with the first page, so that a command without pages starts faster."""
    from billing.admin.holders import sections

    return sections(request, holder_id)


def _customer(holder_id: str) -> "PortalCustomer | None":
    from billing.customer_page import find

    return find(holder_id)


def _attention(request: Any) -> "list[Attention]":
    from billing.admin.attention import items

    return items(request)


def _money(amount_minor: int, currency: str) -> str:
    from billing.rating.money import money_text

    return money_text(amount_minor, currency)


def _references(noun: str, word: str) -> "Sequence[tuple[str, str]]":
    from billing.admin.references import LISTS

    return LISTS[noun](word)


def _usual_currency() -> str:
    from billing.documents.sellers import usual_currency

    return usual_currency()


def _guess(request: Any, word: str) -> "list[SearchResult]":
    from billing.admin.search import guess

    return guess(request, word)


def _overview(request: Any) -> "Overview":
    from billing.admin.home import overview

    return overview(request)


def _plans_of_holders(request: Any, holder_ids: "Sequence[str]") -> "Mapping[str, str]":
    from billing.admin.home import plans_of_holders

    return plans_of_holders(request, holder_ids)


def _search(request: Any, word: str) -> "list[SearchResult]":
    from billing.admin.search import find

    return find(request, word)
