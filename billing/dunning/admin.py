"""The operators' pages of mails, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from billing.dunning.pages.mails import MailAdmin

    __all__ = ["MailAdmin"]
