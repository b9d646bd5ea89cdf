"""For the tests of billing's pages."""

from tests.ledger.admin.conftest import client

__all__ = ["client"]
