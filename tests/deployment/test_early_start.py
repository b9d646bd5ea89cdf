"""What `serve` begins before Django is there: the database comes up aside, and ends with the block."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ledger_project.embedded_postgres import Server
from ledger_project.serving.supervisor import EarlyStart, StartRefused, Stop, begun
from tests.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def data_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory that every account may pass; signals are listened to as before afterwards."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    yield folder / "data"
    for number, handler in handlers.items():
        signal.signal(number, handler)
    Server(folder / "data").stop()
    shutil.rmtree(folder)


def test_the_database_runs_for_the_block_and_whoever_asks_again_gets_the_same(data_dir: Path) -> None:
    port = free_port()
    with begun(data_dir, port) as first:
        first.ensure_begun()
        server = first.database()
        assert server is not None
        assert server.is_running()
        with begun(data_dir, port) as second:
            assert second is first
            assert second.database() is server
    assert not Server(data_dir).is_running()


def test_a_signal_ends_the_block_and_the_database(data_dir: Path) -> None:
    with suppress(Stop), begun(data_dir, free_port()) as start:
        assert start.database() is not None
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal did not end the block")
    assert not Server(data_dir).is_running()


def test_a_signal_while_it_comes_up_waits_for_it_and_stops_it(data_dir: Path) -> None:
    with suppress(Stop), begun(data_dir, free_port()):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the signal did not end the block")
    assert not Server(data_dir).is_running()
    assert not list(data_dir.glob("postgres.unfinished-*"))


def test_a_signal_before_the_block_is_reached_leaves_nothing_behind(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_database = EarlyStart._begin_database

    def interrupted(start: EarlyStart) -> None:
        begin_database(start)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(EarlyStart, "_begin_database", interrupted)
    with pytest.raises(Stop), begun(data_dir, free_port()):
        pytest.fail("the signal did not end the beginning")
    assert not Server(data_dir).is_running()
    monkeypatch.undo()
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with begun(data_dir, free_port()) as again:
        again.ensure_begun()
        assert again.database() is not None


def test_a_second_one_is_refused_and_leaves_the_first_alone(data_dir: Path) -> None:
    with begun(data_dir, free_port()) as first:
        server = first.database()
        assert server is not None
        second = EarlyStart(data_dir, free_port())
        second.begin()
        with pytest.raises(StartRefused, match="Another `serve` uses"):
            second.ensure_begun()
        assert second.database() is None
        second.end()
        assert server.is_running()


def test_a_taken_port_is_refused_before_anything_starts(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with begun(data_dir, taken.getsockname()[1]) as start, pytest.raises(StartRefused, match="make run PORT=8001"):
            start.ensure_begun()
    assert not (data_dir / "postgres").exists()


def test_with_database_url_nothing_of_ours_is_started(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere.invalid/else")
    with begun(data_dir, free_port()) as start:
        start.ensure_begun()
        assert start.database() is None
    assert not (data_dir / "postgres").exists()


# Loaded once ---------------------------------------------------------------------------------------


def preloaded(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a module behind `ledger_project.preloaded`."""
    return subprocess.run(
        [sys.executable, "-m", "ledger_project.preloaded", *arguments],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_application_is_there_before_the_server_is_and_the_collector_leaves_it_alone() -> None:
    loaded = "import sys, gc; print('ledger.api.views' in sys.modules, gc.get_freeze_count() > 10_000)"
    done = preloaded("timeit", "--number=1", "--repeat=1", loaded)
    assert done.stdout.startswith("True True\n"), done.stderr


def test_it_ends_with_whoever_started_it() -> None:
    done = preloaded("timeit", "--number=1", "--repeat=1", "print('goes on')", LEDGER_SERVED_BY="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "ended meanwhile" in done.stderr


PAGES_LOADED = """
import django, sys
django.setup()
print([name for name in sys.modules if name.startswith(("ledger.admin.", "billing.admin."))])
"""


def test_a_command_does_not_load_the_admins_pages() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ledger_project.settings"}
    done = subprocess.run(
        [sys.executable, "-c", PAGES_LOADED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
