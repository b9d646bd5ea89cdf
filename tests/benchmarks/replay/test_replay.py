"""Replaying a trace: read exactly, played with its accidents, and checked so that a wrong response would be found."""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ledger import services
from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from tests.benchmarks.replay import command, usage_billing
from tests.benchmarks.replay.play import Accidents, ReplayFailed, Target, check_balances, grant_all, spend_all
from tests.benchmarks.replay.traces import TraceInvalid, Use, read_trace
from tests.conftest import WebProcess

ROOT = Path(__file__).resolve().parents[3]
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = 60
INTERRUPTED = 130
"""The exit code of a command that SIGINT or SIGTERM ended."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Sixty requests within a minute, at month's end."""
    path = tmp_path / "trace.csv"
    rows = (f"2023-11-30 23:59:{n:02}.9799600,{100 + n * n},{n % 7}\n" for n in range(ROWS))
    path.write_text(HEADER + "".join(rows))
    return path


# Reading ---------------------------------------------------------------------------------------------


def test_a_trace_is_read_row_by_row(trace: Path) -> None:
    uses = read_trace(trace)

    assert len(uses) == ROWS
    assert uses[2] == Use(3, datetime(2023, 11, 30, 23, 59, 2, 979960, tzinfo=UTC), prompt_tokens=104, generated_tokens=2)
    assert uses[2].credits == 104 + 3 * 2
    assert read_trace(trace, limit=3) == uses[:3]


