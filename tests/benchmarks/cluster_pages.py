"""What Home and /metrics cost on a Citus cluster: `python -m tests.benchmarks.cluster_pages --citus /path/to/built`.

One PostgreSQL, then a coordinator and two workers, both of the same binaries and on this machine; each gets histories of as many
entries as asked for. Then the first page of the admin, as an operator with all permissions sees it, the page of locks, and the
numbers of /metrics, each some times in a process at the coordinator. Prints the median time, the CPU of the servers of all nodes
for each, and how many rows the process got from the database. `deploy/citus/build.sh` makes the binaries.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.benchmarks.distributed import DATABASE, ENDING, _end, _running
from tests.benchmarks.server import ROOT
from tests.distributed.cluster import StartedCluster, StartedNode

TIMES = 5


def main() -> None:
    """Measure one server and the cluster, with each number of entries, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster_pages", description=__doc__)
    parser.add_argument("--citus", type=Path, help="what deploy/citus/build.sh made")
    parser.add_argument("--entries", default="10000,100000", help="with commas between (default: %(default)s)")
    parser.add_argument("--workers", default="0,2", help="the numbers of workers, 0 for one PostgreSQL (default: %(default)s)")
    parser.add_argument("--holders", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        _client()
        return
    for number in ENDING:
        signal.signal(number, _end)
    sys.stdout.write("| what | on | entries | ms | servers, ms CPU | rows |\n|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory(prefix="ledger-bench-") as folder:
        Path(folder).chmod(0o755)
        for workers in map(int, options.workers.split(",")):
            name = f"{workers + 1} nodes" if workers else "one PostgreSQL"
            with _running(Path(folder) / f"of-{workers}", options.citus, workers) as cluster:
                stored = 0
                for entries in map(int, options.entries.split(",")):
                    _fill(cluster, entries - stored, options.holders, first_holder=stored + 1)
                    stored = entries
                    _measure(cluster, name, entries, is_distributed=workers > 0)


def _fill(cluster: StartedCluster, entries: int, holders: int, *, first_holder: int) -> None:
    """Store histories of further holders, a tenth of them per entry at most."""
    owner = cluster.coordinator.url(OWNER, DATABASE)
    plan = {"dsn": owner, "holders": min(holders, entries // 10), "entries": entries, "first-holder": first_holder}
    options = [f"--{name}={value}" for name, value in plan.items()]
    subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.histories", "--processes=1", *options],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "DATABASE_URL": owner, "DJANGO_SETTINGS_MODULE": "ledger_project.settings", "SECRET_KEY": "bench"},
    )  # fmt: skip
    for node in cluster.nodes:
        with node.connect(DATABASE) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")


def _measure(cluster: StartedCluster, name: str, entries: int, *, is_distributed: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.cluster_pages", "--client"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={
            **os.environ,
            "DATABASE_URL": cluster.coordinator.url(APPLICATION, DATABASE),
            "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
            "SECRET_KEY": "bench",
            "LEDGER_DISTRIBUTED": str(is_distributed),
        },
    ) as client:  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        while line := client.stdout.readline():
            what = line.strip()
            before = sum(map(_cpu_with_ended_ms, cluster.nodes))
            client.stdin.write("go\n")
            client.stdin.flush()
            found = json.loads(client.stdout.readline())
            cpu_ms = (sum(map(_cpu_with_ended_ms, cluster.nodes)) - before) / TIMES
            sys.stdout.write(f"| {what} | {name} | {entries:,} | {found['ms']:.0f} | {cpu_ms:.0f} | {found['rows']:,} |\n")
            sys.stdout.flush()
        client.communicate()
    assert client.returncode == 0


def _cpu_with_ended_ms(node: StartedNode) -> float:
    """The CPU of a server with its sessions, also those that have ended, which the nodes open for each other and close."""
    postmaster = node.postmaster_pid()
    assert postmaster is not None
    spent = _ticks(postmaster)
    for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            spent += _ticks(int(child))
    return spent * 1_000 / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    """utime, stime, cutime and cstime of proc_pid_stat(5): of a process, and of those of its children that have ended."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:15]))


def _client() -> None:
    """Do each thing on "go", some times, and print what it took."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.urls import reverse

    from ledger_project.monitoring.gauges import DatabaseGauges

    site = Client(SERVER_NAME="127.0.0.1")
    operator, _ = User.objects.get_or_create(username="bench", is_superuser=True, is_staff=True, is_active=True)
    site.force_login(operator)

    def page(name: str, address: str) -> None:
        response = site.get(address)
        if response.status_code != 200:
            raise RuntimeError(f"{name}: {response.status_code}")

    def metrics() -> None:
        families = {family.name: family for family in DatabaseGauges().collect()}
        if families["ledger_database_up"].samples[0].value != 1:
            raise RuntimeError("the database did not answer")

    asked: dict[str, Callable[[], None]] = {
        "Home": partial(page, "Home", reverse("admin:index")),
        "Current locks": partial(page, "Current locks", reverse("admin:ledger_locks")),
        "`/metrics`": metrics,
    }
    for name, do in asked.items():
        rows: list[int] = []

        def count(execute: Any, *statement: Any, rows: list[int] = rows) -> Any:
            result = execute(*statement)
            rows.append(max(statement[-1]["cursor"].rowcount, 0))
            return result

        with connection.execute_wrapper(count):
            do()  # also makes what a process makes once
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        sys.stdin.readline()
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            do()
            taken.append((time.perf_counter() - began) * 1_000)
        sys.stdout.write(json.dumps({"ms": median(taken), "rows": sum(rows)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
