"""Balances that the event loop reads itself: the same outcomes as from a thread, and threads for whatever is not usual."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from ledger import reads, services
from ledger.database import loop_reads
from ledger.database.loop_reads import LoopReader
from ledger.database.queues import Pending
from ledger.errors import ServerBusy
from ledger.reads import BALANCES, Balance, account_state

NewHolder = Callable[[], str]
TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    BALANCES.close()


class Loop:
    """A reader on a loop of its own, with what its caller would do."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader = LoopReader(BALANCES, self.notify, self.wake)
        self.groups: list[int] = []
        """How many requests each statement of the loop has read."""
        self._send = self.reader._send
        self.reader._send = self._counted  # type: ignore[method-assign]

    def _counted(self) -> None:
        self._send()
        if self.reader._sent:
            self.groups.append(len(self.reader._sent))

    def notify(self, group: Sequence[Pending]) -> None:
        self.loop.call_soon_threadsafe(self.wake, group)

    def wake(self, group: Sequence[Pending]) -> None:
        for pending in group:
            pending.caller.set_result(threading.current_thread().name)

    async def read(self, holder: str) -> Balance:
        """Return the balance of a holder, or raise what the call would raise."""
        done = asyncio.get_running_loop().create_future()
        pending = self.reader.submit((holder, "credits"), done)
        await asyncio.wait_for(done, TIMEOUT_S)
        outcome: Balance = pending.result()
        return outcome

    async def open(self) -> None:
        """Have the reader open its connection."""
        self.reader._open()
        assert self.reader._opening is not None
        await self.reader._opening
        assert self.reader._session is not None

    @property
    def is_open(self) -> bool:
        return self.reader._session is not None

    @property
    def server_pid(self) -> int:
        assert self.reader._session is not None
        return int(self.reader._session.pgconn.backend_pid)


def on_loop(test: Callable[[Loop], Awaitable[None]]) -> None:
    """Run the test with a reader whose connection is open; afterwards everything is closed."""

    async def run() -> None:
        loop = Loop()
        await loop.open()
        try:
            await test(loop)
        finally:
            await loop.reader.close()

    asyncio.run(run())


def granted(new_holder: NewHolder, amount: int = 10) -> str:
    holder = new_holder()
    services.grant(holder_id=holder, amount=amount, idempotency_key="g")
    return holder


