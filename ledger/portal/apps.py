"""The customer's page as a Django application."""

from typing import Any

from django.core.checks import register

from ledger import applications


class PortalConfig(applications.LedgerApplication):
    """One holder's credits, for anyone who has a link."""

    name = "ledger.portal"
    label = "ledger_portal"
    verbose_name = "Customer's page"
    calls = "ledger.portal.api"

    def ready(self) -> None:
        """Register the checks of its settings, and the form that makes a link."""
        super().ready()
        from ledger.operators import additions
        from ledger.operators.permissions import MAKE_PAGE_LINK
        from ledger.portal.checks import check_page

        register(check_page, "ledger")
        additions.register_account_form(
            additions.AccountForm(
                name="page_link",
                title="Customer's page",
                icon="link",
                permission=MAKE_PAGE_LINK,
                url_path="page-link",
                view=_page_link,
                needs_entries=False,
            )
        )


def _page_link(model_admin: Any, request: Any, account: Any) -> Any:
    from ledger.portal.pages import page_link_view

    return page_link_view(model_admin, request, account)
