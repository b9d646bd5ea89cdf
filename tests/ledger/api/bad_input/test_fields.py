"""Unknown fields, texts, metadata and other values beyond their limits: 400, each field and rule by name, and nothing written."""

import json
from typing import Any

import pytest

from tests.ledger.api.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"
GRANTS = "/v1/holders/customer-42/grants"


@pytest.mark.parametrize("name", ["balance", "sequence", "id", "kind", "Amount", "amount ", "", "holder_id", "é" * 300, "a/b~c"])
def test_an_unknown_or_server_owned_field_is_a_400(api: ApiClient, holder: str, name: str) -> None:
    pointer = "/a~1b~0c" if name == "a/b~c" else "/" + name[:200]
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1, name: 1}), 400, (pointer, "unknown-field"))


def test_all_that_is_wrong_is_named_at_once(api: ApiClient, holder: str) -> None:
    body = {
        "credit_type": "SMS",
        "reason": 5,
        "reference": "x" * 201,
        "metadata": [],
        "priority": -1,
        "surprise": 1,
        "source": "free",
    }
    with nothing_written(holder):
        problem_of_refusal(
            api.post(GRANTS, body),
            400,
            ("/credit_type", "pattern"),
            ("/reason", "not-a-string"),
            ("/reference", "too-long"),
            ("/metadata", "not-an-object"),
            ("/amount", "required"),
            ("/source", "not-a-choice"),
            ("/priority", "too-small"),
            ("/surprise", "unknown-field"),
        )


TEXTS: list[tuple[str, Any, str, str]] = [
    ("reason", "x" * 501, "/reason", "too-long"),
    ("reason", None, "/reason", "null"),
    ("reason", 1, "/reason", "not-a-string"),
    ("reference", "x" * 201, "/reference", "too-long"),
    ("reference", True, "/reference", "not-a-string"),
    ("credit_type", "", "/credit_type", "too-short"),
    ("credit_type", "x" * 33, "/credit_type", "too-long"),
    ("credit_type", "sms ", "/credit_type", "pattern"),
    ("credit_type", "sms\n", "/credit_type", "pattern"),
    ("credit_type", 7, "/credit_type", "not-a-string"),
    ("metadata", {"x": "y" * 8192}, "/metadata", "too-large"),
    ("metadata", {f"k{number}": 1 for number in range(51)}, "/metadata", "too-many-keys"),
    ("metadata", {"k" * 65: 1}, "/metadata/" + "k" * 65, "too-long"),
    ("metadata", {"a": {"k" * 65: 1}}, "/metadata/a/" + "k" * 65, "too-long"),
    ("metadata", {"a": [2**53]}, "/metadata/a/0", "too-large"),
    ("metadata", {"a": 10**50}, "/metadata/a", "too-large"),
    ("metadata", None, "/metadata", "null"),
    ("metadata", "{}", "/metadata", "not-an-object"),
]


@pytest.mark.parametrize(("field", "value", "pointer", "code"), TEXTS)
def test_texts_and_metadata_beyond_their_limits_are_a_400(
    api: ApiClient, holder: str, field: str, value: Any, pointer: str, code: str
) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1, field: value}), 400, (pointer, code))


def test_texts_and_metadata_up_to_their_limits_are_taken(api: ApiClient, holder: str) -> None:
    metadata = {f"{number:064d}": "ü\u2028😀" for number in range(50)}
    response = api.post(SPENDS, {"amount": 1, "reason": "é" * 500, "reference": "😀" * 200, "metadata": metadata})
    assert response.status_code == 201, response.content
    entry = json.loads(response.content)
    assert (entry["reason"], entry["reference"], entry["metadata"]) == ("é" * 500, "😀" * 200, metadata)


OTHER_WRITES: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("holds", {"amount": 1, "expires_at": "2090-01-01T00:00:00"}, ("/expires_at", "no-offset")),
    ("holds", {"amount": 1, "hold": 1}, ("/hold", "unknown-field")),
    ("holds/1/captures", {"final": 1}, ("/final", "not-a-boolean")),
    ("holds/1/captures", {"final": None}, ("/final", "null")),
    ("holds/1/captures", {"over_capture": "always"}, ("/over_capture", "not-a-choice")),
    ("holds/1/captures", {"over_capture": True}, ("/over_capture", "not-a-string")),
    ("holds/1/captures", {"hold": 1}, ("/hold", "unknown-field")),
    ("holds/1/release", {"amount": 1}, ("/amount", "unknown-field")),
    ("holds/1/release", {"reason": "x" * 501}, ("/reason", "too-long")),
    ("holds/1/extend", {}, ("/expires_at", "required")),
    ("holds/1/extend", {"expires_at": None}, ("/expires_at", "null")),
    ("holds/1/extend", {"expires_at": "2016-12-31T23:59:60Z"}, ("/expires_at", "not-a-time")),
    ("transfers", {"amount": 1}, ("/to", "required")),
    ("transfers", {"amount": 1, "to": "a b"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": " a"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": "a\u200b"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": "a" * 65}, ("/to", "too-long")),
    ("transfers", {"amount": 1, "to": ""}, ("/to", "too-short")),
    ("transfers", {"amount": 1, "to": 7}, ("/to", "not-a-string")),
    ("transfers", {"amount": 1, "to": "team-7", "from": "x"}, ("/from", "unknown-field")),
]


@pytest.mark.parametrize(("path", "body", "error"), OTHER_WRITES)
def test_what_the_other_writes_do_not_take_is_a_400(
    api: ApiClient, holder: str, path: str, body: dict[str, Any], error: tuple[str, str]
) -> None:
    with nothing_written(holder), nothing_written("team-7"):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", body), 400, error)
