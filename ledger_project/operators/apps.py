"""The people who use the admin, as a Django application."""

from django.apps import AppConfig


class OperatorsConfig(AppConfig):
    """Roles, preferences, two-step login, and the recording of operators' logins and changes."""

    name = "ledger_project.operators"
    verbose_name = "Operators"

    def ready(self) -> None:
        """Have the staff log record logins and changes of operators and groups."""
        from ledger_project.operators import recording

        recording.connect()
