"""The load: many keep-alive clients in one process, which spends as little as it can.

    python -m tests.benchmarks.clients < load.json

Each client sends its next request when it has the response to the last one. Prints the outcome as JSON.
"""

import heapq
import json
import random
import select
import socket
import ssl
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field

SLOW_SECONDS = 1.5
"""A response that takes longer is counted as slow."""
TRUSTING = ssl.create_default_context()
"""Accepts any server certificate: the proxy's certificate is made for the occasion."""
TRUSTING.check_hostname = False
TRUSTING.verify_mode = ssl.CERT_NONE


@dataclass(frozen=True)
class Load:
    """What is asked of a server.

    `headers` are lines beside the usual ones. `path` and `body` may contain {holder}, which is `prefix` and a random number below
    `holders`, and {number}, which is new in every request. Stops after `seconds`, or after `requests` where that is given.
    `is_patient` clients close their connection and send nothing for as long as a 503's Retry-After says.
    """

    port: int
    path: str
    method: str = "POST"
    tls: bool = False
    body: str = ""
    key: str = ""
    headers: str = ""
    clients: int = 16
    seconds: float = 2.0
    requests: int = 0
    prefix: str = "bench-"
    holders: int = 1
    is_patient: bool = False
    seed: int = field(default_factory=lambda: random.getrandbits(32))


@dataclass
class Outcome:
    """What came of it. Latencies in milliseconds."""

    answered: int
    seconds: float
    statuses: dict[str, int]
    cpu_seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    slow: int = 0
    """How many 2xx responses took longer than SLOW_SECONDS."""
    first_bad: str = ""

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds


def send_load(load: Load) -> Outcome:
    """Put the load on the server and wait until every request that was begun is answered."""
    sockets = [_connected(load) for _ in range(load.clients)]
    poll = select.epoll()
    by_number = {}
    for each in sockets:
        poll.register(each.fileno(), select.EPOLLIN)
        by_number[each.fileno()] = each
    try:
        return _exchange(load, poll, by_number)
    finally:
        for each in by_number.values():
            each.close()


def _connected(load: Load) -> socket.socket:
    """A connection to the server."""
    made = socket.create_connection(("127.0.0.1", load.port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return TRUSTING.wrap_socket(made) if load.tls else made


def _received(connection: socket.socket) -> bytes:
    """What has come; over TLS all that has, since the socket is quiet about what has been read from it already."""
    received = connection.recv(65536)
    while isinstance(connection, ssl.SSLSocket) and connection.pending():
        received += connection.recv(65536)
    return received


def _exchange(load: Load, poll: select.epoll, by_number: dict[int, socket.socket]) -> Outcome:
    """Send requests on all connections until the time is over; count responses and latencies."""
    chance, run = random.Random(load.seed), uuid.uuid4().hex[:12]
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    begun: dict[int, float] = {}
    resting: list[float] = []
    """When the clients that rest come back. They close their connections: the server does so with those that rest for long."""
    partial: dict[int, bytes] = {}
    sent, slow, first_bad = 0, 0, ""
    start, cpu_start = time.perf_counter(), time.process_time()
    deadline = start + load.seconds

    def send(number: int) -> None:
        nonlocal sent
        begun[number] = time.perf_counter()
        by_number[number].sendall(_request(load, f"{load.prefix}{chance.randrange(load.holders)}", f"{run}-{sent}"))
        sent += 1

    def connected() -> int:
        made = _connected(load)
        by_number[made.fileno()] = made
        poll.register(made.fileno(), select.EPOLLIN)
        return made.fileno()

    for number in by_number:
        send(number)
    while begun or resting:
        while resting and resting[0] <= time.perf_counter():
            heapq.heappop(resting)
            send(connected())
        for number, _ in poll.poll(max(0.0, resting[0] - time.perf_counter()) if resting else None):
            received = partial.pop(number, b"") + _received(by_number[number])
            if not received:
                raise ConnectionError("the server closed a connection")
            if not _is_whole(received):
                partial[number] = received
                continue
            now = time.perf_counter()
            latencies.append(now - begun.pop(number))
            status = received[9:12].decode()
            statuses[status] += 1
            slow += status[0] == "2" and latencies[-1] > SLOW_SECONDS
            if b"\r\nConnection: close\r\n" in received:  # a proxy, after a thousand requests
                by_number.pop(number).close()
                number = connected()
            if status[0] not in "23" and not first_bad:
                first_bad = received.decode(errors="replace")
            if (load.requests and sent < load.requests) or (not load.requests and now < deadline):
                if load.is_patient and status == "503":
                    by_number.pop(number).close()
                    heapq.heappush(resting, now + _retry_after(received))
                else:
                    send(number)
    latencies.sort()
    at = lambda share: round(latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1e3, 3)  # noqa: E731
    return Outcome(
        answered=sum(count for status, count in statuses.items() if status[0] == "2"),
        seconds=time.perf_counter() - start,
        statuses=dict(statuses),
        cpu_seconds=time.process_time() - cpu_start,
        p50_ms=at(0.5), p95_ms=at(0.95), p99_ms=at(0.99), slow=slow,
        first_bad=first_bad,
    )  # fmt: skip


def _request(load: Load, holder: str, number: str) -> bytes:
    """The bytes of a request."""
    path = load.path.replace("{holder}", holder)
    body = load.body.replace("{holder}", holder).replace("{number}", number)
    keyed = f"Idempotency-Key: {number}\r\n" if load.method == "POST" else ""
    more = f"{load.headers}\r\n" if load.headers else ""
    typed = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{load.method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {load.key}\r\n{keyed}{typed}{more}\r\n{body}"
    ).encode()


def _is_whole(received: bytes) -> bool:
    """True when the response is received to its end."""
    head, blank, body = received.partition(b"\r\n\r\n")
    if not blank:
        return False
    at = head.lower().find(b"content-length:")
    if at < 0 and head[9:12] == b"304":
        return True
    if at < 0:
        raise ValueError(f"an answer without its length: {head.decode(errors='replace')}")
    return len(body) >= int(head[at + 15 :].split(b"\r\n", 1)[0])


def _retry_after(received: bytes) -> int:
    """The seconds of the header Retry-After."""
    head = received.partition(b"\r\n\r\n")[0].lower()
    return int(head.partition(b"\r\nretry-after:")[2].split(b"\r\n", 1)[0])


def main() -> None:
    """Read a load from standard input, print the outcome."""
    json.dump(asdict(send_load(Load(**json.load(sys.stdin)))), sys.stdout)


if __name__ == "__main__":
    main()
