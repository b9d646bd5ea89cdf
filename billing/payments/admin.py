"""The operators' pages of packs, purchases, payment intents and top-ups, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from billing.payments import intent_pages, pack_pages, purchase_pages, topup_pages

    __all__ = ["intent_pages", "pack_pages", "purchase_pages", "topup_pages"]
