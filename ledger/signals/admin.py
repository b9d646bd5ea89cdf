"""The operators' pages about signals, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from ledger.signals.alert_pages import AlertAdmin
    from ledger.signals.webhook_pages import WebhookAdmin

    __all__ = ["AlertAdmin", "WebhookAdmin"]
