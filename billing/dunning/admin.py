"""The operators' pages of mails, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from billing.dunning.mail_pages import MailAdmin

    __all__ = ["MailAdmin"]
