"""The ledger as a Django application."""

from django.apps import AppConfig
from django.core.checks import register


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks of settings and applications, which each process makes once."""
        from ledger.database import checks
        from ledger.operators import installed

        checks.register()
        register(installed.check_pages, "ledger")
