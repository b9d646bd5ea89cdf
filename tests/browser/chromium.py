"""Chromium, driven by Playwright, and the site that it is shown: Django's pages, made inside the test's transaction.

Playwright keeps an event loop in its thread, where Django refuses to use a database: so the browser has a separate thread, and
a test gives it functions to run. Requests are answered by Django's test client on the test's connection, one at a time.
"""

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib.staticfiles import finders
from django.db import connections
from django.test import Client

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Result = TypeVar("Result")

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
PATIENCE_MS = 60_000
SIDEBAR_FROM_PX = 1280


class Chromium:
    """One browser for a whole run of tests."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._browser: Browser = self._thread.submit(self._start).result()

    def _start(self) -> "Browser":
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        return self._playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

    def close(self) -> None:
        """End the browser, its driver and the thread."""

        def stop() -> None:
            self._browser.close()
            self._playwright.stop()

        self._thread.submit(stop).result()
        self._thread.shutdown()

    def visit(
        self, url: str, look: "Callable[[Visit], Result]", *, width: int = 1400, height: int = 900, theme: str = "light"
    ) -> Result:
        """Open a page in a new window, and return what `look` sees there."""

        def opened(visit: Visit) -> Result:
            visit.open(url)
            return look(visit)

        return self.look(url, opened, width=width, height=height, theme=theme)

    def look(
        self, url: str, look: "Callable[[Visit], Result]", *, width: int = 1400, height: int = 900, theme: str = "light"
    ) -> Result:
        """The same, but `look` opens the page itself."""

        def work() -> Result:
            scheme: Any = theme
            context = self._browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            try:
                context.set_default_timeout(PATIENCE_MS)
                return look(Visit(context.new_page(), url))
            finally:
                context.close()

        return self._thread.submit(work).result()


@dataclass
class Visit:
    """A window, how often somebody clicked in it, what the browser complained of, and what was asked of other sites."""

    page: "Page"
    url: str
    clicks: int = 0
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        site = "/".join(self.url.split("/")[:3])
        self.page.on("console", lambda told: self._note(told.type, told.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: self._note_request(asked.url, site))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self.complaints.append(text)

    def _note_request(self, url: str, site: str) -> None:
        if not url.startswith((f"{site}/", "data:", "blob:")):
            self.elsewhere.append(url)

    def open(self, url: str) -> None:
        """Go there, and wait until Alpine has shown the page where it is made with Alpine."""
        self.page.goto(url)
        self.page.wait_for_selector("html:not([x-cloak])", state="attached")

    def click(self, what: "Locator") -> None:
        """Click, once it can be seen, and count it."""
        what.click()
        self.clicks += 1
        self.page.wait_for_load_state("load")
        self.page.wait_for_selector("html:not([x-cloak])", state="attached")

    def link(self, name: Any, *, within: "Locator | None" = None) -> "Locator":
        """The first link of that name."""
        return (within or self.page).get_by_role("link", name=name).first

    def button(self, name: str) -> "Locator":
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def is_narrow(self) -> bool:
        """Whether the window is too narrow for the sidebar."""
        size = self.page.viewport_size
        return size is not None and size["width"] < SIDEBAR_FROM_PX

    @property
    def text(self) -> str:
        """What is there to read in the part of the page that is its own, in one line."""
        return " ".join(self.page.locator("#content").inner_text().split())

    @property
    def html(self) -> str:
        """The document as it is now."""
        return self.page.content()

    @property
    def is_wider_than_the_window(self) -> bool:
        """Whether somebody would have to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def picture(self) -> bytes:
        """The window as a PNG."""
        return self.page.screenshot(animations="disabled")


@dataclass
class Site:
    """Where the pages are, and the policy that is sent with them instead of theirs."""

    url: str
    policy: str = ""


@contextmanager
def site_of(client: Client) -> Iterator[Site]:
    """Answer requests as the client would, for the block."""
    one_at_a_time = threading.Lock()
    shared = connections["default"]
    shared.inc_thread_sharing()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.startswith("/static/"):
                self._send_file(self.path.split("?")[0].removeprefix("/static/"))
            else:
                self._send_answer("GET", b"")

        def do_POST(self) -> None:
            self._send_answer("POST", self.rfile.read(int(self.headers["Content-Length"])))

        def _send_file(self, name: str) -> None:
            # Links have a digest before the suffix, which the file on the disk has not.
            found = finders.find(name) or finders.find(re.sub(r"\.[0-9a-f]{12}(?=\.\w+$)", "", name))
            body = Path(found).read_bytes() if found else b""
            kind = guess_type(name)[0] or "application/octet-stream"
            self._send(200 if found else 404, {"Content-Type": kind, "Cache-Control": "max-age=3600"}, body)

        def _send_answer(self, method: str, body: bytes) -> None:
            with one_at_a_time:
                connections["default"] = shared
                asked = {"headers": {"HX-Request": "true"}} if self.headers.get("HX-Request") else {}
                kind = self.headers.get("Content-Type", "")
                response = client.generic(method, self.path, body, content_type=kind, **asked)
                headers = {name: value for name, value in response.items() if name.lower() != "content-length"}
                if site.policy and "Content-Security-Policy" in headers:
                    headers["Content-Security-Policy"] = site.policy
                whole = b"".join(response.streaming_content) if response.streaming else response.content
                self._send(response.status_code, headers, whole)

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # A browser keeps connections open; nobody waits for them.
    server.daemon_threads, server.block_on_close = True, False
    client.defaults["SERVER_NAME"] = "127.0.0.1"
    site = Site(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        shared.dec_thread_sharing()
