"""The operators' pages about signals, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from ledger.signals.pages.alerts import AlertAdmin
    from ledger.signals.pages.webhooks import WebhookAdmin

    __all__ = ["AlertAdmin", "WebhookAdmin"]
