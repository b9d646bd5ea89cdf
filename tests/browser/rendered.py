"""Pages as a browser shows them: rendered by Django's test client inside the test's transaction, then served to Chromium.

The little server gives out the pages that a test has rendered, and the static files; nothing else exists. Whatever else a page
asks for is written down, and names other than 127.0.0.1 do not resolve.
"""

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path

from django.contrib.staticfiles import finders

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--virtual-time-budget=10000",
]


@dataclass
class Site:
    """The pages that there are, and what was asked for besides."""

    pages: dict[str, bytes] = field(default_factory=dict)
    policy: str = ""
    """The Content-Security-Policy that the pages come with."""
    missing: list[str] = field(default_factory=list)
    url: str = ""

    def find(self, path: str) -> tuple[bytes, str] | None:
        """Content and type of what stands at that path."""
        if path in self.pages:
            return self.pages[path], "text/html; charset=utf-8"
        if path.startswith("/static/"):
            found = finders.find(path.removeprefix("/static/"))
            if found:
                return Path(found).read_bytes(), guess_type(found)[0] or "application/octet-stream"
        self.missing.append(path)
        return None


@contextmanager
def serving() -> Iterator[Site]:
    """A site on a free port of the loopback, until the block ends."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = site.find(self.path.split("?")[0])
            self.send_response(200 if found else 404)
            body, kind = found or (b"", "text/plain")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if site.policy:
                self.send_header("Content-Security-Policy", site.policy)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def screenshot(url: str, target: Path, *, width: int = 1280, height: int = 900) -> None:
    """Write what the browser shows at `url` as a PNG."""
    _chromium(url, f"--screenshot={target}", f"--window-size={width},{height}")


def document(url: str) -> tuple[str, list[str]]:
    """The document as it stands after the scripts ran; and what the browser complains of, such as what the policy forbids."""
    done = _chromium(url, "--dump-dom", "--enable-logging=stderr")
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "Failed to load resource" not in line]
    return done.stdout, complaints


def _chromium(url: str, *options: str) -> "subprocess.CompletedProcess[str]":
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *options, url]
        return subprocess.run(command, check=True, capture_output=True, timeout=120, text=True)
