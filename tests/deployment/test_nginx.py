"""The proxy of docker-compose.yml, run natively before a web server: what is slow, large or too often ends at the proxy."""

import http.client
import itertools
import json
import socket
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest
from pytest_django.plugin import DjangoDbBlocker

from ledger import services
from ledger.keys import api_keys
from ledger.models import Entry
from ledger_project.serving.web import CALLS
from tests.conftest import WebProcess, on_committed_database, web_servers
from tests.deployment.proxy import IS_THERE, TRUSTING, WEB_ENVIRONMENT, Proxy, name_server, nginx
from tests.deployment.serving.test_serve import wait_until

pytestmark = pytest.mark.skipif(not IS_THERE, reason="there is no nginx or no openssl: apt install nginx-light openssl")

SLOW_CONNECTIONS = 200


def port_of(web: WebProcess) -> int:
    """The port of a web server."""
    return int(web.url.rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebProcess]:
    """A web server with the settings of compose, for all tests that leave it running."""
    with django_db_blocker.unblock(), web_servers(tmp_path_factory.mktemp("web")) as start:
        with on_committed_database():
            (found,) = start(1, env=WEB_ENVIRONMENT)
        yield found


@pytest.fixture
def proxy(web: WebProcess) -> Iterator[Proxy]:
    """nginx before it, new for each test."""
    with nginx(port_of(web)) as found:
        yield found


# What is slow ----------------------------------------------------------------------------------------


@contextmanager
def dribbling(proxy: Proxy) -> Iterator[list[socket.socket]]:
    """For the block, many connections each have sent a header, and of a body of 1,000 bytes the first."""
    head = (
        "POST /admin/ HTTP/1.1\r\nHost: 127.0.0.1\r\nReferer: https://127.0.0.1/admin/\r\n"
        f"Cookie: csrftoken={'a' * 32}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nx"
    )
    with ExitStack() as stack:
        opened = []
        for _ in range(SLOW_CONNECTIONS):
            plain = socket.create_connection(("127.0.0.1", proxy.https_port), timeout=30)
            opened.append(stack.enter_context(TRUSTING.wrap_socket(plain)))
            opened[-1].sendall(head.encode())
        yield opened


@pytest.mark.slow
@pytest.mark.check
def test_while_200_connections_send_bodies_a_byte_at_a_time_other_requests_get_their_response(proxy: Proxy) -> None:
    with dribbling(proxy) as opened:
        for _ in range(10):
            for each in opened:
                each.sendall(b"x")
            assert proxy.ask("GET", "/healthz")[0] == 200
        assert proxy.passed_on() < 10


@pytest.mark.slow
@pytest.mark.check
def test_without_buffering_they_would_reach_the_web_server(web: WebProcess) -> None:
    """The control."""
    with (
        nginx(port_of(web), lambda text: text.replace("proxy_request_buffering on", "proxy_request_buffering off")) as proxy,
        dribbling(proxy),
    ):
        wait_until(lambda: proxy.passed_on() >= SLOW_CONNECTIONS, "they are passed on")


@pytest.mark.slow
def test_who_stops_in_the_middle_of_a_body_or_a_header_is_hung_up_on(proxy: Proxy) -> None:
    half_a_header = TRUSTING.wrap_socket(socket.create_connection(("127.0.0.1", proxy.https_port), timeout=30))
    half_a_header.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127")
    begun = time.monotonic()
    with half_a_header, dribbling(proxy) as opened:
        for each in [*opened, half_a_header]:
            with suppress(OSError):
                while each.recv(4096):
                    pass
    assert 5 < time.monotonic() - begun < 25


# What is large, or too often -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_a_body_beyond_the_limit_is_refused_before_it_is_sent_or_stored(proxy: Proxy, web: WebProcess) -> None:
    before = web.log.read_text()
    announced = TRUSTING.wrap_socket(socket.create_connection(("127.0.0.1", proxy.https_port), timeout=30))
    with announced:
        announced.sendall(b"POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 300000000\r\n\r\n")
        response = http.client.HTTPResponse(announced)
        response.begin()
        assert (response.status, response.getheader("Content-Type")) == (413, "application/problem+json")
        body = json.loads(response.read())
    assert (body["type"].rsplit("/", 1)[1], body["status"], body["outcome"]) == ("body-too-large", 413, "not_executed")
    assert web.log.read_text()[len(before) :].count("POST /admin/login/") == 0


