"""The ledger as a Django application."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"

    def ready(self) -> None:
        """Register the checks of settings, and let each process verify its database once."""
        from ledger import checks

        checks.register()
