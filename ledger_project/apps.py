"""The wiring as Django applications."""

from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class LedgerProjectConfig(AppConfig):
    """Settings, URLs, and the commands that run the whole project."""

    name = "ledger_project"
    verbose_name = "Credit ledger"
    default = True


class AdminConfig(SimpleAdminConfig):
    """Django's admin, whose pages are loaded with the URLs: a command that serves none starts a third of a second sooner."""

    def ready(self) -> None:
        """Let Django check the pages as its own configuration does."""
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """Check every page, loaded or not."""
    admin.autodiscover()
    found: list[checks.CheckMessage] = check_admin_app(app_configs, **options)
    return found
