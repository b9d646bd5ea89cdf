"""The operators' page of the shadow, where its base is installed."""

from django.apps import apps

if apps.is_installed("ledger.staff"):
    from ledger.shadow.account_pages import ObservationAdmin

    __all__ = ["ObservationAdmin"]
