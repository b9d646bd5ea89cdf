"""The least that a stored request takes here, beside a spend: `python -m tests.benchmarks.floor`.

The ledger and three applications that do next to nothing (`competitors/bare.py`), each served by granian with two processes,
on the same PostgreSQL with the settings of production, take the same loads in turns. The figures are µs of CPU of one request, of
the web processes + of PostgreSQL: medians of the rounds. So they say what of a spend is the ledger's, and what granian, Python,
the socket and a durable INSERT take whatever the ledger does. BENCH_ROUNDS and BENCH_SECONDS set the sizes.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.measuring import ROUNDS, children, cpu_of_process_us, quotients
from tests.benchmarks.server import RESULTS, ROOT, SPEND, BenchmarkServer, Web

SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))
HOLDERS = 2_000
BARE = "tests.benchmarks.competitors.bare"
OURS = "a spend"
APPLICATIONS = {
    "answered at once": f"{BARE}:nothing",
    "a bare row, stored by the event loop": f"{BARE}:spends_in_loop",
    "a bare row, stored by a thread": f"{BARE}:spends_in_thread",
    OURS: "ledger_project.asgi:calls",
}
PATHS = {OURS: "/v1/holders/{holder}/spends"}
BARE_PATH = "/rows/{holder}"
LOADS = {
    "16 clients": {"clients": 16, "holders": HOLDERS},
    "200 clients": {"clients": 200, "holders": HOLDERS},
    "16 clients, one hot holder": {"clients": 16, "holders": 1},
}


class Measure(NamedTuple):
    """What one request of a load took."""

    web_us: float
    server_us: float
    per_second: float

    @property
    def us(self) -> float:
        """Both."""
        return self.web_us + self.server_us


def main() -> None:
    """Print a table for each load."""
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-floor")
    os.environ["LEDGER_LOG_LEVEL"] = "WARNING"
    RESULTS.mkdir(exist_ok=True)
    try:
        server.grant_to_all(holders=HOLDERS)
        server.settle()
        with ExitStack() as running:
            webs = {
                name: running.enter_context(server.web(application=application)) for name, application in APPLICATIONS.items()
            }
            for title, load in LOADS.items():
                _show(title, _in_turns(server, webs, load))
    finally:
        server.close()


def _in_turns(server: BenchmarkServer, webs: Mapping[str, Web], load: Mapping[str, int]) -> dict[str, list[Measure]]:
    """Put the load on each application once a round, in an order that turns."""
    measures: dict[str, list[Measure]] = {name: [] for name in webs}
    names = list(webs)
    for number in range(ROUNDS + 1):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            measure = _measure(server, webs[name], PATHS.get(name, BARE_PATH), load)
            if number:  # the first round warms up
                measures[name].append(measure)
    return measures


def _measure(server: BenchmarkServer, web: Web, path: str, load: Mapping[str, int]) -> Measure:
    postmaster = server.postgres.postmaster_pid()
    assert postmaster is not None
    before = _cpu_us(web.pid), _cpu_us(postmaster)
    outcome = web.load(path, body=SPEND, seconds=SECONDS, **load)
    web_us, server_us = (after - was for after, was in zip((_cpu_us(web.pid), _cpu_us(postmaster)), before, strict=True))
    return Measure(web_us / outcome.answered, server_us / outcome.answered, outcome.per_second)


def _cpu_us(pid: int) -> float:
    """CPU so far of a process and of those below it."""
    return sum(cpu_of_process_us(each) for each in (pid, *children(pid)))


def _show(title: str, measures: Mapping[str, list[Measure]]) -> None:
    sys.stdout.write(f"{title}; medians of {ROUNDS} rounds of {SECONDS} s in turns\n")
    ours = [each.us for each in measures[OURS]]
    for name, rounds in measures.items():
        web_us, server_us, per_second = (median(column) for column in zip(*rounds, strict=True))
        ratio = median(quotients([each.us for each in rounds], ours))
        sys.stdout.write(f"  {name:38} {web_us:5.0f} + {server_us:4.0f} µs, {per_second:6.0f}/s, {ratio:.2f} of a spend\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
