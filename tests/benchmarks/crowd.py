"""A crowd of ordinary clients, and a healthy holder beside stuck ones: `python -m tests.benchmarks.crowd [crowd stuck]`.

`make run` as it is. Crowd: 1,000 clients in turns with 200; spends a second and p99. Stuck: 8 clients spend from one holder that
two processes share, while another session keeps the locks of 24 holders for which 48 patient clients wait; the share of the
healthy holder's calls that are refused or take longer than 1.5 s.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

import psycopg

from ledger_project.serving.postgres.server import Server
from tests.benchmarks.beside import HOLDERS, KEY, ROOT, SPEND, Side
from tests.benchmarks.clients import SLOW_SECONDS, Load, Outcome

SECONDS = float(os.environ.get("BENCH_SECONDS", "6"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
FEW, MANY = 200, 1_000
STUCK_HOLDERS, WAITERS, CLIENTS = 24, 48, 8


@contextmanager
def started(load: Load) -> Iterator["subprocess.Popen[str]"]:
    """For the block, clients in a separate process put a load on the server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.clients"], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        json.dump(asdict(load), process.stdin)
        process.stdin.close()
        process.stdin = None
        yield process
    finally:
        process.kill()
        process.wait()


def outcome_of(load: Load) -> Outcome:
    """Put the load on the server and wait for its end."""
    with started(load) as process:
        return Outcome(**json.loads(process.communicate()[0]))


@contextmanager
def locks_kept(side: Side) -> Iterator[None]:
    """For the block, another session has the locks of the stuck holders."""
    from ledger.database.lock_keys import numbering

    with psycopg.connect(Server(side.folder).superuser_url) as session:
        session.execute("SET idle_in_transaction_session_timeout = 0")
        for number in range(STUCK_HOLDERS):
            session.execute("SELECT pg_advisory_xact_lock(%s)", [numbering("sha256")(f"ledger/stuck-{number}")])
        yield
        session.rollback()


def crowd(side: Side) -> str:
    """Return how many spends a second many clients get beside what few get."""

    def measure(clients: int) -> Outcome:
        return outcome_of(Load(port=side.port, key=KEY, clients=clients, seconds=SECONDS, **SPEND, holders=HOLDERS))

    measure(FEW)
    rounds = [(measure(FEW), measure(MANY)) for _ in range(ROUNDS)]
    quotient = median(many.per_second / few.per_second for few, many in rounds)
    few_ms, many_ms = (median(each[place].p99_ms for each in rounds) for place in (0, 1))
    refused = sum(count for _, many in rounds for status, count in many.statuses.items() if status != "201")
    asked = sum(sum(many.statuses.values()) for _, many in rounds)
    return (
        f"{MANY:,} clients beside {FEW}: {quotient:.2f} x as many spends a second, p99 {few_ms:.0f} -> {many_ms:.0f} ms, "
        f"{refused:,} of {asked:,} refused"
    )


def stuck(side: Side) -> str:
    """Return the share of a healthy hot holder's calls that fail or are slow, without and beside stuck holders."""

    def measure() -> tuple[int, int, float]:
        load = Load(port=side.port, key=KEY, clients=CLIENTS, seconds=SECONDS, **SPEND, holders=1)
        outcome = outcome_of(load)
        asked = sum(outcome.statuses.values())
        return asked - outcome.answered + outcome.slow, asked, outcome.p99_ms

    terms = {"clients": WAITERS, "prefix": "stuck-", "holders": STUCK_HOLDERS, "is_patient": True}
    waiting = Load(port=side.port, key=KEY, seconds=SECONDS * 2, **terms, **SPEND)
    quiet, beside = [], []
    for _ in range(ROUNDS):
        quiet.append(measure())
        with locks_kept(side), started(waiting):
            beside.append(measure())
    return (
        f"a hot holder's calls that are refused or take over {SLOW_SECONDS} s, of {CLIENTS} clients: without stuck holders "
        f"{_share(quiet)}; beside {STUCK_HOLDERS} {_share(beside)}"
    )


def _share(rounds: list[tuple[int, int, float]]) -> str:
    """The late of all calls, as a share, and the median p99."""
    late, asked = sum(each[0] for each in rounds), sum(each[1] for each in rounds)
    return f"{late:,} of {asked:,} ({late / asked:.2%}), p99 {median(each[2] for each in rounds):.0f} ms"


def main() -> None:
    """Print a line for each."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-crowd-"))
    folder.chmod(0o755)
    side = Side(ROOT, folder)
    rows: dict[str, Callable[[Side], str]] = {"crowd": crowd, "stuck": stuck}
    try:
        side.wait_until_ready()
        side.furnish()
        sys.stdout.write(f"medians of {ROUNDS} rounds of {SECONDS:g} s in turns\n")
        for name in [name for name in rows if name in sys.argv] or rows:
            sys.stdout.write(rows[name](side) + "\n")
            sys.stdout.flush()
    finally:
        side.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
