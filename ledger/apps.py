"""The ledger as a Django application."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks of settings and of the database, which each process makes once."""
        from ledger.database import checks

        checks.register()
