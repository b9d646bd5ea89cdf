"""Two workers at one recurring grant, and other terms then: the holder's lock, and the keys of the table, keep it exact."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from ledger import due_grants, services
from ledger.errors import LockBusy
from ledger.rules.entries import Entry
from ledger.services import recurring_grants
from tests.concurrency.race_harness import NO_LOCK, RaceSchema

MakeRaceSchema = Callable[..., RaceSchema]


def recur(holder: str, key: str, **terms: Any) -> Entry:
    """100 a day, that never expire."""
    named = {"recurring_grant": "daily", "interval": "day", "amount": 100, "expiry": "never"} | terms
    return services.set_recurring_grant(holder_id=holder, idempotency_key=key, **named)


def amounts(schema: RaceSchema, holder: str) -> list[int]:
    """What was granted, in order."""
    return [amount for _, kind, amount, _ in schema.entries(holder) if kind == "grant"]


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the keys of the table"])
def test_two_workers_grant_a_period_once(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    recur(holder, "set")
    work = partial(services.grant_due_period, holder_id=holder)
    first, second = schema.race(work, work)
    assert [entry.amount for entry in first] == [100]
    assert second == []
    assert (amounts(schema, holder), schema.is_sound(holder)) == ([100], True)


def test_control_without_lock_and_keys_both_workers_grant(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str]
) -> None:
    schema, holder = make_race_schema(NO_LOCK, constrained=False), new_holder()
    recur(holder, "set")
    work = partial(services.grant_due_period, holder_id=holder)
    first, second = schema.race(work, work)
    assert [[entry.amount for entry in made] for made in (first, second)] == [[100], [100]]
    assert (amounts(schema, holder), schema.is_sound(holder)) == ([100, 100], False)


def test_a_worker_that_does_not_wait_leaves_a_busy_holder(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str]
) -> None:
    schema, holder = make_race_schema(None), new_holder()
    recur(holder, "set")
    first, second = schema.race(
        partial(services.grant_due_period, holder_id=holder), partial(services.grant_due_period, holder_id=holder, wait=False)
    )
    assert (len(first), type(second)) == (1, LockBusy)
    assert amounts(schema, holder) == [100]


def spend(holder: str, key: str) -> Callable[[], Entry]:
    """A spend that makes the grant that is due, and takes some of it."""
    return partial(services.spend, holder_id=holder, amount=30, idempotency_key=key)


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the keys of the table"])
@pytest.mark.parametrize("comes_first", ["the worker", "the spend", "another spend"])
def test_a_spend_and_what_meets_it_grant_a_period_once(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, comes_first: str
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    recur(holder, "set")
    work: Callable[[], Any] = partial(services.grant_due_period, holder_id=holder)
    met = {"the worker": (work, spend(holder, "s")), "the spend": (spend(holder, "s"), work)}
    first, second = schema.race(*met.get(comes_first, (spend(holder, "s"), spend(holder, "t"))))
    assert not any(isinstance(each, Exception) for each in (first, second))
    spent = 60 if comes_first == "another spend" else 30
    assert (amounts(schema, holder), services.spend(holder_id=holder, amount=1, idempotency_key="u").balance) == (
        [100],
        99 - spent,
    )
    assert schema.is_sound(holder)


def test_control_without_lock_and_keys_a_spend_and_a_worker_grant_it_twice(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str]
) -> None:
    schema, holder = make_race_schema(NO_LOCK, constrained=False), new_holder()
    recur(holder, "set")
    schema.race(partial(services.grant_due_period, holder_id=holder), spend(holder, "s"))
    assert (amounts(schema, holder), schema.is_sound(holder)) == ([100, 100], False)


@pytest.mark.parametrize("comes_first", ["the worker", "the terms"])
def test_other_terms_that_meet_a_worker_begin_with_the_next_period(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], comes_first: str
) -> None:
    schema, holder = make_race_schema(None), new_holder()
    recur(holder, "set", starts_at=timezone.now() - timedelta(hours=1))
    work = partial(services.grant_due_period, holder_id=holder)
    change = partial(recur, holder, "change", amount=7, change="keep")
    schema.race(*((work, change) if comes_first == "the worker" else (change, work)))
    assert amounts(schema, holder) == [100]
    assert recurring_grants.grant_due_period(holder_id=holder) == []


def granted_today(holder: str) -> None:
    """100 credits for this day, of which all go back if other terms begin now."""
    recur(holder, "set", starts_at=timezone.now().replace(hour=0, minute=0, second=0, microsecond=0))
    services.grant_due_period(holder_id=holder)


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the keys of the table"])
def test_other_terms_take_back_what_a_spend_beside_them_leaves(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    granted_today(holder)
    spend = partial(services.spend, holder_id=holder, amount=60, idempotency_key="s")
    spent, changed = schema.race(spend, partial(recur, holder, "change", amount=7))
    assert (spent.amount, changed.kind) == (-60, "adjust")
    amounts_moved = [amount for _, kind, amount, _ in schema.entries(holder) if kind != "adjust"]
    assert (amounts_moved, schema.is_sound(holder)) == ([100, -60, -40, 7], True)


def test_control_without_lock_and_keys_other_terms_take_back_what_is_spent(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str]
) -> None:
    schema, holder = make_race_schema(NO_LOCK, constrained=False), new_holder()
    granted_today(holder)
    spend = partial(services.spend, holder_id=holder, amount=60, idempotency_key="s")
    schema.race(spend, partial(recur, holder, "change", amount=7))
    amounts_moved = [amount for _, kind, amount, _ in schema.entries(holder) if kind in ("spend", "revoke")]
    assert (sorted(amounts_moved), schema.is_sound(holder)) == ([-100, -60], False)


def keep_30_of_100(holder: str) -> None:
    """100 credits that billing has granted for the recurring grant; the period that has just begun keeps 30 of them."""
    rolls_over = {"actor": due_grants.BY_BILLING, "metadata": {due_grants.ROLLS_OVER_WITH: "daily"}}
    services.grant(holder_id=holder, amount=100, idempotency_key="before", **rolls_over)
    recur(holder, "set", expiry="rollover", rollover_cap=30)


def moved(schema: RaceSchema, holder: str) -> list[tuple[str, int]]:
    return [(kind, amount) for _, kind, amount, _ in schema.entries(holder) if kind != "adjust"]


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the keys of the table"])
@pytest.mark.parametrize("comes_first", ["the worker", "the spend"])
def test_what_rolls_over_is_cut_to_its_cap_once(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, comes_first: str
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    keep_30_of_100(holder)
    work, use = partial(services.grant_due_period, holder_id=holder), spend(holder, "s")
    outcomes = schema.race(*((work, use) if comes_first == "the worker" else (use, work)))
    assert not any(isinstance(each, Exception) for each in outcomes)
    assert moved(schema, holder) == [("grant", 100), ("revoke", -70), ("grant", 100), ("spend", -30)]
    assert (schema.is_sound(holder), services.spend(holder_id=holder, amount=1, idempotency_key="u").balance) == (True, 99)


def test_control_without_lock_and_keys_what_rolls_over_is_cut_twice(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str]
) -> None:
    """The lot of 100 gives back 140: more than it had."""
    schema, holder = make_race_schema(NO_LOCK, constrained=False), new_holder()
    keep_30_of_100(holder)
    schema.race(partial(services.grant_due_period, holder_id=holder), spend(holder, "s"))
    cut = [amount for kind, amount in moved(schema, holder) if kind == "revoke"]
    assert (cut, schema.is_sound(holder)) == ([-70, -70], False)
