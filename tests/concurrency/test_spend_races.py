"""Two requests for one holder at the same time, with and without the lock, with and without the constraints.

Each race runs in these forms, by the same services:

- as the product is: no collision, and the right result;
- without constraints: the lock alone is enough for the right result;
- control, with a broken lock: both decide by one state, the constraints refuse the second, and it decides again: still right;
- control, with a broken lock and no constraints: both take effect, and the result is wrong. So the race is real.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from ledger import services
from ledger.errors import (
    BudgetExceeded,
    HoldClosed,
    IdempotencyKeyReused,
    InsufficientCredits,
    Invalid,
    RefundExceedsSpend,
    RevocationExceedsGrant,
)
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.services import execute
from tests.concurrency.race_harness import BROKEN, NO_LOCK, RaceSchema

MakeRaceSchema = Callable[..., RaceSchema]
NewHolder = Callable[[], str]
FEBRUARY, MARCH = datetime(2030, 2, 1, tzinfo=UTC), datetime(2030, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RaceOutcome:
    """The outcome of a race: what each of the two requests returned or raised."""

    schema: RaceSchema
    holder: str
    first: Any
    second: Any

    @property
    def entries(self) -> list[tuple[int, str, int, int]]:
        return self.schema.entries(self.holder)


@dataclass(frozen=True)
class Race:
    """Two requests at the same time, the assertion of the right outcome, and the holder's credits if both take effect."""

    run: Callable[[RaceSchema, str], tuple[Any, Any]]
    assert_right: Callable[[RaceOutcome], None]
    credits_if_both_take_effect: int
    broken_by: tuple[str, ...] = tuple(BROKEN)

    def run_in(self, schema: RaceSchema, holder: str) -> RaceOutcome:
        return RaceOutcome(schema, holder, *self.run(schema, holder))


# Two spends, credits for one -------------------------------------------------------------------------


