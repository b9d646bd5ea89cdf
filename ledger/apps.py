"""The ledger as a Django application."""

from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags
from django.core.checks import register as register_check
from django.db.models.signals import pre_migrate


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what each process verifies once of its database, what Django checks, and the refusal to undo migrations."""
        from ledger import conf
        from ledger.database import checks

        checks.register()
        register_check(_check_settings, "ledger", conf.CHECKS)
        register_check(_check_pooler, "ledger", Tags.database)
        register_check(_check_schema, "ledger", Tags.database)
        register_check(_check_schema_before_deployment, "ledger", deploy=True)
        pre_migrate.connect(_refuse_way_back, dispatch_uid="ledger.database.schema_changes")


# Commands alone run these, so that no other process imports them.


def _check_settings(app_configs: Any, **options: Any) -> list[CheckMessage]:
    from ledger.database import system_checks

    return system_checks.check_settings()


def _check_pooler(app_configs: Any, databases: Any = None, **options: Any) -> list[CheckMessage]:
    from ledger.database import system_checks

    return system_checks.check_pooler(databases)


def _check_schema(app_configs: Any, databases: Any = None, **options: Any) -> list[CheckMessage]:
    from ledger.database import system_checks

    return system_checks.check_schema(databases)


def _check_schema_before_deployment(app_configs: Any, **options: Any) -> list[CheckMessage]:
    from ledger.database import system_checks

    return system_checks.check_schema_before_deployment()


def _refuse_way_back(using: str, plan: Any = (), **options: Any) -> None:
    from ledger.database import schema_changes

    schema_changes.refuse_way_back(using, plan)
