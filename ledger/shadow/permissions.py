"""What operators may do with observed accounts."""

from typing import Final

from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_OBSERVATION: Final = Permission("ledger_shadow.view_observation", EVERYONE)

PERMISSIONS: Final = table_of(dict(globals()))
