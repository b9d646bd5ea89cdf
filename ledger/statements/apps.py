"""Statements as a Django application."""

from typing import TYPE_CHECKING, Any

from ledger import applications

if TYPE_CHECKING:
    from django.urls import URLPattern
    from django.utils.safestring import SafeString


class StatementsConfig(applications.LedgerApplication):
    """The statement of an account for a month, as PDF."""

    name = "ledger.statements"
    label = "ledger_statements"
    verbose_name = "Statements"
    calls = "ledger.statements.api"

    def ready(self) -> None:
        """Register the page of a statement, and the form on a holder's page that opens it."""
        super().ready()
        from ledger.operators import additions

        additions.register_account_pages(_pages)
        additions.register_time_line_parts(_form)


def _pages(model_admin: Any) -> "list[URLPattern]":
    from ledger.statements import pages

    return [pages.url(model_admin)]


def _form(request: Any, holder_id: str, credit_type: str) -> "SafeString":
    from ledger.statements import pages

    return pages.form(holder_id, credit_type)
