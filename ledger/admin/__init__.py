"""The operators' pages. They show everything; credits move only through `ledger.services`, with the operator's name.

Without the applications on which they are built, no page is registered, and a system check reports that (ledger.W001).
"""

from ledger.operators import installed

if not installed.missing():
    from ledger.admin.entries.admin import EntryAdmin
    from ledger.admin.entries.batches import BatchAdmin
    from ledger.admin.entries.refusals import RefusalAdmin
    from ledger.admin.forms.api_keys import ApiKeyAdmin
    from ledger.admin.forms.credit_types import CreditTypeAdmin
    from ledger.admin.forms.rates import RateAdmin
    from ledger.admin.holders.accounts import AccountAdmin
    from ledger.admin.home.approvals import ApprovalAdmin
    from ledger.admin.home.staff_events import StaffEventAdmin

    __all__ = [
        "AccountAdmin",
        "ApiKeyAdmin",
        "ApprovalAdmin",
        "BatchAdmin",
        "CreditTypeAdmin",
        "EntryAdmin",
        "RateAdmin",
        "RefusalAdmin",
        "StaffEventAdmin",
    ]
