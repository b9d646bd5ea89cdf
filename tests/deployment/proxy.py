"""nginx before a web server, with the configuration that docker-compose.yml gives it, run natively."""

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
NGINX_PATH = f"{os.environ['PATH']}:/usr/sbin"
IS_THERE = shutil.which("nginx", path=NGINX_PATH) is not None and shutil.which("openssl") is not None
TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname = False
TRUSTING.verify_mode = ssl.CERT_NONE
WEB_ENVIRONMENT = {"LEDGER_HTTPS": "true", "LEDGER_TRUSTED_PROXIES": "1"}
"""What compose tells the web server of its proxy."""


@dataclass
class Proxy:
    """nginx before a web server."""

    https_port: int
    http_port: int
    web_port: int

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer over HTTPS."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.https_port, context=TRUSTING, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def passed_on(self) -> int:
        """How many connections to the web server there are."""
        port = f":{self.web_port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[2].endswith(port) and row[3] == "01" for row in rows)


@contextmanager
def nginx(web_port: int, change: Callable[[str], str] = lambda text: text, **more: str) -> Iterator[Proxy]:
    """For the block, nginx as its image runs it; with another configuration where a control wants that.

    Args:
        web_port: of the web server on the loopback, which does everything.
        more: environment variables instead of those for one such server.
    """
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    for name in ("start", "nginx.conf"):
        shutil.copy(ROOT / "deploy/nginx" / name, folder)
    template = folder / "nginx.conf"
    template.write_text(change(template.read_text()))
    proxy = Proxy(free_port(), free_port(), web_port)
    environment = {
        "PATH": NGINX_PATH,
        "NGINX_DIR": str(folder / "run"),
        "NGINX_ADDRESS": "127.0.0.1",
        "NGINX_HTTPS_PORT": str(proxy.https_port),
        "NGINX_HTTP_PORT": str(proxy.http_port),
        "WEB_HOST": "127.0.0.1",
        "WEB_PORT": str(web_port),
        "PAGES_PORT": str(web_port),
        "NGINX_PUBLIC_PORT": str(proxy.https_port),
        **more,
    }
    log = folder / "log"
    with log.open("wb") as output:
        subprocess.run([folder / "start", "-t"], env=environment, stdout=output, stderr=output, check=True)
        process = subprocess.Popen([folder / "start"], env=environment, stdout=output, stderr=output)
    try:
        _wait_until_ready(proxy, process, log)
        yield proxy
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


class Names:
    """A name server for one type of question, the IPv4 addresses of a name; what it answers can be changed."""

    def __init__(self, wire: socket.socket) -> None:
        self.addresses: dict[str, list[str]] = {"web.test": ["127.0.0.1"]}
        self.address = f"127.0.0.1:{wire.getsockname()[1]}"
        self._wire = wire

    def serve(self) -> None:
        """Answer until an empty packet comes."""
        while True:
            query, sender = self._wire.recvfrom(512)
            if not query:
                return
            self._wire.sendto(self._answer(query), sender)

    def _answer(self, query: bytes) -> bytes:
        labels, place = [], 12
        while length := query[place]:
            labels.append(query[place + 1 : place + 1 + length].decode())
            place += 1 + length
        question = query[12 : place + 5]
        found = self.addresses.get(".".join(labels), [])
        # A pointer to the name of the question, type A, class IN, 0 s to live, 4 bytes. Without an address: no such name.
        records = b"".join(b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(each) for each in found)
        flags = b"\x81\x80" if found else b"\x81\x83"
        return query[:2] + flags + b"\0\x01" + len(found).to_bytes(2, "big") + b"\0\0\0\0" + question + records


@contextmanager
def name_server() -> Iterator[Names]:
    """For the block, a name server answers on the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        names = Names(wire)
        answering = threading.Thread(target=names.serve)
        answering.start()
        try:
            yield names
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", wire.getsockname())
            answering.join()


def _wait_until_ready(proxy: Proxy, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return as soon as the proxy answers; fail with its log when it ends first."""
    deadline = time.monotonic() + 120
    while not _answers(proxy):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text())
        time.sleep(0.05)


def _answers(proxy: Proxy) -> bool:
    """Whether the server behind the proxy answers."""
    with suppress(OSError):
        return proxy.ask("GET", "/healthz")[0] == 200
    return False
