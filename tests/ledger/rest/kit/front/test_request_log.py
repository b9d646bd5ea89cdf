"""One line of the log per request, refusals included, as text or as JSON; a traceback only for what nobody expected."""

import json
import logging
import os
import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from ledger_project import logs
from tests.asgi_client import AsgiClient
from tests.conftest import WebProcess
from tests.ledger.rest.conftest import ApiClient

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log would have so far, as text."""
    # Loading it sets logging up once more, which would take away what listens here.
    import ledger_project.serving.application  # noqa: F401

    caplog.set_level(logging.INFO)
    return lambda: [logs.TextFormatter().format(record) for record in caplog.records]


def test_a_request_leaves_one_line(lines: Callable[[], list[str]]) -> None:
    AsgiClient().get("/healthz", headers={"X-Request-Id": "mine-1"})
    (line,) = lines()
    assert re.fullmatch(
        TIME + r" INFO ledger\.requests GET /healthz status=200 ms=\d+\.\d+ client=127\.0\.0\.1 request_id=mine-1", line
    )


def test_a_refusal_leaves_one_line_with_its_code(
    api: ApiClient, new_holder: Callable[[], str], lines: Callable[[], list[str]]
) -> None:
    path = f"/v1/holders/{new_holder()}/spends"
    refused = api.post(path, {"amount": 5})
    assert refused.status_code == 402
    (line,) = lines()
    assert f" INFO ledger.requests POST {path} status=402 " in line
    assert line.endswith(f" request_id={refused['X-Request-Id']} problem=insufficient-credits")


@pytest.mark.usefixtures("committed_db")
def test_an_expected_503_leaves_its_cause_and_no_traceback(
    make_api: Callable[..., ApiClient],
    monkeypatch: pytest.MonkeyPatch,
    lines: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = make_api(name=f"log-{uuid.uuid4().hex}")
    api.client = AsgiClient(on_this_connection=True)
    assert api.get("/v1/holders/ada/balance").status_code == 200
    caplog.clear()
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    assert api.get("/v1/holders/ada/balance").status_code == 503
    (line,) = lines()
    assert " WARNING ledger.requests GET /v1/holders/ada/balance status=503 " in line
    assert " problem=database-unavailable cause=" in line
    assert "Connection refused" in line
    assert "Traceback" not in line


BROKEN_PAGE = """
import django
django.setup()
from unittest import mock
from tests.asgi_client import AsgiClient
def broken(*arguments, **more):
    raise ZeroDivisionError("seventeen")
with mock.patch("django.contrib.admin.sites.AdminSite.login", broken):
    answer = AsgiClient(raise_request_exception=False).get("/admin/login/", headers={"X-Request-Id": "mine-2"})
