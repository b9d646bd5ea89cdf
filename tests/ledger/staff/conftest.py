"""For the tests of the operators' pages."""

import pytest
from django.test import Client

from tests.ledger.staff.admin_site import operator


@pytest.fixture
def client(db: None) -> Client:
    """A superuser's session of the operators' pages."""
    return operator()