@pytest.mark.slow
@pytest.mark.check
def test_logins_are_limited_per_address_and_nothing_else_is(proxy: Proxy) -> None:
    statuses = [proxy.ask("POST", "/admin/login/", b"username=mara&password=x")[0] for _ in range(12)]
    assert statuses[:6] == [403] * 6, "refused by the application, for want of a CSRF token"
    assert statuses.count(429) >= 5
    status, headers, content = proxy.ask("POST", "/admin/login/", b"username=mara&password=x")
    assert (status, headers["content-type"], headers["retry-after"]) == (429, "application/problem+json", "6")
    assert json.loads(content)["type"].endswith("/too-many-requests")
    assert proxy.ask("GET", "/admin/login/")[0] == 200
    assert [proxy.ask("GET", "/v1/schema")[0] for _ in range(30)] == [200] * 30


# What is passed on -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_pages_know_that_they_are_served_over_https(proxy: Proxy) -> None:
    status, headers, _ = proxy.ask("GET", "/admin/login/")
    assert (status, headers["strict-transport-security"]) == (200, "max-age=31536000")
    assert "Secure" in headers["set-cookie"]


@pytest.mark.slow
@pytest.mark.check
def test_the_api_is_https_only_too(proxy: Proxy, web: WebProcess) -> None:
    assert proxy.ask("GET", "/v1/")[1]["strict-transport-security"] == "max-age=31536000"
    # Behind a proxy that adds nothing, too.
    for scheme, expected in (("https", "max-age=31536000"), ("http", None)):
        request = urllib.request.Request(f"{web.url}/v1/", headers={"X-Forwarded-Proto": scheme})
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.headers["Strict-Transport-Security"] == expected


@pytest.mark.slow
@pytest.mark.check
def test_the_client_is_who_connects_to_the_proxy_whatever_it_says(proxy: Proxy, web: WebProcess) -> None:
    proxy.ask("GET", "/v1/schema", X_Forwarded_For="203.0.113.9", X_Request_Id="forged-1")
    wait_until(lambda: "request_id=forged-1" in web.log.read_text(), "logged")
    (line,) = [line for line in web.log.read_text().splitlines() if "request_id=forged-1" in line]
    assert " client=127.0.0.1 " in line


@pytest.mark.slow
@pytest.mark.check
def test_plain_http_leads_to_https_but_takes_no_key(proxy: Proxy) -> None:
    found = []
    for path in ("/admin/?a=1", "/v1/holders"):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.http_port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        found.append((response.status, response.getheader("Location"), response.getheader("Content-Type")))
        connection.close()
    assert found[0][:2] == (308, f"https://127.0.0.1:{proxy.https_port}/admin/?a=1")
    assert found[1] == (403, None, "application/problem+json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "are_listed", [pytest.param(False, id="by name", marks=pytest.mark.check), pytest.param(True, id="listed")]
)
def test_calls_and_pages_go_to_their_own_servers(
    web: WebProcess, server_processes: Callable[..., list[WebProcess]], are_listed: bool
) -> None:
    (calls,), pages = server_processes(1, env=WEB_ENVIRONMENT, application=CALLS), web
    said = len(pages.log.read_text())
    listed = {"WEB_SERVERS": f"127.0.0.1:{port_of(calls)}"} if are_listed else {}
    to_calls = ["/v1/", "/v1/schema", "/problems/not-found", "/readyz"]
    to_pages = ["/admin/login/", "/docs/api", "/static/admin/js/core.js", "/"]
    with nginx(port_of(calls), PAGES_PORT=str(port_of(pages)), **listed) as proxy:
        assert [proxy.ask("GET", path)[0] for path in (*to_calls, *to_pages)] == [200] * 7 + [302]
    for server, begin, paths, others in ((calls, 0, to_calls, to_pages), (pages, said, to_pages, to_calls)):

        def logged(server: WebProcess = server, begin: int = begin) -> str:
            return server.log.read_text()[begin:]

        wait_until(lambda logged=logged, paths=paths: all(f"GET {path} " in logged() for path in paths), "logged")
        assert not any(f"GET {path} " in logged() for path in others)


