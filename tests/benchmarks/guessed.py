"""Operators and spends beside clients that guess passwords: `python -m tests.benchmarks.guessed [OTHER-CHECKOUT]`.

Each checkout as `make run` serves it, in turns, medians of the rounds. 12 clients guess passwords without a pause while an
operator who is logged in opens the heaviest pages one after the other. Prints what the guessers do to the operator's pages, with
nobody else there, and what guessers and operator together do to the p99 of the spends of 8 clients.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.benchmarks.beside import ROOT, Side
from tests.benchmarks.besieged import ROUNDS, SECONDS, measure, misbehaving
from tests.benchmarks.misbehaving import FORM

ACCOUNTS = "/admin/ledger/account/"
PAGES = ("/admin/", "/admin/ledger/entrylisting/", ACCOUNTS, f"{ACCOUNTS}month-end/", f"{ACCOUNTS}locks/")
LOGIN = re.compile(r"^Login +(\S+) / (\S+)", re.MULTILINE)


class Operator:
    """An operator's browser, without scripts and files."""

    def __init__(self, url: str, **cookies: str) -> None:
        self._at = urllib.parse.urlsplit(url)
        self.cookies = cookies

    def log_in(self, name: str, password: str) -> None:
        """Have a session from now on."""
        token = FORM.search(self._ask("GET", "/admin/login/")[1])
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token[1].decode() if token else ""}
        status, _ = self._ask("POST", "/admin/login/", urllib.parse.urlencode(form))
        if status != 302:
            raise RuntimeError(f"{name} was not let in: {status}")

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(str(self._at.hostname), self._at.port, timeout=60)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        for each in response.headers.get_all("Set-Cookie") or []:
            name, _, value = each.split(";")[0].partition("=")
            self.cookies[name] = value
        content = response.read()
        connection.close()
        return response.status, content

    def open_pages(self, seconds: float) -> list[float]:
        """Open pages for that long; return how many milliseconds each took, or raise where one is not a page."""
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(taken) % len(PAGES):
            start = time.perf_counter()
            path = PAGES[len(taken) % len(PAGES)]
            status, _ = self._ask("GET", path)
            if status != 200:
                raise RuntimeError(f"{path}: {status}")
            taken.append((time.perf_counter() - start) * 1000)
        return taken


class Guessed(Side):
    """A checkout, served, with an operator."""

    def furnish(self) -> None:
        """Credits and histories for the spends; the operator logs in."""
        super().furnish()
        printed = (self.folder / "log").read_text()
        self.url = f"http://127.0.0.1:{self.port}"
        self.session = Operator(self.pages_url)
        self.session.log_in(*LOGIN.findall(printed)[0])
        self.session.open_pages(1)
        measure(self.url)

    @contextmanager
    def operator(self, seconds: float) -> Iterator["subprocess.Popen[str]"]:
        """For the block, an operator opens pages in a separate process, which prints in the end how long each took."""
        arguments = ["operator", self.pages_url, str(seconds), json.dumps(self.session.cookies)]
        command = [sys.executable, "-m", "tests.benchmarks.guessed", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.wait()

    def pages_ms(self) -> float:
        """How long the operator's pages take, the median."""
        with self.operator(SECONDS) as process:
            return median(json.loads(process.communicate()[0]))

    def round(self) -> dict[str, float]:
        """What is measured with nobody else there, and beside others."""
        found = {"pages": self.pages_ms(), "p99": measure(self.url)[0]}
        with misbehaving("guess", self.pages_url):
            found["pages beside guessers"] = self.pages_ms()
            with self.operator(SECONDS * 3):
                found["p99 beside both"] = measure(self.url)[0]
        return found


def main() -> None:
    """Print two lines for each checkout."""
    if sys.argv[1:2] == ["operator"]:
        os.nice(19)  # as if it were on another machine
        url, seconds, cookies = sys.argv[2:]
        operator = Operator(url, **json.loads(cookies))
        operator.open_pages(0.1)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        json.dump(operator.open_pages(float(seconds)), sys.stdout)
        return
    folder = Path(tempfile.mkdtemp(prefix="ledger-guessed-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sides = []
        for number, checkout in enumerate([ROOT, *(Path(each).resolve() for each in sys.argv[1:])]):
            (folder / str(number)).mkdir()
            sides.append(Guessed(checkout, folder / str(number)))
            stack.callback(sides[-1].stop)
        for side in sides:
            side.wait_until_ready()
            side.furnish()
        rounds = [[side.round() for side in sides] for _ in range(ROUNDS)]
    for number, checkout in enumerate([str(ROOT), *sys.argv[1:]]):
        mine = [each[number] for each in rounds]
        sys.stdout.write(f"{checkout}\n{_line('an operator', mine, 'pages', 'pages beside guessers')}")
        sys.stdout.write(_line("spends, p99", mine, "p99", "p99 beside both"))


def _line(words: str, rounds: list[dict[str, float]], quiet: str, besieged: str) -> str:
    """A line of the report: medians without and with the guessers, and the median of the quotients."""
    quotients = [each[besieged] / each[quiet] for each in rounds]
    before, after = (median(each[name] for each in rounds) for name in (quiet, besieged))
    each = ", ".join(f"{one:.2f}" for one in quotients)
    return f"  {words:14} {before:6.1f} -> {after:6.1f} ms, {median(quotients):.2f} x ({each})\n"


if __name__ == "__main__":
    main()
