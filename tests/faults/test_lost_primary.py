"""The machine of the database dies, and its standby takes over: what is lost of what clients were told, and what says so.

With a synchronous standby nothing is lost, ten times in a row, while clients spend. With an asynchronous one the last entries may
be, and the audit names them by an anchor that was written before.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger_project.serving.postgres.server import Server
from tests.conftest import WebProcess, web_servers
from tests.deployment.servers import call, folder, manage, promote, standby_of, started

SPENDERS = 6
HOLDERS = 3
SPENDS_A_ROUND = 15
"""Each spender has at least this number of spends confirmed before the primary dies."""
GRANTED = 1_000_000
HANGS_S = 120
PAUSE_S = 0.2
"""After this time a spender repeats what was not confirmed."""

SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
FOLLOWING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
RECEIVES_NOTHING = "SELECT (count(*) = 0)::int FROM pg_stat_wal_receiver"
RECEIVER = "SELECT pid FROM pg_stat_wal_receiver"


class Spender(threading.Thread):
    """Spends credits of a holder, one by one; repeats what was not confirmed, with its key, wherever it is sent by then."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__()
        self.number, self.holder = number, f"holder-{number % HOLDERS}"
        self.confirmed: dict[str, int] = {}
        """The number of the entry by its key."""
        self.is_stopped = False
        self.was_put_off = threading.Event()
        """Set as soon as a spend was not confirmed."""
        self._url = url
        self._changed = threading.Condition()
        self._wanted = 0

    def run(self) -> None:
        while not self.is_stopped:
            key = f"{self.number}-{len(self.confirmed)}"
            sequence = self._spend(key)
            with self._changed:
                self.confirmed[key] = sequence
                self._changed.notify_all()

    def _spend(self, key: str) -> int:
        deadline = time.monotonic() + HANGS_S
        while True:
            try:
                status, body = call(self._url, f"/v1/holders/{self.holder}/spends", key, {"amount": 1})
            except OSError:
                status, body = 0, {}
            if status == 201:
                return int(body["sequence"])
            assert status in (0, 503), (status, body)
            assert time.monotonic() < deadline, ("no server confirms", key, status, body)
            self.was_put_off.set()
            time.sleep(PAUSE_S)

    def wait_for(self, more: int) -> None:
        """Return when this number of further spends is confirmed."""
        with self._changed:
            wanted = len(self.confirmed) + more
            assert self._changed.wait_for(lambda: len(self.confirmed) >= wanted, HANGS_S), "the spends do not go on"

    def move(self, url: str) -> None:
        """Go on at another server."""
        self._url = url


@contextmanager
def spending(spenders: list[Spender]) -> Iterator[None]:
    """For the block, the spenders spend; at its end each has stopped after an answer."""
    for each in spenders:
        each.start()
    try:
        yield
    finally:
        for each in spenders:
            each.is_stopped = True
        for each in spenders:
            each.join(HANGS_S)
    assert {each.is_alive() for each in spenders} == {False}


