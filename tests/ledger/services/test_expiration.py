"""Lots and holds expire at their time, booked or not; parallel runs book expirations and skip busy holders."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DataError, connection
from psycopg import Connection

from ledger import reads, services
from ledger.services import expiration
from ledger.services.expiration import BEHIND_ALL, PAGE, book_all_expirations
from tests.nodes import lock_holder

DAYS_AGO = 10
"""When the stories begin: nothing can be recorded beyond the server's clock."""


@pytest.fixture(autouse=True)
def days_later(monkeypatch, ledger_clock) -> Callable[[int], None]:
    """`days_later(days)`: from now on the services decide as if this many days had passed since the start of the test."""
    plain = expiration.PAGE

    def move(days: int) -> None:
        ledger_clock(days - DAYS_AGO)
        then = f"(statement_timestamp() + interval '{days - DAYS_AGO} days')"
        monkeypatch.setattr(expiration, "PAGE", plain.replace("statement_timestamp()", then))

    move(0)
    return move


def in_days(days: float) -> datetime:
    """The time that many days after the history's beginning."""
    return datetime.now(UTC) + timedelta(days=days - DAYS_AGO)


def expire_credits(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `manage.py expire_credits`."""
    output = StringIO()
    code = 0
    try:
        call_command("expire_credits", *arguments, "--format", "json", stdout=output)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, json.loads(output.getvalue())


@pytest.mark.django_db
def test_an_expired_lot_leaves_the_balance_by_an_entry_that_counts_from_its_instant(days_later):
    expires_at = in_days(1).replace(microsecond=123456)
    services.grant(holder_id="ada", amount=30, idempotency_key="g1", expires_at=expires_at)
    services.grant(holder_id="ada", amount=50, idempotency_key="g2")
    services.hold(holder_id="ada", amount=10, idempotency_key="h", expires_at=in_days(0.5))
    services.grant(holder_id="bob", amount=5, idempotency_key="g")
    days_later(2)
    code, summary = expire_credits()
    assert code == 0
    figures = {name: summary[name] for name in ("looked_at", "due", "booked", "entries", "expired_credits", "released_credits")}
    assert figures == {"looked_at": 2, "due": 1, "booked": 1, "entries": 2, "expired_credits": 30, "released_credits": 10}
    assert summary["by_kind"] == {"release": 1, "expire": 1}
    entry = reads.entry("ada", "credits", 5)
    assert entry is not None
    assert (entry.kind, entry.amount, entry.balance, entry.held, entry.refers_to) == ("expire", -30, 50, 0, 1)
    assert entry.effective_at == expires_at
    assert entry.recorded_at > expires_at
    assert (entry.actor, entry.idempotency_key) == ("ledger", None)
    code, again = expire_credits()
    assert (code, again["due"], again["entries"]) == (0, 0, 0)


@pytest.mark.django_db
def test_an_expired_hold_is_released_although_nothing_else_of_the_account_is_due(days_later):
    services.grant(holder_id="ada", amount=30, idempotency_key="g1")
    services.grant(holder_id="ada", amount=5, idempotency_key="g2", expires_at=in_days(9))
    services.hold(holder_id="ada", amount=32, idempotency_key="h1", expires_at=in_days(1))
    services.hold(holder_id="ada", amount=2, idempotency_key="h2", expires_at=in_days(5))
    assert (book_all_expirations(dry_run=True).due, book_all_expirations().entries) == (0, 0), "neither is due yet"
    days_later(2)
    dry = book_all_expirations(dry_run=True)
    assert (dry.due, dry.released_by_type, dry.released_credits, dry.expired_credits) == (1, {"credits": 32}, 32, 0)
    summary = book_all_expirations()
    assert (summary.booked, summary.by_kind, summary.released_by_type) == (1, {"release": 1}, {"credits": 32})
    assert (reads.balance("ada").balance, reads.balance("ada").held) == (33, 2)
    assert book_all_expirations().due == 0


@pytest.mark.django_db
def test_a_dry_run_counts_and_writes_nothing(days_later):
    services.grant(holder_id="ada", amount=30, idempotency_key="g1", expires_at=in_days(1))
    days_later(2)
    code, summary = expire_credits("--dry-run")
    assert (code, summary["due"], summary["expired_credits"], summary["entries"]) == (0, 1, 30, 0)
    assert reads.balance("ada").sequence == 1


@pytest.mark.django_db
def test_a_limit_ends_it_and_says_so(days_later):
    for holder in ("ada", "bob", "cy"):
        services.grant(holder_id=holder, amount=30, idempotency_key="g1", expires_at=in_days(1))
    days_later(2)
    code, summary = expire_credits("--limit", "2")
    assert (code, summary["booked"], summary["limit_reached"]) == (5, 2, True)
    code, summary = expire_credits("--limit", "2")
    assert (code, summary["booked"], summary["limit_reached"]) == (0, 1, False)


@pytest.mark.django_db
def test_a_debt_is_repaid_by_a_lot_that_has_become_effective(days_later):
    services.set_overdraft(holder_id="ada", limit=20, idempotency_key="o")
    services.spend(holder_id="ada", amount=15, idempotency_key="s")
    services.grant(holder_id="ada", amount=40, idempotency_key="g", effective_at=in_days(1))
    assert expire_credits()[1]["due"] == 0
    days_later(2)
    code, summary = expire_credits()
    assert (code, summary["by_kind"]) == (0, {"adjust": 1})
    assert reads.entries("ada")[0].drawn == ((3, 15),)


@pytest.mark.django_db
def test_pages_of_accounts_leave_none_out(days_later, monkeypatch):
    monkeypatch.setattr("ledger.services.expiration.ACCOUNTS_PER_PAGE", 2)
    for holder in ("ada", "bob", "cy"):
        for credit_type in ("credits", "sms"):
            services.grant(
                holder_id=holder, amount=30, idempotency_key=credit_type, credit_type=credit_type, expires_at=in_days(1)
            )
    days_later(2)
    summary = book_all_expirations()
    assert (summary.looked_at, summary.due, summary.booked) == (6, 6, 6)


@pytest.mark.django_db
def test_a_failure_is_counted_and_the_others_are_booked(days_later, monkeypatch):
    for holder in ("ada", "bob", "cy"):
        services.grant(holder_id=holder, amount=30, idempotency_key="g1", expires_at=in_days(1))
    days_later(2)
    book = services.book_expirations

    def fails_for_bob(**arguments: Any) -> Any:
        if arguments["holder_id"] == "bob":
            raise DataError("bad page")
        return book(**arguments)

    monkeypatch.setattr(expiration, "book_expirations", fails_for_bob)
    code, summary = expire_credits()
    assert (code, summary["booked"], summary["failed"]) == (3, 2, 1)
    assert summary["failures"] == ["bob/credits: DataError: bad page"]


@pytest.mark.parametrize("arguments", [("--limit", "0"), ("--workers", "0"), ("--workers", "33")])
def test_expire_credits_with_bad_arguments_exits_with_2(arguments):
    with pytest.raises(CommandError) as refused:
        call_command("expire_credits", *arguments)
    assert refused.value.returncode == 2


# With others at it --------------------------------------------------------------------------------------


@pytest.fixture
def due_holders(committed_db, new_holder, days_later, monkeypatch) -> list[str]:
    """Three holders, each with an expired lot, committed; the runs of the test see no other holders."""
    holders = [new_holder() for _ in range(3)]
    for holder in holders:
        services.grant(holder_id=holder, amount=30, idempotency_key="g", expires_at=in_days(1))
    days_later(2)
    accounts = expiration._accounts
    monkeypatch.setattr(expiration, "_accounts", lambda: (each for each in accounts() if each[0].holder_id in holders))
    return holders


def kinds_of(holder: str) -> list[str]:
    """The kinds of the holder's entries."""
    return [entry.kind for entry in reads.entries(holder)]


def test_a_busy_holder_is_passed_by_and_left_to_the_next_run(due_holders, raw_connection: Callable[..., Connection]):
    with raw_connection("application") as other:
        lock_holder(other, due_holders[0])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        code, summary = expire_credits()
        assert (code, summary["busy"], summary["failed"]) == (4, 1, 0)
        assert kinds_of(due_holders[0]) == ["grant"]
        assert kinds_of(due_holders[1]) == kinds_of(due_holders[2]) == ["expire", "grant"]
    code, summary = expire_credits()
    assert (code, summary["busy"], summary["booked"]) == (0, 0, 1)
    assert kinds_of(due_holders[0]) == ["expire", "grant"]


def test_a_holder_that_is_busy_only_at_first_is_booked_at_the_end(due_holders, raw_connection: Callable[..., Connection]):
    other = raw_connection("application")
    lock_holder(other, due_holders[0])
    progress: list[int] = []

    def free_it(summary: Any) -> None:
        progress.append(summary.booked)
        if summary.booked == 2:
            other.rollback()

    summary = book_all_expirations(progress=free_it)
    assert (summary.booked, summary.busy) == (3, 0)
    assert kinds_of(due_holders[0]) == ["expire", "grant"]


@pytest.mark.parametrize("workers", [1, 3])
def test_sweepers_at_once_book_each_account_once(due_holders, run_threads, workers):
    summaries = run_threads(lambda index: book_all_expirations(workers=workers), 3)
    assert sum(summary.booked for summary in summaries) == 3
    assert sum(summary.entries for summary in summaries) == 3
    assert [summary.failed for summary in summaries] == [0, 0, 0]
    for holder in due_holders:
        assert kinds_of(holder) == ["expire", "grant"]


def test_a_sweep_that_must_stop_ends_after_the_account_under_way(due_holders):
    summary = book_all_expirations(
        stop=lambda: reads.balance(due_holders[0]).sequence > 1 or any(len(kinds_of(h)) > 1 for h in due_holders)
    )
    assert summary.booked == 1


# What it costs --------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_expiration_reads_the_last_entry_of_an_account_and_not_its_history(days_later):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    for number in range(50):
        services.spend(holder_id="ada", amount=1, idempotency_key=f"s{number}")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {PAGE}", FIRST_PAGE | {"limit": 1000})
        ([plan],) = cursor.fetchone()
    assert rows_read(plan["Plan"]) <= 4


FIRST_PAGE = {"holder_id": "", "credit_type": "", "last_holder_id": BEHIND_ALL[0], "last_credit_type": "", "late_us": 0}


def rows_read(node: dict[str, Any]) -> float:
    """How many rows of ledger_entry the queries read, those thrown away included."""
    own = 0.0
    if node.get("Relation Name") == "ledger_entry":
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return own + sum(rows_read(child) for child in node.get("Plans", ()))
