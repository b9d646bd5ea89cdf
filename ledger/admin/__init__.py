"""The operators' pages. They show everything; credits move only through `ledger.services`, with the operator's name.

Without the applications on which they are built, no page is registered, and a system check reports that (ledger.W001).
"""

from ledger.operators import installed

if not installed.missing():
    from ledger.admin import references
    from ledger.admin.accounts import AccountAdmin
    from ledger.admin.approvals import ApprovalAdmin
    from ledger.admin.batches import BatchAdmin
    from ledger.admin.credit_types import CreditTypeAdmin
    from ledger.admin.entries import EntryAdmin
    from ledger.admin.rates import RateAdmin
    from ledger.admin.refusals import RefusalAdmin
    from ledger.admin.staff_events import StaffEventAdmin

    references.register()

    __all__ = [
        "AccountAdmin",
        "ApprovalAdmin",
        "BatchAdmin",
        "CreditTypeAdmin",
        "EntryAdmin",
        "RateAdmin",
        "RefusalAdmin",
        "StaffEventAdmin",
    ]
