"""What only the front does is tested through the front alone."""

import pytest
from django.test import Client

from tests.asgi_client import AsgiClient


@pytest.fixture
def way() -> type[Client]:
    """The client of the front."""
    return AsgiClient
