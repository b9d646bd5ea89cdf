"""Web processes that come up while their database is being prepared look at it, and answer, only afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger_project.serving.bootstrap import wait_until_prepared
from ledger_project.serving.web import PREPARED_WHEN_FREE, held_back_until_prepared
from tests.deployment.serving.test_serve import wait_until

WEB_PROCESS = """
import django
django.setup()
from ledger_project.serving.bootstrap import wait_until_prepared
wait_until_prepared()
print("looks at the database")
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file; whatever is written into the environment is taken back."""
    monkeypatch.delenv(PREPARED_WHEN_FREE, raising=False)
    return tmp_path / "preparing.lock"


def start() -> "subprocess.Popen[str]":
    """A process that does what asgi.py does before it looks at the database."""
    return subprocess.Popen([sys.executable, "-c", WEB_PROCESS], stdout=subprocess.PIPE, text=True)


def waits_for_a_lock(process: "subprocess.Popen[str]") -> bool:
    """As the kernel lists it."""
    return any(" -> FLOCK " in line and str(process.pid) in line.split() for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.slow
def test_a_process_waits_until_the_block_ends(gate: Path) -> None:
    with held_back_until_prepared(gate):
        process = start()
        wait_until(lambda: waits_for_a_lock(process) or process.poll() is not None, "waiting")
        assert process.poll() is None
    assert process.communicate(timeout=60)[0] == "looks at the database\n"


@pytest.mark.slow
def test_a_failed_preparation_lets_it_go_too(gate: Path) -> None:
    started = []

    def fail() -> None:
        with held_back_until_prepared(gate):
            started.append(start())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert started[0].communicate(timeout=60)[0] == "looks at the database\n"


def test_a_process_that_starts_after_the_block_does_not_wait(gate: Path) -> None:
    with held_back_until_prepared(gate):
        pass
    assert os.environ[PREPARED_WHEN_FREE] == str(gate)
    wait_until_prepared()


ADDRESS_CHANGES = """
import django
django.setup()
from dataclasses import replace
from django.conf import settings
from django.db import connection
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.postgres.credentials import keep
from ledger_project.serving.bootstrap import wait_until_prepared
server = Server(settings.DATA_DIR)
before = dict(connection.settings_dict)
keep(server.data_dir, replace(server.credentials, port=before["PORT"] + 1))
wait_until_prepared()
print({name: value for name, value in connection.settings_dict.items() if value != before[name]} == {"PORT": before["PORT"] + 1})
"""


@pytest.mark.slow
def test_a_process_that_waited_takes_the_port_of_the_database_and_no_other_setting(gate: Path) -> None:
    with held_back_until_prepared(gate):
        environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "SECRET_KEY")}
    environment |= {"DJANGO_SETTINGS_MODULE": "ledger_project.settings", "LEDGER_DATA_DIR": str(gate.parent / "data")}
    done = subprocess.run([sys.executable, "-c", ADDRESS_CHANGES], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_process_that_nothing_holds_back_does_not_wait(gate: Path) -> None:
    wait_until_prepared()
    assert not gate.exists()
