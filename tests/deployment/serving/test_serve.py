"""`manage.py serve`, as `make run` starts it: one thing that starts, answers, stops and comes back, whatever ended it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger_project.serving import pages_server
from ledger_project.serving.postgres import processes
from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.serve import StartRefused, _free_ports
from ledger_project.serving.timetable_worker import NICENESS
from ledger_project.work.timetable import TIMETABLE
from tests.conftest import database_url, wait_for_answer
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
KEY = "bootstrap-key-0123456789abcdef0123456789"
NOBODY = 65534
SMALL = {"LEDGER_WEB_WORKERS": "0", "LEDGER_TIMETABLE_WORKERS": "0"}
"""One server that does everything, with one process, and no worker: it starts with half of the work."""
WHOLE = dict.fromkeys(SMALL, "")
"""As `make run` starts it."""


class Serving:
    """One `manage.py serve` in a separate session, with a bare environment."""

    def __init__(
        self,
        data_dir: Path,
        *,
        python: list[str] | None = None,
        user: int | None = None,
        cwd: Path = ROOT,
        checkout: Path = ROOT,
        **environment: str,
    ) -> None:
        self.data_dir = data_dir
        self.port = int(environment.setdefault("PORT", str(free_port())))
        self.url = f"http://127.0.0.1:{self.port}"
        self.pages_url = f"http://127.0.0.1:{environment.setdefault('LEDGER_PAGES_PORT', str(free_port()))}"
        self.output = data_dir.parent / f"output-{self.port}-{time.monotonic_ns()}"
        bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "LEDGER_DATA_DIR": str(data_dir)}
        become = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*(python or [sys.executable]), str(checkout / "manage.py"), "serve"],
                cwd=cwd, env=bare | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **become,
            )  # fmt: skip

    def wait_until_ready(self) -> "Serving":
        """Return when it answers, and not one of its forerunners; or fail with what it said."""
        wait_until(lambda: "REST " in self.said or self.process.poll() is not None, "addresses printed")
        try:
            wait_for_answer(f"{self.url}/readyz", self.process)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said}") from None
        return self

    def get(self, path: str, key: str) -> tuple[int, Any]:
        """Status and JSON of a call."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def post(self, path: str, body: dict[str, Any], key: str) -> int:
        """Status of a write."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace")

    def pids(self) -> set[int]:
        """Whatever lives of it: its session, its web processes, its database."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                mine = f"LEDGER_DATA_DIR={self.data_dir}".encode() in (entry / "environ").read_bytes().split(b"\0")
                if fields[0] != "Z" and (mine or int(fields[3]) == self.process.pid):
                    found.add(int(entry.name))
        return found | set(processes.pids(Server(self.data_dir).cluster))

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal to the whole foreground group, as a terminal does, and wait."""
        os.killpg(self.process.pid, number)
        return self.process.wait(120)

    def kill_everything(self) -> None:
        """End every process of it, and each worker that the web server started again before it ended."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def web_pids(self) -> set[int]:
        """The web server's main process, its two servers and their workers."""
        # granian gives its processes titles where setproctitle is installed, as it is beside the tests.
        return {pid for pid in self.pids() if b"serving.web" in (line := _command_line(pid)) or line.startswith(b"granian ")}

    def web_pids_once_started(self, number: int) -> set[int]:
        """The same when there are as many: the last may start after the first has answered, and a fork counts for a moment."""
        seen: list[set[int]] = []

        def all_have_started() -> bool:
            seen.append(self.web_pids())
            return len(seen[-1]) == number

        wait_until(all_have_started, f"{number} processes of the web server")
        return seen[-1]

    def worker_pids(self) -> set[int]:
        """The process that runs the timetable; not its child, which has its command line until it has become a task's command."""
        pids = {pid for pid in self.pids() if b"timetable_worker" in _command_line(pid)}
        return {pid for pid in pids if _parent_pid(pid) not in pids}


def tasks_done(serving: Serving) -> set[str]:
    """The tasks of the timetable that have succeeded."""
    with psycopg.connect(Server(serving.data_dir).application_url) as connection:
        rows = connection.execute("SELECT name FROM billing_scheduledtask WHERE exit_code = 0").fetchall()
    return {name for (name,) in rows}


