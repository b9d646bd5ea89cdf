"""For all simulations."""

from datetime import timedelta
from typing import Any

import pytest

from billing.metering import usage
from tests.asgi_client import AsgiClient


@pytest.fixture
def way() -> type[AsgiClient]:
    """The front alone: what is billed is the same by both ways in, whose calls tests/billing/api compares."""
    return AsgiClient


@pytest.fixture(autouse=True)
def provider_of_taxes(settings: Any) -> None:
    """Sellers may have a provider of taxes, which finds the declared ones."""
    settings.TAX_PROVIDER = {"class": "tests.billing.taxes.stand_in.DeclaredTaxes"}


@pytest.fixture(autouse=True)
def nothing_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events are committed when a run looks: it finds late usage by the instant of its last look, to the microsecond."""
    monkeypatch.setattr(usage, "LONGEST_TRANSACTION", timedelta(0))
