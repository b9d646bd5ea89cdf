"""The pages of operators, groups and locked names, where `ledger.staff` is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from ledger_project.operators import operator_pages

    __all__ = ["operator_pages"]
