"""What operators may do with totals."""

from typing import Final

from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_DAILYTOTAL: Final = Permission("ledger_totals.view_dailytotal", EVERYONE)

PERMISSIONS: Final = table_of(dict(globals()))
