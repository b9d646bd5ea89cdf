"""The calls are Django views: they work behind any project's middleware and servers, and respond as through the front."""

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import include, path, re_path
from rest_framework.test import APIClient

from ledger import services
from ledger.keys import api_keys
from ledger.rest.calls.credits import Spends
from ledger.rest.kit.endpoint import unknown_path
from tests.conftest import WebProcess, asgi_command, runserver_command, wsgi_command
from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient, problem_of_refusal, rows_of

SPEND = "/v1/holders/customer-42/spends"
HEADERS = {"X-Request-Id": "r", "Accept": "application/json", "Host": "127.0.0.1"}
"""The host is the same for each server: the links to a next page, which a list of all plans may have, hold it."""
GIVEN_BY_SERVERS = {"date", "server", "connection", "transfer-encoding"}

urlpatterns = [path("v1/", include("ledger.rest.urls")), path("v1/", include("billing.api.urls")), re_path("^v1/", unknown_path)]
"""The URLs of a project that has nothing else."""


# In one process --------------------------------------------------------------------------------------


@pytest.fixture
def way() -> type[Client]:
    """Django's own."""
    return Client


def sent(api: ApiClient, key: str = "k") -> dict[str, str]:
    """The headers of a write."""
    return {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": key}


def test_the_test_client_of_rest_framework_spends(api: ApiClient, holder: str) -> None:
    response = APIClient().post(SPEND, {"amount": 30}, format="json", headers=sent(api))
    assert (response.status_code, response.json()["balance"]) == (201, 70)


def test_a_view_that_is_called_directly_responds(api: ApiClient, holder: str) -> None:
    request = RequestFactory().post(SPEND, {"amount": 30}, content_type="application/json", headers=sent(api))
    response = Spends.as_view()(request, holder=holder)
    assert (response.status_code, json.loads(response.content)["balance"]) == (201, 70)


def test_a_write_needs_no_csrf_token(api: ApiClient, holder: str) -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post(SPEND, {"amount": 30}, content_type="application/json", headers=sent(api))
    assert response.status_code == 201


def test_no_call_shares_the_transaction_of_its_request() -> None:
    """Django looks for this where a project has ATOMIC_REQUESTS."""
    views = [pattern.callback for part in urlpatterns[:2] for pattern in part.url_patterns]
    assert len(views) > 40
    assert all(view._non_atomic_requests == {"default"} for view in views)


class _ReadsTheBody:
    """A middleware that looks at each body, as those that log requests do."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        assert request.body
        return self._get_response(request)


def test_a_middleware_may_have_read_the_body(api: ApiClient, holder: str, settings: Any) -> None:
    settings.MIDDLEWARE = [f"{__name__}._ReadsTheBody", *settings.MIDDLEWARE]
    response = Client().post(SPEND, {"amount": 30}, content_type="application/json", headers=sent(api))
    assert response.status_code == 201


def test_a_project_needs_no_middleware(api: ApiClient, holder: str, settings: Any) -> None:
    settings.MIDDLEWARE, settings.ROOT_URLCONF = [], __name__
    client = Client()
    response = client.post(SPEND, {"amount": 30}, content_type="application/json", headers=sent(api))
    assert (response.status_code, response["Content-Length"]) == (201, str(len(response.content)))
    problem_of_refusal(client.get("/v1/holders", headers={"Host": "elsewhere.example"}), 400, ("", "host"))


@pytest.mark.parametrize("is_debugged", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_a_project_may_end_its_unknown_paths_in_a_problem(db: None, settings: Any, method: str, is_debugged: bool) -> None:
    settings.ROOT_URLCONF, settings.DEBUG = __name__, is_debugged
    problem_of_refusal(Client().generic(method, "/v1/nothing"), 404)
    problem_of_refusal(Client().generic(method, "/v1/a%00b"), 400, ("", "forbidden-character"))


def test_a_bug_is_a_problem_and_leaves_its_traceback(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ledger.reads.accounts", lambda holder: 1 // 0)
    response = api.get(f"/v1/holders/{holder}")
    assert (response.status_code, response.json()["type"].rsplit("/")[-1]) == (500, "internal-error")
    assert [record.exc_info[0] for record in caplog.records if record.name == "ledger.problems" and record.exc_info] == [
        ZeroDivisionError
    ]


def test_a_refusal_through_django_leaves_a_line(
    api: ApiClient, holder: str, caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any
) -> None:
    with caplog.at_level("INFO", "ledger.refusals"), django_capture_on_commit_callbacks(execute=True):
        assert api.post(SPEND, {"amount": 1000}).status_code == 402
    assert [record.getMessage() for record in caplog.records if record.name == "ledger.refusals"] == ["spend refused"]


def test_the_views_have_the_limits_of_a_key(api: ApiClient, holder: str, settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "KEY_REQUESTS_PER_SECOND": 1}
    assert api.get("/v1/holders").status_code == 200
    problem_of_refusal(api.get("/v1/holders"), 429)


# Over the wire ---------------------------------------------------------------------------------------


def responses(url: str, secret: str, holder: str) -> list[tuple[int, dict[str, str], bytes]]:
    """What a server responds to good and bad requests of one client."""
    known = {**HEADERS, "Authorization": f"Bearer {secret}"}
    write = {**known, "Content-Type": "application/json", "Idempotency-Key": f"first {holder}"}
    spends, balance = f"/v1/holders/{holder}/spends", f"/v1/holders/{holder}/balance"
    asked: list[tuple[str, str, dict[str, str], bytes]] = [
        ("POST", spends, write, b'{"amount":30}'),
        ("POST", spends, write, b'{"amount":30}'),
        ("POST", spends, write, b'{"amount":31}'),
        ("POST", spends, {**write, "Idempotency-Key": f"second {holder}"}, b'{"amount":1000}'),
        ("POST", spends, {**write, "Idempotency-Key": "third"}, b'{"amount":"1"}'),
        ("POST", spends, {**write, "Idempotency-Key": "third"}, b"{"),
        ("POST", spends, {**write, "Idempotency-Key": "third"}, b" " * 70_000),
        ("POST", spends, {**write, "Content-Type": "text/plain"}, b'{"amount":30}'),
        ("POST", spends, known, b""),
        ("POST", spends, HEADERS, b'{"amount":30}'),
        ("POST", f"{spends}?dry_run=true", write, b'{"amount":30}'),
        ("DELETE", spends, known, b""),
        ("GET", f"{balance}?at=2026-01-01T00:00:00Z", known, b""),
        ("GET", f"{balance}?what=1", known, b""),
        ("GET", f"/v1/holders/{holder}/entries?limit=1", known, b""),
        ("GET", balance, {**known, "Accept": "text/html"}, b""),
        ("GET", balance, {**known, "Host": "elsewhere.example"}, b""),
        ("HEAD", f"/v1/holders/{holder}", known, b""),
        ("GET", "/v1/nothing", known, b""),
        ("GET", "/v1/holders/a%00b/balance", known, b""),
        ("GET", "/v1/plans", known, b""),
        ("GET", "/healthz", HEADERS, b""),
    ]
    found = []
    for method, target, headers, body in asked:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        found.append((response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()))
        connection.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", [wsgi_command, asgi_command, runserver_command])
def test_each_server_responds_as_the_front_does(
    committed_db: None,
    new_holder: Callable[[], str],
    server_processes: Callable[..., list[Any]],
    shared_server: WebProcess,
    way: Any,
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="first")
    _, secret = api_keys.create_api_key(name=holder, scopes=(*ALL_SCOPES, "billing:read"))

    (django,) = server_processes(1, way=way)
    first = responses(django.url, secret, holder)
    assert (first[0][0], "idempotency-replayed" in first[0][1]) == (201, False)

    through_django, through_the_front = (responses(web.url, secret, holder) for web in (django, shared_server))

    for ours, expected in zip(through_django, through_the_front, strict=True):
        assert (ours[0], ours[2]) == (expected[0], expected[2])
        headers = {name: value for name, value in expected[1].items() if name not in GIVEN_BY_SERVERS}
        assert headers.items() <= ours[1].items()
    assert rows_of(holder) == (2, 1)