# One of two web servers stops ------------------------------------------------------------------------


def spend_through(proxy: Proxy, holder: str, key: str, count: int, stop: Callable[[], None]) -> Counter[tuple[int, str]]:
    """Spend credits by 16 clients, and stop a web server after a third; return how often each status and problem came."""
    spent = itertools.count()
    found: Counter[tuple[int, str]] = Counter()

    def client(number: int) -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.https_port, context=TRUSTING, timeout=60)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        while (index := next(spent)) < count:
            if index == count // 3:
                stop()
            headers["Idempotency-Key"] = f"spend-{index}"
            connection.request("POST", f"/v1/holders/{holder}/spends", b'{"amount": 1}', headers)
            response = connection.getresponse()
            body = json.loads(response.read())
            found[response.status, body.get("type", "").rsplit("/", 1)[-1]] += 1
        connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(16)))
    return found


@pytest.fixture
def workers() -> int:
    """How many processes each of two web servers has."""
    return 2


@pytest.fixture
def two_webs(server_processes: Callable[..., list[WebProcess]], workers: int) -> list[WebProcess]:
    """Two web servers with the settings of compose."""
    return server_processes(2, env=WEB_ENVIRONMENT, workers=workers)


def stopped_under_load(
    webs: list[WebProcess], holder: str, count: int, change: Callable[[str], str] = lambda text: text
) -> Counter[tuple[int, str]]:
    """What clients of two web servers see while the first is stopped."""
    services.grant(holder_id=holder, amount=count, idempotency_key="grant")
    _, key = api_keys.create_api_key(name=holder, scopes=["ledger:spend"])
    servers = " ".join(f"127.0.0.1:{port_of(web)}" for web in webs)
    with nginx(port_of(webs[0]), change, WEB_SERVERS=servers) as proxy:
        found = spend_through(proxy, holder, key, count, webs[0].process.terminate)
    assert webs[0].process.wait(60) == 0
    assert webs[1].process.poll() is None
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "count"), [pytest.param(1, 500, marks=pytest.mark.check), (2, 10_000)])
def test_no_request_fails_when_one_of_two_web_servers_is_stopped(
    two_webs: list[WebProcess], new_holder: Callable[[], str], count: int
) -> None:
    holder = new_holder()
    assert stopped_under_load(two_webs, holder, count) == {(201, ""): count}
    last = Entry.objects.filter(holder_id=holder).order_by("-sequence")[0]
    assert (last.sequence, last.balance) == (count + 1, 0)


@pytest.mark.slow
def test_control_without_another_try_requests_fail_that_no_web_server_got(
    two_webs: list[WebProcess], new_holder: Callable[[], str]
) -> None:
    found = stopped_under_load(
        two_webs, new_holder(), 1_500, lambda text: text.replace("proxy_next_upstream error timeout", "proxy_next_upstream off")
    )
    assert found[503, "server-unavailable"] > 0


def at_once(configuration: str) -> str:
    """The configuration with names that are looked up again after a second."""
    return configuration.replace("valid=5s", "valid=1s")


@pytest.mark.slow
def test_a_name_of_web_servers_is_looked_up_again(web: WebProcess) -> None:
    """As in compose, where the name `web` leads to other addresses after a restart."""
    by_name = {"WEB_HOST": "web.test", "WEB_PORT": str(port_of(web))}
    with name_server() as names, nginx(0, at_once, **by_name, NGINX_RESOLVER=names.address) as proxy:
        assert proxy.ask("GET", "/healthz")[0] == 200
        names.addresses["web.test"] = []
        wait_until(lambda: proxy.ask("GET", "/healthz")[0] == 503, "the address is forgotten")
        names.addresses["web.test"] = ["127.0.0.1"]
        wait_until(lambda: proxy.ask("GET", "/healthz")[0] == 200, "it is looked up again")


