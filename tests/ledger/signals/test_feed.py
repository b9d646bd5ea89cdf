"""Each entry gives its signals once and in order, whatever commits late, whatever the clock says, however often it runs."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import InsufficientCredits, LockBusy
from ledger.signals import feed as feeding
from ledger.signals.feed import feed, feed_all_accounts, forget
from ledger.signals.types import types_of
from ledger.testing import unique

MakeWebhook = Callable[..., dict[str, Any]]


def told() -> list[tuple[str, str, str, int]]:
    """Type, holder, credit type and sequence of each signal, in the order in which they are sent."""
    sql = "SELECT type, holder_id, credit_type, sequence FROM ledger_signal WHERE sequence IS NOT NULL ORDER BY number"
    return fetch_rows(lambda *row: row, sql)


def grant(holder: str, amount: int = 10, **more: Any) -> Any:
    return services.grant(holder_id=holder, amount=amount, idempotency_key=unique("k"), **more)


@pytest.fixture
def tables_of_signals_are_empty(committed_db: None) -> Iterator[None]:
    """What committed tests have left must not be sent by the next, and the control moves the feed ahead of the clock."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook SET removed_at = clock_timestamp() WHERE removed_at IS NULL")
        for table in ("ledger_signal", "ledger_delivery", "ledger_delivery_stream"):
            cursor.execute(f"DELETE FROM {table}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_signal_feed SET looked_until = '2000-01-01Z'")


def test_where_no_webhook_is_one_statement_looks_and_nothing_is_written(db: None, django_assert_num_queries: Any) -> None:
    grant("ada")
    with django_assert_num_queries(1):
        assert feed() == feeding.Fed()
    assert told() == []


def test_each_entry_gives_the_signals_that_webhooks_want_once(db: None, webhook: MakeWebhook) -> None:
    webhook("entry.recorded", "refusal.recorded")
    grant("ada")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=99, idempotency_key="s1")
    services.spend(holder_id="ada", amount=3, idempotency_key="s2")
    for _ in range(3):
        feed()
    feed_all_accounts()
    assert told() == [
        ("entry.recorded", "ada", "credits", 1),
        ("refusal.recorded", "ada", "credits", 2),
        ("entry.recorded", "ada", "credits", 3),
    ]


def test_what_happened_before_a_webhook_was_made_is_not_sent(db: None, webhook: MakeWebhook) -> None:
    grant("ada")
    webhook()
    grant("ada")
    grant("bob", credit_type="sms")
    feed()
    assert sorted(told()) == [("entry.recorded", "ada", "credits", 2), ("entry.recorded", "bob", "sms", 1)]


def test_entries_of_a_holder_are_in_the_order_in_which_they_were_recorded_over_all_types(
    db: None, webhook: MakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "ENTRIES_AT_ONCE", 2)
    webhook()
    recorded = [grant("ada", credit_type=name) for name in "aababbbaaaab"]
    feed()
    assert [(credit_type, sequence) for _, _, credit_type, sequence in told()] == [(e.credit_type, e.sequence) for e in recorded]


def test_holders_are_read_many_at_once_and_one_with_more_entries_to_the_end(
    db: None, webhook: MakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "FEW_ENTRIES", 2)
    webhook("entry.recorded")
    for holder in ("ada", "bea", "cy"):
        for _ in range(5 if holder == "bea" else 1):
            grant(holder)
    grant("bea", credit_type="seats")
    assert feed() == feeding.Fed(entries=8, holders=3)
    assert sorted(told()) == sorted(
        [
            ("entry.recorded", "ada", "credits", 1),
            *[("entry.recorded", "bea", "credits", sequence) for sequence in range(1, 6)],
            ("entry.recorded", "bea", "seats", 1),
            ("entry.recorded", "cy", "credits", 1),
        ]
    )
    assert [each[2:] for each in told() if each[1] == "bea"] == [*[("credits", n) for n in range(1, 6)], ("seats", 1)]
    assert feed().entries == 0


@pytest.mark.one_node("on a cluster each holder is read at its node")
def test_more_holders_take_no_more_statements(db: None, webhook: MakeWebhook) -> None:
    webhook("entry.recorded")

    def statements(*holders: str) -> int:
        for holder in holders:
            grant(holder)
        with CaptureQueriesContext(connection) as queries:
            feed()
        return len(queries)

    assert statements("ada", "bea") == statements("cy", "dan", "eve", "fay", "gus")


