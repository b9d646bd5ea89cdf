"""Two requests at once on one holder: right with the lock; with a broken one the constraints save it; with neither, wrong.

Every race is run in these forms, through the same services:

- as the product is, and again on tables without keys and triggers: the lock alone is enough;
- its control, with a broken lock: both decide by the same state. The constraints refuse the second, who decides anew;
- the control's control, with a broken lock on tables without constraints: there the damage is done, so the race is real.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from ledger import services
from ledger.errors import HoldClosed, IdempotencyKeyReused, InsufficientCredits, RefundExceedsSpend, RevocationExceedsGrant
from ledger.rules import Entry
from tests.concurrency.rooms import BROKEN, NO_LOCK, Room

MakeRoom = Callable[..., Room]
NewHolder = Callable[[], str]


@dataclass(frozen=True)
class Seen:
    """What a race came to."""

    room: Room
    holder: str
    first: Any
    second: Any

    @property
    def entries(self) -> list[tuple[int, str, int, int]]:
        return self.room.entries(self.holder)


@dataclass(frozen=True)
class Race:
    """Two requests at once, what is right, and what the holder would have if both took effect."""

    run: Callable[[Room, str], tuple[Any, Any]]
    assert_right: Callable[[Seen], None]
    damage: int
    broken_by: tuple[str, ...] = tuple(BROKEN)

    def seen_in(self, room: Room, holder: str) -> Seen:
        return Seen(room, holder, *self.run(room, holder))


# Two spends, credits for one -------------------------------------------------------------------------


def two_spends(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, amount=10)
    return room.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def one_is_refused(seen: Seen) -> None:
    assert (seen.first.sequence, seen.first.amount, seen.first.replayed) == (2, -10, False)
    assert isinstance(seen.second, InsufficientCredits)
    facts = ("available", "balance", "requested", "shortfall")
    assert [seen.second.facts[fact] for fact in facts] == [0, 0, 10, 10]
    assert not seen.second.replayed
    assert seen.entries == [(1, "grant", 10, 10), (2, "spend", -10, 0)]
    assert seen.room.refusals(seen.holder) == [("b", "insufficient-credits")]


# Two spends, credits for both ------------------------------------------------------------------------


def two_spends_with_credits_for_both(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, amount=10)
    return room.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def both_follow_each_other(seen: Seen) -> None:
    assert [seen.first.sequence, seen.second.sequence] == [2, 3]
    assert seen.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20), (3, "spend", -10, 10)]
    assert seen.room.refusals(seen.holder) == []


# A double click --------------------------------------------------------------------------------------


def double_click(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    click = partial(services.spend, holder_id=holder, amount=10, idempotency_key="order 7", reason="one basket")
    return room.race(click, click)


def one_entry_one_replay(seen: Seen) -> None:
    assert (seen.first.sequence, seen.first.replayed) == (2, False)
    assert seen.second == seen.first._replace(replayed=True)
    assert seen.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert seen.room.refusals(seen.holder) == []


# One key for two requests ----------------------------------------------------------------------------


def one_key_for_two_requests(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    spend = partial(services.spend, holder_id=holder, idempotency_key="order 7")
    return room.race(partial(spend, amount=10), partial(spend, amount=11))


def second_is_told_that_the_key_is_taken(seen: Seen) -> None:
    assert (seen.first.amount, seen.first.replayed) == (-10, False)
    assert isinstance(seen.second, IdempotencyKeyReused)
    assert seen.second.facts == {"idempotency_key": "order 7"}
    assert seen.entries == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert seen.room.refusals(seen.holder) == []


# Two whole refunds of one spend ----------------------------------------------------------------------


def two_refunds(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.spend(holder_id=holder, amount=20, idempotency_key="spend")
    refund = partial(services.refund, holder_id=holder, spend=2)
    return room.race(partial(refund, idempotency_key="a"), partial(refund, idempotency_key="b"))


def refunded_once(seen: Seen) -> None:
    assert (seen.first.amount, seen.first.refers_to, seen.first.refunded_total) == (20, 2, 20)
    assert isinstance(seen.second, RefundExceedsSpend)
    assert seen.second.facts == {"sequence": 2, "refundable": 0, "requested": None}
    assert seen.entries == [(1, "grant", 30, 30), (2, "spend", -20, 10), (3, "refund", 20, 30)]
    assert seen.room.refusals(seen.holder) == [("b", "refund-exceeds-spend")]


# A refund and a second one of a part -----------------------------------------------------------------


def two_refunds_of_parts(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.spend(holder_id=holder, amount=20, idempotency_key="spend")
    refund = partial(services.refund, holder_id=holder, spend=2, amount=15)
    return room.race(partial(refund, idempotency_key="a"), partial(refund, idempotency_key="b"))


def refunded_no_more_than_was_spent(seen: Seen) -> None:
    assert (seen.first.amount, seen.first.refunded_total) == (15, 15)
    assert isinstance(seen.second, RefundExceedsSpend)
    assert seen.second.facts == {"sequence": 2, "refundable": 5, "requested": 15}
    assert seen.entries == [(1, "grant", 30, 30), (2, "spend", -20, 10), (3, "refund", 15, 25)]
    assert seen.room.refusals(seen.holder) == [("b", "refund-exceeds-spend")]


# The rest of a grant is spent and revoked ------------------------------------------------------------


def spend_and_revocation(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.grant(holder_id=holder, amount=5, idempotency_key="another grant")
    return room.race(
        partial(services.spend, holder_id=holder, amount=25, idempotency_key="a"),
        partial(services.revoke, holder_id=holder, grant=1, amount=30, idempotency_key="b"),
    )


def only_the_rest_can_be_revoked(seen: Seen) -> None:
    assert seen.first.drawn == ((1, 25),)
    assert isinstance(seen.second, RevocationExceedsGrant)
    assert seen.second.facts == {"sequence": 1, "revocable": 5, "requested": 30}
    assert seen.entries == [(1, "grant", 30, 30), (2, "grant", 5, 35), (3, "spend", -25, 10)]
    assert seen.room.refusals(seen.holder) == [("b", "revocation-exceeds-grant")]


# Two sweepers ----------------------------------------------------------------------------------------


def two_sweepers(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    expires_at = timezone.now() + timedelta(milliseconds=200)
    services.grant(holder_id=holder, amount=7, idempotency_key="for a moment", expires_at=expires_at)
    # The instant must come; the server's clock says when it has.
    room.observer.execute("SELECT pg_sleep_until(%s + interval '1 millisecond')", [expires_at])
    sweep = partial(services.book_expirations, holder_id=holder)
    return room.race(sweep, sweep)


def expired_once(seen: Seen) -> None:
    assert [(entry.sequence, entry.amount, entry.refers_to) for entry in seen.first] == [(3, -7, 2)]
    assert seen.second == []
    assert seen.entries == [(1, "grant", 30, 30), (2, "grant", 7, 37), (3, "expire", -7, 30)]
    assert seen.room.refusals(seen.holder) == []


# Two grants under one key, as when a purchase is announced twice -------------------------------------


def purchase_announced_twice(room: Room, holder: str) -> tuple[Any, Any]:
    announce = partial(services.grant, holder_id=holder, amount=30, idempotency_key="payment 1", reference="payment 1")
    return room.race(announce, announce)


def credited_once(seen: Seen) -> None:
    assert (seen.first.sequence, seen.first.amount, seen.first.replayed) == (1, 30, False)
    assert seen.second == seen.first._replace(replayed=True)
    assert seen.entries == [(1, "grant", 30, 30)]
    assert seen.room.refusals(seen.holder) == []


# One hold, captured twice -----------------------------------------------------------------------------


def two_captures(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.hold(holder_id=holder, amount=20, idempotency_key="hold")
    capture = partial(services.capture, holder_id=holder, hold=2, amount=25, over_capture="if_available")
    return room.race(partial(capture, idempotency_key="a"), partial(capture, idempotency_key="b"))


def one_capture_wins(seen: Seen) -> None:
    assert (seen.first.amount, seen.first.held, seen.first.balance) == (-5, 0, 5)
    assert isinstance(seen.second, HoldClosed)
    assert seen.second.facts == {"sequence": 2, "how": "captured", "closed_by": 3}
    assert seen.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10), (3, "capture", -5, 5)]
    assert seen.room.refusals(seen.holder) == [("b", "hold-closed")]


# A capture and a release of one hold -----------------------------------------------------------------


def capture_and_release(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    services.hold(holder_id=holder, amount=20, idempotency_key="hold")
    return room.race(
        partial(services.capture, holder_id=holder, hold=2, idempotency_key="a"),
        partial(services.release, holder_id=holder, hold=2, idempotency_key="b"),
    )


def captured_is_not_released(seen: Seen) -> None:
    assert (seen.first.kind, seen.first.held) == ("capture", 0)
    assert isinstance(seen.second, HoldClosed)
    assert seen.second.facts == {"sequence": 2, "how": "captured", "closed_by": 3}
    assert seen.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10), (3, "capture", 0, 10)]
    assert seen.room.refusals(seen.holder) == [("b", "hold-closed")]


# A hold and a spend of the same credits --------------------------------------------------------------


def hold_and_spend(room: Room, holder: str) -> tuple[Any, Any]:
    services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    return room.race(
        partial(services.hold, holder_id=holder, amount=20, idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=20, idempotency_key="b"),
    )


def what_is_held_is_not_spent(seen: Seen) -> None:
    assert (seen.first.kind, seen.first.held) == ("hold", 20)
    assert isinstance(seen.second, InsufficientCredits)
    assert (seen.second.facts["available"], seen.second.facts["held"]) == (10, 20)
    assert seen.entries == [(1, "grant", 30, 30), (2, "hold", -20, 10)]
    assert seen.room.refusals(seen.holder) == [("b", "insufficient-credits")]


# A spend on an overdraft and another -----------------------------------------------------------------


def two_spends_on_an_overdraft(room: Room, holder: str) -> tuple[Any, Any]:
    services.set_overdraft(holder_id=holder, limit=10, idempotency_key="overdraft")
    spend = partial(services.spend, holder_id=holder, amount=8)
    return room.race(partial(spend, idempotency_key="a"), partial(spend, idempotency_key="b"))


def overdraft_is_not_overdrawn(seen: Seen) -> None:
    assert (seen.first.amount, seen.first.balance) == (-8, -8)
    assert isinstance(seen.second, InsufficientCredits)
    assert (seen.second.facts["available"], seen.second.facts["balance"]) == (2, -8)
    assert seen.entries == [(1, "adjust", 0, 0), (2, "spend", -8, -8)]
    assert seen.room.refusals(seen.holder) == [("b", "insufficient-credits")]


# What was refunded of a spend is read after the account, in a statement of its own. So it is seen by who has waited for the
# first, in whatever way.
ONLY_WITHOUT_WAITING = ("no lock",)

RACES = {
    "two spends, credits for one": Race(two_spends, one_is_refused, -10),
    "two spends, credits for both": Race(two_spends_with_credits_for_both, both_follow_each_other, 10),
    "double click": Race(double_click, one_entry_one_replay, 10),
    "one key for two requests": Race(one_key_for_two_requests, second_is_told_that_the_key_is_taken, 9),
    "two whole refunds": Race(two_refunds, refunded_once, 50, ONLY_WITHOUT_WAITING),
    "two refunds of parts": Race(two_refunds_of_parts, refunded_no_more_than_was_spent, 40, ONLY_WITHOUT_WAITING),
    "spend and revocation": Race(spend_and_revocation, only_the_rest_can_be_revoked, -20),
    "two sweepers": Race(two_sweepers, expired_once, 23),
    "two captures of one hold": Race(two_captures, one_capture_wins, 0),
    "capture and release": Race(capture_and_release, captured_is_not_released, 30),
    "hold and spend": Race(hold_and_spend, what_is_held_is_not_spent, -10),
    "two spends on an overdraft": Race(two_spends_on_an_overdraft, overdraft_is_not_overdrawn, -16),
    "purchase announced twice": Race(purchase_announced_twice, credited_once, 60),
}

ANSWERED_TOGETHER = (
    "two spends, credits for one",
    "two spends, credits for both",
    "double click",
    "one key for two requests",
    "two spends on an overdraft",
    "purchase announced twice",
)
"""Races between requests that are decided by the account alone; others are answered one by one in any case."""

each_race = pytest.mark.parametrize("name", RACES)
each_way = pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
# What is broken in how a lock is waited for is broken where requests are answered one by one.
each_race_with_each_broken_lock = pytest.mark.parametrize(
    ("name", "how", "together"),
    [(name, how, False) for name, race in RACES.items() for how in race.broken_by]
    + [(name, NO_LOCK, True) for name in ANSWERED_TOGETHER],
)


@each_way
@each_race
def test_as_the_product_is_nobody_collides(make_room: MakeRoom, new_holder: NewHolder, name: str, together: bool) -> None:
    room = make_room(together=together)

    seen = RACES[name].seen_in(room, new_holder())

    RACES[name].assert_right(seen)
    assert room.is_sound(seen.holder)
    assert room.unique_violations == []


@each_way
@each_race
def test_the_lock_alone_is_enough(make_room: MakeRoom, new_holder: NewHolder, name: str, together: bool) -> None:
    room = make_room(constrained=False, together=together)

    RACES[name].assert_right(RACES[name].seen_in(room, new_holder()))

    assert room.unique_violations == []


@each_race_with_each_broken_lock
def test_control_with_a_broken_lock_the_constraints_refuse_the_second_who_decides_anew(
    make_room: MakeRoom, new_holder: NewHolder, name: str, how: str, together: bool
) -> None:
    room = make_room(how, together=together)

    seen = RACES[name].seen_in(room, new_holder())

    RACES[name].assert_right(seen)
    assert room.is_sound(seen.holder)
    assert len(room.unique_violations) == 1


@each_race_with_each_broken_lock
def test_control_with_a_broken_lock_and_no_constraints_both_take_effect(
    make_room: MakeRoom, new_holder: NewHolder, name: str, how: str, together: bool
) -> None:
    room = make_room(how, constrained=False, together=together)

    seen = RACES[name].seen_in(room, new_holder())

    assert all(isinstance(answer, Entry | list) and answer for answer in (seen.first, seen.second))
    assert room.sum_of_amounts(seen.holder) == RACES[name].damage
    with pytest.raises(AssertionError):
        RACES[name].assert_right(seen)
