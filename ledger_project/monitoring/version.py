"""Which version of the ledger this is."""

from typing import Final

VERSION: Final = "0.1.0"
