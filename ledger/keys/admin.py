"""The operators' pages about API keys, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from ledger.keys.key_pages import ApiKeyAdmin

    __all__ = ["ApiKeyAdmin"]
