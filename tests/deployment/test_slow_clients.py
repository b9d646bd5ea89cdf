"""Clients that send slowly, a holder who stays locked, and a database that stands still cost the others nothing.

Against a web server as production runs it. The light tests run in the suite; `pytest -m slow` runs them with a thousand.
"""

import http.client
import json
import socket
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ledger import services
from ledger.database.locks import holder_key, lock_number
from ledger.keys import api_keys
from ledger.rest.kit.front.application import BODY_SECONDS
from ledger.services.group_commit import WAITING_PER_HOLDER
from tests.conftest import WebProcess, database_url
from tests.nodes import lock_holder, waiting_for_advisory_lock

pytestmark = pytest.mark.usefixtures("committed_db")

Start = Callable[..., list[WebProcess]]
Connect = Callable[..., psycopg.Connection[Any]]


class Server:
    """A web process, a key for it, and holders with credits."""

    def __init__(self, web: WebProcess) -> None:
        address = urlsplit(web.url)
        self.address = (str(address.hostname), int(address.port or 80))
        _, self.key = api_keys.create_api_key(name=f"slow-{uuid.uuid4().hex}", scopes=["ledger:spend", "ledger:read"])

    def head(self, path: str, length: int) -> bytes:
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.key}\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: {uuid.uuid4().hex}\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def open(self, sent: bytes) -> socket.socket:
        """A connection on which so much has been sent."""
        wire = socket.create_connection(self.address, timeout=30)
        wire.sendall(sent)
        return wire

    def spend(self, holder: str) -> tuple[int, float]:
        """Spend 1 credit; the status, and how long it took."""
        return self.ask("POST", f"/v1/holders/{holder}/spends", {"amount": 1})

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, float]:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        headers = {
            "Authorization": f"Bearer {self.key}", "Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"
        }  # fmt: skip
        start = time.perf_counter()
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, time.perf_counter() - start


@pytest.fixture
def server(server_processes: Start) -> Server:
    """A web process, which logs warnings only."""
    return Server(server_processes(1, env={"LEDGER_LOG_LEVEL": "WARNING"})[0])


@pytest.fixture
def rich_holder(new_holder: Callable[[], str]) -> Callable[[], str]:
    """Makes holders with 100,000 credits."""

    def make() -> str:
        holder = new_holder()
        services.grant(holder_id=holder, amount=100_000, idempotency_key="grant")
        return holder

    return make


@contextmanager
def dribbling(server: Server, count: int) -> Iterator[list[socket.socket]]:
    """For the block, `count` clients send bodies a byte at a time: half of them a login without credentials, half a spend."""
    stop = threading.Event()
    login = server.head("/admin/login/", 5_000).replace(b"application/json", b"application/x-www-form-urlencoded")
    with ExitStack() as stack:
        wires = [
            stack.enter_context(server.open(login if number % 2 else server.head("/v1/holders/slow/spends", 5_000)))
            for number in range(count)
        ]

        def dribble() -> None:
            while not stop.wait(0.2):
                for wire in wires:
                    with suppress(OSError):
                        wire.send(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            yield wires
        finally:
            stop.set()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("clients", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_slow_bodies_cost_the_others_nothing(server: Server, rich_holder: Callable[[], str], clients: int) -> None:
    holder = rich_holder()
    assert server.spend(holder)[0] == 201
    with dribbling(server, clients):
        health = [server.ask("GET", "/healthz") for _ in range(10)]
        spends = [server.spend(holder) for _ in range(10)]
    assert [status for status, _ in health] == [200] * 10
    assert statistics.median(seconds for _, seconds in health) < BODY_SECONDS / 2
    assert [status for status, _ in spends] == [201] * 10


@pytest.mark.slow
def test_a_body_that_takes_too_long_gets_a_408_and_its_connection_ends(server: Server) -> None:
    with dribbling(server, 2) as wires:
        for wire in wires:
            wire.settimeout(BODY_SECONDS + 20)
            assert wire.recv(65536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
@pytest.mark.parametrize("waiters", [WAITING_PER_HOLDER + 40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_stuck_holder_costs_the_others_nothing_and_beyond_a_bound_its_callers_are_refused_at_once(
    server: Server, rich_holder: Callable[[], str], raw_connection: Connect, waiters: int
) -> None:
    stuck, free = rich_holder(), rich_holder()
    assert server.spend(free)[0] == 201
    gate = raw_connection()
    lock_holder(gate, stuck)
    body = b'{"amount": 1}'
    with ExitStack() as stack:
        request = server.head(f"/v1/holders/{stuck}/spends", len(body)) + body
        wires = []
        for _ in range(waiters):
            fresh = request.replace(request.split(b"Idempotency-Key: ")[1][:32], uuid.uuid4().hex.encode())
            wires.append(stack.enter_context(server.open(fresh)))
        spends = [server.spend(free) for _ in range(10)]
        assert [status for status, _ in spends] == [201] * 10
        statuses = Counter(int(wire.recv(65536)[9:12]) for wire in wires)
    gate.rollback()
    assert statuses == {503: waiters}, "the lock was not free within 2.5 s"
    rows = raw_connection(autocommit=True).execute("SELECT count(*) FROM ledger_entry WHERE holder_id = %s", [stuck])
    assert rows.fetchone() == (1,)
    assert server.spend(stuck)[0] == 201


@pytest.mark.slow
@pytest.mark.check
def test_a_server_that_gets_sigterm_finishes_what_it_has_taken_in(
    server_processes: Start, rich_holder: Callable[[], str], raw_connection: Connect
) -> None:
    (web,) = server_processes(1)
    server, holder = Server(web), rich_holder()
    gate, observer = raw_connection(), raw_connection(autocommit=True)
    number = lock_number(holder_key(holder))
    lock_holder(gate, holder)
    body = b'{"amount": 1}'
    with server.open(server.head(f"/v1/holders/{holder}/spends", len(body)) + body) as wire:
        deadline = time.monotonic() + 30
        while not waiting_for_advisory_lock(observer, number):
            assert time.monotonic() < deadline
        web.process.terminate()
        gate.rollback()
        assert wire.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert web.process.wait(30) == 0


class Proxy:
    """A way to the database that can be made to carry nothing for a while."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._is_open = threading.Event()
        self._is_open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._wires: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connected()
                self._wires += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _connected(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            return socket.create_connection(self._target)
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._is_open.wait()
                target.sendall(data)
        for wire in (source, target):
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    def close(self) -> None:
        self._is_open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for wire in self._wires:
            wire.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before PostgreSQL, which can hold back what it passes on."""
    found = psycopg.conninfo.conninfo_to_dict(database_url("application"))
    made = Proxy(str(found.get("host") or "127.0.0.1"), int(found.get("port") or 5432))
    yield made
    made.close()


@pytest.mark.slow
def test_while_the_database_stands_still_the_health_check_gets_its_response(
    server_processes: Start, rich_holder: Callable[[], str], proxy: Proxy
) -> None:
    (web,) = server_processes(1, dsn=database_url("application", host="127.0.0.1", port=proxy.port))
    server, holder = Server(web), rich_holder()
    assert server.spend(holder)[0] == 201
    body = b'{"amount": 1}'
    request = server.head(f"/v1/holders/{holder}/spends", len(body)) + body
    with proxy.paused(), server.open(request) as wire:
        # Whatever is answered here has not waited for the database.
        assert {server.ask("GET", "/healthz")[0] for _ in range(20)} == {200}
    del wire
    assert server.spend(holder)[0] == 201
