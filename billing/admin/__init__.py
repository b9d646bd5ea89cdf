"""Billing's pages for operators. They show everything; the services of the REST API and the generator make the changes.

They are registered where the ledger's pages are.
"""

from ledger.operators import installed

if not installed.missing():
    from billing.admin import meters, runs
    from billing.admin.documents import credit_notes, invoices
    from billing.admin.orders import catalogue, customers, sellers, subscriptions, taxes
    from billing.admin.payments import packs, payment_intents, payments, purchases, top_ups

    __all__ = [
        "catalogue", "credit_notes", "customers", "invoices", "meters", "packs", "payment_intents",
        "payments", "purchases", "runs", "sellers", "subscriptions", "taxes", "top_ups",
    ]  # fmt: skip
