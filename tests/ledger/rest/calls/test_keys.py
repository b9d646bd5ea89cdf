"""Who is asking, and what that key may do."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.scopes import SCOPES
from tests.ledger.rest.conftest import ApiClient

MakeApi = Callable[..., ApiClient]

IN_A_YEAR = timezone.now().replace(microsecond=250) + timedelta(days=365)


def own_key(api: ApiClient) -> dict[str, Any]:
    """What the key learns of itself."""
    response = api.get("/v1/key")
    assert response.status_code == 200, response.content
    body: dict[str, Any] = json.loads(response.content)
    return body


def test_a_key_learns_who_it_is_and_what_it_may(make_api: MakeApi, db: None) -> None:
    api = make_api(
        "ledger:read",
        "billing:read",
        name="shop",
        holder_id="ada",
        expires_at=IN_A_YEAR,
        requests_per_second=5,
        concurrent_requests=2,
    )
    assert own_key(api) == {
        "id": ApiKey.objects.get().pk,
        "name": "shop",
        "actor": "key:shop",
        "scopes": ["ledger:read", "billing:read"],
        "holder_id": "ada",
        "labels": {},
        "expires_at": IN_A_YEAR.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "requests_per_second": 5,
        "concurrent_requests": 2,
    }


def test_a_key_without_limits_of_its_own_learns_those_of_the_settings(make_api: MakeApi, db: None, settings: Settings) -> None:
    api = make_api("ledger:spend", name="till")
    without = own_key(api)
    assert (without["holder_id"], without["expires_at"]) == (None, None)
    assert (without["requests_per_second"], without["concurrent_requests"]) == (None, 1024)
    settings.LEDGER = {**settings.LEDGER, "KEY_CONCURRENT_REQUESTS": 0}
    assert own_key(api)["concurrent_requests"] is None
    settings.LEDGER = {**settings.LEDGER, "KEY_REQUESTS_PER_SECOND": 100, "KEY_CONCURRENT_REQUESTS": 7}
    assert (own_key(api)["requests_per_second"], own_key(api)["concurrent_requests"]) == (100, 7)


def test_a_key_learns_the_scopes_that_another_of_its_scopes_includes(make_api: MakeApi, db: None) -> None:
    assert own_key(make_api("ledger:admin"))["scopes"] == [scope for scope in SCOPES if scope.startswith("ledger:")]


def test_without_a_valid_key_the_call_is_refused(db: None) -> None:
    assert ApiClient("x" * 43).get("/v1/key").status_code == 401


@pytest.mark.parametrize(
    ("wrong", "pointer", "rule"),
    [
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "/expires_at", "past"),
        ({"expires_at": datetime(2120, 1, 1)}, "/expires_at", "no-offset"),
        ({"requests_per_second": 0}, "/requests_per_second", "too-small"),
        ({"requests_per_second": 1_000_001}, "/requests_per_second", "too-large"),
        ({"concurrent_requests": 0}, "/concurrent_requests", "too-small"),
        ({"concurrent_requests": 10_001}, "/concurrent_requests", "too-large"),
        ({"scopes": []}, "/scopes", "choice"),
        ({"scopes": ["root"]}, "/scopes/0", "not-a-choice"),
        ({"name": ""}, "/name", "too-short"),
        ({"name": "x" * 101}, "/name", "too-long"),
        ({"holder_id": "a b"}, "/holder_id", "pattern"),
        ({"key": "x" * 19}, "/key", "min_length"),
    ],
)
def test_a_wrong_key_is_not_made(db: None, wrong: dict[str, Any], pointer: str, rule: str) -> None:
    with pytest.raises(Invalid) as refused:
        api_keys.create_api_key(**{"name": "shop", "scopes": ["ledger:read"]} | wrong)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert not ApiKey.objects.exists()
