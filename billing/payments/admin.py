"""The operators' pages of packs, purchases, payment intents and top-ups, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from billing.payments import intent_pages, pack_pages, purchase_pages, topup_pages

    __all__ = ["intent_pages", "pack_pages", "purchase_pages", "topup_pages"]
