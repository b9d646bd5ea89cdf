"""A receiver that does what a test says, webhooks that lead to it, and workers."""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from standardwebhooks.webhooks import Webhook as Verifier

from ledger.signals.delivery import Summary, deliver
from ledger.signals.feed import feed
from ledger.signals.webhooks import WebhookRequest, create_webhook

Behaviour = Callable[["Handler"], None]


@dataclass
class Received:
    """One request that the receiver got."""

    headers: dict[str, str]
    body: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content

    def verified_by(self, secret: str) -> Any:
        """The content, if the receiver's library verifies it."""
        return Verifier(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """A server on this machine; `behaviours` are for the next requests, then each gets 204."""

    url: str
    received: list[Received] = field(default_factory=list)
    behaviours: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour | None = None

    def sequences(self) -> list[int]:
        """The sequences of the entries in the order in which they came."""
        return [each.content["data"]["sequence"] for each in self.received]


class Handler(BaseHTTPRequestHandler):
    """Records a request and does what the receiver is told to."""

    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.receiver.received.append(Received({name.lower(): value for name, value in self.headers.items()}, body))
        behave = self.receiver.behaviours.popleft() if self.receiver.behaviours else self.receiver.always or answer(204)
        with suppress(OSError):
            behave(self)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def answer(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer with this status."""

    def behave(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def close(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """A receiver, to which the settings allow to send."""
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_ALLOWED_NETWORKS": ["127.0.0.0/8"], "SIGNAL_PLAIN_HTTP": True}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("TheHandler", (Handler,), {}))
    server.daemon_threads = True
    made = Receiver(f"http://localhost:{server.server_address[1]}/hook")
    server.RequestHandlerClass.receiver = made  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def webhook(receiver: Receiver) -> Callable[..., dict[str, Any]]:
    """Makes a webhook that leads to the receiver; its body has the secret."""

    def make(*types: str, **more: Any) -> dict[str, Any]:
        request = WebhookRequest(url=more.pop("url", receiver.url), types=types or ("entry.recorded",), **more)
        return create_webhook(request).body

    return make


def work() -> Summary:
    """Do what `manage.py deliver_signals` does."""
    feed()
    return deliver()
