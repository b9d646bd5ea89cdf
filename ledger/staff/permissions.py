"""What operators may do with forms that wait. What they may do with credits is in `ledger.operators.permissions`."""

from typing import Final

from ledger.operators.permissions import Permission, table_of

VIEW_APPROVAL: Final = Permission("ledger_staff.view_approval", ("support", "finance", "billing operator"))

PERMISSIONS: Final = table_of(dict(globals()))
