"""The embedded server survives what happens to a developer's machine, as root and as an ordinary user."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger_project.serving.postgres import binaries, processes
from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.credentials import secret_key
from ledger_project.serving.postgres.errors import EmbeddedPostgresError
from ledger_project.serving.postgres.server import Server
from tests.nodes import pause

ROOT = Path(__file__).resolve().parents[3]
as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that every account may pass, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stopped_server() -> Iterator[Path]:
    """The data directory of a server that was made once; copying it takes less time than making another."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    server = Server(folder, shared_buffers="16MB").start()
    server.stop()
    server.log.unlink()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def make_server(data_dir: Path, stopped_server: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers that are stopped at the end; with `is_new=True` one that has yet to be initialised."""
    made: list[Server] = []

    def make(folder: Path = data_dir, *, is_new: bool = False, **settings: str) -> Server:
        if not is_new and not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", stopped_server, folder], check=True)
        made.append(Server(folder, **({"shared_buffers": "16MB"} | settings)))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def write_row(server: Server, text: str) -> None:
    """Commit a row, so that it can be looked for after a crash."""
    with psycopg.connect(server.owner_url) as owner:
        owner.execute("CREATE TABLE IF NOT EXISTS kept (text text)")
        owner.execute("INSERT INTO kept VALUES (%s)", [text])


def committed_rows(server: Server) -> list[str]:
    """What `write_row` committed."""
    with psycopg.connect(server.owner_url) as owner:
        return [row[0] for row in owner.execute("SELECT text FROM kept ORDER BY text").fetchall()]


def connection_once_it_answers(server: Server) -> "psycopg.Connection[Any]":
    """Connect as soon as the server takes connections; fail after a minute."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return psycopg.connect(server.superuser_url, autocommit=True)
        except psycopg.OperationalError:
            assert time.monotonic() < deadline


def kill_postmaster(server: Server) -> None:
    """End the postmaster as the machine would."""
    pid = server.postmaster_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


# What it is ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_postgresql_18_durably_with_checksums_and_a_c_collation(make_server: Callable[..., Server]) -> None:
    server = make_server(is_new=True).start()
    with psycopg.connect(server.superuser_url) as superuser:
        names = [
            "fsync",
            "full_page_writes",
            "synchronous_commit",
            "data_checksums",
            "server_encoding",
            "listen_addresses",
            "jit",
        ]
        shown = superuser.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}").fetchone()
        found = dict(zip(names, shown or (), strict=True))
        version = superuser.info.server_version
        locale = superuser.execute("SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'ledger'").fetchone()
    assert version // 10000 == 18
    assert found == {
        "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "data_checksums": "on",
        "server_encoding": "UTF8", "listen_addresses": "127.0.0.1", "jit": "off",
    }  # fmt: skip
    assert locale == ("b", "C.UTF-8")


@pytest.mark.slow
def test_the_owner_owns_the_database_and_the_application_owns_nothing(make_server: Callable[..., Server]) -> None:
    server = make_server(is_new=True).start()
    with psycopg.connect(server.superuser_url) as superuser:
        found = superuser.execute(
            "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname LIKE 'ledger%' ORDER BY 1"
        ).fetchall()
        owner = superuser.execute("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'ledger'").fetchone()
    assert found == [("ledger_app", False, False, False), ("ledger_owner", False, True, False)]
    assert owner == ("ledger_owner",)
    with psycopg.connect(server.application_url) as application, pytest.raises(psycopg.errors.InsufficientPrivilege):
        application.execute("CREATE TABLE mine ()")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["socket", "tcp"])
def test_nobody_gets_in_without_the_password(make_server: Callable[..., Server], by: str) -> None:
    server = make_server().start()
    kept = server.credentials
    host = kept.socket_dir if by == "socket" else "127.0.0.1"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=host, port=kept.port, user="postgres", dbname="postgres", password="wrong")
    with psycopg.connect(
        host=host, port=kept.port, user="postgres", dbname="postgres", password=kept.superuser_password
    ) as superuser:
        assert superuser.execute("SELECT current_user").fetchone() == ("postgres",)


