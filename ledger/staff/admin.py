"""The operators' pages: those of credits show everything, and move credits by `ledger.services`, with the operator's name."""

from ledger import applications
from ledger.staff import references
from ledger.staff.accounts import AccountAdmin
from ledger.staff.approval_pages import ApprovalAdmin
from ledger.staff.batches import BatchAdmin
from ledger.staff.credit_types import CreditTypeAdmin
from ledger.staff.entries import EntryAdmin
from ledger.staff.rates import RateAdmin
from ledger.staff.refusals import RefusalAdmin
from ledger.staff.staff_events import StaffEventAdmin

references.register()
applications.load_operators_pages()

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
