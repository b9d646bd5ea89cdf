"""API keys: their scopes, and the holder to which a key may be confined."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger import services
from ledger.keys import api_keys, last_use
from ledger.keys.models import ApiKey
from ledger.models import Rate
from ledger.rest.kit import authentication
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.front.application import API_PATHS
from ledger.scopes import SCOPES
from ledger.testing import unique
from tests.asgi_client import AsgiClient
from tests.ledger.rest.conftest import ApiClient, nothing_written

MakeApi = Callable[..., ApiClient]


class Unguarded(APIView):
    """A view of REST framework that by mistake is no Endpoint."""

    def get(self, request: Request) -> Response:
        """Must never be called."""
        return Response({"balance": 1})


IN_AN_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
CALLS: list[tuple[str, str, str, dict[str, Any] | None]] = [
    ("ledger:spend", "POST", "/v1/holders/customer-42/spends", {"amount": 1}),
    ("ledger:refund", "POST", "/v1/holders/customer-42/refunds", {"spend": 2}),
    ("ledger:hold", "POST", "/v1/holders/customer-42/holds", {"amount": 1}),
    ("ledger:hold", "POST", "/v1/holders/customer-42/holds/3/captures", {}),
    ("ledger:hold", "POST", "/v1/holders/customer-42/holds/3/release", {}),
    ("ledger:hold", "POST", "/v1/holders/customer-42/holds/3/extend", {"expires_at": IN_AN_HOUR}),
    ("ledger:transfer", "POST", "/v1/holders/customer-42/transfers", {"to": "team-7", "amount": 1}),
    ("ledger:read", "GET", "/v1/holders/customer-42/holds", None),
    ("ledger:read", "GET", "/v1/holders/customer-42/entries/1/explanation", None),
    ("ledger:grant", "POST", "/v1/holders/customer-42/grants", {"amount": 1}),
    ("ledger:grant", "POST", "/v1/holders/customer-42/revocations", {"grant": 1}),
    ("ledger:read", "GET", "/v1/holders/customer-42/balance", None),
    ("ledger:read", "GET", "/v1/holders/customer-42/entries", None),
    ("ledger:read", "GET", "/v1/holders/customer-42/entries/1", None),
    ("ledger:read", "GET", "/v1/holders/customer-42/refusals", None),
    ("ledger:read", "GET", "/v1/holders", None),
]


def views_by_path(patterns: list[URLPattern | URLResolver], path: str = "/") -> Iterator[tuple[str, Any]]:
    """Path and view of each call of the API."""
    for each in patterns:
        here = path + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from views_by_path(each.url_patterns, here)
        elif here.startswith(API_PATHS):
            yield here, getattr(each.callback, "cls", None)


def test_every_api_view_is_an_endpoint_which_checks_the_key_itself() -> None:
    found = dict(views_by_path(get_resolver().url_patterns))

    assert len(found) > 40
    assert {path: view for path, view in found.items() if view is None or not issubclass(view, Endpoint)} == {}
    public = {path.lstrip("/^") for path, view in found.items() if view.is_public}
    assert public == {
        "v1/", "v1/schema", "healthz", "readyz", "metrics", "problems/<slug:slug>", "v1/providers/<provider:provider>/events",
    }  # fmt: skip
    # REST framework's own authentication is neither used nor declared.
    assert {path for path, view in found.items() if view.authentication_classes} == set()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}])
def test_a_view_that_is_no_endpoint_refuses_every_key(make_api: MakeApi, db: None, headers: dict[str, str]) -> None:
    if headers:
        headers = {"Authorization": f"Bearer {make_api('ledger:admin').secret}"}
    response = Unguarded.as_view()(RequestFactory().get("/v1/unguarded", headers=headers))

    assert response.status_code == 403
    assert b"balance" not in response.content


def send(client: ApiClient, method: str, path: str, body: dict[str, Any] | None, **headers: str) -> tuple[int, dict[str, object]]:
    """Send the request; return the status and the body."""
    response = client.get(path, **headers) if method == "GET" else getattr(client, method.lower())(path, body, **headers)
    return response.status_code, json.loads(response.content)


@pytest.mark.parametrize(("scope", "method", "path", "body"), CALLS)
def test_a_call_needs_its_scope(
    make_api: MakeApi, holder: str, scope: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    services.hold(holder_id=holder, amount=1, idempotency_key="h")
    others = sorted(set(SCOPES) - {scope, "ledger:admin"})
    with nothing_written(holder):
        status, problem = send(make_api(*others), method, path, body)
    assert (status, problem["detail"], problem["scope"]) == (403, f"The key needs the scope {scope}.", scope)
    assert send(make_api(scope), method, path, body)[0] in (200, 201)


@pytest.mark.parametrize(("scope", "method", "path", "body"), CALLS)
def test_the_admin_scope_includes_every_ledger_scope(
    make_api: MakeApi, holder: str, scope: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    services.hold(holder_id=holder, amount=1, idempotency_key="h")
    assert send(make_api("ledger:admin"), method, path, body)[0] in (200, 201)


ADMIN_CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v1/holders/customer-42/overdraft", {"limit": 5}),
    ("POST", "/v1/rates", {"ref": "a", "price": 1, "per": 1}),
]


@pytest.mark.parametrize(("method", "path", "body"), ADMIN_CALLS)
def test_overdrafts_and_rates_need_the_admin_scope(
    make_api: MakeApi, holder: str, method: str, path: str, body: dict[str, Any]
) -> None:
    with nothing_written(holder):
        status, problem = send(make_api("ledger:read", "ledger:spend", "ledger:grant"), method, path, body)
    assert (status, problem["scope"], Rate.objects.count()) == (403, "ledger:admin", 0)
    assert send(make_api("ledger:admin"), method, path, body)[0] == 201


def test_a_confined_key_gets_404_for_an_overdraft_of_another_holder(make_api: MakeApi, holder: str) -> None:
    with nothing_written(holder):
        assert send(make_api("ledger:admin", holder_id="x"), "PUT", f"/v1/holders/{holder}/overdraft", {"limit": 5})[0] == 404


@pytest.mark.parametrize("path", ["/v1/rates", "/v1/rates/a"])
def test_rates_are_read_with_the_read_scope(make_api: MakeApi, holder: str, path: str) -> None:
    services.publish_rate(code="a", price=1, per=1)
    assert send(make_api("ledger:spend"), "GET", path, None)[0] == 403
    assert send(make_api("ledger:read", holder_id=holder), "GET", path, None)[0] == 200


def test_a_quote_needs_the_read_scope(make_api: MakeApi, holder: str) -> None:
    services.publish_rate(code="a", price=1, per=1)
    assert send(make_api("ledger:spend"), "POST", "/v1/quotes", {"rate": "a", "quantity": 1})[0] == 403


def test_the_admin_scope_includes_no_billing_scope(db: None, make_api: MakeApi) -> None:
    key = authentication.Key(b"", "x", frozenset({"ledger:admin"}), None)
    assert (key.may("ledger:read"), key.may("billing:read"), key.may("ledger:nothing-yet")) == (True, False, True)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Basic {secret}",
        "{secret}",
        "Token {secret}",
        "Bearer {secret}x",
        "Bearer é",
        "Bearer " + "x" * 300,
    ],
)
@pytest.mark.parametrize(("scope", "method", "path", "body"), CALLS[:1] + CALLS[-1:])
def test_without_a_valid_key_every_path_returns_the_same_401(
    api: ApiClient, holder: str, header: str | None, scope: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    headers = {} if header is None else {"Authorization": header.format(secret=api.secret)}
    with nothing_written(holder):
        response = AsgiClient().generic(method, path, json.dumps(body).encode(), content_type="application/json", headers=headers)
    assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="credit-ledger"')
    problem = json.loads(response.content)
    assert problem["type"] == "https://credit-ledger.example/problems/unauthenticated"
    assert set(problem) == {"type", "title", "status", "detail", "request_id", "outcome"}


def test_the_authorization_scheme_is_case_insensitive(api: ApiClient) -> None:
    assert AsgiClient().get("/v1/holders", headers={"Authorization": f"bEARER {api.secret}"}).status_code == 200


def test_a_revoked_key_is_refused_at_its_next_lookup(api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(authentication.time, "monotonic", lambda: now[0])
    assert api.get("/v1/holders").status_code == 200
    key = api_keys.find_api_key(api.secret)
    assert key is not None
    api_keys.revoke_api_key(key)
    now[0] += authentication.CACHED_FOR_SECONDS - 0.01
    assert api.get("/v1/holders").status_code == 200
    now[0] += 0.02
    assert api.get("/v1/holders").status_code == 401


def expire(secret: str, *, by: str) -> None:
    """Let the key expire so long after now, by the server's clock; as INTERVAL has it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_api_key SET expires_at = clock_timestamp() + %s::interval WHERE key_digest = sha256(%s::bytea)",
            [by, secret.encode()],
        )
        assert cursor.rowcount == 1


