"""The operators' pages about API keys, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from ledger.keys.key_pages import ApiKeyAdmin

    __all__ = ["ApiKeyAdmin"]
