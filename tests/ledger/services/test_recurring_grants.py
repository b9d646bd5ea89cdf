"""Recurring grants: each period is granted once, as of its start, however late and in whatever steps the worker runs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import IdempotencyKeyReused, InsufficientCredits, Invalid, RecurringGrantLimit, RecurringGrantNotFound
from ledger.models import Entry
from ledger.previews import preview
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, hold_rules, recurring_rules, settlement, skipped_periods
from ledger.rules.entries import Entry as DecidedEntry
from ledger.rules.entry_texts import entry_text
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import MAX_OPEN_LOTS
from ledger.rules.recurring_terms import MAX_RECURRING_GRANTS, RecurringGrant
from ledger.rules.requests import GrantRequest, HoldRequest, OverdraftRequest, RecurringGrantRequest, SpendRequest
from ledger.services import recurring_grants
from ledger.testing import FixedClock
from ledger.units import unit_of

SEPTEMBER = datetime(2026, 9, 1, tzinfo=UTC)


@pytest.fixture
def clock(db: None) -> Iterator[FixedClock]:
    """Time stands still, on 1 September."""
    with FixedClock(SEPTEMBER) as clock:
        yield clock


def at(month: int, day: int, hour: int = 0) -> datetime:
    """An instant of 2026."""
    return datetime(2026, month, day, hour, tzinfo=UTC)


_keys = count()


def recur(holder: str = "ada", name: str = "monthly", **terms: Any) -> DecidedEntry:
    """Set a recurring grant: 100 a month, if the terms say nothing else."""
    terms = {"interval": "month"} | ({} if "up_to" in terms else {"amount": 100}) | terms
    return services.set_recurring_grant(holder_id=holder, recurring_grant=name, idempotency_key=f"set-{next(_keys)}", **terms)


def work() -> recurring_grants.RecurringSummary:
    """What the worker does."""
    summary = services.grant_all_due()
    assert (summary.busy, summary.failures) == (0, [])
    return summary


def lots(holder: str = "ada") -> list[tuple[int, str, str | None]]:
    """The open lots, each with its rest, its start and its expiry."""
    return [
        (lot.remaining, f"{lot.effective_at:%m-%d}", lot.expires_at and f"{lot.expires_at:%m-%d}")
        for lot in sorted(reads.balance(holder).lots, key=lambda lot: lot.effective_at)
    ]


def grants(holder: str = "ada") -> list[tuple[str, int, str]]:
    """Kind, amount and the day from which it counts, of all entries but settings."""
    entries = Entry.objects.filter(holder_id=holder).order_by("sequence")
    return [
        (entry.kind, entry.amount, f"{entry.effective_at or entry.recorded_at:%m-%d}")
        for entry in entries
        if entry.kind != "adjust"
    ]


def broken_laws() -> dict[str, int]:
    """What the audit finds."""
    from django.db import connection

    return audit([connection.connection]).totals


def test_each_period_is_granted_at_its_start_and_expires_with_it(clock):
    recur()
    assert work().granted_by_type == {"credits": 100}
    assert (lots(), work().periods) == ([(100, "09-01", "10-01")], 0)
    services.spend(holder_id="ada", amount=30, idempotency_key="s")
    clock.move_to(at(10, 1))
    work()
    assert lots() == [(100, "10-01", "11-01")]
    assert grants() == [("grant", 100, "09-01"), ("spend", -30, "09-01"), ("expire", -70, "10-01"), ("grant", 100, "10-01")]
    entry = reads.entry("ada", "credits", 5)
    assert entry is not None
    assert (entry.actor, entry.reason) == ("ledger", "Monthly grant, period 1 Oct 2026 – 1 Nov 2026")
    assert entry.idempotency_key == "recurring/credits/monthly/1/1"
    assert broken_laws() == {}


def test_a_late_run_grants_every_missed_period_and_what_has_expired_is_gone(clock):
    recur()
    clock.move_to(at(12, 5))
    assert work().granted_by_type == {"credits": 400}
    assert lots() == [(100, "12-01", "01-01")]
    assert [kind for kind, *_ in grants()] == ["grant", "expire"] * 3 + ["grant"]
    assert broken_laws() == {}


def test_a_period_that_ended_when_the_account_went_into_debt_repays_nothing(clock):
    services.set_overdraft(holder_id="ada", limit=1_000, idempotency_key="o")
    clock.move_to(at(10, 1))
    services.spend(holder_id="ada", amount=30, idempotency_key="s")
    recur(starts_at=at(9, 1))
    work()
    assert grants() == [("spend", -30, "10-01"), ("grant", 100, "10-01")]
    assert (lots(), broken_laws()) == ([(70, "10-01", "11-01")], {})


def test_month_ends_clamp_to_the_day_of_the_start_in_its_zone(clock):
    recur(starts_at=datetime(2027, 1, 31, 8, tzinfo=UTC), time_zone="Europe/Berlin", periods=4)
    clock.move_to(datetime(2027, 12, 1, tzinfo=UTC))
    work()
    found = Entry.objects.filter(holder_id="ada", kind="grant").order_by("sequence").values_list("effective_at", flat=True)
    # 9:00 in Berlin: 8:00 UTC in winter, 7:00 in summer.
    assert [f"{each:%m-%d %H}" for each in found] == ["01-31 08", "02-28 08", "03-31 07", "04-30 07"]


def test_up_to_fills_the_recurring_grants_own_lots_held_credits_included(clock):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="bought", priority=200)
    recur(up_to=100, expiry="never")
    work()
    services.spend(holder_id="ada", amount=60, idempotency_key="s")
    services.hold(holder_id="ada", amount=10, idempotency_key="h", expires_at=at(9, 20))
    clock.move_to(at(9, 2))
    assert work().periods == 0
    clock.move_to(at(10, 1))
    work()
    # 30 are left in the first lot, and 10 that the hold gave back when it expired.
    assert grants()[-1] == ("grant", 60, "10-01")
    clock.move_to(at(11, 1))
    work()
    assert reads.balance("ada").available == 1_100
    nothing = reads.entry("ada", "credits", Entry.objects.filter(holder_id="ada").latest("sequence").sequence)
    assert nothing is not None
    assert (nothing.kind, nothing.amount, nothing.recurring_grant) == ("adjust", 0, "monthly")
    assert broken_laws() == {}


def test_a_rollover_keeps_up_to_its_cap_and_revokes_the_oldest_first(clock):
    """The worked example of the how-to."""
    recur(expiry="rollover", rollover_cap=50)
    work()
    services.spend(holder_id="ada", amount=20, idempotency_key="s")
    clock.move_to(at(10, 1))
    work()
    assert lots() == [(50, "09-01", None), (100, "10-01", None)]
    services.spend(holder_id="ada", amount=30, idempotency_key="t")
    clock.move_to(at(11, 1))
    work()
    assert lots() == [(50, "10-01", None), (100, "11-01", None)]
    assert [entry for entry in grants() if entry[0] == "revoke"] == [
        ("revoke", -30, "10-01"),
        ("revoke", -20, "11-01"),
        ("revoke", -50, "11-01"),
    ]
    assert broken_laws() == {}


def test_credits_expire_after_days_on_the_clocks_of_the_zone(clock):
    recur(expiry="after_days", expires_after_days=45, starts_at=at(9, 30), time_zone="Europe/Berlin")
    clock.move_to(at(10, 30, 2))
    work()
    # 2:00 in Berlin is 0:00 UTC in summer, which ends on 25 October.
    assert [lot.expires_at for lot in reads.balance("ada").lots] == [at(11, 14, 1), at(12, 14, 1)]


def test_the_end_and_the_number_of_periods_end_it(clock):
    recur("ada", periods=2, expiry="never")
    recur("bob", ends_at=at(10, 15), expiry="never")
    clock.move_to(at(12, 5))
    work()
    assert [len(lots(holder)) for holder in ("ada", "bob")] == [2, 2]
    assert work().due == 0


def test_a_start_in_the_past_grants_the_period_of_now_first(clock):
    recur(starts_at=at(1, 15))
    work()
    assert lots() == [(100, "08-15", "09-15")]


def test_other_terms_can_begin_when_the_present_period_is_over(clock):
    recur()
    work()
    clock.move_to(at(9, 10))
    recur(amount=7, interval="week", change="keep")
    work()
    assert lots() == [(100, "09-01", "10-01")]
    # Weeks from 1 September: of the one that begins on 29 September, 5 days are left on 1 October.
    clock.move_to(at(10, 1))
    work()
    assert lots() == [(5, "10-01", "10-06")]
    clock.move_to(at(10, 7))
    work()
    assert lots() == [(7, "10-06", "10-13")]
    assert broken_laws() == {}


CHANGES = {
    "another zone": (
        {"time_zone": "Europe/Berlin", "starts_at": at(8, 31, 22)},
        [(30, "09-01", "10-01"), (70, "09-10", "09-30")],
    ),
    "another day": ({"starts_at": at(9, 15)}, [(46, "09-01", "10-01")]),
    "another day, which has passed": ({"starts_at": at(9, 8)}, [(30, "09-01", "10-01"), (93, "09-10", "10-08")]),
    "a quarter": ({"amount": 300, "interval_count": 3}, [(30, "09-01", "10-01"), (270, "09-10", "12-01")]),
    "weeks": ({"amount": 25, "interval": "week"}, [(30, "09-01", "10-01"), (17, "09-10", "09-15")]),
    "more": ({"amount": 1000}, [(30, "09-01", "10-01"), (700, "09-10", "10-01")]),
    "more, all at once": ({"amount": 1000, "change": "full"}, [(30, "09-01", "10-01"), (1000, "09-10", "10-01")]),
    "more, later": ({"amount": 1000, "change": "keep"}, [(100, "09-01", "10-01")]),
    "another priority": ({"priority": 3}, [(100, "09-01", "10-01")]),
    "another anchor with the same days": ({"starts_at": at(8, 1)}, [(100, "09-01", "10-01")]),
    "a level": ({"up_to": 150}, [(30, "09-01", "10-01"), (120, "09-10", "10-01")]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_terms_give_back_the_rest_and_grant_their_share_at_once(clock: FixedClock, name: str) -> None:
    terms, expected = CHANGES[name]
    recur()
    work()
    clock.move_to(at(9, 10))
    shown = reads.recurring_grant("ada", name="monthly")
    assert shown is not None
    recur(**terms)
    assert lots() == expected
    # Nothing else is due, and no day is left out: the next one begins where the last one ends.
    assert work().periods == 0
    after = reads.recurring_grant("ada", name="monthly")
    assert after is not None
    assert after.next_at == (at(9, 15) if name == "another day" else after.granted_until)
    assert broken_laws() == {}


@pytest.mark.parametrize(("spent", "left"), [(0, [10]), (30, []), (80, [])])
def test_what_is_spent_or_held_does_not_go_back(clock: FixedClock, spent: int, left: list[int]) -> None:
    recur()
    work()
    services.hold(holder_id="ada", amount=20, idempotency_key="h", expires_at=at(9, 25))
    if spent:
        services.spend(holder_id="ada", amount=spent, idempotency_key="s")
    clock.move_to(at(9, 10))
    recur(amount=1000)
    # 70 of 100 are for the days that are left; what a hold has set aside stays.
    assert [rest for rest, *_ in lots()] == [*left, 700]
    assert broken_laws() == {}


def test_a_second_change_within_the_period_cuts_the_part_that_the_first_granted(clock: FixedClock) -> None:
    recur()
    work()
    clock.move_to(at(9, 10))
    recur(amount=1000)
    clock.move_to(at(9, 20))
    recur(amount=100)
    # Of 700 for 21 days, 10 days have passed; 11 of 30 days at 100.
    assert lots() == [(30, "09-01", "10-01"), (333, "09-10", "10-01"), (36, "09-20", "10-01")]
    clock.move_to(at(10, 1))
    work()
    assert lots() == [(100, "10-01", "11-01")]
    assert broken_laws() == {}


def test_a_dry_run_of_other_terms_and_their_repetition_grant_nothing(clock: FixedClock) -> None:
    recur()
    work()
    clock.move_to(at(9, 10))
    terms = {"interval": "month", "amount": 1000, "idempotency_key": "again"}
    services.set_recurring_grant(holder_id="ada", recurring_grant="monthly", dry_run=True, **terms)
    assert lots() == [(100, "09-01", "10-01")]
    for _ in range(2):
        services.set_recurring_grant(holder_id="ada", recurring_grant="monthly", **terms)
    assert lots() == [(30, "09-01", "10-01"), (700, "09-10", "10-01")]


def test_what_rolled_over_is_cut_to_its_cap_when_a_period_begins_and_not_by_other_terms(clock: FixedClock) -> None:
    recur(expiry="rollover", rollover_cap=10)
    work()
    clock.move_to(at(9, 10))
    recur(amount=300, expiry="rollover", rollover_cap=10)
    assert [rest for rest, *_ in lots()] == [30, 210]
    clock.move_to(at(10, 1))
    work()
    assert [rest for rest, *_ in lots()] == [10, 300]
    assert broken_laws() == {}


def test_other_terms_and_an_end_come_after_the_grants_that_are_due(clock):
    recur()
    clock.move_to(at(9, 10))
    recur(amount=7)
    # 9 of 30 days of 100, and 21 of 7.
    assert lots() == [(30, "09-01", "10-01"), (4, "09-10", "10-01")]
    clock.move_to(at(10, 2))
    services.end_recurring_grant(holder_id="ada", recurring_grant="monthly", idempotency_key="end")
    assert lots() == [(7, "10-01", "11-01")]
    clock.move_to(at(11, 2))
    assert work().due == 0
    with pytest.raises(RecurringGrantNotFound):
        services.end_recurring_grant(holder_id="ada", recurring_grant="monthly", idempotency_key="again")
    assert broken_laws() == {}


def test_a_recurring_grant_that_is_set_again_after_its_end_grants_no_period_twice(clock):
    recur()
    work()
    services.end_recurring_grant(holder_id="ada", recurring_grant="monthly", idempotency_key="end")
    recur(starts_at=SEPTEMBER)
    assert work().periods == 0
    clock.move_to(at(10, 1))
    work()
    assert lots() == [(100, "10-01", "11-01")]


def test_an_account_has_only_so_many_and_one_that_ends_makes_room(clock):
    for n in range(MAX_RECURRING_GRANTS):
        recur(name=f"n{n}", starts_at=at(10, 1))
    before = Entry.objects.count()
    with pytest.raises(RecurringGrantLimit) as refused:
        recur(name="one-more", starts_at=at(10, 1))
    assert refused.value.facts == {"limit": MAX_RECURRING_GRANTS}
    assert Entry.objects.count() == before
    # Other terms of one that is there, another account, and one more after an end are possible.
    recur(name="n0", amount=7, starts_at=at(10, 1))
    recur("bob", name="one-more")
    services.end_recurring_grant(holder_id="ada", recurring_grant="n1", idempotency_key="end")
    recur(name="one-more", starts_at=at(10, 1))
    with pytest.raises(RecurringGrantLimit):
        recur(name="n1", starts_at=at(10, 1))


def test_a_dry_run_and_a_repeated_request_write_nothing(clock):
    recur(dry_run=True)
    assert not Entry.objects.exists()
    named = {"holder_id": "ada", "recurring_grant": "m", "amount": 1, "interval": "day", "idempotency_key": "k"}
    first = services.set_recurring_grant(**named)
    clock.advance(days=1)
    work()
    again = services.set_recurring_grant(**named)
    assert (again.sequence, again.replayed, again.counterpart) == (first.sequence, True, first.counterpart)
    assert work().periods == 0


def test_a_frozen_holder_is_granted_to(clock):
    recur()
    services.freeze(holder_id="ada", frozen=True, idempotency_key="f")
    work()
    assert reads.balance("ada").balance == 100


@pytest.mark.parametrize("moment", [at(9, 3), at(9, 3, 12)], ids=["at its very end", "later"])
def test_a_request_grants_each_missed_period_before_it_is_decided(clock, moment):
    recur(interval="day")
    clock.move_to(moment)
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    assert [entry for entry in grants() if entry[1] == 100] == [("grant", 100, f"09-0{day}") for day in (1, 2, 3)]
    assert (work().periods, grants()[-1][1], lots()[-1], broken_laws()) == (0, 1, (1, "09-03", None), {})


def test_a_period_that_ended_before_its_terms_were_set_or_at_that_instant_gets_nothing(clock):
    recur(interval="day", starts_at=at(8, 30), first_at=at(8, 30))
    assert work().periods == 3
    assert (grants(), broken_laws()) == ([("grant", 100, "09-01")], {})


def test_a_spend_in_the_first_microsecond_of_a_period_takes_from_it_without_a_worker(clock):
    recur(starts_at=at(9, 2))
    clock.move_to(at(9, 2) - timedelta(microseconds=1))
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=1, idempotency_key="before")
    clock.move_to(at(9, 2))
    assert reads.balance("ada").available == 100
    # It was read without a write.
    assert grants() == [("refusal", 0, "09-01")]
    assert services.spend(holder_id="ada", amount=100, idempotency_key="at").balance == 0
    clock.move_to(at(10, 2) - timedelta(microseconds=1))
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=1, idempotency_key="end")
    clock.move_to(at(10, 2))
    assert services.spend(holder_id="ada", amount=1, idempotency_key="next").balance == 99
    assert (work().periods, broken_laws()) == (0, {})


def test_a_refusal_follows_the_grants_that_were_due(clock):
    recur()
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=101, idempotency_key="s")
    assert (refused.value.facts["available"], grants()) == (100, [("grant", 100, "09-01"), ("refusal", 0, "09-01")])
    with pytest.raises(InsufficientCredits) as replayed:
        services.spend(holder_id="ada", amount=101, idempotency_key="s")
    assert replayed.value.replayed
    assert (len(grants()), broken_laws()) == (2, {})


def test_a_write_makes_the_grants_of_all_recurring_grants_in_the_order_of_their_instants(clock):
    recur(name="a", starts_at=at(9, 3), amount=3)
    recur(name="b", starts_at=at(9, 2), amount=2)
    recur(name="c", starts_at=at(9, 5), amount=5)
    clock.move_to(at(9, 4))
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    assert grants() == [("grant", 2, "09-02"), ("grant", 3, "09-03"), ("spend", -5, "09-04")]
    services.end_recurring_grant(holder_id="ada", recurring_grant="c", idempotency_key="end")
    clock.move_to(at(9, 6))
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    assert (len(grants()), work().periods, broken_laws()) == (4, 0, {})


def test_holds_captures_refunds_and_transfers_make_what_is_due_of_each_account(clock):
    recur("ada", interval="day", expiry="never")
    recur("ben", interval="day", expiry="never")
    hold = services.hold(holder_id="ada", amount=60, idempotency_key="h", expires_at=at(9, 20))
    clock.move_to(at(9, 2))
    capture = services.capture(holder_id="ada", hold=hold.sequence, amount=160, over_capture="if_available", idempotency_key="c")
    clock.move_to(at(9, 3))
    services.refund(holder_id="ada", spend=capture.sequence, amount=10, idempotency_key="r")
    clock.move_to(at(9, 4))
    services.transfer(holder_id="ada", to="ben", amount=250, idempotency_key="t")
    assert [reads.balance(name).balance for name in ("ada", "ben")] == [400 - 160 + 10 - 250, 400 + 250]
    assert (work().periods, broken_laws()) == (0, {})


def test_a_batch_and_its_dry_run_make_what_is_due_once(clock):
    recur()
    spends = [SpendRequest(holder_id="ada", amount=50, idempotency_key=f"s{n}") for n in range(2)]
    tried = services.batch(spends, mode="atomic", idempotency_key="try", dry_run=True)
    assert ([each.entry.balance for each in tried.outcomes if each.entry], grants()) == ([50, 0], [])
    done = services.batch(spends, mode="atomic", idempotency_key="b")
    assert [each.entry.balance for each in done.outcomes if each.entry] == [50, 0]
    assert (grants(), broken_laws()) == ([("grant", 100, "09-01"), ("spend", -50, "09-01"), ("spend", -50, "09-01")], {})


def test_a_dry_run_takes_what_is_due_and_a_preview_grants_it_once_without_writing(clock):
    recur(interval="day")
    assert services.spend(holder_id="ada", amount=40, idempotency_key="d", dry_run=True).balance == 60
    before = [one.next_at for one in reads.recurring_grants("ada")]
    with preview():
        assert services.spend(holder_id="ada", amount=40, idempotency_key="s").balance == 60
        assert services.spend(holder_id="ada", amount=40, idempotency_key="t").balance == 20
        # What is left of the day's goes back, and the new terms give theirs.
        recur(amount=7, interval="day")
        assert services.spend(holder_id="ada", amount=7, idempotency_key="u").balance == 0
    assert (grants(), [one.next_at for one in reads.recurring_grants("ada")]) == ([], before)
    assert broken_laws() == {}


def test_an_expected_sequence_is_that_before_the_grants_that_are_due(clock):
    setting = recur()
    spent = services.spend(holder_id="ada", amount=1, idempotency_key="s", expected_sequence=setting.sequence)
    assert (spent.sequence, spent.balance) == (setting.sequence + 2, 99)


def test_the_key_of_a_period_that_is_due_is_the_periods(clock):
    recur()
    with pytest.raises(IdempotencyKeyReused):
        services.grant(holder_id="ada", amount=1, idempotency_key="recurring/credits/monthly/1/0")
    assert (grants(), broken_laws()) == ([("grant", 100, "09-01")], {})


def test_an_account_with_too_many_lots_is_written_to_and_the_grant_stays_due(clock):
    for number in range(MAX_OPEN_LOTS):
        services.grant(holder_id="ada", amount=1, idempotency_key=f"g{number}")
    recur()
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    assert reads.balance("ada").balance == MAX_OPEN_LOTS - 1
    # A lot is free now.
    services.spend(holder_id="ada", amount=1, idempotency_key="t")
    assert (reads.balance("ada").balance, broken_laws()) == (MAX_OPEN_LOTS - 2 + 100, {})


def test_a_key_that_another_request_took_is_reported_and_nothing_is_granted(clock):
    recur(starts_at=at(9, 2))
    services.grant(holder_id="ada", amount=1, idempotency_key="recurring/credits/monthly/1/0")
    clock.move_to(at(9, 2))
    # It is reported by the worker, and in nobody's way.
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    with pytest.raises(IdempotencyKeyReused):
        services.grant_due_period(holder_id="ada")
    summary = services.grant_all_due()
    assert (summary.failed, summary.periods) == (1, 0)
    assert summary.failures == [
        "ada/credits: Another request has used this idempotency key: idempotency_key 'recurring/credits/monthly/1/0'."
    ]
    assert reads.balance("ada").balance == 1
    with pytest.raises(IdempotencyKeyReused):
        recur(amount=7)
    services.end_recurring_grant(holder_id="ada", recurring_grant="monthly", idempotency_key="end")
    assert (work().due, reads.balance("ada").balance, broken_laws()) == (0, 1, {})


# After a long pause -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "end", "periods", "because", "left"),
    [
        ({}, "12-30", 88, "expired", [100]),
        ({"expiry": "after_days", "expires_after_days": 2}, "12-29", 87, "expired", [100] * 2),
        ({"up_to": 100}, "12-30", 88, "expired", [100]),
        ({"up_to": 100, "expiry": "never"}, "12-31", 120, "full", [100]),
        ({"expiry": "rollover", "rollover_cap": 250}, "12-27", 116, "not_kept", [50, 100, 100, 100]),
        ({"up_to": 100, "expiry": "after_days", "expires_after_days": 10}, "12-30", 119, "filled_expired", [100]),
        ({"applies_to": {"rates": ["chat"]}}, "12-30", 88, "expired", [100]),
    ],
)
def test_many_periods_that_left_nothing_are_one_entry(clock, terms, end, periods, because, left):
    services.set_overdraft(holder_id="ada", limit=10, idempotency_key="o")
    if because == "expired":
        clock.move_to(at(10, 2))
    recur(name="daily", interval="day", starts_at=clock.at, **terms)
    work()
    clock.move_to(at(12, 31) - timedelta(hours=2))
    shown = reads.balance("ada").available
    entry = services.grant(holder_id="ada", amount=1, idempotency_key="g")
    assert [rest for rest, *_ in lots()][:-1] == left
    assert (entry.balance, shown) == (sum(left) + 1, 10 if "applies_to" in terms else sum(left) + 10)
    [skipping] = [one for one in Entry.objects.filter(kind="adjust") if "periods" in (one.counterpart or {})]
    facts = skipping.counterpart
    assert (facts["period_end"][5:10], facts["periods"], facts["because"]) == (end, periods, because)
    assert (work().periods, work().skipped, broken_laws()) == (0, 0, {})


def test_a_worker_skips_too_and_says_so(clock):
    recur(interval="day")
    clock.move_to(at(9, 14))
    # 12 that have expired, and no more.
    services.grant(holder_id="ben", amount=1, idempotency_key="g")
    recur("ben", interval="day", starts_at=SEPTEMBER + timedelta(days=13))
    summary = work()
    assert (summary.periods, summary.skipped) == (2, 13)
    assert summary.granted_by_type == {"credits": 200}
    texts = [
        entry_text(row, at=row.recorded_at, unit=unit_of("credits")).text
        for row in Entry.objects.filter(holder_id="ada").order_by("sequence")
    ]
    assert (
        "gets nothing of the recurring grant monthly for 13 periods from 2026-09-01 to 2026-09-14: "
        "their credits had expired before the next write"
    ) in texts[1]


def test_a_debt_is_repaid_by_each_period_although_its_credits_would_have_expired(clock):
    services.set_overdraft(holder_id="ada", limit=10_000, idempotency_key="o")
    services.spend(holder_id="ada", amount=1_950, idempotency_key="s")
    recur(interval="day", starts_at=at(9, 2))
    clock.move_to(at(11, 1))
    entry = services.grant(holder_id="ada", amount=1, idempotency_key="g")
    # 20 days for the debt; the last of them leaves 50, which expire. Then 39 that nobody could spend, and the day of now.
    assert entry.balance == 101
    assert [
        one.counterpart["periods"] for one in Entry.objects.filter(kind="adjust") if "periods" in (one.counterpart or {})
    ] == [40]
    assert broken_laws() == {}


def test_other_terms_and_an_end_after_skipped_periods(clock):
    recur(interval="day")
    work()
    clock.move_to(at(10, 31))
    recur(interval="day", amount=7)
    assert work().periods == 1
    shown = reads.recurring_grant("ada", name="monthly")
    assert shown is not None
    assert (lots(), shown.granted_until) == ([(7, "10-31", "11-01")], at(11, 1))
    services.end_recurring_grant(holder_id="ada", recurring_grant="monthly", idempotency_key="end")
    assert (work().due, broken_laws()) == (0, {})


def test_what_has_expired_is_booked_after_what_is_due(clock):
    """As by any write: what a hold gives back when it expires is not kept beyond the cap of an earlier period."""
    for holder in ("ada", "ben"):
        recur(holder, interval="day", expiry="rollover", rollover_cap=60)
        services.hold(holder_id=holder, amount=40, idempotency_key="h", expires_at=at(9, 4))
    for day in (2, 3, 4):
        clock.move_to(at(9, day))
        services.grant_due_period(holder_id="ada")
        services.book_expirations(holder_id="ada")
    booked = services.book_expirations(holder_id="ben")
    assert [entry.kind for entry in booked if entry.kind in ("grant", "release")] == ["grant"] * 2 + ["release", "grant"]
    assert [rest for rest, *_ in lots("ben")] == [rest for rest, *_ in lots("ada")]
    assert broken_laws() == {}


def test_what_is_due_can_be_spent_under_a_lock_that_is_held(clock):
    from ledger.database.locks import holder_lock

    recur()
    with holder_lock("ada") as lock:
        assert services.available_under(lock, holder_id="ada") == 100
    assert (grants(), broken_laws()) == ([("grant", 100, "09-01")], {})


@pytest.mark.parametrize(
    ("terms", "pointer"),
    [
        ({"expiry": "after_days"}, "/expires_after_days"),
        ({"expires_after_days": 3}, "/expires_after_days"),
        ({"expiry": "rollover"}, "/rollover_cap"),
        ({"rollover_cap": 3}, "/rollover_cap"),
        ({"starts_at": SEPTEMBER, "ends_at": SEPTEMBER}, "/ends_at"),
        ({"up_to": 5, "amount": 5}, "/up_to"),
        ({"interval": "hour"}, "/interval"),
        ({"interval_count": 0}, "/interval_count"),
        ({"time_zone": "Mars/Base"}, "/time_zone"),
    ],
)
def test_terms_that_do_not_fit_are_refused_by_field(clock, terms, pointer):
    with pytest.raises(Invalid) as refused:
        recur(**terms)
    assert refused.value.facts["pointer"] == pointer
    assert not Entry.objects.exists()


# However late, in whatever steps ---------------------------------------------------------------------

TERMS = st.fixed_dictionaries(
    {
        "interval": st.sampled_from(["day", "week"]),
        "interval_count": st.integers(1, 3),
        "how": st.sampled_from([{"amount": 100}, {"up_to": 100}]),
        "expires": st.sampled_from(
            [
                {},
                {"expiry": "never"},
                {"expiry": "after_days", "expires_after_days": 5},
                {"expiry": "rollover", "rollover_cap": 60},
                {"expiry": "rollover", "rollover_cap": 230},
            ]
        ),
        "periods": st.none() | st.integers(1, 6),
    }
)


class History:
    """An account in memory, with two recurring grants; what a worker does with it, at the instants at which it runs."""

    def __init__(self, terms: list[dict[str, Any]], spent: int, debt: int, held: int) -> None:
        self.now_us = to_us(SEPTEMBER)
        self.entries: list[DecidedEntry] = []
        self.state = AccountState("ada", "credits", self.now_us)
        common = {"holder_id": "ada"}
        self.run(credit_rules.set_overdraft(self.state, OverdraftRequest(**common, idempotency_key="o", limit=1_000)))
        self.run(credit_rules.grant(self.state, GrantRequest(**common, idempotency_key="g", amount=50)))
        self.run(credit_rules.spend(self.state, SpendRequest(**common, idempotency_key="s", amount=50 + debt)))
        self.known: dict[str, RecurringGrant] = {}
        for number, each in enumerate(terms):
            names = ("interval", "interval_count", "periods", "time_zone")
            declared = {name: each[name] for name in names if name in each} | each["how"] | each["expires"]
            name = f"r{number}"
            request = RecurringGrantRequest(
                **common, idempotency_key=name, recurring_grant=name, starts_at=SEPTEMBER + timedelta(hours=number), **declared
            )
            (entry,) = self.run(recurring_rules.set_recurring_grant(self.state, request, known=None, others=0))
            self.known[name] = RecurringGrant.from_entries(name, entry.sequence, entry.counterpart or {}, None, None, None)
        self.work()
        spent = min(spent, self.state.own_available)
        if spent:
            self.run(credit_rules.spend(self.state, SpendRequest(**common, idempotency_key="t", amount=spent)))
        held = min(held, self.state.own_available)
        if held:
            request = HoldRequest(**common, idempotency_key="h", amount=held, expires_at=SEPTEMBER + timedelta(days=9))
            self.run(hold_rules.hold(self.state, request))

    def run(self, entries: list[DecidedEntry]) -> list[DecidedEntry]:
        self.entries += entries
        self.state = self.state.after_all(entries)
        return entries

    def work(self, steps: int = 10_000) -> None:
        """Grant what is due, the oldest first, at most this number of periods."""
        for _ in range(steps):
            due = [each for each in self.known.values() if each.is_due(self.state.now_us)]
            if not due:
                return
            recurring = min(due, key=lambda each: (each.next_us, each.name))
            own = {e.sequence for e in self.entries if e.kind == "grant" and e.metadata.get("recurring_grant") == recurring.name}
            decided = [
                to_us(datetime.fromisoformat(e.metadata["as_of"])) if "as_of" in e.metadata else e.recorded_us
                for e in self.entries
                if e.actor != "ledger" or "as_of" in e.metadata
            ]
            expired = [(e.effective_us, -e.amount) for e in self.entries if e.kind == "expire" and e.refers_to in own]
            entries, after = recurring_rules.grant_period(
                self.state, recurring, lots=own, expired=expired, decided_from_us=decided[-1]
            )
            self.run(entries)
            handled = next(e.metadata for e in entries if e.actor == "ledger" and e.idempotency_key and e.kind != "revoke")
            setting = next(e.counterpart for e in self.entries if e.sequence == recurring.setting)
            stored = RecurringGrant.from_entries(recurring.name, recurring.setting, setting or {}, handled, 0, 0)
            assert (stored.next_us, stored.still_open) == (after.next_us, after.still_open)
            self.known[recurring.name] = after

    def pass_to(self, instant_us: int, *, sweep: bool = False) -> None:
        """Let time pass; the sweeper may book what has expired, after what is due."""
        self.state = self.state._replace(now_us=instant_us)
        if sweep:
            self.work()
            self.run(settlement.settle_due(self.state)[0])

    def at_the_end(self) -> tuple[Any, ...]:
        """What is left, without the numbers of lots."""
        open_lots = sorted((lot.remaining, lot.expires_us or 0, lot.source, lot.priority) for lot in self.state.settled.lots)
        return open_lots, self.state.settled.owed, self.state.available, [each.next_us for each in self.known.values()]


def boundaries(history: History, until_us: int) -> list[int]:
    """All instants at which a run in time has something to do."""
    found: set[int] = set()
    for each in history.known.values():
        found |= {each.terms.span(n).start_us for n in each.upcoming(60) if each.terms}
    return sorted(instant for instant in found if instant <= until_us)


@pytest.mark.slow
@pytest.mark.check
@given(
    terms=st.lists(TERMS, min_size=1, max_size=2),
    spent=st.integers(0, 250),
    debt=st.sampled_from([0, 0, 30, 500]),
    days=st.integers(1, 40),
    late=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3), st.booleans()), max_size=5),
    held=st.sampled_from([0, 0, 40]),
    one_by_one=st.sampled_from([1, 3, skipped_periods.MADE_ONE_BY_ONE]),
)
def test_late_interrupted_and_stepwise_runs_leave_what_a_run_in_time_leaves(terms, spent, debt, days, late, held, one_by_one):
    with patch.object(skipped_periods, "MADE_ONE_BY_ONE", one_by_one):
        compare_runs(terms, spent, debt, days, late, held)


def compare_runs(terms: Any, spent: int, debt: int, days: int, late: Any, held: int) -> None:
    """Compare late, interrupted and stepwise runs with runs in time."""
    end_us = to_us(SEPTEMBER + timedelta(days=days, hours=7))
    in_time, once, in_steps = (History(terms, spent, debt, held) for _ in range(3))
    for instant_us in boundaries(in_time, end_us):
        in_time.pass_to(instant_us)
        in_time.work()
    in_time.pass_to(end_us)
    once.pass_to(end_us)
    once.work()
    for day, steps, sweep in sorted(late):
        in_steps.pass_to(min(end_us, to_us(SEPTEMBER + timedelta(days=day, hours=11))), sweep=sweep)
        in_steps.work(steps)
    in_steps.pass_to(end_us, sweep=True)
    in_steps.work()
    assert once.at_the_end() == in_time.at_the_end()
    assert in_steps.at_the_end() == in_time.at_the_end()


@pytest.mark.slow
@given(
    terms=st.fixed_dictionaries(
        {
            "interval": st.sampled_from(["day", "day", "week", "month"]),
            "interval_count": st.integers(1, 2),
            "time_zone": st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
            "periods": st.none() | st.integers(1, 200),
            "how": st.just({"up_to": 100}),
            "expires": st.integers(1, 70).map(lambda days: {"expiry": "after_days", "expires_after_days": days}),
        }
    ),
    pauses=st.lists(
        st.tuples(st.integers(0, 150), st.integers(0, 100), st.sampled_from([0, 0, 20]), st.integers(1, 10)),
        min_size=1,
        max_size=6,
    ),
    one_by_one=st.sampled_from([1, 3, skipped_periods.MADE_ONE_BY_ONE]),
)
def test_what_fills_up_and_expires_after_days_is_the_same_skipped_or_step_by_step(terms, pauses, one_by_one):
    """With spends and holds between pauses, and a catching up that stops after some steps and goes on later."""
    histories = [History([terms], 0, 0, 0) for _ in range(2)]
    steps = [one_by_one, 10**9]
    now_us = to_us(SEPTEMBER)
    for days, spent, held, until in pauses:
        now_us += int(timedelta(days=days, hours=5).total_seconds()) * 1_000_000
        for history, limit in zip(histories, steps, strict=True):
            with patch.object(skipped_periods, "MADE_ONE_BY_ONE", limit):
                history.pass_to(now_us - 3_600_000_000)
                history.work(until if limit == one_by_one else 10_000)
                history.pass_to(now_us)
                history.work()
        assert histories[0].at_the_end() == histories[1].at_the_end()
        for history in histories:
            named = {"holder_id": "ada", "idempotency_key": f"{now_us}"}
            if amount := min(spent, history.state.own_available):
                history.run(credit_rules.spend(history.state, SpendRequest(**named, amount=amount)))
            if amount := min(held, history.state.own_available):
                expires_at = from_us(now_us) + timedelta(days=30)
                history.run(hold_rules.hold(history.state, HoldRequest(**named, amount=amount, expires_at=expires_at)))
    assert histories[0].at_the_end() == histories[1].at_the_end()
