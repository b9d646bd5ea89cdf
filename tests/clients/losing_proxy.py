"""An HTTP proxy before a web process that loses answers as it is told to."""

import http.client
import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Do(Enum):
    """What happens to a request."""

    PASS = "the answer is passed on"
    LOSE = "it is executed, and the connection is cut before the answer"
    HALVE = "it is executed, and the connection is cut in the middle of the answer"
    CUT = "the connection is cut before the server has the request"
    BUSY = "503 not_executed, with Retry-After: 0"
    UNKNOWN = "it is executed, and answered as 503 outcome-unknown"
    GATEWAY = "it is executed, and answered as 502 with HTML"
    STALL = "it is executed, and nothing is answered"


PROBLEM = '{"type": "https://credit-ledger.example/problems/%s", "title": "No", "status": 503, "outcome": "%s"}'
INSTEAD = {
    Do.BUSY: (PROBLEM % ("server-busy", "not_executed")).encode(),
    Do.UNKNOWN: (PROBLEM % ("outcome-unknown", "unknown")).encode(),
    Do.GATEWAY: b"<html>Bad gateway</html>",
}


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    key: str | None


class LosingProxy(ThreadingHTTPServer):
    """Forwards to a web process. `plan` says what happens to the next requests; those after it pass."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = urlsplit(url)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.plan: deque[Do] = deque()
        self.seen: list[Seen] = []
        self.has_ended = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; stalled answers end."""
        self.has_ended.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LosingProxy

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(Seen(self.command, self.path, self.headers.get("Idempotency-Key")))
        do = self.server.plan.popleft() if self.server.plan else Do.PASS
        if do is Do.CUT:
            self._cut()
            return
        if do is Do.BUSY:
            self._answer(503, {"Retry-After": "0"}, INSTEAD[do])
            return
        status, headers, content = self._executed(body)
        if do in INSTEAD:
            self._answer(502 if do is Do.GATEWAY else 503, {}, INSTEAD[do])
        elif do is Do.PASS:
            self._answer(status, headers, content)
        elif do is Do.HALVE:
            self._answer(status, headers, content, sent=len(content) // 2)
        elif do is Do.STALL:
            self.server.has_ended.wait()
        if do not in INSTEAD and do is not Do.PASS:
            self._cut()

    do_GET = do_POST = do_PATCH = do_DELETE = _forward  # noqa: N815  # named by the library

    def _executed(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.address.hostname or "", self.server.address.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "host")}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            kept = ("content-type", "retry-after", "idempotency-replayed", "date")
            return (
                response.status,
                {name: value for name, value in response.getheaders() if name.lower() in kept},
                response.read(),
            )
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, sent: int | None = None) -> None:
        head = [
            f"HTTP/1.1 {status} X",
            *(f"{name}: {value}" for name, value in headers.items()),
            f"Content-Length: {len(content)}",
        ]
        self.wfile.write("\r\n".join(head).encode() + b"\r\n\r\n" + content[:sent])
        self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args: Any) -> None:
        """Write no log."""
