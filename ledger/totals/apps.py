"""Totals as a Django application."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ledger import applications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.urls import URLPattern
    from django.utils.safestring import SafeString

    from ledger.audit.recounts import Recount
    from ledger.audit.sessions import Session

LAW: Final = (
    "The totals of days and months are what the entries come to that were recorded up to the instant at which they say "
    "they are counted."
)


class TotalsConfig(applications.LedgerApplication):
    """The sums of days over all accounts, the close of each month, and the month for finance."""

    name = "ledger.totals"
    label = "ledger_totals"
    verbose_name = "Totals"
    permissions = "ledger.totals.permissions"
    tables_on_all_nodes = ("ledger_total_state",)

    def ready(self) -> None:
        """Register what the audit compares, the pages of a month, and the credit types on the first page."""
        super().ready()
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.audit.recounts import register_recount
        from ledger.operators import additions

        for table in (
            RegisteredTable("ledger_month_close", ("month", "credit_type"), is_fixed=True),
            RegisteredTable("ledger_daily_total", ("day", "credit_type")),
            RegisteredTable("ledger_expiring_total", ("expires_us", "credit_type"), is_kept=False),
        ):
            register_table(table)
        register_recount("totals", LAW, _recount)
        additions.register_account_pages(_pages)
        additions.register_home_part(_home_part)


def _recount(session: "Session") -> "Recount":
    from ledger.totals.audit import read_totals

    return read_totals(session)


def _pages(model_admin: Any) -> "Sequence[URLPattern]":
    from ledger.totals import month_pages

    return month_pages.urls(model_admin)


def _home_part(request: Any, now: datetime) -> "SafeString | str":
    from ledger.totals import home_cards

    return home_cards.render_cards(request, now=now)
