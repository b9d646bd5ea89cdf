"""Statements as a Django application."""

from typing import TYPE_CHECKING, Any

from django.apps import apps

from ledger import applications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.urls import URLPattern
    from django.utils.safestring import SafeString

    from ledger.portal.parts import Document, PageDisplay, PageList
    from ledger.typesetting.languages import Language


class StatementsConfig(applications.LedgerApplication):
    """The statement of an account for a month, as PDF."""

    name = "ledger.statements"
    label = "ledger_statements"
    verbose_name = "Statements"
    needs = ("ledger", "ledger.totals")
    calls = "ledger.statements.api"

    def ready(self) -> None:
        """Register the page of a statement, the form on a holder's page that opens it, and the list on the customer's page."""
        super().ready()
        from ledger.operators import additions

        additions.register_account_pages(_pages)
        additions.register_time_line_parts(_form)
        if apps.is_installed("ledger.portal"):
            from ledger.portal.parts import AccountPart, register_account_part

            register_account_part(AccountPart(_sections, _document))


def _pages(model_admin: Any) -> "list[URLPattern]":
    from ledger.statements import pages

    return [pages.url(model_admin)]


def _form(request: Any, holder_id: str, credit_type: str) -> "SafeString":
    from ledger.statements import pages

    return pages.form(holder_id, credit_type)


def _sections(holder_id: str, credit_type: str, shown: "PageDisplay") -> "Sequence[PageList]":
    from ledger.statements import downloads

    return downloads.sections(holder_id, credit_type, shown)


def _document(holder_id: str, name: str, credit_types: "Sequence[str]", language: "Language") -> "Document | None":
    from ledger.statements import downloads

    return downloads.document(holder_id, name, credit_types, language)
