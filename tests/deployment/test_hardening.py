"""What a stranger on the network, or a page in a browser, cannot do: other hosts, odd methods, scripts from elsewhere."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from django.conf import settings

from tests.asgi_client import AsgiClient
from tests.browser.chromium import Chromium, Visit
from tests.conftest import WebProcess

ROOT = Path(settings.BASE_DIR)


@pytest.mark.parametrize("path", ["/v1/schema", "/v1/holders", "/v1/nothing", "/problems/not-found", "/docs/api", "/admin/"])
def test_another_host_is_refused_everywhere(path: str) -> None:
    client = AsgiClient(headers={"host": "evil.example"})
    response = client.get(path)
    assert response.status_code == 400
    if not path.startswith("/admin"):
        assert response.json()["errors"] == [
            {"pointer": "", "code": "host", "detail": "This server does not serve the host in the Host header."}
        ]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_probes_may_use_an_ip_address_as_host(path: str, committed_db: None) -> None:
    assert AsgiClient(on_this_connection=True, headers={"host": "10.1.2.3:8000"}).get(path).status_code == 200


ODD = [
    "CONNECT 127.0.0.1:80 HTTP/1.1",
    "CONNECT /v1/holders HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "OPTIONS /v1/holders HTTP/1.1",
    "TRACE / HTTP/1.1",
    "TRACE /v1/holders HTTP/1.1",
    "PROPFIND / HTTP/1.1",
    "FOO /v1/holders HTTP/1.1",
    "POST / HTTP/1.1",
    "PATCH /docs/api HTTP/1.1",
    "GET //v1/holders HTTP/1.1",
    "GET /v1/%ff HTTP/1.1",
]


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.usefixtures("committed_db")
def test_odd_requests_get_a_problem_body(server_processes: Callable[..., list[WebProcess]]) -> None:
    (web,) = server_processes(1)
    found = {line: _ask(web, f"{line}\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") for line in ODD}
    assert {line: response for line, response in found.items() if not re.match(r"HTTP/1.1 4\d\d ", response)} == {}
    assert {line: response for line, response in found.items() if "content-type: application/problem+json" not in response} == {}
    assert {line: response for line, response in found.items() if '"type":"https://credit-ledger.' not in response} == {}


def _ask(web: WebProcess, request: str) -> str:
    """Everything that the server sends back."""
    address = urlsplit(web.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as client:
        client.sendall(request.encode())
        response = b""
        while part := client.recv(65536):
            response += part
    return response.decode()


# What a browser is told ------------------------------------------------------------------------------


def test_the_policy_lets_pages_load_from_here_only_and_the_documentation_evaluate_nothing() -> None:
    policies = {path: AsgiClient().get(path)["Content-Security-Policy"] for path in ("/admin/login/", "/docs/api")}
    common = {
        "default-src 'self'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data:", "object-src 'none'",
        "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'",
    }  # fmt: skip
    found = {path: set(policy.split("; ")) for path, policy in policies.items()}
    assert found == {"/admin/login/": common | {"script-src 'self' 'unsafe-eval'"}, "/docs/api": common | {"script-src 'self'"}}


@pytest.mark.slow
@pytest.mark.usefixtures("committed_db")
def test_the_pages_work_under_the_policy_without_a_complaint_of_the_browser(
    server_processes: Callable[..., list[WebProcess]], chromium: Chromium
) -> None:
    (web,) = server_processes(1)
    for path, shown in (("/docs/api", "[id^=operations-]"), ("/admin/login/", "[name=password]")):

        def complaints(visit: Visit, shown: str = shown) -> list[str]:
            visit.page.wait_for_selector(shown)
            return [*visit.complaints, *visit.elsewhere]

        assert chromium.visit(web.url + path, complaints) == [], path


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_the_settings_of_compose_leave_djangos_deployment_check_nothing_to_warn_of(broken: bool) -> None:
    """The control: without HTTPS the same check warns."""
    given = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["web"]["environment"]
    names = ("LEDGER_HTTPS", "LEDGER_TRUSTED_PROXIES", "DATABASE_BEHIND_PGBOUNCER", "ALLOWED_HOSTS")
    environment = {
        "PATH": os.environ["PATH"],
        "SECRET_KEY": "0123456789abcdefghijklmnopqrstuvwxyz" * 2,
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        **{name: re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", str(given[name])) for name in names},
        **({"LEDGER_HTTPS": "false"} if broken else {}),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if broken:
        assert done.returncode == 1
        assert {"security.W004", "security.W008", "security.W012", "security.W016"} == set(
            re.findall(r"security\.W\d+", done.stderr)
        )
    else:
        # There is no such database here, and the check says so.
        assert re.findall(r"\b\w+\.[WE]\d{3}\b", done.stderr) == ["ledger.W007"]


@pytest.mark.slow
def test_behind_the_proxy_pages_are_served_over_https_only_with_secure_cookies() -> None:
    script = (
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "plain = Client(headers={'host': '127.0.0.1'}).get('/admin/login/')\n"
        "secure = Client(headers={'host': '127.0.0.1', 'x-forwarded-proto': 'https'}).get('/admin/login/')\n"
        "print(plain.status_code, plain['Location'])\n"
        "print(secure.status_code, secure['Strict-Transport-Security'], secure.cookies['csrftoken']['secure'])\n"
    )
    environment = {
        "PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "ledger_project.settings", "SECRET_KEY": "x",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing", "LEDGER_HTTPS": "true",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "301 https://127.0.0.1/admin/login/\n200 max-age=31536000 True\n"