def two_spends(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two spends of 10 for 10 credits."""
    services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, amount=10)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def one_is_refused(outcome: RaceOutcome) -> None:
    """The first spends; the second gets the facts of a refusal."""
    assert (outcome.first.sequence, outcome.first.amount, outcome.first.replayed) == (2, -10, False)
    assert isinstance(outcome.second, InsufficientCredits)
    facts = ("available", "balance", "requested", "shortfall")
    assert [outcome.second.facts[fact] for fact in facts] == [0, 0, 10, 10]
    assert not outcome.second.replayed
    assert outcome.entries == [(1, "grant", 10, 10), (2, "spend", -10, 0)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# Two spends, credits for both ------------------------------------------------------------------------


def two_spends_with_credits_for_both(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two spends of 10 for 30 credits."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, amount=10)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def both_follow_each_other(outcome: RaceOutcome) -> None:
    """Both spend, one on the state that the other left."""
    assert [outcome.first.sequence, outcome.second.sequence] == [2, 3]
    assert outcome.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20), (3, "spend", -10, 10)]
    assert outcome.schema.refusals(outcome.holder) == []


# A double click --------------------------------------------------------------------------------------


def double_click(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race the same spend under the same key."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    click = partial(services.spend, holder_id=holder, amount=10, idempotency_key="order 7", reason="one basket")
    return schema.race(click, click)


def one_entry_one_replay(outcome: RaceOutcome) -> None:
    """The first spends; the second replays its entry."""
    assert (outcome.first.sequence, outcome.first.replayed) == (2, False)
    assert outcome.second == outcome.first._replace(replayed=True)
    assert outcome.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert outcome.schema.refusals(outcome.holder) == []


# One key for two requests ----------------------------------------------------------------------------


def one_key_for_two_requests(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two different spends under the same key."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, idempotency_key="order 7")
    return schema.race(partial(spend, amount=10), partial(spend, amount=11))


def second_is_refused_for_its_key(outcome: RaceOutcome) -> None:
    """The first spends; the second is refused for its key."""
    assert (outcome.first.amount, outcome.first.replayed) == (-10, False)
    assert isinstance(outcome.second, IdempotencyKeyReused)
    assert outcome.second.facts == {"idempotency_key": "order 7"}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert outcome.schema.refusals(outcome.holder) == []


# Two whole refunds of one spend ----------------------------------------------------------------------


def two_refunds(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two refunds of a whole spend."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.spend(holder_id=holder, amount=20, idempotency_key="spend")
    refund = partial(services.refund, holder_id=holder, spend=2)
    return schema.race(partial(refund, idempotency_key="a"), partial(refund, idempotency_key="b"))


def refunded_once(outcome: RaceOutcome) -> None:
    """The first refunds; nothing is left for the second."""
    assert (outcome.first.amount, outcome.first.refers_to, outcome.first.refunded_total) == (20, 2, 20)
    assert isinstance(outcome.second, RefundExceedsSpend)
    assert outcome.second.facts == {"sequence": 2, "refundable": 0, "requested": None}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "spend", -20, 10), (3, "refund", 20, 30)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "refund-exceeds-spend")]


# A refund and a second one of a part -----------------------------------------------------------------


def two_refunds_of_parts(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two refunds of 15 of a spend of 20."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.spend(holder_id=holder, amount=20, idempotency_key="spend")
    refund = partial(services.refund, holder_id=holder, spend=2, amount=15)
    return schema.race(partial(refund, idempotency_key="a"), partial(refund, idempotency_key="b"))


def refunded_no_more_than_was_spent(outcome: RaceOutcome) -> None:
    """The first refunds 15; 5 are left, and the second is refused."""
    assert (outcome.first.amount, outcome.first.refunded_total) == (15, 15)
    assert isinstance(outcome.second, RefundExceedsSpend)
    assert outcome.second.facts == {"sequence": 2, "refundable": 5, "requested": 15}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "spend", -20, 10), (3, "refund", 15, 25)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "refund-exceeds-spend")]


# The rest of a grant is spent and revoked ------------------------------------------------------------


def spend_and_revocation(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race a spend with the revocation of the grant that it draws on."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.grant(holder_id=holder, amount=5, idempotency_key="another grant")
    return schema.race(
        partial(services.spend, holder_id=holder, amount=25, idempotency_key="a"),
        partial(services.revoke, holder_id=holder, grant=1, amount=30, idempotency_key="b"),
    )


def only_the_rest_can_be_revoked(outcome: RaceOutcome) -> None:
    """The spend draws on the grant; the revocation of the whole grant is refused."""
    assert outcome.first.drawn == ((1, 25),)
    assert isinstance(outcome.second, RevocationExceedsGrant)
    assert outcome.second.facts == {"sequence": 1, "revocable": 5, "requested": 30}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "grant", 5, 35), (3, "spend", -25, 10)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "revocation-exceeds-grant")]


# Two runs that book expirations-------------------------------------------------------------------------------------


def grant_for_a_moment(holder: str) -> datetime:
    """Grant credits that expire as soon as this machine can grant them in time; return when."""
    for milliseconds in (100, 1_000, 10_000, 60_000):
        expires_at = timezone.now() + timedelta(milliseconds=milliseconds)
        with suppress(Invalid):
            services.grant(holder_id=holder, amount=7, idempotency_key="for a moment", expires_at=expires_at)
            return expires_at
    raise AssertionError("a grant takes more than a minute")


def two_bookings_of_an_expiry(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two services that book the expiry of a lot."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    expires_at = grant_for_a_moment(holder)
    # Wait by the server's clock until the credits have expired.
    schema.observer.execute("SELECT pg_sleep_until(%s + interval '1 millisecond')", [expires_at])
    book = partial(services.book_expirations, holder_id=holder)
    return schema.race(book, book)


def expired_once(outcome: RaceOutcome) -> None:
    """The first books the expiry; the second finds nothing to book."""
    assert [(entry.sequence, entry.amount, entry.refers_to) for entry in outcome.first] == [(3, -7, 2)]
    assert outcome.second == []
    assert outcome.entries == [(1, "grant", 30, 30), (2, "grant", 7, 37), (3, "expire", -7, 30)]
    assert outcome.schema.refusals(outcome.holder) == []


# Two grants under one key, as when a purchase is announced twice -------------------------------------


def purchase_announced_twice(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race the same grant under the same key."""
    announce = partial(services.grant, holder_id=holder, amount=30, idempotency_key="payment 1", reference="payment 1")
    return schema.race(announce, announce)


def credited_once(outcome: RaceOutcome) -> None:
    """The first grants; the second replays its entry."""
    assert (outcome.first.sequence, outcome.first.amount, outcome.first.replayed) == (1, 30, False)
    assert outcome.second == outcome.first._replace(replayed=True)
    assert outcome.entries == [(1, "grant", 30, 30)]
    assert outcome.schema.refusals(outcome.holder) == []


# One hold, captured twice -----------------------------------------------------------------------------


def two_captures(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two captures of a hold, for more than it holds."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.hold(holder_id=holder, amount=20, idempotency_key="hold")
    capture = partial(services.capture, holder_id=holder, hold=2, amount=25, over_capture="if_available")
    return schema.race(partial(capture, idempotency_key="a"), partial(capture, idempotency_key="b"))


def one_capture_wins(outcome: RaceOutcome) -> None:
    """The first captures; for the second the hold is closed."""
    assert (outcome.first.amount, outcome.first.held, outcome.first.balance) == (-5, 0, 5)
    assert isinstance(outcome.second, HoldClosed)
    assert outcome.second.facts == {"sequence": 2, "how": "captured", "closed_by": 3}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10), (3, "capture", -5, 5)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "hold-closed")]