@contextmanager
def stopped_receiver(standby: Server) -> Iterator[None]:
    """For the block, a standby stays connected and confirms nothing, as one whose disk or line is slow."""
    with psycopg.connect(standby.superuser_url) as session:
        (receiver,) = session.execute(RECEIVER).fetchone() or (None,)
    assert receiver is not None
    os.kill(receiver, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(receiver, signal.SIGCONT)


def kill_machine(server: Server) -> None:
    """End all processes of a server at once, as the machine would: none of them writes or says anything more."""
    postmaster = int((server.data_dir / "postgres/postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGSTOP)
    for pid in [*_children(postmaster), postmaster]:
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(server: Server, query: str) -> None:
    """Return when the query counts one."""
    with psycopg.connect(server.superuser_url, autocommit=True) as session:
        for _ in range(100_000):
            if session.execute(query).fetchone() == (1,):
                return
    raise AssertionError(f"never: {query}")


def superuser(server: Server, *statements: str) -> list[Any]:
    """Execute statements as a superuser; return the first row of the last."""
    with psycopg.connect(server.superuser_url, autocommit=True) as session:
        for statement in statements:
            cursor = session.execute(statement)
        return list(cursor.fetchone() or ()) if cursor.description else []


def follow(stack: ExitStack, primary: Server, *, is_synchronous: bool) -> Server:
    """Start a standby of a server; if it is to be synchronous, each commit waits for it from now on."""
    standby = stack.enter_context(standby_of(primary))
    if is_synchronous:
        superuser(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    wait_until(primary, SYNCHRONOUS if is_synchronous else FOLLOWING)
    return standby


def receive_no_more(standby: Server) -> None:
    """Have a standby receive nothing of what its primary writes, as if the line between them were cut."""
    superuser(standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    wait_until(standby, RECEIVES_NOTHING)


@contextmanager
def prepared() -> Iterator[tuple[Server, Callable[[Server], WebProcess], ExitStack]]:
    """A server with credits of each holder, what starts a web server at a database, and the stack that ends all of it."""
    with ExitStack() as stack:
        primary = stack.enter_context(started())
        manage(primary, "prepare_database")
        start = stack.enter_context(web_servers(stack.enter_context(folder())))

        def web_at(server: Server) -> WebProcess:
            return start(1, dsn=server.application_url)[0]

        yield primary, web_at, stack


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 10])
def test_with_a_synchronous_standby_nothing_that_was_confirmed_is_lost(times: int) -> None:
    with prepared() as (primary, web_at, stack):
        web = web_at(primary)
        for number in range(HOLDERS):
            assert call(web.url, f"/v1/holders/holder-{number}/grants", "grant", {"amount": GRANTED})[0] == 201
        spenders = [Spender(number, web.url) for number in range(SPENDERS)]
        standby = follow(stack, primary, is_synchronous=True)
        with spending(spenders):
            for _ in range(times):
                next_web = web_at(standby)
                for each in spenders:
                    each.wait_for(SPENDS_A_ROUND)
                kill_machine(primary)
                # It would wait for a standby of its own, with each commit.
                superuser(standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
                promote(standby)
                for each in spenders:
                    each.move(next_web.url)
                web.kill()
                web = next_web
                primary, standby = standby, follow(stack, standby, is_synchronous=True)
                for each in spenders:
                    each.wait_for(1)
        with psycopg.connect(primary.application_url) as session:
            written = {
                (holder, key): sequence
                for holder, key, sequence in session.execute(
                    "SELECT holder_id, idempotency_key, sequence FROM ledger_entry WHERE kind = 'spend'"
                )
            }
            (left,) = session.execute(
                "SELECT sum(balance) FROM ("
                "SELECT DISTINCT ON (holder_id) balance FROM ledger_entry ORDER BY holder_id, sequence DESC) AS last"
            ).fetchone() or (None,)
        confirmed = {(each.holder, key): sequence for each in spenders for key, sequence in each.confirmed.items()}
        assert len(confirmed) >= SPENDERS * SPENDS_A_ROUND * times
        # Each spender has stopped after an answer, so nothing is written that was not confirmed.
        assert written == confirmed
        assert left == HOLDERS * GRANTED - len(confirmed)
        assert "Clean: no violations found." in manage(primary, "audit_ledger")


@pytest.mark.slow
def test_control_with_an_asynchronous_standby_the_last_entries_are_lost_and_an_anchor_names_them(tmp_path: Path) -> None:
    with prepared() as (primary, web_at, stack):
        url = web_at(primary).url
        assert call(url, "/v1/holders/ada/grants", "grant", {"amount": 100})[0] == 201
        standby = follow(stack, primary, is_synchronous=False)
        wait_until(standby, "SELECT count(*) FROM ledger_entry")
        receive_no_more(standby)
        for number in range(3):
            assert call(url, "/v1/holders/ada/spends", f"job-{number}", {"amount": 1})[0] == 201
        anchor = tmp_path / "anchor"
        manage(primary, "audit_ledger", "--anchor-write", str(anchor))
        kill_machine(primary)
        promote(standby)
        assert "Clean: no violations found." in manage(standby, "audit_ledger")
        said = manage(standby, "audit_ledger", "--anchor-check", str(anchor), codes=(1,))
        assert "ada/credits/4" in said
        # A client that repeats its request spends again, and what it had been told is not true any more.
        other = web_at(standby).url
        assert call(other, "/v1/holders/ada/spends", "job-0", {"amount": 1})[0] == 201
        assert call(other, "/v1/holders/ada/balance")[1]["balance"] == 99


@pytest.mark.slow
def test_while_a_synchronous_standby_is_away_nothing_is_confirmed_or_shown_until_it_is_given_up() -> None:
    with prepared() as (primary, web_at, stack), ThreadPoolExecutor(1) as client:
        url = web_at(primary).url
        assert call(url, "/v1/holders/ada/grants", "grant", {"amount": 100})[0] == 201
        receive_no_more(follow(stack, primary, is_synchronous=True))
        spend = client.submit(call, url, "/v1/holders/ada/spends", "job", {"amount": 1})
        wait_until(primary, WAITING)
        assert call(url, "/v1/holders/ada/balance")[1]["balance"] == 100
        assert not spend.done()
        superuser(primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        status, entry = spend.result(HANGS_S)
        assert (status, entry["balance"]) == (201, 99)
        assert call(url, "/v1/holders/ada/spends", "job", {"amount": 1}) == (201, entry)


@pytest.mark.slow
def test_who_waits_behind_a_commit_that_a_slow_standby_holds_up_is_put_off_and_spends_once_it_goes_on() -> None:
    with prepared() as (primary, web_at, stack):
        url = web_at(primary).url
        for number in range(2):
            assert call(url, f"/v1/holders/holder-{number}/grants", "grant", {"amount": GRANTED})[0] == 201
        standby = follow(stack, primary, is_synchronous=True)
        first, second = Spender(0, url), Spender(1, url)
        with ExitStack() as spends:
            with stopped_receiver(standby):
                spends.enter_context(spending([first]))
                wait_until(primary, WAITING)
                spends.enter_context(spending([second]))
                assert second.was_put_off.wait(HANGS_S)
                assert (first.confirmed, second.confirmed) == ({}, {})
            first.wait_for(1)
            second.wait_for(1)
