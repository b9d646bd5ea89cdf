"""A deployment that looks VAT ids up, at the stand-in."""

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.billing.tax_services.vies_double import ViesDouble, serving


@pytest.fixture
def vies(settings: Settings) -> Iterator[ViesDouble]:
    """The stand-in for VIES, which the setting names."""
    with serving() as double:
        settings.LEDGER = {**settings.LEDGER, "VIES_URL": double.url}
        yield double
