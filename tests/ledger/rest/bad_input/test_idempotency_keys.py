"""Idempotency keys that are missing or not printable ASCII: 400, and nothing written."""

import json

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"


@pytest.mark.parametrize(
    "path",
    ["spends", "grants", "refunds", "revocations", "holds", "holds/1/captures", "holds/1/release", "holds/1/extend", "transfers"],
)
@pytest.mark.parametrize("key", [None, " "])
def test_a_write_without_an_idempotency_key_is_a_400(api: ApiClient, holder: str, path: str, key: str | None) -> None:
    with nothing_written(holder):
        problem = problem_of_refusal(
            api.post(f"/v1/holders/{holder}/{path}", {"amount": 1}, key=key), 400, ("/Idempotency-Key", "required")
        )
    assert problem["type"].endswith("/idempotency-key-missing")


@pytest.mark.parametrize("key", ["k" * 256, "käse", "a\tb", "a\x7f", "\u200b"])
def test_an_idempotency_key_that_is_too_long_or_not_printable_ascii_is_a_400(api: ApiClient, holder: str, key: str) -> None:
    with nothing_written(holder):
        problem = problem_of_refusal(api.post(SPENDS, {"amount": 1}, key=key), 400, ("/Idempotency-Key", "pattern"))
    assert problem["type"].endswith("/idempotency-key-invalid")


@pytest.mark.parametrize("key", ["k", "k" * 255, "~!@ #$%^&*()_+|<>?"])
def test_any_printable_ascii_is_an_idempotency_key(api: ApiClient, holder: str, key: str) -> None:
    response = api.post(SPENDS, {"amount": 1}, key=key)
    assert (response.status_code, json.loads(response.content)["idempotency_key"]) == (201, key)
