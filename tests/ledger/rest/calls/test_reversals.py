"""Reversing a transfer over HTTP."""

import json
from collections.abc import Callable

import pytest

from ledger import reads, services
from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

pytestmark = pytest.mark.django_db

REVERSALS = "/v1/holders/ada/reversals"


@pytest.fixture(autouse=True)
def _transfer() -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.transfer(holder_id="ada", to="bob", amount=10, idempotency_key="t")


def test_a_transfer_is_reversed_once(make_api: Callable[..., ApiClient]) -> None:
    admin = make_api("ledger:admin")
    response = admin.post(REVERSALS, {"transfer": 2, "to": "bob"}, key="r")
    entry = json.loads(response.content)
    assert (response.status_code, entry["kind"], entry["amount"], entry["refers_to"]) == (201, "transfer_in", 10, 2)
    assert entry["counterpart"] == {"holder_id": "bob", "sequence": 2, "grant": 1}
    again = admin.post(REVERSALS, {"transfer": 2, "to": "bob"}, key="r")
    assert (again["Idempotency-Replayed"], again.content) == ("true", response.content)
    problem = problem_of_refusal(admin.post(REVERSALS, {"transfer": 2, "to": "bob"}, key="r2"), 409)
    assert (problem["type"].rsplit("/")[-1], problem["reversible"]) == ("reversal-exceeds-transfer", 0)
    assert (reads.balance("ada").balance, reads.balance("bob").balance) == (100, 0)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, [("/transfer", "required"), ("/to", "required")]),
        ({"transfer": 2, "to": "ada"}, [("/to", "other")]),
        ({"transfer": 2, "to": "cy"}, [("/to", "other")]),
        ({"transfer": 0, "to": "bob"}, [("/transfer", "too-small")]),
        ({"transfer": 2, "to": "bob", "amount": 0}, [("/amount", "too-small")]),
        ({"transfer": 2, "to": "bob", "lot": 1}, [("/lot", "unknown-field")]),
    ],
)
def test_a_wrong_reversal_is_refused_and_writes_nothing(
    make_api: Callable[..., ApiClient], body: dict[str, object], errors: list[tuple[str, str]]
) -> None:
    with nothing_written("ada"), nothing_written("bob"):
        problem_of_refusal(make_api("ledger:admin").post(REVERSALS, body, key="r"), 400, *errors)


def test_a_key_that_is_confined_to_a_holder_takes_nothing_from_another(make_api: Callable[..., ApiClient]) -> None:
    confined = make_api("ledger:admin", holder_id="ada")
    with nothing_written("ada"), nothing_written("bob"):
        problem_of_refusal(confined.post(REVERSALS, {"transfer": 2, "to": "bob"}, key="r"), 404)