@pytest.mark.parametrize(("by", "status"), [("1 hour", 200), ("-1 microsecond", 401)])
def test_a_key_is_refused_from_its_expiry_on(make_api: MakeApi, db: None, by: str, status: int) -> None:
    api = make_api("ledger:read")
    expire(api.secret, by=by)
    assert api.get("/v1/holders").status_code == status


def test_an_expired_key_is_refused_as_an_unknown_one_and_writes_nothing(make_api: MakeApi, holder: str) -> None:
    api = make_api("ledger:spend")
    expire(api.secret, by="-1 second")
    with nothing_written(holder):
        expired = send(api, "POST", f"/v1/holders/{holder}/spends", {"amount": 1}, X_Request_Id="r1")
    unknown = send(ApiClient("x" * 43), "POST", f"/v1/holders/{holder}/spends", {"amount": 1}, X_Request_Id="r1")
    assert (expired[0], expired) == (401, unknown)


def test_a_key_that_is_in_use_is_refused_2_seconds_after_its_expiry_at_the_latest(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(authentication.time, "monotonic", lambda: now[0])
    assert api.get("/v1/holders").status_code == 200
    expire(api.secret, by="-1 microsecond")
    now[0] += 2.01
    assert api.get("/v1/holders").status_code == 401


def test_a_valid_key_is_cached_and_an_invalid_key_is_not(
    api: ApiClient, django_assert_num_queries: Callable[..., object]
) -> None:
    with django_assert_num_queries(1):  # type: ignore[attr-defined]
        for _ in range(3):
            assert api.get("/v1/holders?limit=0").status_code == 400
    with django_assert_num_queries(2):  # type: ignore[attr-defined]
        for _ in range(2):
            assert ApiClient("x" * 43).get("/v1/holders?limit=0").status_code == 401
    assert len(authentication._cache) == 1


# Confinement -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "method", "path", "body"), CALLS[:-1])
def test_a_confined_key_gets_404_for_another_holder(
    make_api: MakeApi, holder: str, scope: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    confined = make_api(*SCOPES, holder_id="customer-4")
    absent = make_api(*SCOPES)
    with nothing_written(holder):
        outside = send(confined, method, path, body, X_Request_Id="r1")
    unknown = send(absent, method, "/v1/nothing", body, X_Request_Id="r1")
    assert outside == unknown
    assert outside[0] == 404


def test_a_missing_scope_is_reported_before_the_confinement(make_api: MakeApi, holder: str) -> None:
    confined = make_api("ledger:read", holder_id="somebody")
    assert send(confined, "POST", "/v1/holders/customer-42/spends", {"amount": 1})[0] == 403


def test_a_confined_key_works_for_its_holder(make_api: MakeApi, holder: str) -> None:
    confined = make_api(holder_id=holder)
    assert send(confined, "POST", f"/v1/holders/{holder}/spends", {"amount": 1})[0] == 201


def test_a_confined_key_lists_its_holder_only(api: ApiClient, make_api: MakeApi) -> None:
    for name in ("ann", "anna", "ann-b", "bob"):
        for credit_type in ("sms", "credits"):
            services.grant(holder_id=name, amount=1, idempotency_key=f"g-{credit_type}", credit_type=credit_type)
    confined = make_api("ledger:read", holder_id="ann")

    def listed(query: str) -> list[tuple[str, str]]:
        results = json.loads(confined.get(f"/v1/holders{query}").content)["results"]
        return [(account["holder_id"], account["credit_type"]) for account in results]

    both = [("ann", "credits"), ("ann", "sms")]
    assert listed("") == both
    assert listed("?prefix=an") == both
    assert listed("?prefix=ann") == both
    assert listed("?prefix=anna") == []
    assert listed("?prefix=b") == []
    assert listed("?credit_type=sms") == both[1:]
    page = json.loads(confined.get("/v1/holders?limit=1").content)
    assert [account["credit_type"] for account in page["results"]] == ["credits"]
    following = json.loads(confined.get(page["next"]).content)
    assert ([account["credit_type"] for account in following["results"]], following["next"]) == (["sms"], None)
    back = json.loads(confined.get(following["previous"]).content)
    assert ([account["credit_type"] for account in back["results"]], back["previous"]) == (["credits"], None)


def test_a_call_has_the_last_use_of_its_key_recorded(committed_db: None, make_api: Callable[..., ApiClient]) -> None:
    key = ApiKey.objects.get(pk=make_api("ledger:read", name=unique("used")).get("/v1/key").json()["id"])
    last_use.USES.close()
    key.refresh_from_db()
    assert key.last_used_at is not None
