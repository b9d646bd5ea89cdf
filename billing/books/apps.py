"""The books as a Django application."""

from typing import TYPE_CHECKING, Any

from ledger import applications

if TYPE_CHECKING:
    from datetime import date

    from django.urls import URLPattern

    from ledger.totals.figures import FigureSection, Rows


class BooksConfig(applications.LedgerApplication):
    """Deferred revenue, journals, and the figures of a month for finance."""

    name = "billing.books"
    label = "billing_books"
    verbose_name = "Books"
    needs = ("ledger", "ledger.totals", "billing")
    calls = "billing.books.urls"

    def ready(self) -> None:
        """Register the figures of a month, what a closed month must agree with, and the page that sends a journal."""
        super().ready()
        from billing.books.month_end import PAYMENT_TIES, USAGE_TIES
        from billing.permissions import VIEW_INVOICE
        from ledger.operators import additions
        from ledger.totals.figures import SectionSource, register_sections
        from ledger.totals.ties import register_ties

        register_ties(PAYMENT_TIES)
        register_ties(USAGE_TIES)
        register_sections(SectionSource(VIEW_INVOICE, _document_sections, _document_rows), is_first=True)
        register_sections(SectionSource(VIEW_INVOICE, _revenue_sections, _revenue_rows))
        additions.register_account_pages(_pages)


def _pages(model_admin: Any) -> "list[URLPattern]":
    from billing.books import pages

    return [pages.url(model_admin)]


def _document_sections(month: "date") -> "list[FigureSection]":
    from billing.books import month_receivables, month_sales

    return [*month_sales.sections(month), *month_receivables.sections(month)]


def _document_rows(month: "date", *keys: str) -> "Rows | None":
    from billing.books import month_receivables, month_sales

    return month_sales.rows(month, *keys) or month_receivables.rows(month, *keys)


def _revenue_sections(month: "date") -> "list[FigureSection]":
    from billing.books import month_deferred, month_recurring

    return [*month_deferred.sections(month), *month_recurring.sections(month)]


def _revenue_rows(month: "date", *keys: str) -> "Rows | None":
    from billing.books import month_deferred, month_recurring

    return month_deferred.rows(month, *keys) or month_recurring.rows(month, *keys)
