"""Paths that lead nowhere, and holders that cannot be: 404; a NUL: 400."""

import json

import pytest

from tests.asgi_client import AsgiClient
from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

BAD_HOLDERS = [
    "%20customer-42",
    "customer-42%20",
    "customer%01x",
    "a%E2%80%8Bb",
    "%C3%A9",
    ".hidden",
    "-x",
    "a" * 65,
    "a%2Fb",
    "..",
    "%2e%2e",
    "a%0A",
    "caf%e9",
    "a+b",
    "a%25b",
]


@pytest.mark.products(by=lambda bad: bad)
@pytest.mark.parametrize("bad", BAD_HOLDERS)
@pytest.mark.parametrize("rest", ["balance", "entries", "refusals", "entries/1"])
def test_a_holder_that_cannot_be_is_a_404(api: ApiClient, bad: str, rest: str) -> None:
    problem_of_refusal(api.get(f"/v1/holders/{bad}/{rest}"), 404)


@pytest.mark.parametrize("bad", BAD_HOLDERS)
def test_nothing_can_be_granted_to_a_holder_that_cannot_be(api: ApiClient, bad: str) -> None:
    problem_of_refusal(api.post(f"/v1/holders/{bad}/grants", {"amount": 1}), 404)


@pytest.mark.parametrize("good", ["a", "0", "a" * 64, "A.b_c:d@e-f", "550e8400-e29b-41d4-a716-446655440000", "user@example.com"])
def test_a_holder_of_the_alphabet_is_taken(api: ApiClient, good: str) -> None:
    response = api.post(f"/v1/holders/{good}/grants", {"amount": 1})
    assert (response.status_code, json.loads(response.content)["holder_id"]) == (201, good)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nothing",
        "/v1/holders/",
        "/v1/holders/customer-42/",
        "/v1/holders/customer-42/spends/",
        "/v1/holders/customer-42/balance/",
        "/v1//holders",
        "/v1/holders//balance",
        "/v1/holders/../admin",
        "/v1/../etc/passwd",
        "/v1/..",
        "/nothing",
        "/v2/holders",
        "/healthz/",
        "/V1/holders",
        "/v1/holders/customer-42/entries/0",
        "/v1/holders/customer-42/holds/0/captures",
        "/v1/holders/customer-42/holds/9223372036854775808/release",
        "/v1/holders/customer-42/holds/1",
        "/v1/rates/",
        "/v1/rates/A",
        "/v1/batches/",
        "/v1/holders/customer-42/entries/01",
        "/v1/holders/customer-42/entries/-1",
        "/v1/holders/customer-42/entries/1.0",
        "/v1/holders/customer-42/entries/x",
        "/v1/holders/customer-42/entries/9223372036854775808",
        "/v1/holders/customer-42/entries/" + "9" * 5000,
        "/v1/holders/customer-42/entries/%D9%A1",
        "/problems/Nothing%20at-all",
        "/v1/%ff",
    ],
)
def test_an_unknown_path_is_a_404_with_or_without_a_key(api: ApiClient, holder: str, path: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.get(path), 404)
        problem_of_refusal(api.post(path, {"amount": 1}), 404)
        problem_of_refusal(AsgiClient().get(path), 404)


@pytest.mark.parametrize(
    "path", ["/v1/holders/a%00b/balance", "/v1/holders/customer-42%00", "/nothing%00", "/v1/holders/customer-42/entries/1%00"]
)
def test_nul_in_a_path_is_a_400(api: ApiClient, path: str) -> None:
    problem_of_refusal(api.get(path), 400, ("", "forbidden-character"))
