"""A 201 says in Location where that is which was made."""

from typing import Any

import pytest

from tests.ledger.rest.conftest import ApiClient


@pytest.fixture
def api(db: None, make_api: Any) -> ApiClient:
    made: ApiClient = make_api("ledger:admin")
    made.post("/v1/holders/a:b@c/grants", {"amount": 10, "credit_type": "tokens"})
    return made


def test_an_entry_is_where_location_says(api: ApiClient) -> None:
    made = api.post("/v1/holders/a:b@c/spends", {"amount": 3, "credit_type": "tokens"}, key="s")
    assert made["Location"] == "/v1/holders/a:b@c/entries/2?credit_type=tokens"
    assert api.get(made["Location"]).content == made.content
    again = api.post("/v1/holders/a:b@c/spends", {"amount": 3, "credit_type": "tokens"}, key="s")
    assert (again["Idempotency-Replayed"], again["Location"]) == ("true", made["Location"])


def test_what_is_not_made_is_nowhere(api: ApiClient) -> None:
    dry = api.post("/v1/holders/a:b@c/spends?dry_run=true", {"amount": 3, "credit_type": "tokens"})
    refused = api.post("/v1/holders/a:b@c/spends", {"amount": 30, "credit_type": "tokens"})
    assert (dry.status_code, refused.status_code) == (200, 402)
    assert "Location" not in dry
    assert "Location" not in refused


def test_a_rate_is_where_location_says(api: ApiClient) -> None:
    made = api.post("/v1/rates", {"ref": "gpt", "credit_type": "tokens", "price": 3, "per": 1})
    assert made["Location"] == "/v1/rates/gpt?credit_type=tokens"
    assert api.get(made["Location"]).json()["results"] == [made.json()]