print(answer.status_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_500_in_the_admin_leaves_its_traceback(form: str) -> None:
    environment = {
        "PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "ledger_project.settings", "SECRET_KEY": "x",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "LEDGER_LOG_FORMAT": form, "ALLOWED_HOSTS": "testserver",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_PAGE], cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "500\n"
    if form == "json":
        error, request = map(json.loads, done.stderr.splitlines())
        assert (error["level"], error["logger"], error["request_id"]) == ("error", "django.request", "mine-2")
        assert error["traceback"].endswith("ZeroDivisionError: seventeen")
        assert (request["message"], request["status"], request["request_id"]) == ("GET /admin/login/", 500, "mine-2")
    else:
        head, *traceback, request_line = done.stderr.splitlines()
        assert re.fullmatch(TIME + " ERROR django.request Internal Server Error: /admin/login/ request_id=mine-2", head)
        assert traceback[0] == "Traceback (most recent call last):"
        assert traceback[-1] == "ZeroDivisionError: seventeen"
        assert " ERROR ledger.requests GET /admin/login/ status=500 " in request_line


def test_what_a_client_sends_cannot_begin_a_line(lines: Callable[[], list[str]]) -> None:
    AsgiClient().get("/healthz%0A2026-01-01T00:00:00.000Z%20INFO%20forged")
    (line,) = lines()
    assert "GET /healthz\\n2026-01-01T00:00:00.000Z INFO forged status=404 " in line


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.usefixtures("committed_db")
def test_a_web_process_writes_its_log_as_json_where_that_is_set(
    server_processes: Callable[..., list[WebProcess]], new_holder: Callable[[], str]
) -> None:
    (web,) = server_processes(1, env={"LEDGER_LOG_FORMAT": "json"})
    with urllib.request.urlopen(urllib.request.Request(f"{web.url}/healthz", headers={"X-Request-Id": "mine-3"})) as response:
        assert response.headers["X-Request-Id"] == "mine-3"
    found: list[dict[str, Any]] = [json.loads(line) for line in web.log.read_text().splitlines()]
    (mine,) = [line for line in found if line.get("request_id") == "mine-3"]
    assert list(mine) == ["time", "level", "logger", "message", "status", "ms", "client", "request_id"]
    assert (mine["level"], mine["message"], mine["status"]) == ("info", "GET /healthz", 200)


# Lines without records ---------------------------------------------------------------------------------


LogIntoFile = Callable[[logging.Formatter], Callable[[], list[str]]]


@pytest.fixture
def log_into_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogIntoFile]:
    """Called in a test, gives the log one handler only, which writes a file; returns what tells its lines."""
    # Not by the fixture itself: pytest adds its own handler between that and the test.
    with (tmp_path / "log").open("w") as stream:

        def begin(formatter: logging.Formatter) -> Callable[[], list[str]]:
            handler = logging.StreamHandler(stream)
            handler.setFormatter(formatter)
            monkeypatch.setattr(logging.root, "handlers", [handler])
            return lambda: (tmp_path / "log").read_text().splitlines()

        yield begin


FACTS = [
    {"status": 201, "ms": 3.123, "client": "127.0.0.1", "request_id": "01a2"},
    {
        "status": 503,
        "ms": 0.1,
        "client": "",
        "request_id": "a b",
        "problem": "database-unavailable",
        "cause": 'no "disk"\nleft ü',
    },
    {"status": 200, "replayed": True, "nothing": None},
]
without_time = partial(re.sub, TIME, "TIME")


@pytest.mark.parametrize("formatter", [logs.TextFormatter, logs.JsonFormatter])
@pytest.mark.parametrize("facts", FACTS, ids=["a write", "odd values", "a replay"])
def test_a_line_without_a_record_has_the_bytes_of_one_with_a_record(
    log_into_file: LogIntoFile, formatter: type[logging.Formatter], facts: dict[str, Any]
) -> None:
    lines = log_into_file(formatter())
    logger = logging.getLogger("ledger.test-lines")
    write = logs.write_without_record(logger)
    assert write is not None
    assert write("WARNING", "GET /v1/hold\ners/ü", facts)
    logger.warning("%s", "GET /v1/hold\ners/ü", extra={"facts": facts})
    line, from_record = map(without_time, lines())
    assert line == from_record
    assert "TIME" in line


@pytest.mark.parametrize("where", ["root", "logger", "filter"])
def test_who_listens_to_the_log_gets_records(log_into_file: LogIntoFile, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    lines = log_into_file(logs.TextFormatter())
    logger = logging.getLogger("ledger.test-lines")
    write = logs.write_without_record(logger)
    assert write is not None
    if where == "filter":
        monkeypatch.setattr(logger, "filters", [lambda record: True])
    else:
        watched = logging.root if where == "root" else logger
        monkeypatch.setattr(watched, "handlers", [*watched.handlers, logging.NullHandler()])
    assert not write("INFO", "GET /", {})
    assert lines() == []


def test_a_line_that_a_pipe_takes_in_pieces_is_written_whole_and_one_that_it_refuses_stops_nobody(
    log_into_file: LogIntoFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = log_into_file(logs.TextFormatter())
    write = logs.write_without_record(logging.getLogger("ledger.test-lines"))
    assert write is not None
    whole = os.write
    monkeypatch.setattr(logs.os, "write", lambda descriptor, line: whole(descriptor, line[:3]))
    assert write("INFO", "GET /healthz", {"status": 200})
    assert [without_time(line) for line in lines()] == ["TIME INFO ledger.test-lines GET /healthz status=200"]

    def refuse(descriptor: int, line: bytes) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(logs.os, "write", refuse)
    assert write("INFO", "GET /healthz", {"status": 200})


def test_lines_that_are_held_back_are_written_by_one_call_with_the_times_at_which_they_were_made(
    log_into_file: LogIntoFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = log_into_file(logs.TextFormatter())
    write = logs.write_without_record(logging.getLogger("ledger.test-lines"))
    assert write is not None
    calls: list[bytes] = []
    whole = os.write

    def counted(descriptor: int, line: bytes) -> int:
        calls.append(line)
        return whole(descriptor, line)

    monkeypatch.setattr(logs.os, "write", counted)
    monkeypatch.setattr(logs.time, "time", iter([1_000_000_000.25, 1_000_000_001.5]).__next__)
    write.hold()
    assert write("INFO", "GET /1", {})
    assert write("INFO", "GET /2", {})
    assert (lines(), calls) == ([], [])
    write.release()
    assert len(calls) == 1
    assert lines() == [
        "2001-09-09T01:46:40.250Z INFO ledger.test-lines GET /1",
        "2001-09-09T01:46:41.500Z INFO ledger.test-lines GET /2",
    ]
    write.release()
    assert len(calls) == 1


def test_a_log_that_is_set_up_otherwise_keeps_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler()])
    assert logs.write_without_record(logging.getLogger("ledger.test-lines")) is None


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="LEDGER_LOG_FORMAT is 'xml': text or json"):
        logs.configuration(form="xml", level="INFO")
