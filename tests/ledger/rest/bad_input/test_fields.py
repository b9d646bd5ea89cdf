"""Unknown fields, and names that only look right. Each field by itself: `tests/test_refused_bodies.py`."""

import json

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"


@pytest.mark.parametrize("name", ["balance", "sequence", "id", "kind", "Amount", "amount ", "", "holder_id", "é" * 300, "a/b~c"])
def test_an_unknown_or_server_owned_field_is_a_400(api: ApiClient, holder: str, name: str) -> None:
    pointer = "/a~1b~0c" if name == "a/b~c" else "/" + name[:200]
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1, name: 1}), 400, (pointer, "unknown-field"))


@pytest.mark.parametrize(
    ("path", "name", "text"),
    [
        ("spends", "credit_type", "sms "),
        ("spends", "credit_type", "sms\n"),
        ("transfers", "to", " a"),
        ("transfers", "to", "a\u200b"),
    ],
)
def test_a_name_with_space_around_it_is_a_400(api: ApiClient, holder: str, path: str, name: str, text: str) -> None:
    body = {"amount": 1, "to": "team-7"} if path == "transfers" else {"amount": 1}
    with nothing_written(holder):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", {**body, name: text}), 400, (f"/{name}", "pattern"))


def test_texts_and_metadata_up_to_their_limits_are_taken(api: ApiClient, holder: str) -> None:
    metadata = {f"{number:064d}": "ü\u2028😀" for number in range(50)}
    response = api.post(SPENDS, {"amount": 1, "reason": "é" * 500, "reference": "😀" * 200, "metadata": metadata})
    assert response.status_code == 201, response.content
    entry = json.loads(response.content)
    assert (entry["reason"], entry["reference"], entry["metadata"]) == ("é" * 500, "😀" * 200, metadata)
