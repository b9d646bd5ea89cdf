"""A stand-in for VIES on the loopback: it answers as the EU's REST service does, and keeps what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status, and JSON or raw bytes."""


def valid(asked: dict[str, Any], **more: Any) -> Answer:
    """The id is valid, and belongs to somebody; with a consultation number for who names itself."""
    number = {"requestIdentifier": "WAPIAAAAZxT0vM3d"} if asked.get("requesterNumber") else {"requestIdentifier": ""}
    whose = {"name": "ACME SA", "address": "1 RUE X\n75001 PARIS"}
    named = {name: asked[name] for name in ("countryCode", "vatNumber")}
    return 200, {**named, "requestDate": "2026-11-27T09:00:00.000Z", "valid": True, **number, **whose, **more}


def invalid(asked: dict[str, Any]) -> Answer:
    """The id is not valid."""
    return valid(asked, valid=False, name="---", address="---")


def failing(code: str, status: int = 500) -> Callable[[dict[str, Any]], Answer]:
    """The service says that it cannot answer."""
    return lambda asked: (status, {"actionSucceed": False, "errorWrappers": [{"error": code, "message": "try later"}]})


class ViesDouble:
    """The service: `answers` decides what it says; `asked` has the bodies of all requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answers: Callable[[dict[str, Any]], Answer] = valid
        self.url = ""


@contextmanager
def serving() -> Iterator[ViesDouble]:
    """Serve the stand-in."""
    double = ViesDouble()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            double.asked.append(body)
            double.paths.append(self.path)
            status, content = double.answers(body)
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                if status == 302:
                    self.send_header("location", f"{double.url}/elsewhere")
                self.end_headers()
                self.wfile.write(raw)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double.url = f"http://127.0.0.1:{server.server_port}/vies/rest-api"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
