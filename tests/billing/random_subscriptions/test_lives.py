"""Random lives with overage, compared with the slow calculator: decisions credit by credit, invoices to the cent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import floor
from typing import Any

import pytest
from django.db import connection, transaction

from billing.auditing import consistency
from billing.generator.state import overage, plan_budgets
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from billing.rating.prices.overage import affordable
from ledger.rules.decisions import recurring_rules
from ledger.rules.overage import Overage
from tests.billing.random_subscriptions import calculator as slow
from tests.billing.random_subscriptions.life_simulator import LifeSimulator, billed_at_last
from tests.parts import spread

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def live(seed: int, pace: str | None = None) -> LifeSimulator:
    """Live one life; print what happened in it when it fails."""
    with alone():
        simulator = LifeSimulator(seed, pace)
        try:
            simulator.run()
            assert consistency.check() == []
        except BaseException:
            print("\n".join(["", simulator.life.ref, *simulator.life.log]))
            raise
    return simulator


@contextmanager
def alone() -> Iterator[None]:
    """Nothing of it stays: other lives in the same test must not have its taxes."""
    before = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(before)


@pytest.mark.parametrize("seed", spread(range(500), test=[2], check=[0]))
def test_a_life(seed: int) -> None:
    """Plans, versions, caps, quantities, pauses, holds across boundaries, refunds at any time, voids, at any pace of runs."""
    live(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500, 530))
def test_a_life_is_billed_the_same_in_time_in_steps_and_late(seed: int) -> None:
    in_time, in_steps, late = (live(seed, pace) for pace in ("in_time", "steps", "late"))
    assert uses_of(in_time) == uses_of(in_steps) == uses_of(late)
    assert billed_at_last(in_time) == billed_at_last(in_steps) == billed_at_last(late)


def uses_of(simulator: LifeSimulator) -> list[tuple[Any, int]]:
    """When credits were used on overage, and how many in the end."""
    return [(use.at, use.amount) for use in simulator.account.uses]


class CanceledLife(LifeSimulator):
    """A life that is canceled on its second day, a month ahead, after which nothing else happens."""

    def run(self) -> None:
        self._move(self.life.started_at + timedelta(days=1))
        self._work(is_last=True)
        ends_at = self.clock + timedelta(days=30)
        subscriptions.amend_subscription(ref=self.life.ref, effective_at=self.clock, wish=Wish(sets_end=True, ends_at=ends_at))
        self.life.model.amend(slow.Amendment(self.clock, sets_end=True, ends_at=ends_at))
        self._work(is_last=True)
        with pytest.raises(AssertionError, match="should have cost"):
            self.audit()
        self._end()


def test_a_life_that_is_canceled_ahead_adds_up_once_its_end_has_come() -> None:
    """What was charged in advance beyond its end is given back then, and not before; the life 3 is charged enough of it."""
    with alone():
        CanceledLife(3).run()


def test_the_audit_of_a_life_may_take_as_long_as_it_takes() -> None:
    with alone():
        life = LifeSimulator(2)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '1ms'")
        life.audit()


# Controls: a rule is broken, and lives notice -----------------------------------------------------------


def forget_late_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refunded or captured after the invoice is on no other one."""
    monkeypatch.setattr(overage, "overage_changed", lambda **_: [])


def keep_what_is_refunded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is still used."""
    monkeypatch.setattr(Overage, "given_back", lambda self, *_: self)


def overstep_caps_in_money(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap in money is one credit too many."""
    monkeypatch.setattr(overage, "affordable", lambda *terms: (affordable(*terms) or 0) + 1)


def forget_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap for each seat is one for all of them."""
    monkeypatch.setattr(overage, "floor", lambda _: 1)


def keep_all_that_rolls_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger applies no cap when a period begins."""
    monkeypatch.setattr(recurring_rules, "_beyond_cap", lambda *_: ())


def lower_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of more than 40 credits is one of 40, for any number of seats."""
    monkeypatch.setattr(plan_budgets, "floor", lambda limit: min(floor(limit), 40))


BROKEN: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], range]] = {
    "late changes": (forget_late_changes, range(20)),
    "refunds": (keep_what_is_refunded, range(20)),
    "caps in money": (overstep_caps_in_money, range(20)),
    "seats": (forget_seats, range(20)),
    "caps of what rolls over": (keep_all_that_rolls_over, range(20)),
    "limits of budgets": (lower_budgets, range(20)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_stands_where_its_control_breaks_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` lives no broken rule, but a rule that has moved fails here."""
    break_rule, _ = BROKEN[name]
    break_rule(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_control_lives_notice_a_broken_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule, seeds = BROKEN[name]
    break_rule(monkeypatch)
    for seed in seeds:
        try:
            with alone():
                LifeSimulator(seed).run()
        except AssertionError as error:
            print("NOTICED", name, seed, str(error)[:200])
            return
    pytest.fail("no life noticed")
