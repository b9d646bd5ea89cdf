"""Django's test client in front of the ASGI application: requests go the way that they go in production, but for the socket.

In a test that is rolled back, the application's threads work on the test's own connection, so that they see what it has written.
"""

import asyncio
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import cache
from http.cookies import SimpleCookie
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes

from django.core.handlers.wsgi import WSGIRequest
from django.db import connection, connections
from django.http import HttpResponse
from django.test import Client

TIMEOUT_S = 60


class AsgiClient(Client):
    """A client whose requests the front answers.

    Args:
        on_this_connection: the application's threads work on this thread's connection, whether in a transaction or not.
    """

    def __init__(self, *, on_this_connection: bool = False, **defaults: Any) -> None:
        super().__init__(**defaults)
        self._on_this_connection = on_this_connection
        self.handler = self._answer  # type: ignore[assignment]

    def _answer(self, environ: dict[str, Any]) -> HttpResponse:
        return _answer(environ, is_shared=self._on_this_connection or connection.in_atomic_block)


def _answer(environ: dict[str, Any], *, is_shared: bool) -> HttpResponse:
    """Let the application of the event loop answer a request of Django's test client."""
    body = environ["wsgi.input"].read()
    with _on_this_connection() if is_shared else nullcontext():
        response = asyncio.run_coroutine_threadsafe(ask(scope_of(environ), body), loop()).result(TIMEOUT_S)
    response.wsgi_request = WSGIRequest(environ)
    return response


def scope_of(environ: dict[str, Any]) -> dict[str, Any]:
    """What an ASGI server makes of the request."""
    path = environ["PATH_INFO"].encode("latin-1")
    headers = [(b"host", environ.get("HTTP_HOST", "testserver").encode("latin-1"))]
    for name, value in environ.items():
        if name.startswith("HTTP_") and name != "HTTP_HOST":
            headers.append((name[5:].replace("_", "-").lower().encode(), value.encode()))
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value not in ("", "0", 0):
            headers.append((name.replace("_", "-").lower().encode(), str(value).encode("latin-1")))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": environ["wsgi.url_scheme"],
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 80),
    }


async def ask(scope: MutableMapping[str, Any], *chunks: bytes) -> HttpResponse:
    """Send a request with its body in these chunks; the response."""
    from ledger_project.serving.application import application

    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    waiting[-1]["more_body"] = False
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # the client stays until it has the response
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return response_of(sent)


def response_of(sent: list[MutableMapping[str, Any]]) -> HttpResponse:
    """The messages of an application as a response; fails where they are not one, by the ASGI specification."""
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert [message["type"] for message in bodies] == ["http.response.body"] * len(bodies)
    assert bodies
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    response = HttpResponse(b"".join(message.get("body", b"") for message in bodies), status=start["status"])
    del response.headers["Content-Type"]
    cookies: SimpleCookie = SimpleCookie()
    for name, value in start["headers"]:
        assert name == name.lower()
        if name == b"set-cookie":
            cookies.load(value.decode("latin-1"))
        else:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
    response.cookies = cookies
    return response


_making_the_loop = threading.Lock()


def loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in a thread. Many threads may ask for it at the same time."""
    with _making_the_loop:
        return _loop()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="tests-loop", daemon=True).start()
    return made


def close() -> None:
    """End the application's threads and their connections, so that the next request gets new ones."""
    if _loop.cache_info().currsize:
        from ledger_project.serving.application import application

        asyncio.run_coroutine_threadsafe(application.close(), loop()).result(TIMEOUT_S)


@contextmanager
def _on_this_connection() -> Iterator[None]:
    """Within the block, all threads work on this thread's connection."""
    mine, others = connections["default"], connections._connections  # type: ignore[attr-defined]
    place = mine.settings_dict
    mine.inc_thread_sharing()
    # Between requests a connection in a transaction would be closed; Django's own test client prevents that, too.
    mine.close_if_unusable_or_obsolete = lambda: None  # type: ignore[method-assign]
    connections._connections = SimpleNamespace(default=mine)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        connections._connections = others  # type: ignore[attr-defined]
        del mine.close_if_unusable_or_obsolete
        mine.dec_thread_sharing()
        if mine.settings_dict is not place:  # on a cluster a queue's thread connects to the holder's node
            mine.close()
            mine.settings_dict = place
