"""Other terms for a lot, over HTTP."""

import json

import pytest

from ledger import reads, services
from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

pytestmark = pytest.mark.django_db

REISSUES = "/v1/holders/ada/reissues"


@pytest.fixture(autouse=True)
def _grant() -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")


def test_a_lot_gets_other_terms_once(api: ApiClient) -> None:
    response = api.post(REISSUES, {"lot": 1, "expires_at": "2150-01-01T00:00:00Z", "priority": 7}, key="r")
    entry = json.loads(response.content)
    assert (response.status_code, entry["kind"], entry["amount"], entry["refers_to"]) == (201, "reissue", 0, 1)
    assert entry["drawn"] == [{"grant": 1, "amount": 100}]
    [lot] = json.loads(api.get("/v1/holders/ada/balance").content)["lots"]
    assert (lot["grant"], lot["remaining"], lot["expires_at"], lot["priority"]) == (2, 100, "2150-01-01T00:00:00.000000Z", 7)
    again = api.post(REISSUES, {"lot": 1, "expires_at": "2150-01-01T00:00:00Z", "priority": 7}, key="r")
    assert (again["Idempotency-Replayed"], again.content) == ("true", response.content)
    problem = problem_of_refusal(api.post(REISSUES, {"lot": 1, "priority": 8}, key="r2"), 409)
    assert (problem["type"].rsplit("/")[-1], problem["sequence"]) == ("lot-closed", 1)
    assert reads.balance("ada").balance == 100


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, [("/lot", "required")]),
        ({"lot": 1}, [("/expires_at", "required")]),
        ({"lot": 1, "expires_at": "2150-01-01"}, [("/expires_at", "not-a-time")]),
        ({"lot": 1, "expires_at": "2020-01-01T00:00:00Z"}, [("/expires_at", "past")]),
        ({"lot": 1, "expires_at": "2150-01-01T00:00:00Z", "never_expires": True}, [("/never_expires", "not-both")]),
        ({"lot": 1, "priority": "7"}, [("/priority", "not-an-integer")]),
        ({"lot": 1, "priority": 1, "amount": 5}, [("/amount", "unknown-field")]),
    ],
)
def test_wrong_terms_are_refused_and_nothing_is_written(
    api: ApiClient, body: dict[str, object], errors: list[tuple[str, str]]
) -> None:
    with nothing_written("ada"):
        problem_of_refusal(api.post(REISSUES, body, key="r"), 400, *errors)
