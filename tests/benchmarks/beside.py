"""This checkout beside another one, over HTTP: `python -m tests.benchmarks.beside ../other-checkout`.

`BENCH_LOADS="balance;spend, 16 clients"` takes these loads only, with the health check that they are told in.

Both are served as `make run` serves them, each with its own PostgreSQL, and get the same loads in turns. The log of requests is
off, as older checkouts have none; `BENCH_LOG=1` leaves it on. So are the recurring tasks, which read what was written for
alerts and webhooks; `BENCH_TASKS=1` leaves them on, and their CPU counts as that of the web processes and of PostgreSQL.
What is compared is the CPU of one request, of the web processes and of PostgreSQL, which holds on
a busy machine; requests a second are shown beside it. The ratios are the medians of the rounds' quotients.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.clients import Load, Outcome, send_load
from tests.benchmarks.measuring import children, cpu_of_process_us

ROOT = Path(__file__).resolve().parents[2]
KEY = "benchmark-key-of-no-secret-at-all"
IS_LOGGING = bool(os.environ.get("BENCH_LOG"))
WITHOUT_LOG = {"LEDGER_LOG_LEVEL": "WARNING"}
WITHOUT_TASKS = {"LEDGER_TIMETABLE_WORKERS": "0"}
HOLDERS = 2_000
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))

SPEND: dict[str, Any] = {
    "path": "/v1/holders/{holder}/spends",
    "body": '{"amount":120,"reason":"chat completion","reference":"req_{number}"}',
}
GET = {"method": "GET"}
ADMIN = re.compile(r"^Admin +(http\S+)/admin/$", re.MULTILINE)


def _batch_of_spends(size: int) -> dict[str, Any]:
    """One client that sends batches of spends of different holders."""
    spends = [
        {"operation": "spend", "holder": f"bench-{n}", "amount": 1, "idempotency_key": "{number}-" + str(n)} for n in range(size)
    ]
    return {"path": "/v1/batches", "body": json.dumps({"mode": "each", "operations": spends}), "clients": 1}


LOADS: dict[str, dict[str, Any]] = {
    "health check": {"path": "/healthz", **GET},
    "balance": {"path": "/v1/holders/{holder}/balance", "holders": HOLDERS, **GET},
    "balance, 304": {
        "path": "/v1/holders/{holder}/balance", "holders": HOLDERS, "prefix": "still-", "headers": 'If-None-Match: "1"', **GET,
    },
    "50 entries": {"path": "/v1/holders/{holder}/entries", "holders": 20, "prefix": "page-", **GET},
    "50 entries, kind": {"path": "/v1/holders/{holder}/entries?kind=spend", "holders": 20, "prefix": "page-", **GET},
    "holds": {"path": "/v1/holders/{holder}/holds", "holders": 20, "prefix": "page-", **GET},
    "holder": {"path": "/v1/holders/{holder}", "holders": 20, "prefix": "page-", **GET},
    "explanation": {"path": "/v1/holders/{holder}/entries/3/explanation", "holders": 20, "prefix": "page-", **GET},
    "one entry": {"path": "/v1/holders/{holder}/entries/3", "holders": 20, "prefix": "page-", **GET},
    "spend, 16 clients": {**SPEND, "holders": HOLDERS},
    "spend, 200 clients": {**SPEND, "holders": HOLDERS, "clients": 200},
    "spend, one hot holder": {**SPEND, "holders": 1},
    "batch of 100 spends": _batch_of_spends(100),
    "batch of 1,000 spends": _batch_of_spends(1_000),
}  # fmt: skip


@dataclass
class Measure:
    """What one load took."""

    web_us: float
    server_us: float
    per_second: float
    p99_ms: float

    @property
    def us(self) -> float:
        """CPU of a request, in the web server and in PostgreSQL."""
        return self.web_us + self.server_us


class Side:
    """One checkout, served."""

    def __init__(self, checkout: Path, folder: Path, *, has_tasks: bool = True, has_log: bool = IS_LOGGING) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder = folder
        self.log = (folder / "log").open("wb")
        environment = (
            os.environ
            | {"LEDGER_DATA_DIR": str(folder), "PORT": str(self.port), "LEDGER_BOOTSTRAP_API_KEY": KEY}
            | ({} if has_log else WITHOUT_LOG)
            | ({} if has_tasks else WITHOUT_TASKS)
        )
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"], cwd=checkout, env=environment, process_group=0,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Return when the server is ready; fail with its log when it ends or takes too long."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text())

    @property
    def pages_url(self) -> str:
        """Where its pages are, by what it has printed; older checkouts serve all at one port."""
        return ADMIN.findall((self.folder / "log").read_text())[0]

    def furnish(self) -> None:
        """Three lots for each holder, and a history for some."""
        terms: tuple[dict[str, Any], ...] = ({"source": "promotional"}, {"priority": 50}, {})
        for first in range(0, HOLDERS, 300):
            numbers = range(first, min(HOLDERS, first + 300))
            self._batch(
                [{"operation": "grant", "holder": f"bench-{n}", "amount": 10**12, **each} for n in numbers for each in terms]
            )
            self._batch([{"operation": "grant", "holder": f"still-{n}", "amount": 10**12} for n in numbers])
        for n in range(20):
            one = {"operation": "spend", "holder": f"page-{n}", "amount": 1, "reason": "chat completion"}
            hold = {"operation": "hold", "holder": f"page-{n}", "amount": 10}
            self._batch([{"operation": "grant", "holder": f"page-{n}", "amount": 10**12}, *[hold] * 3, *[one] * 80])

    def _batch(self, operations: list[dict[str, Any]]) -> None:
        """Send operations as one batch."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/batches",
            json.dumps({"mode": "atomic", "operations": operations}).encode(),
            {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Idempotency-Key": os.urandom(8).hex()},
        )
        with urllib.request.urlopen(request, timeout=60):
            pass

    def measure(self, load: dict[str, Any]) -> Measure:
        """Send a load, and return what each request took."""
        plan = Load(port=self.port, key=KEY, seconds=SECONDS, **load)
        before = self._cpu()
        outcome: Outcome = send_load(plan)
        after = self._cpu()
        answered = sum(outcome.statuses.values())
        if set(outcome.statuses) - {"200", "201", "304"}:
            raise RuntimeError(f"{load['path']}: {outcome.statuses}\n{outcome.first_bad}")
        web, server = (sum(each.get(pid, 0) - before[place].get(pid, 0) for pid in each) for place, each in enumerate(after))
        return Measure(web / answered, server / answered, answered / outcome.seconds, outcome.p99_ms)

    def _cpu(self) -> tuple[dict[int, float], dict[int, float]]:
        """CPU time so far of each process, of the web server and of PostgreSQL."""
        postmaster = self._postmaster()
        server = {postmaster, *_children(postmaster)}
        web = set(_children(self.process.pid)) - server
        return _used(web), _used(server)

    def stop(self) -> None:
        """Stop the server as Ctrl-C does, or its processes one by one: some older checkouts hang."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            os.kill(self._postmaster(), signal.SIGINT)
        self.log.close()

    def _postmaster(self) -> int:
        """The process of PostgreSQL that starts the others."""
        return int(next(self.folder.glob("**/postmaster.pid")).read_text().split()[0])


def _children(pid: int) -> list[int]:
    """The processes below a process."""
    while True:
        try:
            return children(pid)
        except OSError:  # one of them has just ended
            continue


def _used(pids: set[int]) -> dict[int, float]:
    """CPU time of each process that still runs."""
    found = {}
    for pid in pids:
        try:
            found[pid] = cpu_of_process_us(pid)
        except OSError:
            continue
    return found


def main() -> None:
    """Print a line for each load."""
    others = [Path(each).resolve() for each in sys.argv[1:]]
    folder = Path(tempfile.mkdtemp(prefix="ledger-beside-"))
    folder.chmod(0o755)
    sides: list[Side] = []
    try:
        for number, checkout in enumerate([ROOT, *others]):
            (folder / str(number)).mkdir()
            sides.append(Side(checkout, folder / str(number), has_tasks=bool(os.environ.get("BENCH_TASKS"))))
        for side in sides:
            side.wait_until_ready()
            side.furnish()
        measures = _in_turns(sides)
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(folder, ignore_errors=True)
    _show([str(checkout) for checkout in others], measures)


def _in_turns(sides: list[Side]) -> dict[str, list[list[Measure]]]:
    """Measure every load on every side, in turns; by load and side."""
    wanted = os.environ.get("BENCH_LOADS", "")
    loads = {name: load for name, load in LOADS.items() if not wanted or name in ["health check", *wanted.split(";")]}
    found: dict[str, list[list[Measure]]] = {name: [[] for _ in sides] for name in loads}
    for number in range(ROUNDS + 1):
        for name, load in loads.items():
            for place in range(len(sides)):
                turned = (place + number) % len(sides)
                measured = sides[turned].measure(load)
                if number:  # the first round warms up
                    found[name][turned].append(measured)
    return found


def _show(others: list[str], measures: dict[str, list[list[Measure]]]) -> None:
    """Print the loads of the first side, and how the others compare."""
    health = measures["health check"][0]
    sys.stdout.write(f"µs of CPU of one request: web + PostgreSQL; medians of {ROUNDS} rounds of {SECONDS} s in turns\n")
    for name, of_sides in measures.items():
        mine, *rest = of_sides
        line = f"{name:22} {_text(mine)}  {_ratio(mine, health, lambda each: each.us):5.1f} health checks"
        for other in rest:
            line += (
                f"\n{'  the other':22} {_text(other)}  this : other = web {_ratio(mine, other, lambda each: each.web_us):.2f}, "
                f"all {_ratio(mine, other, lambda each: each.us):.2f}, "
                f"per second {_ratio(mine, other, lambda each: each.per_second):.2f}"
            )
        sys.stdout.write(line + "\n")
    for number, other in enumerate(others, 1):
        sys.stdout.write(f"other {number}: {other}\n")


def _text(measures: list[Measure]) -> str:
    """The medians of the measures."""
    middle = {name: median(getattr(each, name) for each in measures) for name in ("web_us", "server_us", "per_second", "p99_ms")}
    return (
        f"{middle['web_us']:5.0f} + {middle['server_us']:4.0f} µs, {middle['per_second']:5.0f}/s, p99 {middle['p99_ms']:6.1f} ms"
    )


def _ratio(mine: list[Measure], others: list[Measure], of: Callable[[Measure], float]) -> float:
    """The median of the quotients, round by round."""
    return median(of(each) / of(other) for each, other in zip(mine, others, strict=True))


if __name__ == "__main__":
    main()
