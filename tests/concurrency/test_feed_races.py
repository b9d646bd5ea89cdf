"""The feed skips no entry that commits late, by every kind of writer; a reader that goes on from the last time it saw does."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connections, transaction
from psycopg import sql

from ledger import reads, services
from ledger.database.locks import holder_key, lock_number
from ledger.database.statements import fetch_rows, fetch_value
from ledger.reads import FeedPosition, feed

Connect = Callable[..., psycopg.Connection[Any]]
NewHolder = Callable[[], str]
RunThreads = Callable[..., list[Any]]

pytestmark = [pytest.mark.usefixtures("committed_db"), pytest.mark.one_node("a cluster has no feed")]


def lock_order(holder: str) -> int:
    """In which order a transaction takes the locks of holders."""
    return lock_number(holder_key(holder))


RECORDED_SINCE = "SELECT holder_id FROM ledger_entry WHERE recorded_at > %s ORDER BY recorded_at"
LAST_TIME = "SELECT max(recorded_at) FROM ledger_entry"


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    """A thread with a connection of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool
        pool.submit(connections.close_all).result()


class FeedReader:
    """Reads on from its position."""

    def __init__(self) -> None:
        self.position = reads.feed_end()

    def read(self) -> list[str]:
        """The holders of the entries that came."""
        page = feed(self.position)
        self.position = page.next
        return [each.entry.holder_id for each in page.entries]


class TimeReader:
    """The control: reads what was recorded after the last time that it saw."""

    def __init__(self) -> None:
        self.last = fetch_value(lambda value: value, LAST_TIME)

    def read(self) -> list[str]:
        """As `FeedReader.read`."""
        found = fetch_rows(str, RECORDED_SINCE, [self.last])
        self.last = fetch_value(lambda value: value, LAST_TIME)
        return found


def read_around_a_late_commit(reader: Any, elsewhere: ThreadPoolExecutor, early: str, late: str) -> list[list[str]]:
    """`early` is recorded first and committed last; what the reader gets before and after that COMMIT."""
    with transaction.atomic():
        services.grant(holder_id=early, amount=1, idempotency_key="1")
        elsewhere.submit(services.grant, holder_id=late, amount=1, idempotency_key="1").result()
        before = elsewhere.submit(reader.read).result()
    return [before, elsewhere.submit(reader.read).result(), elsewhere.submit(reader.read).result()]


def test_an_entry_that_commits_late_is_not_skipped(elsewhere: ThreadPoolExecutor, new_holder: NewHolder) -> None:
    early, late = new_holder(), new_holder()
    reader = elsewhere.submit(FeedReader).result()
    assert read_around_a_late_commit(reader, elsewhere, early, late) == [[], [early, late], []]


def test_by_the_last_time_that_was_seen_it_is_skipped(elsewhere: ThreadPoolExecutor, new_holder: NewHolder) -> None:
    """The control."""
    services.grant(holder_id=new_holder(), amount=1, idempotency_key="1")
    early, late = new_holder(), new_holder()
    reader = elsewhere.submit(TimeReader).result()
    assert read_around_a_late_commit(reader, elsewhere, early, late) == [[late], [], []]


def test_an_account_that_two_transactions_wrote_keeps_its_sequence(elsewhere: ThreadPoolExecutor, new_holder: NewHolder) -> None:
    """The transaction that began first writes last, so that ids of transactions would turn the account's entries round."""
    other, holder = sorted((new_holder(), new_holder()), key=lock_order)
    reader = elsewhere.submit(FeedReader).result()
    with transaction.atomic():
        services.grant(holder_id=other, amount=1, idempotency_key="1")
        elsewhere.submit(services.grant, holder_id=holder, amount=1, idempotency_key="1").result()
        services.grant(holder_id=holder, amount=1, idempotency_key="2")
        assert elsewhere.submit(reader.read).result() == []
    page = elsewhere.submit(feed, reader.position).result()
    assert [(each.entry.holder_id, each.entry.sequence) for each in page.entries] == [(other, 1), (holder, 1), (holder, 2)]


