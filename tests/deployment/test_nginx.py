"""The proxy of docker-compose.yml, run natively before a web server: what is slow, large or too often ends at the proxy."""

import http.client
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.conftest import WebProcess
from tests.deployment.proxy import IS_THERE, TRUSTING, WEB_ENVIRONMENT, Proxy, nginx
from tests.deployment.serving.test_serve import wait_until

pytestmark = pytest.mark.skipif(not IS_THERE, reason="there is no nginx or no openssl: apt install nginx-light openssl")

SLOW_CONNECTIONS = 200


def port_of(web: WebProcess) -> int:
    """The port of a web server."""
    return int(web.url.rsplit(":", 1)[1])


@pytest.fixture
def web(server_processes: Callable[..., list[WebProcess]]) -> WebProcess:
    """A web server with the settings of compose."""
    return server_processes(1, env=WEB_ENVIRONMENT)[0]


@pytest.fixture
def proxy(web: WebProcess) -> Iterator[Proxy]:
    """nginx before it."""
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


def test_while_200_connections_send_bodies_a_byte_at_a_time_other_requests_take_less_than_a_second(proxy: Proxy) -> None:
    took_s = []
    with dribbling(proxy) as opened:
        for _ in range(10):
            for each in opened:
                each.sendall(b"x")
            begun = time.monotonic()
            assert proxy.ask("GET", "/healthz")[0] == 200
            took_s.append(time.monotonic() - begun)
        assert proxy.passed_on() < 10
    assert statistics.median(took_s) < 1


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


def test_a_body_beyond_the_limit_is_refused_before_it_is_sent_or_stored(proxy: Proxy, web: WebProcess) -> None:
    announced = TRUSTING.wrap_socket(socket.create_connection(("127.0.0.1", proxy.https_port), timeout=30))
    with announced:
        announced.sendall(b"POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 300000000\r\n\r\n")
        response = http.client.HTTPResponse(announced)
        response.begin()
        assert (response.status, response.getheader("Content-Type")) == (413, "application/problem+json")
        body = json.loads(response.read())
    assert (body["type"].rsplit("/", 1)[1], body["status"], body["outcome"]) == ("body-too-large", 413, "not_executed")
    assert "/admin/login/" not in web.log.read_text()


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


def test_pages_know_that_they_are_served_over_https(proxy: Proxy) -> None:
    status, headers, _ = proxy.ask("GET", "/admin/login/")
    assert (status, headers["strict-transport-security"]) == (200, "max-age=31536000")
    assert "Secure" in headers["set-cookie"]


def test_the_client_is_who_connects_to_the_proxy_whatever_it_says(proxy: Proxy, web: WebProcess) -> None:
    proxy.ask("GET", "/v1/schema", X_Forwarded_For="203.0.113.9", X_Request_Id="forged-1")
    wait_until(lambda: "request_id=forged-1" in web.log.read_text(), "logged")
    (line,) = [line for line in web.log.read_text().splitlines() if "request_id=forged-1" in line]
    assert " client=127.0.0.1 " in line


def test_plain_http_leads_to_https_but_takes_no_key(proxy: Proxy) -> None:
    found = []
    for path in ("/admin/?a=1", "/v1/holders"):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.http_port, timeout=20)
        connection.request("GET", path)
        response = connection.getresponse()
        found.append((response.status, response.getheader("Location"), response.getheader("Content-Type")))
        connection.close()
    assert found[0][:2] == (308, "https://127.0.0.1/admin/?a=1")
    assert found[1] == (403, None, "application/problem+json")


def test_a_web_server_that_is_away_is_a_problem_that_says_so(proxy: Proxy, web: WebProcess) -> None:
    web.kill()
    # Metrics are for who asks the web servers themselves: nothing is passed on, so the proxy answers by itself.
    assert proxy.ask("GET", "/metrics")[0] == 404
    status, headers, content = proxy.ask("GET", "/v1/schema")
    assert (status, headers["content-type"], headers["retry-after"]) == (503, "application/problem+json", "1")
    assert (json.loads(content)["type"].rsplit("/", 1)[1], json.loads(content)["outcome"]) == ("outcome-unknown", "unknown")
