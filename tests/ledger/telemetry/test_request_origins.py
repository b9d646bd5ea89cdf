"""The address that a request came from, behind proxies."""

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from ledger.telemetry.request_origins import client_address


@pytest.mark.parametrize(
    ("proxies", "passed_on", "address"),
    [
        (0, "203.0.113.9", "127.0.0.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "made-up, 203.0.113.9", "203.0.113.9"),
        (2, "made-up, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        (2, "203.0.113.9", "127.0.0.1"),
        (1, "", "127.0.0.1"),
    ],
)
def test_the_clients_address_is_what_the_outermost_trusted_proxy_saw(
    proxies: int, passed_on: str, address: str, settings: Settings
) -> None:
    settings.LEDGER = {**settings.LEDGER, "TRUSTED_PROXIES": proxies}
    request = RequestFactory().get("/", headers={"X-Forwarded-For": passed_on} if passed_on else {})
    assert client_address(request) == address
