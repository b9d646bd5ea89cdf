"""What `serve` runs is started again when it ends; what cannot start is tried again, or given up."""

import sys
from pathlib import Path
from unittest import mock

import pytest

from ledger_project.serving import supervisor
from ledger_project.serving.granian_server import pause_s
from ledger_project.serving.postgres.errors import EmbeddedPostgresError
from ledger_project.serving.timetable_worker import TimetableWorker


class FailingServer:
    """An embedded server that has ended, and cannot start until there is room."""

    def __init__(self) -> None:
        self.has_room = False
        self.starts = 0
        self.application_url = "postgresql://there"

    def is_running(self) -> bool:
        return False

    def start(self) -> None:
        self.starts += 1
        if not self.has_room:
            raise EmbeddedPostgresError("No space left on device")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the supervisor, which stands still unless it is moved; pauses move it."""
    clock = [100.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(supervisor, "monotonic", lambda: clock[0])
    monkeypatch.setattr(supervisor, "sleep", sleep)
    return clock


def test_a_database_that_cannot_start_is_tried_again_at_growing_intervals_and_said_once(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    server = FailingServer()
    database = supervisor.Database(server)  # type: ignore[arg-type]
    tried_at = []
    for _ in range(200):
        before = server.starts
        assert database.ensure_running() is False
        if server.starts > before:
            tried_at.append(now[0] - 100)
        now[0] += 0.5
    assert tried_at == [0, 1, 3, 7, 15, 25, 35, 45, 55, 65, 75, 85, 95]
    assert caplog.messages == [
        "PostgreSQL has ended; starting it again.",
        "PostgreSQL does not start. Requests get 503; it is tried every 10 s. No space left on device",
    ]
    server.has_room = True
    now[0] += 10
    assert database.ensure_running() is False
    assert caplog.messages[2:] == ["PostgreSQL runs again."]


def test_a_database_that_came_up_elsewhere_is_reported(now: list[float]) -> None:
    server = FailingServer()
    server.has_room = True
    database = supervisor.Database(server)  # type: ignore[arg-type]
    server.application_url = "postgresql://elsewhere"
    assert database.ensure_running() is True
    assert database.ensure_running() is False


def web_server(script: str, folder: Path) -> supervisor.WebServer:
    """A web server that is a Python script."""
    return supervisor.WebServer([sys.executable, "-c", script], environment={}, folder=folder)


def test_a_web_server_that_ends_at_once_is_given_up_after_five_starts(
    now: list[float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web = web_server("open('starts', 'a').write('x')", tmp_path)
    with pytest.raises(supervisor.WebServerDoesNotStay):
        supervisor.keep_running(web, None, mock.Mock(spec=TimetableWorker))
    assert (tmp_path / "starts").read_text() == "xxxxx"
    assert caplog.messages == ["The web server has ended with 0; starting it again."] * 5
    assert now == [100 + 1 + 2 + 4 + 8]


def test_a_web_server_that_once_ran_is_never_given_up(now: list[float], tmp_path: Path) -> None:
    """As on a machine whose memory is short for a while: its main process is killed soon after each start."""
    web = web_server("open('starts', 'a').write('x'); input()", tmp_path)
    pauses = []
    for start in range(12):
        assert web.ended(within_s=30) == 1
        now[0] += supervisor.SETTLED_AFTER_S if start == 0 else 0
        before = now[0]
        web.restart_ended()
        pauses.append(now[0] - before)
    assert pauses == [0, 1, 2, 4, 8, 10, 10, 10, 10, 10, 10, 10]
    web.stop()


def test_a_web_process_is_started_again_at_once_and_then_after_growing_pauses() -> None:
    assert [pause_s(failed) for failed in range(9)] == [0, 0, 0.5, 1, 2, 4, 5, 5, 5]
    assert pause_s(10**6) == 5


def test_a_web_server_that_had_settled_is_started_again_without_a_pause(now: list[float], tmp_path: Path) -> None:
    web = web_server("input()", tmp_path)
    for _ in range(10):
        assert web.ended(within_s=30) == 1
        now[0] += supervisor.SETTLED_AFTER_S
        before = now[0]
        web.restart_ended()
        assert now[0] == before
    web.stop()
