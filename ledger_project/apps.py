"""The wiring as Django applications."""

from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.signals import connection_created


class LedgerProjectConfig(AppConfig):
    """Settings, URLs, and the commands that run the whole project."""

    name = "ledger_project"
    verbose_name = "Credit ledger"
    default = True

    def ready(self) -> None:
        """Refuse each connection to tables that do not fit: every process of this project works with them."""
        connection_created.connect(refuse_other_schemas, dispatch_uid="ledger_project.schema")


def refuse_other_schemas(sender: Any, connection: Any, **options: Any) -> None:
    """Return if the tables of the ledger's database fit this process, or close the connection and raise UnsafeDatabase.

    Tables that an upgrade makes fit pass: the process may be what upgrades them. Until then its calls are refused.
    """
    from ledger.database.schema_versions import is_ensured, verify_schema

    if connection.alias != DEFAULT_DB_ALIAS:
        return
    try:
        if not is_ensured(connection.alias):
            verify_schema(connection, allow_pending=True)
    except BaseException:
        connection.close()
        raise


class AdminConfig(SimpleAdminConfig):
    """Django's admin, whose pages are loaded with the URLs: a command that serves none starts a third of a second sooner."""

    def ready(self) -> None:
        """Let Django check the pages as its own configuration does."""
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """Check every page, loaded or not."""
    admin.autodiscover()
    check_messages: list[checks.CheckMessage] = check_admin_app(app_configs, **options)
    return check_messages
