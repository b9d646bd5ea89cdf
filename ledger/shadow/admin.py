"""The operators' page of the shadow, where its base is installed."""

from ledger.operators import installed

if not installed.missing():
    from ledger.shadow.account_pages import ObservationAdmin

    __all__ = ["ObservationAdmin"]
