"""A clock that jumped forward and was mended: what is decided afterwards is decided by the clock as it is."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import sqlstate
from ledger.entry_rows import COLUMNS
from ledger.errors import InsufficientCredits, Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, to_us
from ledger.rules.requests import GrantRequest
from tests.benchmarks.histories import row

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def utc_now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)


@pytest.fixture
def entry_of_tomorrow(server_clock: Callable[[str], None]) -> Entry:
    """An account of 100 whose last entry was recorded in tomorrow; the clock is right again."""
    services.grant(holder_id="ada", amount=101, idempotency_key="g")
    server_clock("1 day")
    entry = services.spend(holder_id="ada", amount=1, idempotency_key="s")
    server_clock("0")
    assert utc_now() + 23 * HOUR < entry.recorded_at < utc_now() + 25 * HOUR
    return entry


def is_near(time: datetime, wanted: datetime) -> bool:
    """Whether two times are within five minutes, which no test takes."""
    return abs(time - wanted) < timedelta(minutes=5)


def test_the_next_entry_is_recorded_no_earlier_than_the_last_and_is_effective_by_the_clock(entry_of_tomorrow):
    entry = services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    assert entry.recorded_at == entry_of_tomorrow.recorded_at
    assert is_near(entry.effective_at, utc_now())
    found = audit([connection.connection], holder_id="ada").findings
    assert [(finding.law, finding.sequence) for finding in found] == [("future", 2), ("future", 3)]


def test_a_grant_that_ends_before_tomorrow_is_taken_and_can_be_spent(entry_of_tomorrow):
    services.grant(holder_id="ada", amount=50, idempotency_key="g2", expires_at=utc_now() + 2 * HOUR)
    assert reads.balance("ada").available == 150
    assert services.spend(holder_id="ada", amount=150, idempotency_key="s2").drawn == ((3, 50), (1, 100))
    assert [entry.kind for entry in reads.entries("ada")] == ["spend", "grant", "spend", "grant"]


def test_a_lot_of_this_evening_cannot_be_spent_yet(entry_of_tomorrow):
    services.grant(holder_id="ada", amount=50, idempotency_key="g2", effective_at=utc_now() + 12 * HOUR)
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=101, idempotency_key="s2")
    assert (refused.value.facts["available"], refused.value.facts["not_yet_effective"]) == (100, 50)


def test_a_hold_lasts_from_the_clock_on(entry_of_tomorrow):
    hold = services.hold(holder_id="ada", amount=10, idempotency_key="h").hold
    assert hold is not None
    assert is_near(datetime.fromtimestamp(hold.expires_us / 1e6, UTC), utc_now() + HOUR)
    with pytest.raises(Invalid):
        services.extend(holder_id="ada", hold=3, expires_at=utc_now() + timedelta(days=31, hours=1), idempotency_key="x")
    assert reads.balance("ada").sequence == 3


def test_a_refund_to_a_lot_that_has_not_expired_goes_back_to_it(entry_of_tomorrow, server_clock):
    services.grant(holder_id="ada", amount=5, idempotency_key="g2", expires_at=utc_now() + 2 * HOUR, priority=1)
    services.spend(holder_id="ada", amount=5, idempotency_key="s2")
    assert services.refund(holder_id="ada", spend=4, idempotency_key="r").drawn == ((3, 5),)


def test_after_a_small_step_back_nothing_is_recorded_out_of_order(server_clock):
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    server_clock("-1 second")
    entry = services.spend(holder_id="ada", amount=1, idempotency_key="s")
    server_clock("0")
    assert entry.effective_at < entry.recorded_at
    assert audit([connection.connection], holder_id="ada").findings == []


def test_a_balance_by_effective_time_is_that_of_the_clock(entry_of_tomorrow):
    services.spend(holder_id="ada", amount=20, idempotency_key="s2")
    found = reads.balance_by_effective_time("ada")
    assert (found.available, found.balance, found.sequence) == (80, 80, 3)


# What the trigger refuses ------------------------------------------------------------------------------------


def insert_entries(entries: Sequence[Entry]) -> None:
    """Store the entries by INSERT, without the journal."""
    places = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
    with transaction.atomic(), connection.cursor() as cursor:
        for entry in entries:
            cursor.execute(f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({places})", row(entry))


def grant_five(account: AccountState) -> list[Entry]:
    """The entries of a grant of 5."""
    return credit_rules.grant(account, GrantRequest(holder_id="ada", idempotency_key=f"g{account.sequence}", amount=5))


def test_an_entry_recorded_beyond_the_clock_is_refused(entry_of_tomorrow):
    in_2099_us = to_us(datetime(2099, 1, 1, tzinfo=UTC))
    last = AccountState("ada", "credits", 0).after(entry_of_tomorrow)
    for account in (
        AccountState("bob", "credits", in_2099_us),
        last._replace(now_us=in_2099_us),
        last._replace(now_us=last.recorded_us + 1),
    ):
        with pytest.raises(DatabaseError) as refused:
            insert_entries(grant_five(account))
        assert sqlstate(refused.value) == "LG002"
    assert [reads.balance(holder).sequence for holder in ("ada", "bob")] == [2, 0]
    insert_entries(grant_five(last._replace(now_us=to_us(utc_now()) - DAY_US)))
    assert reads.balance("ada").sequence == 3
