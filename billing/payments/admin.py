"""The operators' pages of packs, purchases, payment intents and top-ups, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from billing.payments.pages import packs, payment_intents, purchases, top_ups

    __all__ = ["packs", "payment_intents", "purchases", "top_ups"]
