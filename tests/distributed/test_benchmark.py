"""`tests.benchmarks.distributed` leaves no server behind, however it ends; its clients are shared out among the processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger_project.serving.postgres.processes import postmaster_pid
from tests.benchmarks.distributed import CLIENTS, _shares
from tests.benchmarks.server import ROOT
from tests.distributed.cluster import StartedCluster
from tests.settings import CITUS


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the benchmark keeps its servers, which run as another user."""
    with tempfile.TemporaryDirectory(prefix="ledger-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def postmasters(folder: Path) -> list[int]:
    """The servers that run in there."""
    clusters = [*folder.glob("ledger-bench-*/*/postgres"), *folder.glob("ledger-bench-*/*/worker*/postgres")]
    return [pid for cluster in clusters if (pid := postmaster_pid(cluster)) is not None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_its_servers_too(own_cluster: StartedCluster, folder: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.distributed", "--citus", str(CITUS), "--rounds", "1"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while process.poll() is None and not postmasters(folder):
            pass
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number, errors
    assert (postmasters(folder), list(folder.iterdir())) == ([], [])


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_as_many_clients_spend_in_any_number_of_processes(processes: int) -> None:
    shares = _shares(CLIENTS, processes)
    assert (len(shares), sum(shares), max(shares) - min(shares)) in [(processes, CLIENTS, 0), (processes, CLIENTS, 1)]
