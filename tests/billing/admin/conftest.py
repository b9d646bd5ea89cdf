"""For the tests of billing's pages."""

from tests.ledger.staff.conftest import client

__all__ = ["client"]
