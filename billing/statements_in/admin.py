"""The operators' pages of bank receipts, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from billing.statements_in.receipt_pages import BankReceiptAdmin

    __all__ = ["BankReceiptAdmin"]