def _parent_pid(pid: int) -> int:
    """The parent's process id; 0 when the process has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def _is_pending(pid: int, number: int) -> bool:
    """True while the process has not received the signal; False when it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    [pending] = re.findall(r"^ShdPnd:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(pending, 16) & 1 << (number - 1))


def niceness_of(pid: int) -> int:
    """How much the priority of the process is lowered."""
    return os.getpriority(os.PRIO_PROCESS, pid)


def _command_line(pid: int) -> bytes:
    """The command line of the process; empty when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def all_balances(serving: Serving, key: str) -> dict[tuple[str, str], int]:
    """The balance of every account."""
    status, found = serving.get("/v1/holders?limit=200", key)
    assert status == 200, found
    return {(row["holder_id"], row["credit_type"]): row["balance"] for row in found["results"]}


def metrics(serving: Serving) -> str:
    """What /metrics says, with the token that `serve` has made."""
    token = serving.data_dir / "metrics_token"
    assert token.stat().st_mode & 0o777 == 0o600
    request = urllib.request.Request(f"{serving.url}/metrics", headers={"Authorization": f"Bearer {token.read_text()}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


def wait_until(is_so: Callable[[], Any], what: str, timeout_s: float = 120) -> None:
    """Return as soon as it is so."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"never: {what}")
        time.sleep(0.05)


def is_answering(serving: Serving) -> bool:
    """Whether a read is answered as it should be."""
    with suppress(OSError):
        return serving.get("/v1/holders", KEY)[0] == 200
    return False


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every account may pass."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def seeded_data() -> Iterator[Path]:
    """A data directory after a first start; copying it takes less time than another first start."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    first = Serving(folder / "data", LEDGER_BOOTSTRAP_API_KEY=KEY, **SMALL)
    try:
        first.wait_until_ready()
        assert first.stop() == 0
    finally:
        first.kill_everything()
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def serve(public_folder: Path, seeded_data: Path) -> Iterator[Callable[..., Serving]]:
    """Starts `serve` on a copy of `seeded`, a small one; `serve(**WHOLE)` starts all of it. Everything is killed at the end."""
    if not (public_folder / "data").exists():
        subprocess.run(["cp", "--archive", seeded_data, public_folder / "data"], check=True)
    started: list[Serving] = []

    def start(**environment: Any) -> Serving:
        started.append(Serving(public_folder / "data", **(SMALL | environment)))
        return started[-1]

    yield start
    for serving in started:
        serving.kill_everything()
    Server(public_folder / "data").stop()


# From nothing ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_first_start_shows_the_secrets_once_and_a_second_one_keeps_everything(public_folder: Path) -> None:
    first = Serving(public_folder / "data")
    try:
        first.wait_until_ready()
        assert re.search(r"^Login     admin / \S{20}    \(shown once\)$", first.said, re.MULTILINE)
        key = re.search(r"^API key   (\S{40,})    \(shown once\)$", first.said, re.MULTILINE)
        assert key is not None
        assert f"REST      {first.url}/v1/" in first.said
        assert f"Docs      {first.pages_url}/docs" in first.said
        assert f"Admin     {first.pages_url}/admin/" in first.said
        wait_until(lambda: tasks_done(first) == {task.name for task in TIMETABLE}, "the whole timetable ran")
        assert ": done" not in first.said, "a task that succeeds does not disturb"
        before = all_balances(first, key[1])
        assert before
        assert "ledger.refusals" not in first.said, "those of the demo concern no operator"
        assert first.stop() == 0
        assert first.pids() == set()
        second = Serving(public_folder / "data")
        try:
            second.wait_until_ready()
            assert all_balances(second, key[1]) == before
            assert "shown once" not in second.said
            assert f"Login     lost the password? {sys.executable} manage.py changepassword admin\n" in second.said
            assert "API key   lost the key? Make another one in the admin: API keys, Add\n" in second.said
        finally:
            second.kill_everything()
    finally:
        first.kill_everything()


@pytest.mark.slow
def test_the_bootstrap_key_may_do_everything_and_is_not_printed(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="2").wait_until_ready()
    assert serving.post("/v1/holders/newcomer/grants", {"amount": 5}, "g-1") == 201
    assert KEY not in serving.said
    # Whichever process has executed it, and whichever is asked.
    counted = 'ledger_operations_total{operation="grant",outcome="recorded"} 1.0'
    wait_until(lambda: counted in metrics(serving), "the grant is counted")
    other = "another-key-0123456789abcdef0123456789"
    assert serving.get("/v1/holders", other)[0] == 401
    assert serving.stop() == 0
    again = serve(LEDGER_BOOTSTRAP_API_KEY=other).wait_until_ready()
    assert again.get("/v1/holders/newcomer/balance", other)[1]["balance"] == 5


# How it ends -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_of_it(serve: Callable[..., Serving], number: int) -> None:
    """As a single Ctrl-C does, with which most tests here end."""
    serving = serve(**WHOLE).wait_until_ready()
    # The main process, 2 workers with a server for calls, 1 with one for pages.
    serving.web_pids_once_started(6)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    stepped_back = [ours] * 5 + [max(ours, pages_server.NICENESS)]
    wait_until(lambda: sorted(map(niceness_of, serving.web_pids())) == stepped_back, "pages have stepped back")
    [worker] = serving.worker_pids()
    wait_until(lambda: niceness_of(worker) == min(ours + NICENESS, 19), "the worker has stepped back")
    assert serving.stop(number) == 0
    assert serving.pids() == set()
    assert serving.said.endswith("Stopped.\n")


@pytest.mark.slow
def test_an_impatient_second_ctrl_c_leaves_nothing_behind(serve: Callable[..., Serving]) -> None:
    serving = serve(**WHOLE).wait_until_ready()
    for _ in range(5):
        os.killpg(serving.process.pid, signal.SIGINT)
        # A signal that is still pending would be one with the next.
        wait_until(lambda: not _is_pending(serving.process.pid, signal.SIGINT), "the signal was received")
    assert serving.process.wait(120) == 0
    assert serving.pids() == set()


@pytest.mark.slow
def test_ctrl_c_while_it_starts_leaves_nothing_behind(serve: Callable[..., Serving]) -> None:
    serving = serve(**WHOLE)
    wait_until(lambda: Server(serving.data_dir).is_running(), "PostgreSQL started")
    assert serving.stop() == 0
    assert serving.pids() == set()


@pytest.mark.slow
def test_ctrl_c_during_initdb_leaves_no_process_and_the_next_start_succeeds(public_folder: Path) -> None:
    serving = Serving(public_folder / "data", LEDGER_BOOTSTRAP_API_KEY=KEY)
    try:
        wait_until(
            lambda: [*public_folder.glob("data/postgres.unfinished-*")] or serving.process.poll() is not None, "initdb begun"
        )
        assert serving.stop() == 0
        assert serving.pids() == set()
    finally:
        serving.kill_everything()
    again = Serving(public_folder / "data", **SMALL)
    try:
        assert again.wait_until_ready().stop() == 0
    finally:
        again.kill_everything()


@pytest.mark.slow
def test_kill_9_of_everything_loses_nothing(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready()
    assert serving.post("/v1/holders/survivor/grants", {"amount": 7}, "g-1") == 201
    serving.kill_everything()
    again = serve(PORT=str(serving.port)).wait_until_ready()
    assert again.get("/v1/holders/survivor/balance", KEY)[1]["balance"] == 7


@pytest.mark.slow
def test_kill_9_of_serve_alone_ends_the_web_server_and_the_database_is_taken_over(serve: Callable[..., Serving]) -> None:
    serving = serve(**WHOLE, LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready()
    postmaster = Server(serving.data_dir).postmaster_pid()
    web = serving.web_pids() | serving.worker_pids()
    serving.process.kill()
    serving.process.wait()
    again = serve(PORT=str(serving.port)).wait_until_ready()
    assert Server(serving.data_dir).postmaster_pid() == postmaster
    assert again.get("/v1/holders", KEY)[0] == 200
    assert web & again.pids() == set()
    assert again.stop() == 0
    assert again.pids() == set()


@pytest.mark.slow
def test_web_processes_that_outlived_serve_are_ended_and_strangers_are_not(
    serve: Callable[..., Serving], public_folder: Path
) -> None:
    port = free_port()
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); print(flush=True); time.sleep(60)"
    wait = "import time; print(flush=True); time.sleep(60)"
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env={"LEDGER_SERVES_DATA_DIR": str(owner)}, stdout=subprocess.PIPE)
        for script, owner in ((listen, public_folder / "data"), (wait, public_folder / "elsewhere"))
    ]
    left_over, stranger = processes
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
        assert serve(PORT=str(port), LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready().get("/v1/holders", KEY)[0] == 200
        assert left_over.wait(60) == -signal.SIGTERM
        assert stranger.poll() is None
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_when_the_worker_dies_it_is_started_again(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_TIMETABLE_WORKERS="1").wait_until_ready()
    [before] = serving.worker_pids()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: bool(serving.worker_pids() - {before}), "the worker started again")
    assert "The worker has ended with -9; starting it again." in serving.said
    assert is_answering(serving)
    assert serving.stop() == 0
    assert serving.pids() == set()


@pytest.mark.slow
def test_when_the_web_servers_main_process_dies_it_is_started_again(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="1").wait_until_ready()
    before = serving.web_pids_once_started(5)
    master = next(pid for pid in before if _parent_pid(pid) == serving.process.pid)
    os.kill(master, signal.SIGKILL)
    wait_until(lambda: is_answering(serving) and len(serving.web_pids()) == 5, "the web server started again")
    assert serving.web_pids() & before == set()
    assert "The web server has ended with -9; starting it again." in serving.said
    assert serving.stop() == 0
    assert serving.pids() == set()


@pytest.mark.slow
def test_web_processes_that_are_killed_again_and_again_end_no_server(serve: Callable[..., Serving]) -> None:
    """granian alone ends all of its processes when one is killed twice within 5.5 s."""
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="1").wait_until_ready()
    before = serving.web_pids()
    [web] = [pid for pid in before if _parent_pid(pid) == serving.process.pid]
    mains = {pid for pid in before if _parent_pid(pid) == web}

    def workers() -> set[int]:
        return serving.web_pids() - {web} - mains

    for _ in range(4):
        killed = workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda killed=killed: len(workers() - killed) == 2 and is_answering(serving), "started again")  # type: ignore[misc]
        assert mains | {web} <= serving.web_pids()
    assert "The web server has ended" not in serving.said
    assert serving.stop() == 0


@pytest.mark.slow
def test_when_the_database_dies_it_is_started_again(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready()
    postmaster = Server(serving.data_dir).postmaster_pid()
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    wait_until(lambda: Server(serving.data_dir).postmaster_pid() not in (None, postmaster), "PostgreSQL started again")
    wait_until(lambda: serving.get("/v1/holders", KEY)[0] == 200, "answers again")


@pytest.fixture
def wal_volume(seeded_data: Path, public_folder: Path) -> Iterator[Path]:
    """A copy of `seeded` whose WAL is on a volume of 48 MB; a file on it is the rest of the room."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small volume")
    subprocess.run(["cp", "--archive", seeded_data, public_folder / "data"], check=True)
    wal, aside = public_folder / "data/postgres/pg_wal", public_folder / "wal"
    wal.rename(aside)
    wal.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", wal], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        # The segment in use and the folders; of those that are kept for later use there may be more than fit.
        current = min(path.name for path in aside.iterdir() if path.is_file())
        for name in ("archive_status", "summaries", current):
            subprocess.run(["cp", "--archive", aside / name, wal], check=True)
        shutil.copystat(aside, wal)
        found = aside.stat()
        os.chown(wal, found.st_uid, found.st_gid)
        yield wal
    finally:
        Server(public_folder / "data").stop()
        subprocess.run(["umount", "--lazy", wal], check=True)


