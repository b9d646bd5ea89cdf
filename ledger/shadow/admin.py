"""The operators' page of the shadow, where its base is installed."""

from ledger.operators import installed

if not installed.missing():
    from ledger.shadow.pages.accounts import ObservationAdmin

    __all__ = ["ObservationAdmin"]
