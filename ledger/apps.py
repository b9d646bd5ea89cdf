"""The ledger as a Django application."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"

    def ready(self) -> None:
        """Register the statuses of errors and the checks of settings, and let each process verify its database once."""
        from ledger import checks
        from ledger.api.kit.writing import statuses
        from ledger.api.problems import KINDS

        statuses.register(KINDS)
        checks.register()
