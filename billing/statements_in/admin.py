"""The operators' pages of bank receipts, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from billing.statements_in.receipt_pages import BankReceiptAdmin

    __all__ = ["BankReceiptAdmin"]
