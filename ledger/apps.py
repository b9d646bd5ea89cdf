"""The ledger as a Django application."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Credits: who has how many, and why."""

    name = "ledger"
    verbose_name = "Ledger"

    def ready(self) -> None:
        """Register the checks, and have each process look at its database once. See ledger.checks."""
        from ledger import checks

        checks.register()
