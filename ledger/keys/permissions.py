"""What operators may do with API keys."""

from typing import Final

from ledger.operators.permissions import Permission, table_of

ADD_APIKEY: Final = Permission("ledger_keys.add_apikey")
VIEW_APIKEY: Final = Permission("ledger_keys.view_apikey")
ROTATE_APIKEY: Final = Permission("ledger_keys.rotate_apikey", (), "apikey", "Can rotate API key")
REVOKE_APIKEY: Final = Permission("ledger_keys.revoke_apikey", (), "apikey", "Can revoke API key")

PERMISSIONS: Final = table_of(dict(globals()))
