"""For the tests of the pages of the project as a whole."""

from tests.ledger.staff.conftest import client

__all__ = ["client"]