def test_a_web_server_that_is_away_is_a_problem_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as aside:
        port = listener.getsockname()[1]
        answering = aside.submit(answer_health_then_hang_up, listener)
        with nginx(port) as proxy:
            proxy.ask("POST", "/")
            answering.result(60)
            listener.close()
            assert not is_listening(port)
            assert_refused_by_the_proxy(proxy)


def assert_refused_by_the_proxy(proxy: Proxy) -> None:
    """Assert that nothing was passed on, and that the proxy says so."""
    # Metrics are for who asks the web servers themselves: nothing is passed on, so the proxy answers by itself.
    assert proxy.ask("GET", "/metrics")[0] == 404
    for method in ("GET", "POST"):
        status, headers, content = proxy.ask(method, "/v1/schema")
        assert (status, headers["content-type"], headers["retry-after"]) == (503, "application/problem+json", "1")
        problem = json.loads(content)
        assert (problem["type"].rsplit("/", 1)[1], problem["outcome"]) == ("server-unavailable", "not_executed")
        assert headers["strict-transport-security"] == "max-age=31536000"


def is_listening(port: int) -> bool:
    """Whether a connection can be made."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_web_server_that_ends_with_a_request_leaves_its_outcome_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as aside:
        aside.submit(answer_health_then_hang_up, listener)
        with nginx(listener.getsockname()[1]) as proxy:
            status, _, content = proxy.ask("POST", "/v1/holders/ada/spends", b"{}")
    assert (status, json.loads(content)["type"].rsplit("/", 1)[1]) == (503, "outcome-unknown")
    assert json.loads(content)["outcome"] == "unknown"


def answer_health_then_hang_up(listener: socket.socket) -> None:
    """Answer until a POST has come; close its connection instead."""
    while True:
        accepted, _ = listener.accept()
        with accepted:
            head = accepted.recv(65_536)
            if head.startswith(b"POST"):
                return
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


@pytest.mark.parametrize("host", ["ledger.example", "127.0.0.1"])
def test_plain_http_leads_to_the_port_of_https_at_hosts_of_ours_only(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as aside:
        aside.submit(answer_health_then_hang_up, listener)
        with nginx(listener.getsockname()[1], NGINX_HOSTS="ledger.example,127.0.0.1", NGINX_PUBLIC_PORT="8443") as proxy:
            assert redirect(proxy, host) == (308, f"https://{host}:8443/admin/?a=1")
            assert redirect(proxy, f"{host}:8080") == (308, f"https://{host}:8443/admin/?a=1")
            assert redirect(proxy, "evil.example") == (400, None)
            proxy.ask("POST", "/")


def redirect(proxy: Proxy, host: str) -> tuple[int, str | None]:
    """Status and Location of the response to plain HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.http_port, timeout=60)
    connection.request("GET", "/admin/?a=1", headers={"Host": host})
    response = connection.getresponse()
    connection.close()
    return response.status, response.getheader("Location")


# Clients that close half of the connection ---------------------------------------------------------------


def first_line_after_half_closing(proxy: Proxy) -> bytes:
    """Send a request that is executed for some time, close the sending half; the first line of the response, or nothing."""
    with TRUSTING.wrap_socket(socket.create_connection(("127.0.0.1", proxy.https_port), timeout=30)) as connection:
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        # Of the socket itself: that of TLS would also forget how to read.
        socket.socket.shutdown(connection, socket.SHUT_WR)
        received = b""
        with suppress(ConnectionResetError, ssl.SSLEOFError):
            while part := connection.recv(65536):
                received += part
        return received.partition(b"\r\n")[0]


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("is_shipped", [True, False], ids=["as shipped", "control: as nginx comes"])
def test_a_client_that_closes_its_sending_half_gets_its_response(web: WebProcess, is_shipped: bool) -> None:
    with nginx(port_of(web), lambda text: text if is_shipped else text.replace("proxy_ignore_client_abort on;", "")) as proxy:
        found = {first_line_after_half_closing(proxy) for _ in range(15)}
    if is_shipped:
        assert found == {b"HTTP/1.1 200 OK"}
    else:
        assert found != {b"HTTP/1.1 200 OK"}
