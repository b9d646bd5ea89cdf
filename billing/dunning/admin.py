"""The operators' pages of mails, where their base is installed."""

from ledger.operators import installed

if not installed.missing():
    from billing.dunning.mail_pages import MailAdmin

    __all__ = ["MailAdmin"]