@pytest.mark.slow
def test_with_a_full_wal_volume_requests_get_a_503_until_there_is_room(wal_volume: Path, serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready()
    assert serving.post("/v1/holders/patient/grants", {"amount": 7}, "g-1") == 201
    filler = wal_volume / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(1024 * 1024))
            file.flush()
    with suppress(psycopg.Error), psycopg.connect(Server(serving.data_dir).superuser_url, autocommit=True) as superuser:
        while True:
            superuser.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
    wait_until(lambda: "PostgreSQL does not start. Requests get 503" in serving.said, "the database cannot start")
    for _ in range(3):
        status, body = serving.get("/v1/holders/patient/balance", KEY)
        assert (status, body["type"].rsplit("/", 1)[1], body["outcome"]) == (503, "database-unavailable", "not_executed")
    assert serving.process.poll() is None
    filler.unlink()
    wait_until(lambda: is_answering(serving), "answers again")
    assert serving.get("/v1/holders/patient/balance", KEY)[1]["balance"] == 7
    wait_until(lambda: "PostgreSQL runs again." in serving.said, "said")
    assert serving.stop() == 0


# What is refused -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_localhost_answers_by_either_address(serve: Callable[..., Serving]) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no [::1]")
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY).wait_until_ready()
    serving.url = f"http://[::1]:{serving.port}"
    assert serving.get("/v1/holders", KEY)[0] == 200
    assert serving.post("/v1/holders/by-ipv6/grants", {"amount": 7}, "g-1") == 201
    assert serving.stop() == 0