def in_a_thread(work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
    """Run what uses Django's connection of a thread."""

    def run() -> Any:
        try:
            return work(*arguments)
        finally:
            connections.close_all()

    return asyncio.to_thread(run)


def end_session(pid: int) -> None:
    """Have the server end a session, and return when it is gone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        assert cursor.fetchone() == (True,)


def test_a_loop_reads_what_was_committed_before_by_one_statement_for_all(committed_db: None, new_holder: NewHolder) -> None:
    holders = [granted(new_holder, amount) for amount in (1, 2, 3)]
    unknown = new_holder()

    async def test(loop: Loop) -> None:
        found = await asyncio.gather(*(loop.read(holder) for holder in [*holders, unknown, holders[0]]))
        assert [each.balance for each in found] == [1, 2, 3, 0, 1]
        assert loop.groups == [5]
        await in_a_thread(partial(services.spend, holder_id=holders[2], amount=1, idempotency_key="s"))
        assert (await loop.read(holders[2])).balance == 2
        assert not BALANCES._running, "a thread has read"

    on_loop(test)


def test_what_a_loop_reads_is_what_a_thread_reads(committed_db: None, new_holder: NewHolder) -> None:
    holder = granted(new_holder)
    services.hold(holder_id=holder, amount=4, idempotency_key="h")
    services.grant(holder_id=holder, amount=5, expires_at=datetime(2990, 1, 1, tzinfo=UTC), idempotency_key="e")
    expected = reads.balance(holder)

    async def test(loop: Loop) -> None:
        found = await loop.read(holder)
        assert found.as_of >= expected.as_of
        assert {name: getattr(found, name) for name in Balance.__slots__ if name != "as_of"} == {
            name: getattr(expected, name) for name in Balance.__slots__ if name != "as_of"
        }

    on_loop(test)


def test_after_a_group_the_next_one_is_waited_for_but_not_for_long(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        monkeypatch.setattr(loop_reads, "GATHER_SECONDS", TIMEOUT_S)
        await asyncio.gather(loop.read(holder), loop.read(holder))
        first = asyncio.create_task(loop.read(holder))
        await asyncio.sleep(0)
        assert loop.groups == [2], "the next group waits for its second request"
        monkeypatch.setattr(loop_reads, "GATHER_SECONDS", 0.001)
        await asyncio.gather(first, loop.read(holder))
        assert loop.groups == [2, 2]
        await loop.read(holder)
        await loop.read(holder)
        assert loop.groups == [2, 2, 1, 1]

    on_loop(test)


def test_a_request_that_needs_more_than_the_statement_goes_to_a_thread(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credits that are due and that no write has granted yet need the account's terms too."""
    holder, other = granted(new_holder), granted(new_holder, 3)
    monkeypatch.setattr(account_state, "_has_due_grants", lambda row: row.holder_id == holder)

    async def test(loop: Loop) -> None:
        assert (await loop.read(other)).is_as_written
        assert not BALANCES._running
        found = await asyncio.gather(loop.read(holder), loop.read(other))
        assert [(each.available, each.is_as_written) for each in found] == [(10, False), (3, True)]
        assert BALANCES._running

    on_loop(test)


@pytest.mark.parametrize("when", ["idle", "reading"])
def test_when_the_server_ends_the_session_threads_read_and_another_is_opened(
    committed_db: None, new_holder: NewHolder, when: str
) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        pid = loop.server_pid
        if when == "idle":
            await in_a_thread(end_session, pid)
            found = await loop.read(holder)
        else:
            loop.reader._session.pgconn.send_query(b"SELECT pg_sleep(60)")  # type: ignore[union-attr]
            loop.reader._sent = []
            read = asyncio.create_task(loop.read(holder))
            await asyncio.sleep(0)
            await in_a_thread(end_session, pid)
            found = await read
        assert found.balance == 10
        assert BALANCES._running, "no thread has read"
        assert loop.reader._session is None
        loop.reader._opens_at = 0
        await loop.open()
        assert loop.server_pid != pid
        assert (await loop.read(holder)).balance == 10

    on_loop(test)


def test_a_lost_statement_costs_nobody_a_response(committed_db: None, new_holder: NewHolder) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        loop.reader._session.pgconn.exec_(b"DEALLOCATE ALL")  # type: ignore[union-attr]
        found = await asyncio.gather(loop.read(holder), loop.read(holder))
        assert [each.balance for each in found] == [10, 10]
        assert BALANCES._running

    on_loop(test)


def test_a_read_that_takes_too_long_ends_as_in_a_thread_and_does_not_take_as_long_again(
    committed_db: None, new_holder: NewHolder
) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        pgconn = loop.reader._session.pgconn  # type: ignore[union-attr]
        pgconn.exec_(b"SET statement_timeout = 1; SET lock_timeout = 0")
        other = connections.create_connection("default")
        await asyncio.to_thread(other.connect)
        try:
            other.connection.pgconn.exec_(b"BEGIN; LOCK ledger_entry IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Exception, match="statement timeout") as caught:
                await loop.read(holder)
            assert loop_reads.sqlstate(caught.value) == loop_reads.QUERY_CANCELED
            assert not BALANCES._running
        finally:
            other.connection.close()

    on_loop(test)


def test_what_waits_too_long_or_finds_no_room_is_refused(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        monkeypatch.setattr(BALANCES, "_limit", 1)
        loop.reader._sent = [Pending(None, loop.wake)]  # as if the server did not respond
        late = asyncio.create_task(loop.read(holder))
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy):
            await loop.read(holder)
        assert loop.reader.is_at_work
        loop.reader._waiting[0].deadline = 0
        loop.reader.expire()
        with pytest.raises(ServerBusy):
            await late
        loop.reader._sent = []
        assert (await loop.read(holder)).balance == 10

    on_loop(test)


def test_a_connection_that_is_too_old_is_replaced(committed_db: None, new_holder: NewHolder) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        loop.reader.expire()
        assert loop.reader._session is not None
        loop.reader._session.database.close_at = 0
        loop.reader.expire()
        assert not loop.is_open
        assert (await loop.read(holder)).balance == 10

    on_loop(test)


def test_without_prepared_statements_threads_read(committed_db: None, new_holder: NewHolder, settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"PREPARE_STATEMENTS": False}
    holder = granted(new_holder)

    async def run() -> None:
        loop = Loop()
        assert (await loop.read(holder)).balance == 10
        assert loop.reader._opening is None
        await loop.reader.close()

    asyncio.run(run())


def test_without_a_server_threads_say_so_and_the_loop_tries_again_later(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = granted(new_holder)

    def fail(statement: Any) -> None:
        raise OSError("no server")

    async def run() -> None:
        loop = Loop()
        monkeypatch.setattr(loop_reads, "_open_session", fail)
        assert (await loop.read(holder)).balance == 10
        if loop.reader._opening is not None:
            await loop.reader._opening
        loop.reader._open()
        assert loop.reader._opening is None, "not at once"
        await loop.reader.close()

    asyncio.run(run())


def test_what_was_not_read_when_the_loop_ends_threads_read(committed_db: None, new_holder: NewHolder) -> None:
    holder = granted(new_holder)

    async def test(loop: Loop) -> None:
        read = asyncio.create_task(loop.read(holder))
        await asyncio.sleep(0)
        await loop.reader.close()
        assert (await read).balance == 10
        gc.collect()  # a connection that was not closed would warn

    on_loop(test)
