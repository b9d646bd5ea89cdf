"""The operators' pages about signals, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from ledger.signals.alert_pages import AlertAdmin
    from ledger.signals.webhook_pages import WebhookAdmin

    __all__ = ["AlertAdmin", "WebhookAdmin"]
