"""The wiring as a Django application, so that its commands are found."""

from django.apps import AppConfig


class LedgerProjectConfig(AppConfig):
    """Settings, URLs, and the commands that run the whole project."""

    name = "ledger_project"
    verbose_name = "Credit ledger"
