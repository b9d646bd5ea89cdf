"""Billing's calls do as the OpenAPI document says. See tests/conformance.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from billing.api.schemas import examples
from ledger.keys import api_keys
from ledger_project.serving.web import command
from tests.billing.factories import unique
from tests.concurrency.http_clients import HttpClient
from tests.conformance import OF_THE_LEDGER, PATHS, ensure_conforms
from tests.conftest import Way, wsgi_command

PARTS = [part for part in PATHS if part not in OF_THE_LEDGER]

# What the document's own examples speak of.
SPOKEN_OF = [
    ("/v1/customers", examples.CUSTOMER_BODY),
    ("/v1/plans", examples.PLAN_BODY),
    ("/v1/coupons", examples.COUPON_BODY),
    ("/v1/subscriptions", examples.SUBSCRIPTION_BODY),
    ("/v1/usage-events", examples.USAGE_BODY),
    ("/v1/subscriptions/SUB-1234/invoices", examples.GENERATION_BODY),
]


@pytest.fixture
def key(committed_db: None) -> str:
    """A key that may do all of billing."""
    return api_keys.create_api_key(name=unique("conformance"), scopes=["billing:read", "billing:write"])[1]


@pytest.fixture
def way() -> Way:
    """The front's server."""
    return command


@pytest.fixture
def web(key: str, server_processes: Callable[..., list[Any]], way: Way) -> Any:
    """A server whose database has what the examples speak of."""
    web = server_processes(1, way=way)[0]
    client = HttpClient(web.url, key)
    for path, body in SPOKEN_OF:
        # A key that stays the same: made by one of these tests, the next one finds it.
        response = client.post(path, body, key="conformance")
        assert response.status in (200, 201), response.content
    return web


@pytest.mark.parametrize("way", [command, wsgi_command], ids=["front", "wsgi"])
@pytest.mark.slow
def test_the_server_does_as_its_document_says(web: Any, key: str, tmp_path: Path) -> None:
    ensure_conforms(web, key, tmp_path, *PARTS, examples=2)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_server_does_so_for_many_made_up_requests(web: Any, key: str, tmp_path: Path, part: str) -> None:
    ensure_conforms(web, key, tmp_path, part, examples=150)