@pytest.mark.slow
@pytest.mark.check
def test_secrets_are_readable_by_their_owner_only(make_server: Callable[..., Server], data_dir: Path) -> None:
    make_server().start()
    key = secret_key(data_dir)
    assert len(key) >= 50
    assert secret_key(data_dir) == key
    for name in ("server.json", "secret_key"):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((data_dir / "postgres").stat().st_mode) == 0o700


@pytest.mark.slow
def test_reading_the_settings_starts_nothing(data_dir: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "LEDGER_DATA_DIR": str(data_dir),
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
    }
    script = "import django; django.setup(); from django.conf import settings; print(settings.DATABASES['default']['USER'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "ledger_app\n"
    assert not (data_dir / "postgres").exists()
    assert not Server(data_dir).is_running()


# Start and stop --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_start_keeps_the_data_and_the_addresses(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    write_row(server, "before")
    url = server.application_url
    server.stop()
    assert not server.is_running()
    assert make_server().start().application_url == url
    assert committed_rows(server) == ["before"]


def test_starting_twice_is_starting_once(make_server: Callable[..., Server]) -> None:
    first = make_server().start()
    pid = first.postmaster_pid()
    assert make_server().start().postmaster_pid() == pid


@pytest.mark.slow
def test_two_starters_at_once_make_one_server(make_server: Callable[..., Server]) -> None:
    servers = [make_server(is_new=True), make_server(is_new=True)]
    with ThreadPoolExecutor(2) as pool:
        pids = list(pool.map(lambda server: server.start().postmaster_pid(), servers))
    assert pids[0] is not None
    assert pids[0] == pids[1]


@pytest.mark.slow
def test_two_starting_processes_make_one_server(make_server: Callable[..., Server], data_dir: Path) -> None:
    script = """if True:
        import sys
        from ledger_project.serving.postgres.server import Server
        print(Server(sys.argv[1], shared_buffers="16MB").start().postmaster_pid())
    """
    server = make_server(is_new=True)
    command = [sys.executable, "-c", script, str(data_dir)]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=60)[0] for process in processes}
    assert said == {f"{server.postmaster_pid()}\n"}


@pytest.mark.slow
def test_a_stopped_server_takes_its_sessions_with_it(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    session = psycopg.connect(server.application_url, autocommit=True)
    server.stop()
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")
    session.close()


# After an accident -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_start_waits_while_the_server_restores_an_archive_and_accepts_reads_only(make_server: Callable[..., Server]) -> None:
    server = make_server()
    (server.cluster / "standby.signal").touch()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_is_in_recovery()' AND pid <> pg_backend_pid()"
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.start)
        try:
            with connection_once_it_answers(server) as superuser:
                while not superuser.execute(waiting).fetchone() and not started.done():
                    pause()
                assert superuser.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
                assert not started.done()
        finally:
            with psycopg.connect(server.superuser_url, autocommit=True) as superuser:
                superuser.execute("SELECT pg_promote()")
        started.result(60)
    write_row(server, "after the recovery")
    assert committed_rows(server) == ["after the recovery"]


