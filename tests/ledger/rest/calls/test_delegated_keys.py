"""Keys that a key makes, lists, reads, rotates and revokes, none of which has more than the key itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from ledger.audit.auditing import audit
from ledger.keys import api_keys
from ledger.keys.api.schemas import ApiKeySerializer
from ledger.keys.models import ApiKey, KeyRequest
from ledger.models import StaffEvent
from ledger.rest.kit import authentication
from tests.ledger.rest.conftest import TIME, ApiClient, problem_of_refusal

MakeApi = Callable[..., ApiClient]

FUTURE = "2100-01-31T00:00:00.000000Z"
LATER = "2100-02-01T00:00:00Z"
PAST = datetime(2020, 1, 1, tzinfo=UTC)
SHOP = {"name": "shop", "scopes": ["ledger:read", "ledger:spend"]}


@pytest.fixture
def api(db: None, make_api: MakeApi) -> ApiClient:
    """A client with the key `deploy`, which may give the scopes of a shop."""
    return make_api("keys:admin", "ledger:read", "ledger:spend", name="deploy")


def stored() -> tuple[list[Any], int, int]:
    """All keys, and how many answers and events are on record."""
    return list(ApiKey.objects.order_by("id").values()), KeyRequest.objects.count(), StaffEvent.objects.count()


@contextmanager
def nothing_written() -> Iterator[None]:
    """Fail if the block changes a key, or leaves an answer or an event."""
    before = stored()
    yield
    assert stored() == before


def key_named(name: str = "shop", **more: Any) -> ApiKey:
    """A key that nobody made over REST."""
    return api_keys.create_api_key(**{"name": name, "scopes": ["ledger:read"]} | more)[0]


def slug(problem: dict[str, Any]) -> str:
    """Which problem it is."""
    return str(problem["type"]).rpartition("/")[2]


# Making ----------------------------------------------------------------------------------------------


def test_a_made_key_works_and_is_read_without_its_secret(api: ApiClient, way: type[Any]) -> None:
    response = api.post("/v1/keys", {**SHOP, "holder_id": "ada", "expires_at": FUTURE, "concurrent_requests": 4})
    assert response.status_code == 201, response.content
    made = response.json()
    secret = made.pop("secret")
    assert response["Location"] == f"/v1/keys/{made['id']}"
    assert TIME.fullmatch(made["created_at"])
    assert made == {
        "id": made["id"],
        "name": "shop",
        "actor": "key:shop",
        "prefix": secret[:8],
        "scopes": ["ledger:read", "ledger:spend"],
        "holder_id": "ada",
        "labels": {},
        "requests_per_second": None,
        "concurrent_requests": 4,
        "state": "active",
        "created_at": made["created_at"],
        "created_by": "key:deploy",
        "parent_id": ApiKey.objects.get(name="deploy").pk,
        "expires_at": FUTURE,
        "rotated_at": None,
        "former_until": None,
        "revoked_at": None,
        "revoked_by": None,
        "last_used_at": None,
    }
    assert api.get(response["Location"]).json() == made
    assert api.get("/v1/keys?name=shop").json()["results"] == [made]
    assert ApiClient(secret, way()).get("/v1/key").json()["id"] == made["id"]


def test_a_repeated_request_gets_the_first_answer_without_the_secret(api: ApiClient) -> None:
    first = api.post("/v1/keys", SHOP, key="k")
    with nothing_written():
        again = api.post("/v1/keys", {**SHOP, "holder_id": None}, key="k")
    assert (again.status_code, again["Idempotency-Replayed"], again["Location"]) == (201, "true", first["Location"])
    assert again.json() == first.json() | {"secret": None}
    assert list(again.json()) == list(first.json())
    assert "Idempotency-Replayed" not in first
    assert KeyRequest.objects.get().answer.keys() == first.json().keys() - {"secret"}


def test_an_answer_of_an_earlier_release_is_repeated_with_the_members_that_it_had(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = ApiKeySerializer.body
    with monkeypatch.context() as earlier:
        earlier.setattr(ApiKeySerializer, "body", lambda key: without(show(key), "revoked_by"))
        first = api.post("/v1/keys", SHOP, key="k")
    again = api.post("/v1/keys", SHOP, key="k")
    assert "revoked_by" not in KeyRequest.objects.get().answer
    assert (again.status_code, again.json()) == (201, first.json() | {"secret": None})


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {member: value for member, value in body.items() if member != name}


def test_an_idempotency_key_belongs_to_one_request(api: ApiClient) -> None:
    made = api.post("/v1/keys", SHOP, key="k").json()
    other = key_named("other")
    with nothing_written():
        for path, body in (
            ("/v1/keys", {**SHOP, "name": "till"}),
            (f"/v1/keys/{made['id']}/rotate", {}),
            (f"/v1/keys/{other.pk}/revoke", {}),
        ):
            assert slug(problem_of_refusal(api.post(path, body, key="k"), 422)) == "idempotency-key-reused"


def test_a_dry_run_makes_nothing_and_shows_no_secret(api: ApiClient) -> None:
    with nothing_written():
        response = api.post("/v1/keys?dry_run=true", SHOP, key=None)
        refused = api.post("/v1/keys?dry_run=true", {**SHOP, "scopes": ["ledger:grant"]}, key=None)
    assert (response.status_code, response.json()["id"], response.json()["secret"]) == (200, None, None)
    assert response.json()["scopes"] == SHOP["scopes"]
    assert slug(problem_of_refusal(refused, 403)) == "key-exceeds-own"


def test_a_name_is_given_once_for_good(api: ApiClient) -> None:
    api_keys.revoke_api_key(key_named("shop"))
    with nothing_written():
        problem = problem_of_refusal(api.post("/v1/keys", SHOP), 409)
    assert (slug(problem), problem["resource"], problem["ref"]) == ("already-exists", "API key", "shop")


# No more than it has ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "wanted", "exceeds"),
    [
        ({}, {"scopes": ["ledger:read", "ledger:grant"]}, ["scopes"]),
        ({}, {"scopes": ["ledger:admin"]}, ["scopes"]),
        ({}, {"scopes": ["billing:read"]}, ["scopes"]),
        ({"holder_id": "ada"}, {}, ["holder_id"]),
        ({"holder_id": "ada"}, {"holder_id": "bob"}, ["holder_id"]),
        ({"expires_at": FUTURE}, {}, ["expires_at"]),
        ({"expires_at": FUTURE}, {"expires_at": LATER}, ["expires_at"]),
        ({"requests_per_second": 5}, {}, ["requests_per_second"]),
        ({"requests_per_second": 5}, {"requests_per_second": 6}, ["requests_per_second"]),
        ({"concurrent_requests": 5}, {"concurrent_requests": 6}, ["concurrent_requests"]),
        ({"holder_id": "ada", "expires_at": FUTURE}, {"scopes": ["ledger:hold"]}, ["scopes", "holder_id", "expires_at"]),
    ],
)
def test_a_key_gives_nothing_that_it_does_not_have(
    db: None, make_api: MakeApi, own: dict[str, Any], wanted: dict[str, Any], exceeds: list[str]
) -> None:
    ends = {"expires_at": datetime.fromisoformat(own["expires_at"])} if "expires_at" in own else {}
    api = make_api("keys:admin", "ledger:read", "ledger:spend", **own | ends)
    with nothing_written():
        problem = problem_of_refusal(api.post("/v1/keys", SHOP | wanted, key="k"), 403)
    assert (slug(problem), problem["exceeds"]) == ("key-exceeds-own", exceeds)
    within = {
        name: own[name] for name in ("holder_id", "expires_at", "requests_per_second", "concurrent_requests") if name in own
    }
    assert api.post("/v1/keys", SHOP | within, key="k").status_code == 201


def test_a_scope_that_includes_others_can_be_given_in_parts(db: None, make_api: MakeApi) -> None:
    api = make_api("keys:admin", "ledger:admin")
    made = api.post("/v1/keys", {"name": "a", "scopes": ["ledger:hold", "keys:admin"]})
    assert made.status_code == 201
    assert slug(problem_of_refusal(api.post("/v1/keys", {"name": "b", "scopes": ["billing:read"]}), 403)) == "key-exceeds-own"


def test_the_limit_of_the_settings_is_one_that_a_key_has(api: ApiClient, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "KEY_CONCURRENT_REQUESTS": 7}
    with nothing_written():
        assert api.post("/v1/keys", {**SHOP, "concurrent_requests": 8}).json()["exceeds"] == ["concurrent_requests"]
    assert api.post("/v1/keys", SHOP).status_code == 201
    assert api.post("/v1/keys", {**SHOP, "name": "b", "concurrent_requests": 7}).status_code == 201


@pytest.mark.parametrize("call", ["rotate", "revoke"])
@pytest.mark.parametrize("more", [{"scopes": ["ledger:read", "ledger:grant"]}, {"scopes": ["billing:write"]}])
def test_a_key_that_may_do_more_is_neither_rotated_nor_revoked(api: ApiClient, call: str, more: dict[str, Any]) -> None:
    target = key_named(**more)
    with nothing_written():
        problem = problem_of_refusal(api.post(f"/v1/keys/{target.pk}/{call}", {}), 403)
    assert (slug(problem), problem["exceeds"]) == ("key-exceeds-own", ["scopes"])


def test_a_key_that_lives_longer_is_revoked_but_not_rotated(db: None, make_api: MakeApi) -> None:
    """Its secret would outlive the key that asks for it; its end gives nothing to anybody."""
    api = make_api("keys:admin", "ledger:read", expires_at=timezone.now() + timedelta(days=1), requests_per_second=1_000)
    target = key_named()
    with nothing_written():
        problem = problem_of_refusal(api.post(f"/v1/keys/{target.pk}/rotate", {}), 403)
    assert problem["exceeds"] == ["expires_at", "requests_per_second"]
    assert api.post(f"/v1/keys/{target.pk}/revoke", {}).json()["state"] == "revoked"


def test_a_key_rotates_and_revokes_itself(api: ApiClient, way: type[Any]) -> None:
    own = api.get("/v1/key").json()["id"]
    rotated = api.post(f"/v1/keys/{own}/rotate", {"former_until": FUTURE})
    assert rotated.status_code == 200
    new = ApiClient(rotated.json()["secret"], way())
    assert new.post(f"/v1/keys/{own}/revoke").status_code == 400  # a body of null
    assert new.post(f"/v1/keys/{own}/revoke", raw=b"").json()["state"] == "revoked"
    authentication.forget_keys()
    assert [client.get("/v1/key").status_code for client in (api, new)] == [401, 401]


def test_a_key_of_a_holder_knows_only_the_keys_of_that_holder(db: None, make_api: MakeApi) -> None:
    api = make_api("keys:admin", "ledger:read", holder_id="ada", name="ada-deploy")
    known, others = key_named("ada-1", holder_id="ada"), [key_named("free"), key_named("bob-1", holder_id="bob")]
    assert [key["name"] for key in api.get("/v1/keys").json()["results"]] == ["ada-1", "ada-deploy"]
    assert api.get("/v1/keys?holder_id=bob").json()["results"] == []
    with nothing_written():
        for other in others:
            absent = api.get("/v1/keys/999999").json()
            for response in (
                api.get(f"/v1/keys/{other.pk}"),
                api.post(f"/v1/keys/{other.pk}/rotate", {}),
                api.post(f"/v1/keys/{other.pk}/revoke", {}),
            ):
                assert problem_of_refusal(response, 404) | {"request_id": ""} == absent | {"request_id": ""}
    assert api.post(f"/v1/keys/{known.pk}/revoke", {}).status_code == 200


def test_keys_of_holders_have_their_own_idempotency_keys(db: None, make_api: MakeApi) -> None:
    for holder in ("ada", "bob"):
        api = make_api("keys:admin", "ledger:read", holder_id=holder)
        made = api.post("/v1/keys", {"name": f"{holder}-2", "scopes": ["ledger:read"], "holder_id": holder}, key="k")
        assert (made.status_code, "Idempotency-Replayed" in made) == (201, False)


# Rotating and revoking -------------------------------------------------------------------------------


def test_a_rotation_answers_with_the_secret_once(api: ApiClient) -> None:
    target, former = api_keys.create_api_key(**SHOP)
    path = f"/v1/keys/{target.pk}/rotate"
    rotated = api.post(path, {"former_until": FUTURE}, key="r")
    assert (rotated.status_code, rotated.json()["former_until"]) == (200, FUTURE)
    assert api_keys.find_api_key(former) == api_keys.find_api_key(rotated.json()["secret"]) == target
    with nothing_written():
        again = api.post(path, {"former_until": "2100-01-31T01:00:00+01:00"}, key="r")
    assert (again["Idempotency-Replayed"], again.json()) == ("true", rotated.json() | {"secret": None})
    with nothing_written():
        problem = problem_of_refusal(api.post(path, {"former_until": FUTURE}, key="s"), 409)
    assert (slug(problem), problem["former_until"]) == ("key-rotating", FUTURE)
    # The refusal passes, so it is not kept: the same key may succeed later.
    ApiKey.objects.filter(pk=target.pk).update(former_until=PAST)
    assert api.post(path, {"former_until": FUTURE}, key="s").status_code == 200


@pytest.mark.parametrize(("column", "how"), [("revoked_at", "revoked"), ("expires_at", "expired")])
def test_a_key_that_has_ended_is_not_rotated(api: ApiClient, column: str, how: str) -> None:
    target = key_named()
    ApiKey.objects.filter(pk=target.pk).update(**{column: PAST})
    with nothing_written():
        problem = problem_of_refusal(api.post(f"/v1/keys/{target.pk}/rotate", {}), 409)
    assert (slug(problem), problem["how"]) == ("key-ended", how)


def test_a_revoked_key_stays_as_it_is(api: ApiClient) -> None:
    target, secret = api_keys.create_api_key(**SHOP)
    revoked = api.post(f"/v1/keys/{target.pk}/revoke", {})
    assert (revoked.status_code, revoked.json()["state"], "secret" in revoked.json()) == (200, "revoked", False)
    assert revoked.json()["revoked_by"] == "key:deploy"
    assert api.get(f"/v1/keys/{target.pk}").json() == revoked.json()
    assert api_keys.find_api_key(secret) is None
    assert api.post(f"/v1/keys/{target.pk}/revoke", {}).json() == revoked.json()
    assert StaffEvent.objects.filter(action="key-revoked").count() == 1


def test_a_dry_run_neither_rotates_nor_revokes(api: ApiClient) -> None:
    target = key_named()
    with nothing_written():
        rotated = api.post(f"/v1/keys/{target.pk}/rotate?dry_run=true", {"former_until": FUTURE}, key=None)
        revoked = api.post(f"/v1/keys/{target.pk}/revoke?dry_run=true", {}, key=None)
    assert (rotated.status_code, rotated.json()["former_until"], rotated.json()["secret"]) == (200, FUTURE, None)
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")


def test_a_key_that_ended_after_it_was_looked_up_makes_nothing(api: ApiClient) -> None:
    """A process remembers a key for 2 s: in that time one that has leaked must not make another."""
    assert api.get("/v1/keys").status_code == 200
    target = key_named()
    deploy = ApiKey.objects.get(name="deploy")
    ApiKey.objects.filter(pk=deploy.pk).update(revoked_at=PAST)
    with nothing_written():
        for path, body in (("", SHOP), (f"/{target.pk}/rotate", {}), (f"/{target.pk}/revoke", {})):
            problem_of_refusal(api.post(f"/v1/keys{path}", body), 401)


def test_a_secret_that_was_replaced_makes_nothing(api: ApiClient) -> None:
    assert api.get("/v1/keys").status_code == 200
    api_keys.rotate_api_key(id=ApiKey.objects.get(name="deploy").pk)
    with nothing_written():
        problem_of_refusal(api.post("/v1/keys", SHOP), 401)


# Listing, and what is on record ----------------------------------------------------------------------


def test_keys_are_listed_by_pages_and_filters(api: ApiClient) -> None:
    for number in range(3):
        api.post("/v1/keys", {**SHOP, "name": f"shop-{number}"})
    api_keys.revoke_api_key(ApiKey.objects.get(name="shop-1"))
    ApiKey.objects.filter(name="shop-2").update(expires_at=PAST)

    def names(query: str) -> list[str]:
        return [key["name"] for key in api.get(f"/v1/keys?{query}").json()["results"]]

    assert names("") == ["shop-2", "shop-1", "shop-0", "deploy"]
    assert names("created_by=key:deploy&state=active") == ["shop-0"]
    assert (names("state=revoked"), names("state=expired")) == (["shop-1"], ["shop-2"])
    first = api.get("/v1/keys?limit=3").json()
    second = api.get(first["next"].partition("testserver")[2]).json()
    assert [key["name"] for key in second["results"]] == ["deploy"]
    assert api.get(second["previous"].partition("testserver")[2]).json()["results"] == first["results"]
    problem_of_refusal(api.get("/v1/keys?state=gone"), 400, ("/state", "not-a-choice"))
    problem_of_refusal(api.get("/v1/keys?colour=red"), 400, ("/colour", "unknown-field"))


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, [("/name", "required"), ("/scopes", "required")]),
        ({**SHOP, "scopes": []}, [("/scopes", "too-few")]),
        ({**SHOP, "scopes": ["root"]}, [("/scopes/0", "not-a-choice")]),
        ({**SHOP, "key": "x" * 40}, [("/key", "unknown-field")]),
        ({**SHOP, "actor": "admin:mara"}, [("/actor", "unknown-field")]),
        ({**SHOP, "holder_id": "a b"}, [("/holder_id", "pattern")]),
        ({**SHOP, "expires_at": "2020-01-01T00:00:00Z"}, [("/expires_at", "past")]),
        ({**SHOP, "requests_per_second": 0}, [("/requests_per_second", "too-small")]),
    ],
)
def test_a_wrong_key_is_not_made(api: ApiClient, body: dict[str, Any], errors: list[tuple[str, str]]) -> None:
    with nothing_written():
        problem_of_refusal(api.post("/v1/keys", body), 400, *errors)


def test_wrong_numbers_and_bodies_change_nothing(api: ApiClient) -> None:
    target = key_named()
    with nothing_written():
        for path in ("0", "01", "x", str(2**63), "999999"):
            problem_of_refusal(api.post(f"/v1/keys/{path}/revoke", {}), 404)
            problem_of_refusal(api.get(f"/v1/keys/{path}"), 404)
        problem_of_refusal(api.post(f"/v1/keys/{target.pk}/revoke", {"why": "x"}), 400, ("/why", "unknown-field"))
        problem_of_refusal(api.post(f"/v1/keys/{target.pk}/revoke", raw=b"["), 400, ("", "malformed-json"))
        problem_of_refusal(
            api.post(f"/v1/keys/{target.pk}/rotate", {"former_until": "2020-01-01T00:00:00Z"}), 400, ("/former_until", "past")
        )
        problem_of_refusal(api.post("/v1/keys", SHOP, key=None), 400, ("/Idempotency-Key", "required"))
        problem_of_refusal(api.post("/v1/keys", SHOP, If_Match='"1"'), 400, ("/If-Match", "not-here"))


def test_the_staff_log_says_which_key_did_it_and_in_which_request(api: ApiClient) -> None:
    made = api.post("/v1/keys", {**SHOP, "holder_id": "ada"}, X_Request_Id="made-it").json()
    api.post(f"/v1/keys/{made['id']}/rotate", {}, X_Request_Id="rotated-it")
    api.post(f"/v1/keys/{made['id']}/revoke", {}, X_Request_Id="revoked-it")
    events = StaffEvent.objects.filter(object="key shop").order_by("id")
    assert list(events.values_list("actor", "address", "action", "details", "request_id")) == [
        ("key:deploy", "127.0.0.1", "key-created", "ledger:read, ledger:spend, confined to ada", "made-it"),
        ("key:deploy", "127.0.0.1", "key-rotated", "every earlier secret ended", "rotated-it"),
        ("key:deploy", "127.0.0.1", "key-revoked", "", "revoked-it"),
    ]
    assert [request.request_id for request in KeyRequest.objects.order_by("recorded_at")] == [
        "made-it",
        "rotated-it",
        "revoked-it",
    ]
    assert audit([connection.connection]).totals == {}
