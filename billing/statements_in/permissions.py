"""What operators may do with receipts of bank statements; to book one is to pay an invoice, whose permission it needs."""

from typing import Final

from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_BANKRECEIPT: Final = Permission("billing_statements_in.view_bankreceipt", EVERYONE)

PERMISSIONS: Final = table_of(dict(globals()))