def test_what_is_rolled_back_holds_the_feed_up_until_then_and_is_never_in_it(
    elsewhere: ThreadPoolExecutor, new_holder: NewHolder
) -> None:
    reader, late = elsewhere.submit(FeedReader).result(), new_holder()
    with transaction.atomic():
        services.grant(holder_id=new_holder(), amount=1, idempotency_key="1")
        elsewhere.submit(services.grant, holder_id=late, amount=1, idempotency_key="1").result()
        assert elsewhere.submit(reader.read).result() == []
        transaction.set_rollback(True)
    assert elsewhere.submit(reader.read).result() == [late]


@pytest.mark.parametrize(
    ("statement", "holds_up"),
    [
        ("SELECT pg_advisory_xact_lock(815)", True),
        ("INSERT INTO ledger_entry SELECT * FROM ledger_entry WHERE false", True),
        ("SELECT count(*) FROM ledger_entry", False),
        ("SELECT 1", False),
    ],
    ids=["a lock", "a write without a lock", "a read of entries", "another read"],
)
def test_only_who_may_write_holds_the_feed_up(
    raw_connection: Connect, new_holder: NewHolder, statement: str, holds_up: bool
) -> None:
    other = raw_connection()
    other.execute(statement)
    reader, holder = FeedReader(), new_holder()
    services.grant(holder_id=holder, amount=1, idempotency_key="1")
    assert reader.read() == ([] if holds_up else [holder])
    other.rollback()
    assert reader.read() == ([holder] if holds_up else [])


def test_a_lock_of_a_session_without_a_transaction_holds_nothing_up(raw_connection: Connect, new_holder: NewHolder) -> None:
    other, holder = raw_connection(autocommit=True), new_holder()
    other.execute("SELECT pg_advisory_lock(816)")
    reader = FeedReader()
    services.grant(holder_id=holder, amount=1, idempotency_key="1")
    assert reader.read() == [holder]


def test_inside_a_transaction_each_read_looks_at_the_sessions_again(raw_connection: Connect, new_holder: NewHolder) -> None:
    """The server shows a transaction the sessions as they were when it looked first."""
    other, holder = raw_connection(), new_holder()
    with transaction.atomic():
        reader = FeedReader()
        other.execute("SELECT pg_advisory_xact_lock(817)")
        services.grant(holder_id=holder, amount=1, idempotency_key="1")
        assert reader.read() == []
        other.rollback()
        assert reader.read() == [holder]


@pytest.mark.usefixtures("as_application")
def test_the_feed_waits_for_a_session_whose_beginning_the_server_hides(raw_connection: Connect, new_holder: NewHolder) -> None:
    role, holder = sql.Identifier(settings.LEDGER_APP_ROLE), new_holder()
    other, superuser = raw_connection("superuser"), raw_connection("superuser", autocommit=True)
    reader = FeedReader()
    services.grant(holder_id=holder, amount=1, idempotency_key="1")
    superuser.execute(sql.SQL("REVOKE pg_read_all_stats FROM {}").format(role))
    try:
        other.execute("SELECT pg_advisory_xact_lock(818)")
        hidden = feed(FeedPosition())
        other.rollback()
        assert (hidden.entries, hidden.until_us) == ([], 0)
        assert reader.read() == [holder]
    finally:
        superuser.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(role))


def test_a_reader_beside_many_writers_gets_every_entry_once_in_the_accounts_order(
    new_holder: NewHolder, run_threads: RunThreads
) -> None:
    """The writers meet at one holder, and some roll back."""
    shared, own = new_holder(), [new_holder() for _ in range(3)]
    begun = reads.feed_end()

    def write(index: int) -> list[tuple[str, int]]:
        if index == len(own):
            return follow()
        for number in range(8):
            with transaction.atomic():
                for holder in sorted((own[index], shared), key=lock_order):
                    services.grant(holder_id=holder, amount=1, idempotency_key=f"{index}-{number}")
                transaction.set_rollback(number % 4 == 3)
        return []

    def follow() -> list[tuple[str, int]]:
        position, seen = begun, []
        while len(seen) < len(own) * 6 * 2:
            page = feed(position, limit=3)
            position = page.next
            seen += [(each.entry.holder_id, each.entry.sequence) for each in page.entries]
        return seen

    *_, seen = run_threads(write, len(own) + 1)
    expected = {shared: list(range(1, 19)), **{holder: list(range(1, 7)) for holder in own}}
    assert {holder: [number for name, number in seen if name == holder] for holder in expected} == expected
    assert len(seen) == sum(map(len, expected.values()))
