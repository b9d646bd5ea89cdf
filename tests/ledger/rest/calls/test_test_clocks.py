"""A holder's test clock over HTTP, and the keys of deployments for tests, which no other deployment accepts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ledger import reads, services
from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.rest.kit.authentication import forget_keys
from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

pytestmark = pytest.mark.django_db

CLOCK = "/v1/holders/ada/test-clock"
NOW = "2032-03-01T00:00:00Z"


@pytest.fixture
def for_tests(settings: Any) -> Any:
    """Settings of a deployment for tests."""
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    return settings


@pytest.fixture
def admin(for_tests: Any, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client of a deployment for tests."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    return make_api("ledger:admin")


def body_of(response: Any, status: int = 200) -> dict[str, Any]:
    """The JSON of a response with this status."""
    assert response.status_code == status, response.content
    body: dict[str, Any] = json.loads(response.content)
    return body


def test_a_clock_is_moved_and_read(admin: ApiClient) -> None:
    assert body_of(admin.get(CLOCK)) == {
        "holder_id": "ada", "now": None, "credit_type": None, "changed_by": None, "changed_at": None,
    }  # fmt: skip
    response = admin.put(CLOCK, {"now": NOW, "reason": "next month"}, key="c")
    entry = body_of(response, 201)
    assert (entry["kind"], entry["amount"], entry["test_clock"], entry["reason"]) == (
        "adjust", 0, "2032-03-01T00:00:00.000000Z", "next month",
    )  # fmt: skip
    assert entry["actor"].startswith("key:")
    again = admin.put(CLOCK, {"now": NOW, "reason": "next month"}, key="c")
    assert (again["Idempotency-Replayed"], again.content) == ("true", response.content)
    found = body_of(admin.get(CLOCK))
    assert (found["now"], found["changed_by"]) == ("2032-03-01T00:00:00.000000Z", 2)
    assert body_of(admin.get("/v1/holders/ada/balance"))["as_of"] == "2032-03-01T00:00:00.000000Z"
    assert body_of(admin.get("/v1/holders/ada/entries"))["results"][0]["test_clock"] == "2032-03-01T00:00:00.000000Z"
    assert body_of(admin.post("/v1/holders/ada/spends", {"amount": 1}, key="s"), 201)["effective_at"].startswith("2032-03-01")


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/now", "required"),
        ({"now": None}, "/now", "null"),
        ({"now": 1}, "/now", "not-a-string"),
        ({"now": "2032-03-01"}, "/now", "not-a-time"),
        ({"now": "2020-03-01T00:00:00Z"}, "/now", "past"),
        ({"now": "2199-03-01T00:00:00Z"}, "/now", "too-far"),
    ],
)
def test_a_wrong_time_is_refused_and_writes_nothing(admin: ApiClient, body: dict[str, Any], pointer: str, code: str) -> None:
    with nothing_written("ada"):
        problem_of_refusal(admin.put(CLOCK, body, key="c"), 400, (pointer, code))


def test_a_dry_run_moves_nothing(admin: ApiClient) -> None:
    with nothing_written("ada"):
        assert body_of(admin.put(f"{CLOCK}?dry_run=true", {"now": NOW}, key="c"))["test_clock"].startswith("2032-03-01")


def test_without_the_setting_there_are_no_clocks(make_api: Callable[..., ApiClient]) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    with nothing_written("ada"):
        problem = problem_of_refusal(make_api("ledger:admin").put(CLOCK, {"now": NOW}, key="c"), 409)
    assert problem["type"].rsplit("/")[-1] == "test-clocks-off"
    assert problem["detail"].startswith("Only a deployment for tests")


def test_credits_do_not_go_to_a_holder_of_another_time(admin: ApiClient, make_api: Callable[..., ApiClient]) -> None:
    admin.put(CLOCK, {"now": NOW}, key="c")
    with nothing_written("ada"):
        problem = problem_of_refusal(admin.post("/v1/holders/ada/transfers", {"amount": 1, "to": "bob"}, key="t"), 409)
    assert (problem["type"].rsplit("/")[-1], problem["holder_id"], problem["to"]) == ("test-clocks-differ", "ada", "bob")


# Keys ------------------------------------------------------------------------------------------------


def make_key() -> str:
    """A new key with all rights to credits."""
    _, text = api_keys.create_api_key(name=f"key {ApiKey.objects.count()}", scopes=["ledger:admin"])
    return text


@pytest.mark.parametrize("is_for_tests", [True, False], ids=["for tests", "not for tests"])
def test_a_key_of_the_other_kind_of_deployment_is_refused_in_a_sentence(
    settings: Any, api: ApiClient, is_for_tests: bool
) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": not is_for_tests}
    other = make_key()
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": is_for_tests}
    own = make_key()
    assert (own.startswith("test_"), other.startswith("test_")) == (is_for_tests, not is_for_tests)
    assert ApiKey.objects.filter(prefix=own[:8]).exists()
    forget_keys()
    api.secret = own
    assert api.get("/v1/key").status_code == 200
    api.secret = other
    problem = problem_of_refusal(api.get("/v1/key"), 401)
    assert problem["type"].rsplit("/")[-1] == "unauthenticated"
    assert problem["detail"] == (
        "This deployment is for tests: it accepts only API keys that begin with test_."
        if is_for_tests
        else "This deployment does not accept API keys for tests, which begin with test_."
    )
    with nothing_written("ada"):
        assert api.post("/v1/holders/ada/grants", {"amount": 1}, key="g").status_code == 401


def test_a_rotated_key_stays_of_its_kind(for_tests: Any) -> None:
    key, _ = api_keys.create_api_key(name="rotated", scopes=["ledger:read"])
    assert api_keys.rotate_api_key(id=key.pk)[1].startswith("test_")
    for_tests.LEDGER = for_tests.LEDGER | {"TEST_CLOCKS": False}
    assert not api_keys.rotate_api_key(id=key.pk)[1].startswith("test_")


@pytest.mark.parametrize("is_for_tests", [True, False])
def test_a_given_key_of_the_other_kind_is_refused_and_nothing_is_stored(settings: Any, is_for_tests: bool) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": is_for_tests}
    before = ApiKey.objects.count()
    with pytest.raises(Invalid, match="begin with test_"):
        api_keys.create_api_key(name="given", scopes=["ledger:read"], key=("" if is_for_tests else "test_") + "k" * 30)
    assert ApiKey.objects.count() == before
    given = ("test_" if is_for_tests else "") + "k" * 30
    assert api_keys.is_of_this_deployment(given)
    assert api_keys.create_api_key(name="given", scopes=["ledger:read"], key=given)[1] == given
    assert reads.clock("ada").now is None
