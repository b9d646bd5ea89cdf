"""The version of the ledger, as metrics, spans and `manage.py doctor` say it."""

from typing import Final

VERSION: Final = "0.1.0"
