"""A holder with a test clock lives by it: lots, holds, budgets and recurring grants follow, and entries keep their true time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, transaction

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import holder_lock
from ledger.database.statements import fetch_value
from ledger.errors import BudgetExceeded, ClocksDiffer, ClocksOff, HoldClosed, InsufficientCredits, Invalid
from ledger.portal.usage import read_usage
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.requests import ClockRequest, GrantRequest, SpendRequest
from ledger.services import expiration
from ledger.services.claims import claim_under
from ledger_project.monitoring import work_checks
from ledger_project.monitoring.findings import CheckState

pytestmark = pytest.mark.django_db

MARCH = datetime(2040, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def move(now: datetime, key: str = "", holder: str = "ada", **more: Any) -> Entry:
    """Move the holder's clock there."""
    return services.set_clock(holder_id=holder, now=now, idempotency_key=key or f"clock-{now}", **more)


@pytest.fixture(autouse=True)
def _march() -> None:
    services.grant(holder_id="bob", amount=100, idempotency_key="g")
    move(MARCH - 10 * 365 * DAY)
    move(MARCH)


def assert_clean() -> None:
    """Assert that the holders break no law of the audit."""
    for holder in ("ada", "bob"):
        assert audit([connection.connection], holder_id=holder).findings == []


def rows() -> int:
    """How many entries there are."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_entry")
        return int(cursor.fetchone()[0])


def test_an_entry_counts_from_the_clocks_time_and_is_recorded_at_the_servers():
    entry = services.grant(holder_id="ada", amount=10, idempotency_key="g")
    assert entry.effective_at == MARCH
    assert datetime.now(UTC) - DAY < entry.recorded_at <= datetime.now(UTC)
    found = reads.balance("ada")
    assert (found.as_of, found.available, found.lots[0].effective_us) == (MARCH, 10, entry.effective_us)
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s").effective_at == MARCH
    assert reads.balance("bob").as_of < MARCH
    assert reads.balances([("bob", "credits"), ("ada", "sms")])[1].as_of == MARCH
    assert [each.as_of for each in reads.accounts("ada")] == [MARCH]
    assert_clean()


def test_before_its_first_move_the_clock_of_a_holder_is_that_of_the_server():
    first = fetch_value(lambda recorded_at: recorded_at, "SELECT min(recorded_at) FROM ledger_entry WHERE holder_id = 'ada'")

    def recorded_by(at: datetime) -> datetime:
        return fetch_value(lambda instant: instant, "SELECT ledger_recorded_by('ada', %s)", [at])

    assert recorded_by(first - DAY) == first - DAY
    assert recorded_by(first + DAY) == first


def test_lots_expire_by_the_clock_and_not_before():
    services.grant(holder_id="ada", amount=10, expires_at=MARCH + DAY, idempotency_key="g")
    move(MARCH + DAY - timedelta(microseconds=1))
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s").amount == -1
    move(MARCH + DAY)
    assert reads.balance("ada").available == 0
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    assert refused.value.facts["expired"] == 9
    with pytest.raises(Invalid, match="expires_at: must be after"):
        services.grant(holder_id="ada", amount=10, expires_at=MARCH + DAY, idempotency_key="g2")
    assert_clean()
    summary = expiration.book_all_expirations()
    assert (summary.due, summary.booked, summary.expired_credits) == (1, 1, 9)
    assert reads.balance("ada").balance == 0
    assert_clean()


def test_lots_become_effective_and_holds_expire_by_the_clock():
    services.grant(holder_id="ada", amount=10, effective_at=MARCH + DAY, idempotency_key="g")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=1, idempotency_key="s")
    move(MARCH + DAY)
    hold = services.hold(holder_id="ada", amount=4, idempotency_key="h")
    assert hold.hold_expires_us == hold.effective_us + 3_600_000_000
    assert services.capture(holder_id="ada", hold=hold.sequence, amount=1, final=False, idempotency_key="c").held == 3
    move(MARCH + 9 * DAY)
    assert reads.balance("ada").available == 9
    with pytest.raises(HoldClosed):
        services.capture(holder_id="ada", hold=hold.sequence, amount=1, idempotency_key="c2")
    assert expiration.book_all_expirations().released_credits == 3
    assert_clean()


def test_a_budget_begins_again_when_the_clock_reaches_its_next_window():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.set_budget(holder_id="ada", budget="monthly", limit=10, window="month", idempotency_key="b")
    services.spend(holder_id="ada", amount=10, idempotency_key="s")
    with pytest.raises(BudgetExceeded) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    assert refused.value.facts["resets_at"] == "2040-04-01T00:00:00.000000Z"
    assert reads.budgets("ada")[0].usage[0].used == 10
    move(MARCH + 31 * DAY)
    assert reads.budgets("ada")[0].usage[0].used == 0
    assert services.spend(holder_id="ada", amount=10, idempotency_key="s3").amount == -10
    assert_clean()


def test_recurring_grants_come_due_by_the_clock_one_for_each_period():
    services.set_recurring_grant(
        holder_id="ada", recurring_grant="monthly", interval="month", starts_at=MARCH, amount=50, expiry="period_end",
        idempotency_key="r",
    )  # fmt: skip
    assert services.grant_all_due().periods == 1
    assert services.grant_all_due().periods == 0
    move(MARCH + 61 * DAY)
    assert services.grant_all_due().granted_by_type == {"credits": 100}
    found = reads.balance("ada")
    assert (found.available, found.next_expiry) == (50, (MARCH + 92 * DAY, 50))
    assert_clean()


@pytest.mark.parametrize("kind", ["overage", "claimed"])
def test_what_goes_back_of_a_hold_that_ended_before_a_period_goes_back_when_it_is_booked(kind):
    services.set_recurring_grant(
        holder_id="ada", recurring_grant="weekly", interval="week", starts_at=MARCH + 7 * DAY, amount=50, idempotency_key="r"
    )
    if kind == "overage":
        services.set_overage(holder_id="ada", limit=20, interval="month", idempotency_key="o")
    else:
        lot = services.grant(holder_id="ada", amount=5, idempotency_key="g").sequence
    held = services.hold(holder_id="ada", amount=5, expires_at=MARCH + DAY, idempotency_key="h")
    if kind == "claimed":
        with transaction.atomic(), holder_lock("ada") as lock:
            claim = {"lots": [lot], "amount": 5, "idempotency_key": "c"}
            claim_under(lock, holder_id="ada", credit_type="credits", **claim)
    move(MARCH + 8 * DAY)
    services.grant_all_due()
    [released] = [entry for entry in reads.entries("ada") if entry.kind == "release"]
    [back] = [entry for entry in reads.entries("ada") if entry.kind == "revoke"]
    assert (released.refers_to, from_us(released.effective_us)) == (held.sequence, MARCH + DAY)
    assert (back.amount, from_us(back.effective_us)) == (-5, MARCH + 8 * DAY)
    balance = reads.balance("ada")
    assert (balance.available, balance.overage and balance.overage.used) == (50, 0 if kind == "overage" else None)
    assert_clean()


def test_a_recurring_grant_of_another_holder_is_not_due_by_this_clock_and_the_doctor_sees_the_same():
    services.set_recurring_grant(
        holder_id="bob", recurring_grant="x", interval="month", starts_at=MARCH, amount=50, idempotency_key="r"
    )
    assert services.grant_all_due().periods == 0
    services.set_recurring_grant(
        holder_id="ada", recurring_grant="x", interval="month", starts_at=MARCH, amount=50, idempotency_key="r"
    )
    services.grant_all_due()
    assert work_checks.recurring_grants(connection).state is CheckState.OK
    move(MARCH + 40 * DAY)
    assert work_checks.recurring_grants(connection).text.startswith("1 recurring grant is overdue")
    services.grant_all_due()
    assert work_checks.recurring_grants(connection).state is CheckState.OK


def test_the_clock_is_that_of_all_credit_types_and_read_with_the_entry_that_moved_it():
    entry = move(MARCH + DAY, credit_type="sms")
    assert reads.clock("ada") == ("ada", MARCH + DAY, "sms", entry.sequence, entry.recorded_at)
    assert reads.clock("bob") == ("bob", None, None, None, None)
    assert (entry.kind, entry.amount, entry.counterpart) == (
        "adjust", 0, {"clock": "2040-03-02T00:00:00.000000Z", "tick": 3},
    )  # fmt: skip
    assert services.grant(holder_id="ada", credit_type="minutes", amount=1, idempotency_key="m").effective_at == MARCH + DAY
    explained = reads.explanation("ada", "sms", entry.sequence)
    assert explained is not None
    assert explained["text"] == "The holder's test clock shows 2040-03-02T00:00:00.000000Z from now on."
    assert move(MARCH + DAY, credit_type="sms").replayed
    assert_clean()


WRONG: dict[str, Callable[[], Entry]] = {
    "the present time": lambda: move(MARCH, "again"),
    "an earlier time": lambda: move(MARCH - DAY),
    "an earlier time in another account": lambda: move(MARCH - DAY, credit_type="sms"),
    "before the server's time": lambda: move(datetime(2020, 1, 1, tzinfo=UTC), holder="bob"),
    "more than ten years ahead": lambda: move(MARCH + 3_654 * DAY),
    "more than ten years ahead of the server": lambda: move(MARCH + 3_653 * DAY, holder="bob"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_clock_goes_forward_and_not_too_far(name):
    before = rows()
    with pytest.raises(Invalid, match="now: must be"):
        WRONG[name]()
    assert rows() == before


def test_a_clock_stays_before_2150():
    for years in range(1, 11):
        move(MARCH + years * 3_650 * DAY)
    before = rows()
    with pytest.raises(Invalid, match="2150"):
        move(datetime(2150, 1, 1, tzinfo=UTC))
    assert rows() == before


def test_without_the_setting_a_clock_is_refused_and_nothing_written(settings):
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": False}
    before = rows()
    with pytest.raises(ClocksOff):
        move(MARCH + DAY)
    assert rows() == before
    assert work_checks.holder_clocks(connection).state is CheckState.FAILED


def test_a_dry_run_moves_nothing():
    before = rows()
    assert move(MARCH + DAY, dry_run=True).clock == MARCH + DAY
    assert (rows(), reads.clock("ada").now) == (before, MARCH)


def test_credits_go_only_between_holders_of_one_time():
    before = rows()
    with pytest.raises(ClocksDiffer) as refused:
        services.transfer(holder_id="bob", to="ada", amount=1, idempotency_key="t")
    assert refused.value.facts == {"holder_id": "bob", "to": "ada"}
    assert rows() == before
    move(MARCH - 9 * 365 * DAY, holder="bob")
    move(MARCH, holder="bob")
    sent = services.transfer(holder_id="bob", to="ada", amount=5, idempotency_key="t")
    assert reads.balance("ada").available == 5
    move(MARCH + DAY, holder="ada")
    before = rows()
    with pytest.raises(ClocksDiffer):
        services.reverse(holder_id="bob", to="ada", transfer=sent.sequence, idempotency_key="back")
    assert rows() == before
    move(MARCH + DAY, holder="bob")
    assert services.reverse(holder_id="bob", to="ada", transfer=sent.sequence, idempotency_key="back").amount == 5
    assert_clean()


def test_the_balance_at_an_earlier_time_of_the_clock_is_what_it_was_then():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    move(MARCH + DAY)
    services.spend(holder_id="ada", amount=4, idempotency_key="s")
    move(MARCH + 3 * DAY)
    services.spend(holder_id="ada", amount=3, idempotency_key="s2")
    at = [reads.balance("ada", at=MARCH + days * DAY).balance for days in (-1, 0, 1, 2, 3, 4)]
    assert at == [0, 10, 6, 6, 3, 3]
    services.grant(holder_id="ada", amount=100, effective_at=MARCH + DAY, idempotency_key="late")
    assert reads.balance_by_effective_time("ada", at=MARCH + 2 * DAY).balance == 106
    assert reads.balance("bob", at=datetime.now(UTC) - DAY).balance == 0
    assert reads.balance("bob", at=datetime.now(UTC)).balance == 100


def test_requests_of_one_batch_see_the_clock_that_one_before_them_moved_in_every_account():
    requests = [
        GrantRequest(holder_id="ada", credit_type="sms", amount=9, expires_at=MARCH + DAY, idempotency_key="b1"),
        SpendRequest(holder_id="ada", credit_type="sms", amount=1, idempotency_key="b2"),
        ClockRequest(holder_id="ada", now=MARCH + DAY, idempotency_key="b3"),
        SpendRequest(holder_id="ada", credit_type="sms", amount=1, idempotency_key="b4"),
        GrantRequest(holder_id="ada", amount=1, idempotency_key="b5"),
    ]
    outcomes = services.batch(requests, mode="each", idempotency_key="b").outcomes
    assert [getattr(outcome.error, "code", None) for outcome in outcomes] == [None, None, None, "insufficient-credits", None]
    assert reads.entry("ada", "credits", reads.balance("ada").sequence).effective_at == MARCH + DAY
    assert_clean()


def test_the_customers_page_counts_the_days_of_the_clock():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    move(MARCH + DAY)
    services.spend(holder_id="ada", amount=3, idempotency_key="s2")
    move(MARCH + 2 * DAY)
    used = read_usage("ada", "credits", zone=ZoneInfo("UTC"), now=reads.balance("ada").as_of).days
    assert [(each.day.isoformat(), each.used) for each in used[-4:]] == [
        ("2040-02-29", 0), ("2040-03-01", 1), ("2040-03-02", 3), ("2040-03-03", 0),
    ]  # fmt: skip
    assert services.time_of("ada") == MARCH + 2 * DAY
    assert abs(services.time_of("bob") - datetime.now(UTC)) < DAY
