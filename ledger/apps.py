"""The ledger as a Django application."""

from django.apps import AppConfig
from django.core.checks import register


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks of settings and applications, which each process makes once; and the credits of a month."""
        from ledger.database import checks
        from ledger.operators import installed
        from ledger.totals.credit_figures import SOURCE
        from ledger.totals.figures import register_sections

        checks.register()
        register(installed.check_pages, "ledger")
        register_sections(SOURCE)
