"""Ledgers in and out, as a Django application."""

from django.core.checks import register

from ledger import applications, conf


class ExchangeConfig(applications.LedgerApplication):
    """Files of entries, balances and lots, and rows of other systems."""

    name = "ledger.exchange"
    label = "ledger_exchange"
    verbose_name = "Import and export"

    def ready(self) -> None:
        """Register the check of the sources that the settings declare."""
        super().ready()
        from ledger.exchange.sources import check_sources

        register(check_sources, "ledger", conf.CHECKS)
