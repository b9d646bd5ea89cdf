"""What a spend costs on one PostgreSQL and on a Citus cluster: `python -m tests.benchmarks.distributed --citus /path/to/built`.

Prints a table: spends per second, and the CPU of the client and of all servers for one spend. The servers run from the same
binaries, on this machine: so throughput says little, and CPU is what counts. `deploy/citus/build.sh` makes the binaries.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.benchmarks.measuring import children, cpu_of_process_us
from tests.benchmarks.server import ROOT
from tests.distributed.cluster import Node, StartedCluster, StartedNode

CLIENTS = 16
HOLDERS = 400
SECONDS = 6.0
DATABASE = "bench"
GROUPED = (1, 32)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Measure each way in turns, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.distributed", description=__doc__)
    parser.add_argument("--citus", type=Path, help="what deploy/citus/build.sh made")
    parser.add_argument(
        "--workers", default="1,2,3", help="the numbers of workers of the clusters, with commas between (default: %(default)s)"
    )
    parser.add_argument("--clients", type=int, default=CLIENTS, help="how many spend at the same time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        return _client(**json.loads(options.client))
    for number in ENDING:
        signal.signal(number, _end)
    sys.stdout.write("| one spend | per s | client, ms CPU | servers, ms CPU | of which coordinator |\n|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory(prefix="ledger-bench-") as folder:
        Path(folder).chmod(0o755)
        with _running(Path(folder) / "one", options.citus, 0) as cluster:
            _measure("one PostgreSQL", cluster, options, distributed=False)
        for count in map(int, options.workers.split(",")):
            with _running(Path(folder) / f"of-{count}", options.citus, count) as cluster:
                name = f"Citus, {count} worker{'s' if count > 1 else ''}"
                _measure(f"{name}, one process", cluster, options)
                if count > 1:
                    _measure(f"{name}, {count} processes", cluster, options, processes=count)
    return None


def _end(number: int, frame: object) -> None:
    """End by an exception, so that the servers are stopped; further signals do not disturb that."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


@contextmanager
def _running(folder: Path, built: Path, workers: int) -> Iterator[StartedCluster]:
    """A cluster with a prepared database; of no workers, one server."""
    cluster = StartedCluster(folder, built, workers=workers)
    try:
        cluster.start()
        cluster.make_database(DATABASE)
        environment = {**os.environ, "DATABASE_URL": cluster.coordinator.url(OWNER, DATABASE), "SECRET_KEY": "bench"}
        subprocess.run(
            [sys.executable, "manage.py", "prepare_database", "--verbosity", "0"],
            cwd=ROOT, env=environment | {"LEDGER_DISTRIBUTED": str(workers > 0)}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        yield cluster
    finally:
        cluster.stop()


def _measure(
    name: str, cluster: StartedCluster, options: argparse.Namespace, *, processes: int = 1, distributed: bool = True
) -> None:
    """Measure spends, alone and grouped, and print a row of the table for each."""
    for most in GROUPED:
        found = [_round(cluster, processes, options.clients, most, distributed=distributed) for _ in range(options.rounds)]
        per_s, client, *servers = (median(column) for column in zip(*found, strict=True))
        together = "own transactions" if most == 1 else f"up to {most} in a transaction"
        coordinator = f"{servers[0]:.2f}" if distributed else ""
        sys.stdout.write(f"| {name}, {together} | {per_s:.0f} | {client:.2f} | {sum(servers):.2f} | {coordinator} |\n")
        sys.stdout.flush()


def _round(cluster: StartedCluster, processes: int, clients: int, most: int, *, distributed: bool) -> tuple[float, ...]:
    """Return the spends per second, and the CPU in ms for one: of the clients, and of each node."""
    with ExitStack() as stack:
        spenders = [
            stack.enter_context(_spender(cluster.coordinator, count, most, distributed=distributed))
            for count in _shares(clients, processes)
        ]
        for client in spenders:
            assert client.stdout is not None
            assert client.stdout.readline() == "warm\n"
        before = [_cpu_ms(node) for node in cluster.nodes]
        for client in spenders:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        told = [json.loads(client.stdout.readline()) for client in spenders if client.stdout is not None]
        spent = [_cpu_ms(node) - start for node, start in zip(cluster.nodes, before, strict=True)]
        for client in spenders:
            client.communicate("end\n")
    spends = sum(each["spends"] for each in told)
    return (spends / SECONDS, sum(each["cpu_ms"] for each in told) / spends, *(each / spends for each in spent))


def _shares(whole: int, parts: int) -> list[int]:
    """Divide a whole into parts that differ by 1 at most."""
    return [whole // parts + (part < whole % parts) for part in range(parts)]


@contextmanager
def _spender(node: Node, count: int, most: int, *, distributed: bool) -> Iterator[subprocess.Popen[str]]:
    """A process of clients that is connected to the coordinator, or to the one server; ended with the block."""
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.distributed", "--client", json.dumps({"count": count})],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={
            **os.environ,
            "DATABASE_URL": node.url(APPLICATION, DATABASE),
            "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
            "SECRET_KEY": "bench",
            "LEDGER_DISTRIBUTED": str(distributed),
            "LEDGER_REQUESTS_PER_TRANSACTION": str(most),
        },
    )  # fmt: skip
    try:
        yield client
    finally:
        client.kill()
        client.wait()


def _cpu_ms(node: StartedNode) -> float:
    """CPU time of a node's processes so far."""
    pid = node.postmaster_pid()
    assert pid is not None
    return sum(cpu_of_process_us(each) for each in (pid, *children(pid))) / 1_000


def _client(count: int) -> None:
    """Spend in `count` threads from "go" on, and print what it took."""
    import django

    django.setup()
    from concurrent.futures import ThreadPoolExecutor

    from ledger import services
    from ledger.errors import Retryable
    from ledger.rules.requests import SpendRequest
    from ledger.services.execute import GROUP_COMMIT, unwrap

    run = uuid.uuid4().hex[:8]
    for number in range(HOLDERS):
        services.grant(holder_id=f"{run}-{number}", amount=10**9, idempotency_key="first")

    def spend(number: int) -> None:
        request = SpendRequest(
            holder_id=f"{run}-{number % HOLDERS}", amount=120, idempotency_key=f"{number}", reason="chat completion"
        )
        while True:
            answered = threading.Event()
            try:
                pending = GROUP_COMMIT.submit(request, lambda done: [each.caller.set() for each in done] and None, answered)
                answered.wait()
                unwrap(pending.result())
                return
            except Retryable:
                # A machine that is busy with something else: as a client does that gets 503.
                time.sleep(0.05)

    def work(thread: int, until: float) -> int:
        done = 0
        while time.monotonic() < until:
            spend(thread + done * count)
            done += 1
        return done

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(spend, range(-HOLDERS, 0)))
        sys.stdout.write("warm\n")
        sys.stdout.flush()
        sys.stdin.readline()
        started, until = time.process_time(), time.monotonic() + SECONDS
        spends = sum(pool.map(work, range(count), [until] * count))
        cpu_ms = (time.process_time() - started) * 1_000
        sys.stdout.write(json.dumps({"spends": spends, "cpu_ms": cpu_ms}) + "\n")
        sys.stdout.flush()
        sys.stdin.readline()
    GROUP_COMMIT.close()


if __name__ == "__main__":
    main()
