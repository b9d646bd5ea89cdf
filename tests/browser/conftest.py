"""The ledger's clock, for histories that a browser looks at."""

from tests.ledger.conftest import ledger_clock

__all__ = ["ledger_clock"]
