"""The application for calls leads to that for pages, which does everything."""

import asyncio
import json

import pytest
from django.conf import settings
from django.http import HttpResponse

from ledger_project.serving import web
from ledger_project.serving.application import calls
from tests.asgi_client import AsgiClient, response_of, scope_of
from tests.ledger.rest.kit.front.test_front import Exchange


def asked(path: str, *, method: str = "GET", host: str = "127.0.0.1:8000", query: str = "", **headers: str) -> HttpResponse:
    """The response of the application for calls."""
    environ = AsgiClient()._base_environ(PATH_INFO=path, REQUEST_METHOD=method, QUERY_STRING=query, HTTP_HOST=host, **headers)
    exchange = Exchange(method, path)
    exchange.scope = scope_of(environ)

    async def ask() -> None:
        await calls(exchange.scope, exchange.receive, exchange.send)
        await calls.close()

    asyncio.run(ask())
    return response_of(exchange.sent)


@pytest.mark.parametrize("path", ["/", "/docs", "/admin", "/admin/", "/admin/login/", "/static/admin/js/core.js"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_page_is_led_to_the_same_path_where_the_pages_are(path: str, method: str) -> None:
    response = asked(path, method=method, query="a=1&b=%0d%0aX")
    assert (response.status_code, response["Location"]) == (307, f"http://127.0.0.1:8001{path}?a=1&b=%0d%0aX")
    assert not response.cookies


@pytest.mark.parametrize("path", ["/nothing", "/statics", "//evil.example/admin/", "/.evil.example", "/admin.evil.example/"])
def test_control_a_path_that_no_page_has_is_not_found(path: str) -> None:
    response = asked(path)
    assert (response.status_code, response.has_header("Location")) == (404, False)
    assert json.loads(response.content)["type"].endswith("/not-found")


def test_the_address_of_the_pages_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PAGES_URL", "https://ledger.example")
    assert asked("/admin/é".encode().decode("latin-1"))["Location"] == "https://ledger.example/admin/%C3%A9"


@pytest.mark.parametrize(
    ("host", "at"),
    [("localhost:8000", "http://localhost:8001"), ("localhost", "http://localhost:8001"), ("[::1]:8000", "http://[::1]:8001")],
)
def test_without_an_address_it_is_the_host_that_was_asked(host: str, at: str) -> None:
    assert asked("/docs", host=host)["Location"] == f"{at}/docs"


def test_a_host_that_is_not_ours_is_led_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["127.0.0.1"])
    response = asked("/admin/", host="evil.example")
    assert (response.status_code, response.has_header("Location")) == (400, False)


def test_behind_a_proxy_that_speaks_tls_the_pages_are_at_https(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("/docs", HTTP_X_FORWARDED_PROTO="https")["Location"].startswith("http://"), "no proxy of ours has said so"
    monkeypatch.setattr(settings, "SECURE_PROXY_SSL_HEADER", ("HTTP_X_FORWARDED_PROTO", "https"))
    assert asked("/docs", HTTP_X_FORWARDED_PROTO="https")["Location"] == "https://127.0.0.1:8001/docs"


# The servers of an environment -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "servers"),
    [
        ({}, [("calls", "8000", "2"), ("application", "8001", "1")]),
        ({"PORT": "9000"}, [("calls", "9000", "2"), ("application", "9001", "1")]),
        ({"LEDGER_WEB_WORKERS": "4", "LEDGER_PAGES_PORT": "80"}, [("calls", "8000", "4"), ("application", "80", "1")]),
        ({"LEDGER_PAGES_WORKERS": "3"}, [("calls", "8000", "2"), ("application", "8001", "3")]),
        ({"LEDGER_WEB_WORKERS": "0", "LEDGER_PAGES_PORT": "80"}, [("application", "8000", "1")]),
        ({"LEDGER_PAGES_WORKERS": "0"}, [("calls", "8000", "2")]),
    ],
)  # fmt: skip
def test_each_kind_has_as_many_processes_as_are_wanted(
    environment: dict[str, str], servers: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PORT", "LEDGER_WEB_WORKERS", "LEDGER_PAGES_WORKERS", "LEDGER_PAGES_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = []
    for command in web.commands_from_environment():
        [application] = [each.removeprefix("ledger_project.asgi:") for each in command if each.startswith("ledger_project.asgi:")]
        found.append((application, command[command.index("--port") + 1], command[command.index("--workers") + 1]))
    assert found == servers


@pytest.mark.parametrize(("calls", "pages"), [("0", "0"), ("-1", "1"), ("two", "1")])
def test_numbers_of_processes_that_serve_nothing_are_refused(calls: str, pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_WEB_WORKERS", calls)
    monkeypatch.setenv("LEDGER_PAGES_WORKERS", pages)
    with pytest.raises(ValueError, match="LEDGER_WEB_WORKERS"):
        web.commands_from_environment()