# A capture and a release of one hold -----------------------------------------------------------------


def capture_and_release(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race the capture of a hold with its release."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.hold(holder_id=holder, amount=20, idempotency_key="hold")
    return schema.race(
        partial(services.capture, holder_id=holder, hold=2, idempotency_key="a"),
        partial(services.release, holder_id=holder, hold=2, idempotency_key="b"),
    )


def captured_is_not_released(outcome: RaceOutcome) -> None:
    """The capture closes the hold; the release is refused."""
    assert (outcome.first.kind, outcome.first.held) == ("capture", 0)
    assert isinstance(outcome.second, HoldClosed)
    assert outcome.second.facts == {"sequence": 2, "how": "captured", "closed_by": 3}
    assert outcome.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10), (3, "capture", 0, 10)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "hold-closed")]


# A hold and a spend of the same credits --------------------------------------------------------------


def hold_and_spend(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race a hold of 20 with a spend of 20 for 30 credits."""
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    return schema.race(
        partial(services.hold, holder_id=holder, amount=20, idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=20, idempotency_key="b"),
    )


def what_is_held_is_not_spent(outcome: RaceOutcome) -> None:
    """The hold sets 20 aside; the spend is refused."""
    assert (outcome.first.kind, outcome.first.held) == ("hold", 20)
    assert isinstance(outcome.second, InsufficientCredits)
    assert (outcome.second.facts["available"], outcome.second.facts["held"]) == (10, 20)
    assert outcome.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# A spend on an overdraft and another -----------------------------------------------------------------


def two_spends_on_an_overdraft(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two spends of 8 on an overdraft of 10."""
    services.set_overdraft(holder_id=holder, limit=10, idempotency_key="overdraft")
    spend = partial(services.spend, holder_id=holder, amount=8)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def overdraft_is_not_overdrawn(outcome: RaceOutcome) -> None:
    """The first spends 8; 2 are left, and the second is refused."""
    assert (outcome.first.amount, outcome.first.balance) == (-8, -8)
    assert isinstance(outcome.second, InsufficientCredits)
    assert (outcome.second.facts["available"], outcome.second.facts["balance"]) == (2, -8)
    assert outcome.entries == [(1, "adjust", 0, 0), (2, "spend", -8, -8)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# Two spends at the cap of an overage -----------------------------------------------------------------


def two_spends_at_the_cap(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two spends of 8 on an overage of 10."""
    services.set_overage(holder_id=holder, limit=10, idempotency_key="overage")
    spend = partial(services.spend, holder_id=holder, amount=8)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def cap_is_not_exceeded(outcome: RaceOutcome) -> None:
    """The first uses 8; 2 are left, and the second is refused."""
    assert (outcome.first.amount, outcome.first.postpaid, outcome.first.balance) == (-8, 8, 0)
    assert isinstance(outcome.second, InsufficientCredits)
    assert (outcome.second.facts["available"], outcome.second.facts["overage"]["used"]) == (2, 8)
    assert outcome.entries == [(1, "adjust", 0, 0), (2, "grant", 8, 8), (3, "spend", -8, 0)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# A plan with a lower cap, and a spend ----------------------------------------------------------------


def lower_cap_and_spend(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race a cap of 5 instead of 10, as a change of plan sets it, with a spend of 8."""
    services.set_overage(holder_id=holder, limit=10, reference="SUB", idempotency_key="overage")
    return schema.race(
        partial(services.set_overage, holder_id=holder, limit=5, reference="SUB", idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=8, idempotency_key="b"),
    )


def lower_cap_refuses_the_spend(outcome: RaceOutcome) -> None:
    """The cap is 5 when the spend is decided."""
    assert outcome.first.overage.limit == 5
    assert isinstance(outcome.second, InsufficientCredits)
    assert [outcome.second.facts["overage"][name] for name in ("limit", "used")] == [5, 0]
    assert outcome.entries == [(1, "adjust", 0, 0), (2, "adjust", 0, 0)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# A spend at the cap, and a capture beyond its hold ---------------------------------------------------


def spend_at_the_cap_and_capture_beyond(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race a spend of 4 with a capture of 8 from a hold of 6, on an overage of 10."""
    services.set_overage(holder_id=holder, limit=10, idempotency_key="overage")
    hold = services.hold(holder_id=holder, amount=6, idempotency_key="hold").sequence
    capture = partial(services.capture, holder_id=holder, hold=hold, amount=8, over_capture="if_available", idempotency_key="b")
    return schema.race(partial(services.spend, holder_id=holder, amount=4, idempotency_key="a"), capture)


def capture_stays_within_the_cap(outcome: RaceOutcome) -> None:
    """The spend uses the last 4; the capture finds nothing beyond its hold."""
    assert (outcome.first.amount, outcome.first.postpaid, outcome.first.overage.used) == (-4, 4, 10)
    assert isinstance(outcome.second, InsufficientCredits)
    assert outcome.second.facts["overage"]["used"] == 10
    assert outcome.schema.refusals(outcome.holder) == [("b", "insufficient-credits")]


# The boundary of a period, with a spend and with a capture -------------------------------------------


def begin_january(holder: str) -> None:
    """Let it be 31 January for a holder with an overage of 10 a month."""
    services.set_clock(holder_id=holder, now=FEBRUARY - timedelta(days=1), idempotency_key="january")
    services.set_overage(holder_id=holder, limit=10, anchor_at=FEBRUARY, idempotency_key="overage")


def boundary_and_spend(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race the beginning of February with a spend of 8."""
    begin_january(holder)
    return schema.race(
        partial(services.set_clock, holder_id=holder, now=FEBRUARY, idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=8, idempotency_key="b"),
    )


def spend_uses_the_new_period(outcome: RaceOutcome) -> None:
    """The spend is of February, and uses February's cap."""
    assert outcome.first.clock == outcome.second.effective_at == FEBRUARY
    assert outcome.second.overage[:2] == (10, 8)
    assert from_us(outcome.second.overage.until_us) == MARCH


def boundary_and_capture(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race the beginning of February with a capture of 9 from January's hold of 6."""
    begin_january(holder)
    hold = services.hold(holder_id=holder, amount=6, expires_at=FEBRUARY + timedelta(days=9), idempotency_key="hold").sequence
    capture = partial(services.capture, holder_id=holder, hold=hold, amount=9, over_capture="if_available", idempotency_key="b")
    return schema.race(partial(services.set_clock, holder_id=holder, now=FEBRUARY, idempotency_key="a"), capture)


def capture_uses_both_periods(outcome: RaceOutcome) -> None:
    """What was held is of January, and what is beyond it of February."""
    assert (outcome.second.effective_at, outcome.second.postpaid) == (FEBRUARY, 9)
    assert outcome.second.overage[:2] == (10, 3)
    assert from_us(outcome.second.overage.until_us) == MARCH


# Two partial spends ----------------------------------------------------------------------------------


def two_partial_spends(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two partial spends of 7 for 10 credits."""
    services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, amount=7, partial=True)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def second_gets_the_rest(outcome: RaceOutcome) -> None:
    """The first spends 7; the second gets the 3 that are left."""
    assert [(each.amount, each.requested) for each in (outcome.first, outcome.second)] == [(-7, 7), (-3, 7)]
    assert outcome.entries == [(1, "grant", 10, 10), (2, "spend", -7, 3), (3, "spend", -3, 0)]
    assert outcome.schema.refusals(outcome.holder) == []


# Two spends within a budget for one ------------------------------------------------------------------


def two_spends_within_a_budget_for_one(schema: RaceSchema, holder: str) -> tuple[Any, Any]:
    """Race two spends of 10 for 100 credits and a budget of 15 a month."""
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    services.set_budget(holder_id=holder, budget="monthly", limit=15, window="month", idempotency_key="budget")
    spend = partial(services.spend, holder_id=holder, amount=10)
    return schema.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def second_exceeds_the_budget(outcome: RaceOutcome) -> None:
    """The first spends; the second is refused by what the first has used."""
    assert (outcome.first.amount, [each.used for each in outcome.first.counts]) == (-10, [10])
    assert isinstance(outcome.second, BudgetExceeded)
    assert [outcome.second.facts[fact] for fact in ("limit", "used", "remaining", "requested")] == [15, 10, 5, 10]
    assert outcome.entries == [(1, "grant", 100, 100), (2, "adjust", 0, 100), (3, "spend", -10, 90)]
    assert outcome.schema.refusals(outcome.holder) == [("b", "budget-exceeded")]


# The earlier refunds of a spend, and the counters of budgets, are read in a later statement than the account. So a request that
# has waited for the first one sees what it did, even with the other broken locks.
ONLY_WITHOUT_WAITING = ("no lock",)

RACES = {
    "two spends, credits for one": Race(two_spends, one_is_refused, -10),
    "two spends, credits for both": Race(two_spends_with_credits_for_both, both_follow_each_other, 10),
    "double click": Race(double_click, one_entry_one_replay, 10),
    "one key for two requests": Race(one_key_for_two_requests, second_is_refused_for_its_key, 9),
    "two whole refunds": Race(two_refunds, refunded_once, 50, ONLY_WITHOUT_WAITING),
    "two refunds of parts": Race(two_refunds_of_parts, refunded_no_more_than_was_spent, 40, ONLY_WITHOUT_WAITING),
    "spend and revocation": Race(spend_and_revocation, only_the_rest_can_be_revoked, -20),
    "two bookings of an expiry": Race(two_bookings_of_an_expiry, expired_once, 23),
    "two captures of one hold": Race(two_captures, one_capture_wins, 0),
    "capture and release": Race(capture_and_release, captured_is_not_released, 30),
    "hold and spend": Race(hold_and_spend, what_is_held_is_not_spent, -10),
    "two spends on an overdraft": Race(two_spends_on_an_overdraft, overdraft_is_not_overdrawn, -16),
    "two spends at the cap of an overage": Race(two_spends_at_the_cap, cap_is_not_exceeded, 0),
    "lower cap and spend": Race(lower_cap_and_spend, lower_cap_refuses_the_spend, 0),
    "spend at the cap and capture beyond": Race(spend_at_the_cap_and_capture_beyond, capture_stays_within_the_cap, 0),
    "two partial spends": Race(two_partial_spends, second_gets_the_rest, -4),
    "two spends within a budget for one": Race(
        two_spends_within_a_budget_for_one, second_exceeds_the_budget, 80, ONLY_WITHOUT_WAITING
    ),
    "purchase announced twice": Race(purchase_announced_twice, credited_once, 60),
}

EXECUTED_IN_GROUPS = (
    "two spends, credits for one",
    "two spends, credits for both",
    "double click",
    "one key for two requests",
    "two spends on an overdraft",
    "two spends at the cap of an overage",
    "purchase announced twice",
)
"""Races between requests that the account alone decides; the product executes all others in separate transactions."""


def marks_of(name: str, how: str) -> list[pytest.MarkDecorator]:
    """`make test` has each race with no lock, and one with each broken lock."""
    if how == NO_LOCK:
        return []
    on_one_node = pytest.mark.one_node("how one server takes snapshots")
    return [on_one_node] if name == EXECUTED_IN_GROUPS[0] else [on_one_node, pytest.mark.slow]


# What the product never executes in a group is raced so in `make prove` only.
each_race = pytest.mark.parametrize(
    ("name", "grouped"),
    [
        pytest.param(
            name, grouped, id=f"{name}-{way}", marks=[pytest.mark.slow] if grouped and name not in EXECUTED_IN_GROUPS else []
        )
        for name in RACES
        for grouped, way in ((True, "group commit"), (False, "separate transactions"))
    ],
)
# The locks that are broken in their waiting matter only for separate transactions: group commit only tries the lock.
each_race_with_each_broken_lock = pytest.mark.parametrize(
    ("name", "how", "grouped"),
    [pytest.param(name, how, False, marks=marks_of(name, how)) for name, race in RACES.items() for how in race.broken_by]
    + [(name, NO_LOCK, True) for name in EXECUTED_IN_GROUPS],
)


@each_race
def test_with_the_lock_two_requests_never_collide(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, name: str, grouped: bool
) -> None:
    schema = make_race_schema(grouped=grouped)

    outcome = RACES[name].run_in(schema, new_holder())

    RACES[name].assert_right(outcome)
    assert schema.is_sound(outcome.holder)
    assert schema.unique_violations == []


@each_race
def test_the_lock_without_the_constraints_gives_the_right_outcome(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, name: str, grouped: bool
) -> None:
    schema = make_race_schema(constrained=False, grouped=grouped)

    RACES[name].assert_right(RACES[name].run_in(schema, new_holder()))

    assert schema.unique_violations == []


@each_race_with_each_broken_lock
def test_control_with_a_broken_lock_the_constraints_refuse_the_second_request_which_is_decided_again(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, name: str, how: str, grouped: bool
) -> None:
    schema = make_race_schema(how, grouped=grouped)

    outcome = RACES[name].run_in(schema, new_holder())

    RACES[name].assert_right(outcome)
    assert schema.is_sound(outcome.holder)
    assert len(schema.unique_violations) == 1


@each_race_with_each_broken_lock
def test_control_with_a_broken_lock_and_no_constraints_both_take_effect(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, name: str, how: str, grouped: bool
) -> None:
    schema = make_race_schema(how, constrained=False, grouped=grouped)

    outcome = RACES[name].run_in(schema, new_holder())

    assert all(isinstance(result, Entry | list) and result for result in (outcome.first, outcome.second))
    assert schema.sum_of_amounts(outcome.holder) == RACES[name].credits_if_both_take_effect
    with pytest.raises(AssertionError):
        RACES[name].assert_right(outcome)


# At the boundary of a period -------------------------------------------------------------------------
# The server finds a test clock in the product's schema, so there is no form of these races without constraints.

BOUNDARIES = {
    "spend": Race(boundary_and_spend, spend_uses_the_new_period, 0),
    "capture": Race(boundary_and_capture, capture_uses_both_periods, 0),
}


@pytest.mark.parametrize("how", ["", NO_LOCK], ids=["with the lock", "control: no lock, both decide by one state"])
@pytest.mark.parametrize("name", BOUNDARIES)
def test_what_is_decided_beside_the_boundary_of_a_period_is_of_the_period_of_its_instant(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, settings: Any, name: str, how: str
) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    schema = make_race_schema(*([how] if how else []), grouped=False)

    outcome = BOUNDARIES[name].run_in(schema, new_holder())

    BOUNDARIES[name].assert_right(outcome)
    assert schema.is_sound(outcome.holder)
    assert len(schema.unique_violations) == (1 if how else 0)


# Groups of a holder that several processes have requests of ------------------------------------------


@pytest.mark.parametrize("how", [None, *BROKEN], ids=lambda how: f"control: {how}" if how else "with the lock")
def test_a_committer_that_waits_a_moment_for_a_lock_decides_by_what_was_committed_until_then(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, how: str | None
) -> None:
    """Without constraints, so that only the lock is there to make it right; with each broken lock both take effect."""
    schema, holder = make_race_schema(how, constrained=False, grouped=False), new_holder()
    monkeypatch.setattr(execute, "execute_alone", lambda request: execute.execute_shared([request], seconds=30)[0])

    outcome = RaceOutcome(schema, holder, *two_spends(schema, holder))

    if how is None:
        one_is_refused(outcome)
    else:
        assert all(isinstance(result, Entry) for result in (outcome.first, outcome.second))
        assert schema.sum_of_amounts(holder) == -10