def test_a_look_in_many_slices_finds_every_account(db: None, webhook: MakeWebhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "SLOTS_WITH", 1)
    webhook()
    holders = [unique("h") for _ in range(5)]
    for holder in holders:
        grant(holder)
    feed()
    assert sorted(holder for _, holder, _, _ in told()) == sorted(holders)


def test_an_expired_hold_is_told_and_a_release_by_request_is_not(db: None, webhook: MakeWebhook) -> None:
    webhook("hold.expired")
    grant("ada")
    hold = services.hold(holder_id="ada", amount=4, idempotency_key="h")
    services.release(holder_id="ada", hold=hold.sequence, idempotency_key="r")
    feed()
    assert told() == []
    by_ledger = hold._replace(kind="release", idempotency_key=None)
    assert list(types_of(by_ledger)) == ["entry.recorded", "hold.expired"]
    assert list(types_of(by_ledger._replace(idempotency_key="r"))) == ["entry.recorded"]


def test_a_signal_is_among_the_deliveries_of_those_who_want_it(db: None, webhook: MakeWebhook) -> None:
    every, of_ada, of_refusals = webhook(), webhook(holder_id="ada"), webhook("refusal.recorded")
    removed = webhook()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_webhook SET removed_at = clock_timestamp() WHERE id = %s", [removed["id"]])
    grant("ada")
    grant("bob")
    feed()
    rows = fetch_rows(lambda *row: row, "SELECT webhook_id, stream FROM ledger_delivery ORDER BY 1, 2")
    assert rows == [(every["id"], "ada"), (every["id"], "bob"), (of_ada["id"], "ada")]
    assert of_refusals["id"] not in dict(rows)


def test_old_signals_are_deleted_with_their_deliveries(db: None, webhook: MakeWebhook) -> None:
    webhook()
    grant("ada")
    feed()
    assert forget(timedelta(days=1)) == 0
    assert forget(timedelta()) == 1
    for table in ("ledger_signal", "ledger_delivery", "ledger_delivery_stream"):
        assert fetch_rows(int, f"SELECT count(*) FROM {table}") == [0], table
    feed()
    assert told() == [], "its position is kept"


# Late commits ----------------------------------------------------------------------------------------


def commit_late(holder: str, is_open: threading.Event, may_commit: threading.Event) -> None:
    """Record an entry in a transaction that stays open."""
    try:
        with transaction.atomic():
            grant(holder)
            is_open.set()
            assert may_commit.wait(30)
    finally:
        connection.close()


@pytest.mark.usefixtures("tables_of_signals_are_empty")
def test_an_entry_that_commits_late_is_told_although_later_ones_were_told_before(
    webhook: MakeWebhook, new_holder: Callable[[], str]
) -> None:
    webhook()
    late, other = new_holder(), new_holder()
    is_open, may_commit = threading.Event(), threading.Event()
    writer = threading.Thread(target=commit_late, args=(late, is_open, may_commit))
    writer.start()
    assert is_open.wait(30)
    grant(other)
    feed()
    assert [holder for _, holder, _, _ in told()] == [other]
    may_commit.set()
    writer.join()
    feed()
    assert [holder for _, holder, _, _ in told()] == [other, late]


@pytest.mark.usefixtures("tables_of_signals_are_empty")
def test_control_a_look_that_moves_on_to_now_loses_that_entry(
    webhook: MakeWebhook, new_holder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def now() -> Any:
        return fetch_rows(lambda at: at, "SELECT clock_timestamp() + interval '6 s'")[0]

    monkeypatch.setattr(feeding, "_end", now)
    monkeypatch.setattr(feeding, "min", max, raising=False)
    webhook()
    late = new_holder()
    is_open, may_commit = threading.Event(), threading.Event()
    writer = threading.Thread(target=commit_late, args=(late, is_open, may_commit))
    writer.start()
    assert is_open.wait(30)
    feed()
    may_commit.set()
    writer.join()
    feed()
    assert told() == []
    # The daily look at all accounts finds it.
    feed_all_accounts()
    assert [holder for _, holder, _, _ in told()] == [late]


@pytest.mark.usefixtures("tables_of_signals_are_empty")
def test_of_two_feeds_one_ends_at_once(webhook: MakeWebhook, raw_connection: Callable[..., Any]) -> None:
    webhook()
    from ledger.database.lock_names import SIGNAL_FEED
    from ledger.database.locks import lock_number

    other = raw_connection("application")
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(SIGNAL_FEED())])
    with pytest.raises(LockBusy):
        feed()
    other.rollback()
    feed()
