"""A full disk: requests get their answers, no process ends of it, and everything works again once there is room."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import DiskFull

from ledger_project.serving.postgres.server import Server
from tests.deployment.servers import ROOT, folder
from tests.deployment.serving.test_serve import KEY, Serving, wait_until

UNKNOWN = "outcome-unknown"
NOT_TAKEN = {"disk-full", "database-unavailable", "database-busy"}


@contextmanager
def volume(size: str) -> Iterator[Path]:
    """For the block, a small volume."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small volume")
    with folder() as found:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", found]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
        data = found / "data"
        data.mkdir()
        try:
            yield data
        finally:
            subprocess.run(["umount", "--lazy", found], check=True)


def fill(filler: Path) -> None:
    """Take all that is left of a volume."""
    with filler.open("ab", buffering=0) as file:
        for size in (1024 * 1024, 4096):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


# The files in which processes count ------------------------------------------------------------------

COUNT = """
import sys
from {module} import {name} as CountFile
counts = CountFile(sys.argv[1])
counts.write_value("spends", 3.0, 0.0)
"""
WRITE_DOWN = """
from ledger.telemetry.count_files import write_down_all
write_down_all()
import os
print(counts.are_written, os.path.exists(sys.argv[1]))
os.unlink(sys.argv[2])
write_down_all()
print(counts.are_written, [value for _, value, _, _ in counts.read_all_values_from_file(sys.argv[1])])
"""


def count_on_a_full_volume(script: str) -> "subprocess.CompletedProcess[str]":
    """What becomes of a process that counts where no block is left."""
    with volume("1m") as data:
        fill(data / "filler")
        command = [sys.executable, "-c", script, str(data / "counter_1.db"), str(data / "filler")]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_counts_are_kept_in_memory_on_a_full_disk_and_written_when_there_is_room() -> None:
    done = count_on_a_full_volume(COUNT.format(module="ledger.telemetry.count_files", name="CountFile") + WRITE_DOWN)
    assert (done.returncode, done.stdout) == (0, "False False\nTrue [3.0]\n"), "a file that nobody can read has no name"
    assert done.stderr.count("cannot be written") == 1


def test_control_the_packages_own_files_end_the_process() -> None:
    done = count_on_a_full_volume(COUNT.format(module="prometheus_client.mmap_dict", name="MmapedDict"))
    assert done.returncode == -signal.SIGBUS


# All of it -------------------------------------------------------------------------------------------


@pytest.fixture
def serving() -> Iterator[Serving]:
    """What `make run` starts, with all of its data on a small volume; ended whatever became of it."""
    with volume("220m") as data:
        started = Serving(data / "ledger", LEDGER_BOOTSTRAP_API_KEY=KEY)
        try:
            yield started.wait_until_ready()
        finally:
            started.kill_everything()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, pytest.param(120, marks=pytest.mark.slow)])
def test_with_a_full_disk_every_request_gets_an_answer_and_no_web_process_ends(serving: Serving, seconds: int) -> None:
    assert serving.post("/v1/holders/patient/grants", {"amount": 1000}, "g-1") == 201
    web, filler = serving.web_pids(), serving.data_dir / "filler"
    assert len(web) == 6
    fill(filler)
    use_up_the_log(serving)
    answers, unknown, until = [], list[str](), time.monotonic() + seconds
    while time.monotonic() < until or len(answers) < 5:
        # PostgreSQL that ends gives some room back.
        fill(filler)
        answers.append(try_to_spend(serving, f"s-{len(answers)}"))
        if answers[-1][1] == UNKNOWN:
            unknown.append(f"s-{len(answers) - 1}")
        status, body = serving.get("/v1/holders/patient/balance", KEY)
        assert status == 200 or body["outcome"] == "not_executed"
        assert serving.web_pids() == web
    assert {status for status, _ in answers} == {503}
    assert {problem for _, problem in answers} <= NOT_TAKEN | {UNKNOWN}

    filler.unlink()
    wait_until(lambda: try_to_spend(serving, "s-0")[0] == 201, "it recovers by itself")
    # PostgreSQL may end while a COMMIT is under way; the same key tells what became of that.
    assert [try_to_spend(serving, key)[0] for key in unknown] == [201] * len(unknown)
    assert serving.get("/v1/holders/patient/balance", KEY)[1]["balance"] == 1000 - len({"s-0", *unknown})
    assert serving.web_pids() == web
    wait_until(lambda: counts_written(serving) == "1.0", "the counts are written again")
    assert serving.stop() == 0


def use_up_the_log(serving: Serving) -> None:
    """Write until PostgreSQL's log needs a file for which there is no room."""
    with (
        suppress(psycopg.OperationalError, DiskFull),
        psycopg.connect(Server(serving.data_dir).superuser_url, autocommit=True) as superuser,
    ):
        while True:
            superuser.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000), true)")


def try_to_spend(serving: Serving, key: str) -> tuple[int, str]:
    """Status and problem of a spend of one credit; a spend that was executed has no problem."""
    try:
        return serving.post("/v1/holders/patient/spends", {"amount": 1}, key), ""
    except urllib.error.HTTPError as error:
        body = error.read().decode()
        problem = body.split("/problems/")[1].split('"')[0]
        assert f'"outcome":"{"unknown" if problem == UNKNOWN else "not_executed"}"' in body, body
        return error.code, problem


def counts_written(serving: Serving) -> str:
    """The gauge, as a scrape has it."""
    token = (serving.data_dir / "metrics_token").read_text()
    request = urllib.request.Request(f"{serving.url}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        lines = response.read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("ledger_counts_written ")]
    return value