@pytest.mark.slow
def test_a_second_one_on_the_same_data_directory_is_refused(serve: Callable[..., Serving]) -> None:
    first = serve().wait_until_ready()
    second = serve()
    assert second.process.wait(120) == 1
    assert f"Another `serve` uses {first.data_dir}." in second.said
    assert urllib.request.urlopen(f"{first.url}/readyz", timeout=60).status == 200


@pytest.mark.slow
@pytest.mark.check
def test_a_taken_port_is_refused_before_anything_starts(public_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serving = Serving(public_folder / "data", PORT=str(taken.getsockname()[1]))
        assert serving.process.wait(120) == 1
    assert "make run PORT=8010" in serving.said
    assert not Server(serving.data_dir).is_running()


@pytest.mark.slow
def test_a_key_that_is_too_short_is_refused_before_anything_starts(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY="k" * 19)
    assert serving.process.wait(120) == 1
    assert serving.said == "LEDGER_BOOTSTRAP_API_KEY has 19 characters: a key needs at least 20.\n"
    assert not Server(serving.data_dir).is_running()


@pytest.mark.slow
def test_prepare_database_refuses_such_a_key_before_it_connects() -> None:
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    environment["LEDGER_BOOTSTRAP_API_KEY"] = "short"
    command = [sys.executable, "manage.py", "prepare_database"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "CommandError: LEDGER_BOOTSTRAP_API_KEY has 5 characters: a key needs at least 20.\n"


@pytest.mark.parametrize("options", ["size=20m", "size=20m,ro"])
def test_a_data_folder_without_room_or_that_is_read_only_is_refused_in_a_sentence(public_folder: Path, options: str) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small volume")
    volume = public_folder / "volume"
    volume.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", volume]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        serving = Serving(volume)
        assert serving.process.wait(120) == 1
    finally:
        subprocess.run(["umount", "--lazy", volume], check=True)
    assert "Traceback" not in serving.said
    *_, sentence = serving.said.splitlines()  # behind what it does while it starts
    assert str(volume) in sentence
    assert "set LEDGER_DATA_DIR to" in sentence


def test_the_pages_take_the_next_port_or_any_that_is_free_but_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("PORT", str(port))
    monkeypatch.delenv("LEDGER_PAGES_PORT", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        found, pages_port = _free_ports()
        assert (found, pages_port not in (port, port + 1)) == (port, True)
        monkeypatch.setenv("LEDGER_PAGES_PORT", str(port + 1))
        with pytest.raises(StartRefused, match="make run LEDGER_PAGES_PORT=8010"):
            _free_ports()
    monkeypatch.setenv("LEDGER_WEB_WORKERS", "0")
    assert _free_ports() == (port, port), "the pages do everything"


@pytest.mark.slow
def test_pages_are_led_to_their_own_address_and_do_everything_there(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="1").wait_until_ready()
    for path in ("/docs", "/admin"):
        with urllib.request.urlopen(serving.url + path, timeout=60) as response:
            assert (response.status, response.url.startswith(serving.pages_url)) == (200, True)
    there = urllib.request.Request(f"{serving.pages_url}/v1/holders", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(there, timeout=60) as response:
        assert response.status == 200
    assert serving.stop() == 0


@pytest.mark.slow
def test_when_one_of_the_two_servers_dies_both_are_started_again(serve: Callable[..., Serving]) -> None:
    """First the server of calls, then that of pages."""
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="1").wait_until_ready()
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    stepped_back = max(ours, pages_server.NICENESS)
    for niceness in (ours, stepped_back):
        before = serving.web_pids_once_started(5)
        wait_until(lambda before=before: stepped_back in map(niceness_of, before), "pages have stepped back")  # type: ignore[misc]
        worker = next(pid for pid in before if niceness_of(pid) == niceness and _parent_pid(_parent_pid(pid)) in before)
        os.kill(_parent_pid(worker), signal.SIGKILL)
        wait_until(
            lambda before=before: is_answering(serving) and len(serving.web_pids() - before) == 5,  # type: ignore[misc]
            "both started again",
        )
        assert serving.web_pids() & before == set()
    assert serving.stop() == 0
    assert serving.pids() == set()


@pytest.mark.slow
def test_one_server_does_everything_where_calls_have_no_processes(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_WEB_WORKERS="0").wait_until_ready()
    serving.web_pids_once_started(2)
    assert serving.worker_pids() == set(), "nor is there a worker, with LEDGER_TIMETABLE_WORKERS=0"
    assert f"Admin     {serving.url}/admin/" in serving.said
    assert serving.post("/v1/holders/newcomer/grants", {"amount": 5}, "g-1") == 201
    with urllib.request.urlopen(f"{serving.url}/admin/", timeout=60) as response:
        assert (response.status, response.url) == (200, f"{serving.url}/admin/login/?next=/admin/")
    assert serving.stop() == 0


@pytest.mark.parametrize(("port", "text"), [("70000", "PORT is 70000: use 1 to 65535."), ("web", "PORT is not a number")])
def test_a_port_that_is_none_is_refused_before_anything_starts(port: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", port)
    with pytest.raises(StartRefused, match=text):
        _free_ports()


@pytest.mark.slow
def test_a_number_of_workers_that_is_none_is_refused_and_the_database_stopped(serve: Callable[..., Serving]) -> None:
    serving = serve(LEDGER_WEB_WORKERS="many")
    assert serving.process.wait(120) == 1
    assert "'many'" in serving.said
    assert serving.pids() == set()


@pytest.mark.slow
def test_a_number_of_timetable_workers_that_is_neither_0_nor_1_is_refused_before_anything_starts(
    serve: Callable[..., Serving],
) -> None:
    serving = serve(LEDGER_TIMETABLE_WORKERS="2")
    assert serving.process.wait(120) == 1
    assert serving.said == "LEDGER_TIMETABLE_WORKERS is '2': use 1, or 0 for none. More of them run as `manage.py work`.\n"
    assert not Server(serving.data_dir).is_running()


# Other ways to run it --------------------------------------------------------------------------------


@pytest.mark.slow
def test_serve_runs_from_another_folder_with_a_relative_data_directory(
    serve: Callable[..., Serving], public_folder: Path
) -> None:
    serving = serve(cwd=public_folder, LEDGER_BOOTSTRAP_API_KEY=KEY, LEDGER_DATA_DIR="data").wait_until_ready()
    assert serving.get("/v1/holders", KEY)[0] == 200
    assert serving.stop() == 0
    assert processes.pids(Server(serving.data_dir).cluster) == []


@pytest.mark.usefixtures("committed_db")
@pytest.mark.slow
def test_with_database_url_that_server_is_used_and_left_running(public_folder: Path) -> None:
    serving = Serving(
        public_folder / "data", DATABASE_URL=database_url("application"), LEDGER_OWNER_DATABASE_URL=database_url("owner"), **SMALL
    )
    try:
        serving.wait_until_ready()
        assert not (public_folder / "data" / "postgres").exists()
        assert serving.stop() == 0
    finally:
        serving.kill_everything()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.slow
def test_an_ordinary_user_can_run_it(public_folder: Path) -> None:
    someone = SystemAccount(NOBODY, NOBODY)
    candidates = [Path(sys.executable).resolve(), Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")]
    python = next((path for path in candidates if path.exists() and someone.can_reach(path)), None)
    if python is None or not someone.can_reach(ROOT / "manage.py"):
        pytest.skip("no interpreter of this version, or not this tree, is readable by an ordinary user")
    os.chown(public_folder, NOBODY, NOBODY)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    serving = Serving(
        public_folder / "data", python=[str(python)], user=NOBODY, PYTHONPATH=packages, LEDGER_BOOTSTRAP_API_KEY=KEY
    )
    try:
        serving.wait_until_ready()
        assert serving.post("/v1/holders/someone/grants", {"amount": 3}, "g-1") == 201
        pids = serving.pids()
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {NOBODY}
        assert serving.stop() == 0
        assert serving.pids() == set()
    finally:
        serving.kill_everything()