@pytest.mark.slow
@pytest.mark.check
def test_kill_9_loses_nothing_that_was_committed(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    write_row(server, "committed")
    with closing(psycopg.connect(server.owner_url)) as busy:
        busy.execute("INSERT INTO kept VALUES ('not committed')")
        kill_postmaster(server)
        server.start()
    assert committed_rows(server) == ["committed"]


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_is_stopped_is_stopped(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server().start()
    pg_ctl = Server._pg_ctl

    def dies_first(asked: Server, action: str, *arguments: str) -> None:
        kill_postmaster(asked)
        while asked.is_running():
            os.sched_yield()
        pg_ctl(asked, action, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Server, "_pg_ctl", dies_first)
        server.stop()
    assert processes.pids(server.cluster) == []
    write_row(server.start(), "after it")
    assert committed_rows(server) == ["after it"]


@pytest.mark.slow
def test_a_recycled_process_id_in_postmaster_pid_is_no_obstacle(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    pid_file = server.cluster / "postmaster.pid"
    remembered = pid_file.read_text().splitlines()
    server.stop()
    # Of the same account, since PostgreSQL takes another account's process for a stranger anyway.
    stranger = subprocess.Popen(["sleep", "60"], **server.account.process_options)
    try:
        pid_file.write_text("\n".join([str(stranger.pid), *remembered[1:], ""]))
        os.chown(pid_file, server.account.uid, server.account.gid)
        assert not server.is_running()
        # The control: PostgreSQL alone refuses.
        with pytest.raises(EmbeddedPostgresError, match=r"lock file \"postmaster.pid\" already exists"):
            server._pg_ctl("start", "--wait", "--log", str(server.log), "--options", server._options())
        server.start()
        assert server.postmaster_pid() not in (None, stranger.pid)
        server.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "garbage\n", "999999999\n/nowhere\n"])
def test_a_broken_postmaster_pid_is_no_obstacle(make_server: Callable[..., Server], content: str) -> None:
    server = make_server().start()
    write_row(server, "kept")
    server.stop()
    (server.cluster / "postmaster.pid").write_text(content)
    assert committed_rows(server.start()) == ["kept"]


@pytest.mark.slow
def test_a_half_finished_initdb_is_done_again(make_server: Callable[..., Server], data_dir: Path) -> None:
    half = data_dir / "postgres.unfinished-abc"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server = make_server(is_new=True).start()
    assert not half.exists()
    assert [path.name for path in data_dir.glob("postgres*")] == ["postgres"]
    write_row(server, "works")


@pytest.mark.slow
def test_a_lost_cluster_is_not_replaced_by_an_empty_one(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server()
    server.cluster.rename(data_dir / "elsewhere")
    with pytest.raises(EmbeddedPostgresError, match=r"is missing, and server\.json beside it says that it had"):
        server.start()
    assert not server.cluster.exists()
    (data_dir / "elsewhere").rename(server.cluster)
    assert server.start().is_running()


def test_a_link_that_leads_nowhere_is_a_lost_cluster(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server(is_new=True)
    data_dir.mkdir()
    server.cluster.symlink_to(data_dir / "gone")
    with pytest.raises(EmbeddedPostgresError, match="Put it back"):
        server.start()


@pytest.mark.slow
def test_an_empty_ledger_begins_where_server_json_is_removed_too(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server()
    server.cluster.rename(data_dir / "elsewhere")
    (data_dir / "server.json").unlink()
    assert server.start().is_running()


@pytest.mark.slow
def test_a_folder_that_an_earlier_version_made_remembers_its_cluster(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server()
    of_then = json.loads((data_dir / "server.json").read_text())
    assert of_then.pop("has_cluster") is True
    (data_dir / "server.json").write_text(json.dumps(of_then))
    server.start()
    assert json.loads((data_dir / "server.json").read_text())["has_cluster"] is True


def test_a_disk_without_room_for_a_cluster_is_refused(
    make_server: Callable[..., Server], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger_project.serving.postgres.server.ROOM_FOR_CLUSTER_BYTES", 2**60)
    server = make_server(is_new=True)
    with pytest.raises(EmbeddedPostgresError, match="MB free, and a new database needs 1099511627776"):
        server.start()
    assert [path.name for path in data_dir.iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_roles_that_were_not_made_before_a_crash_are_made_now(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    kept = server.credentials
    with psycopg.connect(kept.url("postgres", kept.superuser_password, "postgres"), autocommit=True) as superuser:
        superuser.execute("DROP DATABASE ledger")
        superuser.execute("DROP ROLE ledger_app")
    kill_postmaster(server)
    with psycopg.connect(server.start().application_url) as application:
        assert application.execute("SELECT current_database()").fetchone() == ("ledger",)


@pytest.mark.slow
def test_a_port_that_another_program_took_is_replaced(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    write_row(server, "kept")
    server.stop()
    port = server.credentials.port
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server.start()
        assert server.credentials.port != port
        assert committed_rows(server) == ["kept"]


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(make_server: Callable[..., Server]) -> None:
    with pytest.raises(EmbeddedPostgresError, match="nonsense"):
        make_server(work_mem="nonsense").start()
    assert not make_server().is_running()


# Places ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_path_too_long_for_a_socket_gets_a_short_one_elsewhere(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server(data_dir / ("long" * 30)).start()
    place = Path(server.credentials.socket_dir)
    assert place.parent == Path("/tmp")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    write_row(server, "works")
    server.stop()
    assert not place.exists()
    assert committed_rows(server.start()) == ["works"]
    left_over = Path(server.credentials.socket_dir)
    kill_postmaster(server)
    assert committed_rows(server.start()) == ["works"]
    assert not left_over.exists()


@pytest.mark.slow
def test_a_copied_data_directory_runs_beside_the_original(make_server: Callable[..., Server], data_dir: Path) -> None:
    original = make_server().start()
    write_row(original, "original")
    original.stop()
    subprocess.run(["cp", "--archive", data_dir, data_dir.with_name("copy")], check=True)
    original.start()
    copy = make_server(data_dir.with_name("copy")).start()
    write_row(copy, "copy")
    assert committed_rows(original) == ["original"]
    assert committed_rows(copy) == ["copy", "original"]


@pytest.mark.slow
def test_spaces_and_quotes_in_the_path_are_harmless(make_server: Callable[..., Server], data_dir: Path) -> None:
    server = make_server(data_dir / "it's a place").start()
    write_row(server, "works")
    assert committed_rows(server) == ["works"]


@pytest.mark.slow
@as_root_only
def test_under_root_a_place_that_others_cannot_reach_is_linked(make_server: Callable[..., Server], data_dir: Path) -> None:
    data_dir.parent.chmod(0o700)
    server = make_server(is_new=True).start()
    cluster = server.cluster.resolve()
    try:
        assert server.cluster.is_symlink()
        assert cluster.parent == Path("/var/lib/credit-ledger")
        write_row(server, "works")
        kill_postmaster(server)
        assert committed_rows(server.start()) == ["works"]
    finally:
        server.stop()
        shutil.rmtree(cluster)


@pytest.mark.slow
@as_root_only
def test_under_root_the_server_is_not_root(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    assert Path(f"/proc/{server.postmaster_pid()}").stat().st_uid == server.account.uid != 0


@as_root_only
@pytest.mark.slow
def test_under_root_binaries_that_others_cannot_read_are_copied(
    make_server: Callable[..., Server], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = binaries.package()
    hidden = data_dir.parent / "hidden"
    hidden.mkdir(mode=0o700)
    for name in (installed.name, f"{installed.name}.libs"):
        (hidden / name).symlink_to(installed.with_name(name))
    monkeypatch.setattr(binaries, "package", lambda: hidden / installed.name)
    monkeypatch.setattr(SystemAccount, "can_reach", lambda self, path: hidden not in path.parents)
    server = make_server(is_new=True).start()
    assert server.binaries.is_relative_to(data_dir)
    assert Path(f"/proc/{server.postmaster_pid()}/exe").resolve() == server.binaries / "postgres"


def _whole_life(data_dir: str, uid: int, report: Any) -> None:
    """Become that user, then start, crash, start and stop a server; runs in a forked process."""
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        server = Server(data_dir, shared_buffers="16MB").start()
        write_row(server, "mine")
        kill_postmaster(server)
        server.start()
        owner = Path(f"/proc/{server.postmaster_pid()}").stat().st_uid
        found = committed_rows(server)
        server.stop()
        report.send((owner, found, server.is_running(), sorted(path.name for path in Path(data_dir).iterdir())))
    except BaseException as error:
        report.send(repr(error))


@pytest.mark.slow
def test_an_ordinary_user_runs_it_as_itself(data_dir: Path) -> None:
    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    data_dir.mkdir()
    if os.geteuid() == 0:
        os.chown(data_dir, uid, uid)
    # Forked, because an interpreter under /root cannot be started by anybody else.
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_whole_life, args=(str(data_dir), uid, theirs))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == (uid, ["mine"], False, ["postgres", "server.json", "server.lock", "socket"])
    process.join()
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {uid}


@as_root_only
def test_another_users_data_directory_is_refused_with_a_way_out(data_dir: Path) -> None:
    Server(data_dir).credentials  # noqa: B018 - written by root

    def read(folder: str, report: Any) -> None:
        os.setuid(65534)
        try:
            Server(folder).start()
        except EmbeddedPostgresError as error:
            report.send(str(error))

    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=read, args=(str(data_dir), theirs))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == f"{data_dir}/server.json belongs to another user; set LEDGER_DATA_DIR to a folder of your own"
    process.join()


def test_the_file_of_secrets_is_written_whole(data_dir: Path) -> None:
    kept = Server(data_dir).credentials
    assert json.loads((data_dir / "server.json").read_text())["port"] == kept.port
    assert [path.name for path in data_dir.iterdir() if path.name.startswith(".")] == []
