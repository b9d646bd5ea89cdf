"""Clients of the REST API as they are in the world: they retry, lose responses, and hang up."""

import http.client
import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

RETRYABLE = {503}


@dataclass(frozen=True)
class Response:
    """What came back: the body both as bytes and as JSON."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


@dataclass(frozen=True)
class HttpClient:
    """One API key's way to one server; every request has a new connection."""

    url: str
    api_key: str

    def at(self, url: str) -> "HttpClient":
        """The same client at another server."""
        return HttpClient(url, self.api_key)

    def get(self, path: str) -> Response:
        """GET a path."""
        return self._send("GET", path, None, self._headers(), 30)

    def post(
        self, path: str, body: Any, *, key: str, timeout_s: float = 30, headers: Mapping[str, str] | None = None
    ) -> Response:
        """POST a body under a key, once; with more headers.

        Raises:
            TimeoutError: no response in time.
            OSError, http.client.HTTPException: the connection was lost.
        """
        return self._send("POST", path, json.dumps(body).encode(), self._headers(key) | dict(headers or {}), timeout_s)

    def post_until_response(self, path: str, body: Any, *, key: str, for_s: float = 60) -> Response:
        """Repeat the request with the same key, as a client should, until its outcome is known."""
        deadline = time.monotonic() + for_s
        while True:
            try:
                response = self.post(path, body, key=key)
                if response.status not in RETRYABLE or time.monotonic() > deadline:
                    return response
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise

    def _headers(self, key: str | None = None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.api_key}", "Accept": "application/json"}
        return headers if key is None else headers | {"Idempotency-Key": key, "Content-Type": "application/json"}

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float) -> Response:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Response(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    # Hanging up

    def send_and_keep_open(self, path: str, body: Any, *, key: str, cut_after_bytes: int | None = None) -> socket.socket:
        """Send a request, or only the first bytes of its body, and read nothing; the caller hangs up."""
        address = urlsplit(self.url)
        content = json.dumps(body).encode()
        headers = self._headers(key) | {"Host": address.netloc, "Content-Length": str(len(content))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        wire = socket.create_connection((str(address.hostname), address.port or 80), timeout=60)
        wire.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content[:cut_after_bytes])
        return wire


def hang_up(wire: socket.socket) -> None:
    """Close at once with a reset, as a client's crash or a cut cable does."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
