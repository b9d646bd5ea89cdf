"""For all tests of billing that go over REST."""

from collections.abc import Callable

import pytest

from tests.ledger.rest.conftest import ApiClient, _forget_keys, make_api, way

__all__ = ["_forget_keys", "make_api", "way"]


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with the key `shop`, which may read and write in billing."""
    return make_api("billing:read", "billing:write", name="shop")
