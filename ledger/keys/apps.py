"""API keys as a Django application."""

from typing import TYPE_CHECKING, Any

from ledger import applications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.operators.additions import SearchResult


class KeysConfig(applications.LedgerApplication):
    """The keys with which programs call the REST API: who may call, and what each may do."""

    name = "ledger.keys"
    label = "ledger_keys"
    verbose_name = "API keys"
    needs = ("ledger", "ledger.rest")
    calls = "ledger.keys.api.urls"
    operators_pages = ("ledger.keys.key_pages",)
    permissions = "ledger.keys.permissions"
    tables_on_all_nodes = ("ledger_api_key",)

    def ready(self) -> None:
        """Register who finds the key of a call, audited tables, what Ctrl+K finds, and the button of a holder."""
        super().ready()
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.authentication import Authentication, register
        from ledger.keys.permissions import ADD_APIKEY
        from ledger.operators import additions

        register_table(RegisteredTable("ledger_api_key"))
        register_table(RegisteredTable("ledger_key_request", ("confined_to", "idempotency_key"), is_fixed=True))
        register(Authentication("ledger.keys.authenticating.find_key", "ledger.keys.authenticating.check_secret"))
        additions.register_search(_search)
        additions.register_guesses(_guess)
        additions.register_account_form(
            additions.AccountForm(
                name="spend_by_call",
                title="Spend by a call",
                icon="code",
                permission=ADD_APIKEY,
                url_path="spend-by-call",
                view=_key_for_holder,
            )
        )


def _search(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger.keys import key_search

    return key_search.search(request, word)


def _guess(request: Any, word: str) -> "Sequence[SearchResult]":
    from ledger.keys import key_search

    return key_search.guess(request, word)


def _key_for_holder(model_admin: Any, request: Any, account: Any) -> Any:
    from ledger.keys.key_pages import key_for_holder_view

    return key_for_holder_view(model_admin, request, account)