def test_requests_are_given_to_the_same_users_each_time_and_few_users_have_many() -> None:
    uses = [Use(number, datetime(2023, 1, 1, tzinfo=UTC), 1, 0) for number in range(1, 8820)]
    per_user = Counter(use.user for use in uses)

    assert [use.user for use in uses[:8]] == [53, 207, 28, 26, 262, 247, 68, 10]
    assert (min(per_user), max(per_user), len(per_user)) == (1, 300, 300)
    assert sum(per_user[user] for user in range(1, 31)) > 2 * sum(per_user[user] for user in range(271, 301))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "the first line must name TIMESTAMP, ContextTokens, GeneratedTokens"),
        (HEADER, "contains no requests"),
        (HEADER + "2023-11-16 18:17:03,1,1\nyesterday,1,1\n", "line 3: Invalid isoformat string: 'yesterday'"),
        (HEADER + "2023-11-16 18:17:03,many,1\n", "line 2: invalid literal for int() with base 10: 'many'"),
        (HEADER + "2023-11-16 18:17:03,1\n", "line 2: int() argument must be a string"),
        (HEADER + "2023-11-16 18:17:03,-1,9\n", "line 2: token counts must not be negative, nor both 0"),
        (HEADER + "2023-11-16 18:17:03,0,0\n", "line 2: token counts must not be negative, nor both 0"),
    ],
)
def test_what_is_no_trace_is_refused_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)

    with pytest.raises(TraceInvalid) as refused:
        read_trace(path)

    assert complaint in str(refused.value)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str]:
    """The exit code of a command that reports nothing, and what it says."""
    with pytest.raises(SystemExit) as end:
        command.main(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    return end.value.code, said.err


def test_without_a_trace_it_is_said_where_one_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, str(tmp_path / "none.csv"))

    assert code == 1
    assert f"{tmp_path}/none.csv does not exist" in said
    assert "https://github.com/Azure/AzurePublicDataset" in said


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--limit=-1", "--limit must be 1 or more"),
        ("--limit=0", "--limit must be 1 or more"),
        ("--concurrency=0", "--concurrency must be 1 or more"),
        ("--speed=nan", "--speed must be 0 or more"),
        ("--repeat-every=-1", "--repeat-every must be 0 or more"),
        ("--drop-every=-1", "--drop-every must be 0 or more"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_anything_starts(
    trace: Path, option: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(capsys, str(trace), option)
    assert code == 2
    assert complaint in said


def test_a_file_that_is_no_csv_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "x" * 200_000)
    code, said = refused(capsys, str(path))
    assert code == 1
    assert "field larger than field limit" in said


# Playing ---------------------------------------------------------------------------------------------


@pytest.fixture
def target(committed_db: None, server_processes: Callable[..., list[WebProcess]]) -> Target:
    """A new run against a server on the test database."""
    run = f"replay-{uuid.uuid4().hex[:8]}"
    _, api_key = api_keys.create_api_key(name=run, scopes=["ledger:read", "ledger:spend", "ledger:grant"])
    (web,) = server_processes(1)
    return Target(web.url, api_key, run)


def outcome_by_hand(uses: list[Use], granted: Counter[int]) -> tuple[list[Use], int]:
    """Who is served, one after the other: the accepted, and the number of the refused."""
    left = Counter(granted)
    accepted = []
    for use in uses:
        if use.credits <= left[use.user]:
            left[use.user] -= use.credits
            accepted.append(use)
    return accepted, len(uses) - len(accepted)


@pytest.mark.slow
def test_played_by_one_client_every_response_is_as_computed_by_hand_and_every_balance_and_invoice_too(
    target: Target, trace: Path
) -> None:
    # Few users, so that each has several requests.
    uses = [use for use in read_trace(trace) if use.user <= 60]

    granted = grant_all(target, uses, concurrency=4)
    tally = spend_all(target, uses, concurrency=1, speed=0, accidents=Accidents(repeat_every=5, drop_every=4))
    tally.granted = granted

    accepted, refused = outcome_by_hand(uses, granted)
    assert (tally.accepted, tally.refused) == (accepted, refused)
    assert accepted
    assert refused
    repeated = sum(use.number % 5 == 0 for use in uses)
    dropped = sum(use.number % 4 == 0 for use in uses)
    surely_given = sum(use.number % 8 == 0 for use in uses)
    assert (tally.repeated, tally.dropped, tally.retried) == (repeated, dropped, 0)
    assert repeated + surely_given <= tally.replays <= repeated + dropped
    assert tally.responses == len(uses) + repeated
    assert check_balances(target, tally) == len({use.user for use in uses})

    invoiced = usage_billing.invoice_usage(target, tally.accepted)
    assert invoiced.events == 2 * len(accepted)
    assert invoiced.invoices == len({use.user for use in accepted})
    assert invoiced.total_minor == invoiced.expected_minor > 0


@pytest.mark.slow
def test_played_by_many_clients_nothing_is_lost_or_doubled(target: Target, trace: Path) -> None:
    uses = read_trace(trace)

    granted = grant_all(target, uses, concurrency=8)
    tally = spend_all(target, uses, concurrency=8, speed=0, accidents=Accidents(repeat_every=2, drop_every=3))
    tally.granted = granted

    assert sorted(use.number for use in tally.accepted) != []
    assert tally.requests == ROWS
    assert (tally.repeated, tally.dropped) == (30, 20)
    check_balances(target, tally)


@pytest.mark.slow
def test_control_a_spend_without_a_response_is_found(target: Target, trace: Path) -> None:
    uses = read_trace(trace)[:5]
    granted = grant_all(target, uses, concurrency=1)
    tally = spend_all(target, uses, concurrency=1, speed=0, accidents=Accidents(0, 0))
    tally.granted = granted

    services.spend(holder_id=target.holder(uses[0].user), amount=1, idempotency_key="somebody else")

    with pytest.raises(ReplayFailed, match=target.holder(uses[0].user)):
        check_balances(target, tally)


@pytest.mark.slow
def test_control_usage_that_is_billed_wrongly_is_found(target: Target, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = read_trace(trace)[:5]
    billed = usage_billing._events
    monkeypatch.setattr(
        usage_billing, "_events", lambda target, use: billed(target, replace(use, prompt_tokens=use.prompt_tokens + 1000))
    )

    with pytest.raises(ReplayFailed, match="the invoices come to"):
        usage_billing.invoice_usage(target, uses)


@pytest.mark.slow
def test_against_a_running_ledger_it_makes_a_key_for_the_run_and_leaves_out_what_it_cannot_reach(
    target: Target, trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LEDGER_BOOTSTRAP_API_KEY", raising=False)
    # As where that ledger's database is not the one of these settings.
    monkeypatch.setattr(command, "_is_our_database", lambda target, uses: False)

    command.main([str(trace), "--url", target.url, "--limit", "20", "--concurrency", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Trace     trace.csv: 20 requests by 18 holders, run replay-")
    assert lines[-2] == "Balances  18 of 18 holders have the balance of their responses"
    assert lines[-1].startswith("Audit     skipped, like the invoices")
    key = ApiKey.objects.get(name=lines[0].rsplit(" ", 1)[1])
    assert key.revoked_at is not None


# A ledger with wrong responses -----------------------------------------------------------------------


@contextmanager
def server_of(responses: list[tuple[int, dict[str, Any], dict[str, str]]]) -> Iterator[Target]:
    """A server that gives these responses (status, body, headers), one after the other."""
    left = iter(responses)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body, headers = next(left)
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Target(f"http://127.0.0.1:{server.server_port}", "key", "run")
        finally:
            server.shutdown()
            thread.join()


ONE = [Use(1, datetime(2023, 1, 1, tzinfo=UTC), 1, 0)]
REPLAYED = {"Idempotency-Replayed": "true"}


@pytest.mark.slow
def test_a_503_or_429_is_retried_after_its_retry_after() -> None:
    with server_of([(503, {}, {"Retry-After": "0"}), (429, {}, {"Retry-After": "0"}), (201, {}, {})]) as target:
        tally = spend_all(target, ONE, concurrency=1, speed=0, accidents=Accidents(0, 0))

    assert (tally.accepted, tally.retried, tally.responses) == (ONE, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "second",
    [(201, {"balance": 1}, REPLAYED), (201, {"balance": 2}, {}), (402, {"balance": 2}, REPLAYED)],
    ids=["other body", "not marked as replayed", "other status"],
)
def test_another_response_to_the_same_request_is_a_failure(second: tuple[int, dict[str, Any], dict[str, str]]) -> None:
    with server_of([(201, {"balance": 2}, {}), second]) as target, pytest.raises(ReplayFailed, match="row 1: first"):
        spend_all(target, ONE, concurrency=1, speed=0, accidents=Accidents(repeat_every=1, drop_every=0))


@pytest.mark.slow
def test_a_response_that_neither_accepts_nor_refuses_is_a_failure() -> None:
    with server_of([(500, {"title": "broken"}, {})]) as target, pytest.raises(ReplayFailed, match=r"row 1: 500 .*broken"):
        spend_all(target, ONE, concurrency=1, speed=0, accidents=Accidents(0, 0))


@pytest.mark.slow
def test_a_failure_ends_the_command_with_a_sentence_and_exit_code_1(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server_of([(500, {"title": "broken"}, {})]) as target, pytest.raises(SystemExit) as end:
        command.main([str(trace), "--url", target.url, "--api-key", "key", "--limit", "1"])

    assert (end.value.code, capsys.readouterr().err) == (1, 'grant: 500 {"title": "broken"}\n')


# The whole command -----------------------------------------------------------------------------------


def start_replay(trace: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    """`python -m tests.benchmarks.replay` with a new ledger, whose data go under `folder`."""
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.replay", str(trace), *options],
        cwd=ROOT, env=bare | {"LEDGER_DATA_DIR": str(folder / "settings")}, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def left_running(folder: Path) -> list[str]:
    """The processes whose environment or directory is under `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = str((entry / "cwd").readlink()).encode() + b"\0" + (entry / "environ").read_bytes()
            if str(folder).encode() in where and int(entry.name) != os.getpid():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where also PostgreSQL's account can reach, with a path short enough for a socket."""
    made = Path("/tmp") / f"replay-test-{uuid.uuid4().hex[:8]}"
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
def test_the_command_starts_a_ledger_plays_checks_audits_invoices_and_leaves_nothing(trace: Path, folder: Path) -> None:
    process = start_replay(trace, folder, "--concurrency", "4")
    said, _ = process.communicate(timeout=180)

    assert process.returncode == 0, said
    labels = [line.split()[0] for line in said.splitlines() if not line.startswith(" ")]
    assert labels == ["Trace", "Responses", "Latency", "Accepted", "Refused", "Retries", "Balances", "Audit", "Invoices"]
    assert f"trace.csv: {ROWS} requests by " in said
    assert "6 after a response, 2 after a lost response" in said
    assert sorted(path.name for path in folder.iterdir()) == ["settings"]
    assert left_running(folder) == []


@pytest.mark.slow
def test_a_replay_interrupted_in_the_middle_leaves_nothing(trace: Path, folder: Path) -> None:
    a_minute_takes_hours = "0.001"
    process = start_replay(trace, folder, "--speed", a_minute_takes_hours)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Trace ")
    assert left_running(folder)

    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)

    assert process.returncode == INTERRUPTED, said
    assert said.strip().endswith("Interrupted.")
    assert sorted(path.name for path in folder.iterdir()) == ["settings"]
    assert left_running(folder) == []
