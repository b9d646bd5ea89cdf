"""How soon it answers when it is started, and whether a web process grows."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median

from tests.benchmarks.measuring import Result, resident_bytes, result
from tests.benchmarks.server import ROOT, SPEND, BenchmarkServer, _free_port

REQUESTS = int(os.environ.get("BENCH_REQUESTS", "100000"))
EARLY = 1_000
STARTS = 5


def run(server: BenchmarkServer) -> list[Result]:
    """Starting, then growing."""
    first, again = zip(*[_first_and_second_start(server.postgres.data_dir.parent) for _ in range(STARTS)], strict=True)
    early, late = _grow(server)
    return [
        Result("process", "cold start of `make run`, new ledger", "seconds to the first response", median(first), "<= 5",
               unit="s", rounds=first),
        Result("process", "start of `make run`, existing ledger", "seconds to the first response", median(again), "<= 5",
               unit="s", rounds=again),
        result("process", f"memory of a worker and its parent after {REQUESTS:,} requests", f"after {EARLY:,}", [late], [early],
               aim="<= 1.05", context=f"{late / 2**20:.1f} MiB beside {early / 2**20:.1f} MiB"),
    ]  # fmt: skip


def _first_and_second_start(folder: Path) -> tuple[float, float]:
    """The seconds to the first response of a new ledger, and of the same one again."""
    data_dir = Path(tempfile.mkdtemp(dir=folder, prefix="cold-"))
    data_dir.chmod(0o755)
    try:
        return start(data_dir), start(data_dir)
    finally:
        cluster = (data_dir / "postgres").resolve()
        shutil.rmtree(data_dir)
        shutil.rmtree(cluster, ignore_errors=True)


def start(data_dir: Path, checkout: Path = ROOT) -> float:
    """Seconds from the command to the first answer; what was started is stopped."""
    port = _free_port()
    keep = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in keep if name in os.environ} | {
        "LEDGER_DATA_DIR": str(data_dir), "PORT": str(port),
    }  # fmt: skip
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve"], cwd=checkout, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
    )  # fmt: skip
    try:
        while time.monotonic() - begun < 60 and process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return time.monotonic() - begun
            time.sleep(0.02)
        raise RuntimeError("`manage.py serve` did not answer within a minute")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _grow(server: BenchmarkServer) -> tuple[float, float]:
    """What a worker and the process that it was forked from have in memory after 1,000 requests and after many.

    Both, since they share what was loaded. Spends and reads in turns.
    """
    server.grant_to_all("memory-", 1_000)
    options = {"holders": 1_000, "prefix": "memory-"}
    with server.web(workers=1) as web:

        def send(requests: int) -> None:
            web.load("/v1/holders/{holder}/spends", body=SPEND, requests=requests // 2, **options)
            web.load("/v1/holders/{holder}/balance", method="GET", requests=requests // 2, **options)

        def in_memory() -> int:
            return sum(map(resident_bytes, [web.pid, *web.workers]))

        send(EARLY)
        early = in_memory()
        send(REQUESTS - EARLY)
        return early, in_memory()
