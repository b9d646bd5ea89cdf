"""The status of every error of billing."""

from typing import Final

from billing import errors
from ledger.api.kit.writing.statuses import Kind
from ledger.errors import LedgerError

KINDS: Final[dict[type[LedgerError], Kind]] = {
    errors.SellerMissing: Kind(409, "A document names who invoices. Record the seller: manage.py seller --file seller.json."),
    errors.NotFound: Kind(404, "The {resource} {ref} does not exist."),
    errors.InvoiceCorrectedLater: Kind(409, "Invoice {by} corrects this one or bills time that it gave back; void {by} first."),
    errors.PeriodAlreadyBilled: Kind(409, "Another process has billed this period. Nothing was written."),
}
