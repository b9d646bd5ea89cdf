"""For all tests of billing that go over REST."""

from tests.ledger.api.conftest import _forget_keys

__all__ = ["_forget_keys"]
