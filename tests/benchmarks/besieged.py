"""What spends of other holders take while some clients misbehave: `python -m tests.benchmarks.besieged`.

`make run` as it is, 8 clients over 2,000 holders, in turns with nobody else there. The quotient is the median of the rounds'.
"""

import http.client
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

import psycopg

from ledger_project import embedded_postgres
from tests.benchmarks.beside import HOLDERS, KEY, ROOT, SPEND, Side
from tests.benchmarks.clients import Load, send_load

SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
DRIBBLERS, GUESSERS, WAITERS = 200, 12, 200
STUCK = "besieged-stuck"
FORM = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


@contextmanager
def running(work: Callable[[threading.Event], None], count: int) -> Iterator[None]:
    """For the block, so many threads do this until they are told to stop."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def dribble(side: Side) -> Callable[[threading.Event], None]:
    """Ten connections that promise a body and send a byte of it a second: half to the login page, half to the API."""

    def connect(number: int) -> socket.socket:
        path = "/admin/login/" if number % 2 else "/v1/holders/slow/spends"
        kind = "application/x-www-form-urlencoded" if number % 2 else "application/json"
        connection = socket.create_connection(("127.0.0.1", side.port))
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nCookie: csrftoken=made-up\r\n"
            f"Content-Type: {kind}\r\nIdempotency-Key: {number}\r\nContent-Length: 9000\r\n\r\n".encode()
        )
        return connection

    def work(stop: threading.Event) -> None:
        connections = [connect(number) for number in range(10)]
        while not stop.wait(1):
            for number, connection in enumerate(connections):
                try:
                    connection.sendall(b" ")
                except OSError:
                    connections[number] = connect(number)
        for connection in connections:
            connection.close()

    return work


def guess(side: Side) -> Callable[[threading.Event], None]:
    """Passwords of an operator, one after the other."""

    def once() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=10)
        connection.request("GET", "/admin/login/")
        page = connection.getresponse()
        cookies = "; ".join(each.split(";")[0] for each in page.headers.get_all("Set-Cookie") or [])
        token = FORM.search(page.read())
        form = {"username": "admin", "password": os.urandom(8).hex(), "csrfmiddlewaretoken": token[1].decode() if token else ""}
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/admin/login/", urllib.parse.urlencode(form), headers)
        connection.getresponse().read()
        connection.close()

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            with suppress(OSError, http.client.HTTPException):
                once()

    return work


def wait_for_the_stuck(side: Side) -> Callable[[threading.Event], None]:
    """Spends of one holder whose lock another session keeps."""

    def work(stop: threading.Event) -> None:
        load = Load(port=side.port, key=KEY, clients=WAITERS, seconds=SECONDS, **{**SPEND, "prefix": STUCK, "holders": 1})
        while not stop.is_set():
            send_load(load)

    return work


@contextmanager
def lock_kept(side: Side) -> Iterator[None]:
    """For the block, another session has the lock of the stuck holder."""
    from ledger.database.lock_keys import numbering

    with psycopg.connect(embedded_postgres.Server(side.folder).superuser_url) as session:
        session.execute("SELECT pg_advisory_xact_lock(%s)", [numbering("sha256")(f"ledger/{STUCK}0")])
        yield
        session.rollback()


def slowest_health_ms(side: Side, stop: threading.Event, found: list[float]) -> None:
    """Ask for the health of the process five times a second; keep what each took."""
    while not stop.wait(0.2):
        start = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{side.port}/healthz", timeout=10):
            found.append((time.perf_counter() - start) * 1000)


def measure(side: Side) -> tuple[float, float]:
    """The p99 of the spends of 8 clients, and the slowest health check meanwhile, in milliseconds."""
    found: list[float] = [0.0]
    with running(lambda stop: slowest_health_ms(side, stop, found), 1):
        outcome = send_load(Load(port=side.port, key=KEY, clients=8, seconds=SECONDS, **SPEND, holders=HOLDERS))
    if set(outcome.statuses) != {"201"}:
        raise RuntimeError(f"{outcome.statuses}\n{outcome.first_bad}")
    return outcome.p99_ms, max(found)


def main() -> None:
    """Print a line for each kind of misbehaviour."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-besieged-"))
    folder.chmod(0o755)
    side = Side(ROOT, folder)
    try:
        side.wait_until_ready()
        side.furnish()
        measure(side)
        sys.stdout.write(
            f"8 clients over {HOLDERS:,} holders, medians of {ROUNDS} rounds of {SECONDS} s in turns with nobody else there\n"
        )
        for words, siege in (
            (f"{DRIBBLERS} connections that send a byte a second", lambda: running(dribble(side), DRIBBLERS // 10)),
            (f"{GUESSERS} who guess passwords", lambda: running(guess(side), GUESSERS)),
            (f"{WAITERS} who wait for one stuck holder", lambda: stuck(side)),
        ):
            rounds = []
            for _ in range(ROUNDS):
                quiet = measure(side)
                with siege():
                    time.sleep(1)
                    rounds.append((quiet, measure(side)))
            sys.stdout.write(_line(words, rounds))
            sys.stdout.flush()
    finally:
        side.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stuck(side: Side) -> Iterator[None]:
    """For the block, many wait for a holder whose lock another session keeps."""
    with ExitStack() as stack:
        stack.enter_context(lock_kept(side))
        stack.enter_context(running(wait_for_the_stuck(side), 1))
        yield


def _line(words: str, rounds: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    quiet, besieged = (median(each[place][0] for each in rounds) for place in (0, 1))
    quotient = median(after[0] / before[0] for before, after in rounds)
    health = max(after[1] for _, after in rounds)
    return f"{words:45} p99 {quiet:6.1f} -> {besieged:6.1f} ms, {quotient:.2f} x; slowest health check {health:.0f} ms\n"


if __name__ == "__main__":
    main()
