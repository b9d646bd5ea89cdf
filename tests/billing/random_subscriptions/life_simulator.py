"""Random lives: a holder who spends beyond an allowance on overage, while the plan, its caps, its budget and the invoices change.

Each instant is the holder's own: its clock is moved, the worker may be late, and what the ledger answers is compared with the
account of the slow calculator, credit by credit, and each invoice with its lines, to the cent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from billing.orders import plans
from billing.rating.periods import Interval, IntervalUnit
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import BudgetExceeded, InsufficientCredits
from tests.billing.factories import unique
from tests.billing.random_subscriptions import calculator as slow
from tests.billing.random_subscriptions.simulator import (
    LONGER_THAN_A_PERIOD,
    SHORTER,
    SimulatedSubscription,
    Simulator,
    Traits,
)

EIGHT_YEARS = timedelta(days=2_922)
"""From the years of the other simulations to those of these: clocks only go on."""
BORN = datetime(2031, 11, 15, tzinfo=UTC)
DAYS = 240
LIVED = Traits(usage=False, credits=False, bounds=False, charges=False, running=False)
OVERAGE_MODELS = ("unit", "graduated", "volume", "package")


class LifeSimulator(Simulator):
    """One customer with one subscription, whose holder spends.

    Args:
        pace: how runs bill overage: `in_time` at each step, `steps` now and then, `late` hardly ever; by default chosen by the
            seed. Whatever it is, the holder does the same.
    """

    COUNTS = (1,)

    def __init__(self, seed: int, pace: str | None = None) -> None:
        self.acts = random.Random(f"acts {seed}")
        self.bills = random.Random(f"bills {seed}")
        self.pace = pace or random.Random(f"pace {seed}").choice(("in_time", "steps", "late"))
        self.clock = BORN
        self.spent: list[tuple[int, slow.Spend]] = []
        self.held: list[tuple[int, slow.Hold]] = []
        super().__init__(seed, LIVED)
        [self.life] = self.subscriptions
        self.account = slow.Account(self.life.model, BORN)
        self.account.follow()

    # Making it up ------------------------------------------------------------------------------------

    def _customer_terms(self) -> dict[str, Any]:
        self.account_of = unique("holder")
        services.set_clock(holder_id=self.account_of, now=BORN, idempotency_key="born")
        return {"holder_id": self.account_of}

    def _some_end_of_month(self, hour: int, minute: int) -> datetime:
        return super()._some_end_of_month(hour, minute) + EIGHT_YEARS

    def _create(self, **order: Any) -> None:
        super()._create(**order | {"hold_days": 0})

    def _order(self) -> SimulatedSubscription:
        simulated = super()._order()
        simulated.held_back = timedelta(0)
        return simulated

    def _instant(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> datetime:
        """Changes are ordered when they happen."""
        return max(self.clock, simulated.started_at)

    def _sell(self, plan: slow.Plan) -> slow.Plan:
        """Write a plan with an allowance and overage, or its next version, with other caps."""
        pick = self.acts
        if plan.version == 1:
            keys = [price["key"] for price in plan.prices]
            price = {
                "key": "overage", "kind": "usage", "timing": "arrears", "meter": slow.METER, "aggregation": "sum",
                **self._model(OVERAGE_MODELS), **self._tax(),
            }  # fmt: skip
            if pick.random() < 0.85:
                plan = replace(plan, prices=(*plan.prices, price), overage=self._cap(price, plan.currency, keys))
            if pick.random() < 0.85:
                shorter = SHORTER.get((plan.unit, plan.count))
                every = (
                    dict(zip(("unit", "count"), pick.choice(shorter), strict=True)) if shorter and pick.random() < 0.5 else None
                )
                allowance = {
                    "amount": pick.choice((10, 30, 100, 101)), "interval": every, "in_trial": pick.random() < 0.3,
                    "per_quantity_of": pick.choice(keys) if pick.random() < 0.3 else None,
                    "rollover_cap": pick.choice((0, 5, 40, 250)) if pick.random() < 0.4 else None,
                }  # fmt: skip
                plan = replace(plan, allowance=allowance)
            if pick.random() < 0.5:
                budget = {
                    "limit": pick.choice((40, 100, 300)), "window": pick.choice(("day", "week", "month")),
                    "per_quantity_of": pick.choice(keys) if pick.random() < 0.3 else None,
                }  # fmt: skip
                plan = replace(plan, budget=budget)
        else:
            if plan.overage is not None:
                keys = [price["key"] for price in plan.prices if price["kind"] == "recurring"]
                price = next(price for price in plan.prices if price["key"] == "overage")
                plan = replace(plan, overage=self._cap(price, plan.currency, keys))
            if plan.budget is not None:
                plan = replace(plan, budget=plan.budget | {"limit": pick.choice((40, 100, 300))})
        self._write(plan)
        self.sold.setdefault(plan.code, []).append(plan)
        return plan

    def _cap(self, price: dict[str, Any], currency: str, keys: list[str]) -> dict[str, Any]:
        """A cap in credits, in money, or none; some for each unit of a price."""
        pick = self.acts
        kind = pick.choice(("credits", "credits", "money", "money", "none"))
        per = pick.choice(keys) if kind != "none" and pick.random() < 0.3 else None
        if kind == "credits":
            return {"limit_credits": pick.choice((0, 20, 60, 150)), "per_quantity_of": per}
        if kind == "money":
            about = slow.cost_in_minor(price, pick.choice((1, 15, 60, 150)), currency)
            return {"limit_minor": about + pick.choice((0, 0, 1, 2)), "per_quantity_of": per}
        return {}

    @staticmethod
    def _write(plan: slow.Plan) -> None:
        overage: Any = None
        if plan.overage is not None:
            said = ("key", "kind", "timing", "meter", "aggregation")
            price = next(price for price in plan.prices if price["key"] == "overage")
            overage = {"price": {name: value for name, value in price.items() if name not in said}, **plan.overage}
        allowance: Any = None
        if plan.allowance is not None:
            every = plan.allowance["interval"]
            allowance = plan.allowance | {
                "interval": every and Interval(IntervalUnit(every["unit"]), every["count"]),
            }  # fmt: skip
        plans.create_plan(
            code=plan.code,
            name="Plan",
            currency=plan.currency,
            interval=Interval(IntervalUnit(plan.unit), plan.count),
            prices=[price for price in plan.prices if price["key"] != "overage"],
            tax_behavior="inclusive" if plan.includes_tax else "exclusive",
            allowance=allowance,
            overage=overage,
            budgets=plan.budget and [{"budget": "pool", "credit_type": "credits", **plan.budget}],
        )

    # Living ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step after step: move the clock, spend, change something, and let the worker come, or be late."""
        pick = self.acts
        end = BORN + timedelta(days=DAYS)
        self._work(is_last=False, is_needed=True)
        while self.clock < end:
            self._move(self._next_instant())
            for _ in range(pick.choice((0, 1, 2, 3, 5))):
                self._act()
            if pick.random() < 0.3:
                self._change()
                for _ in range(pick.choice((0, 0, 1))):
                    self._act()
                self._work(is_last=False, is_needed=True)
            if self.pace == "in_time":
                self._work(is_last=False)
            with self._by(self.bills):
                self._after(self.life, self.clock)
        self._work(is_last=True)
        self._end()

    def _end(self) -> None:
        """Bill fees until all that was ordered has come, also an end that is still ahead; the holder's clock stays."""
        self.scope = "recurring"
        self._run_last(self.clock + LONGER_THAN_A_PERIOD)
        self.audit()

    def _next_instant(self) -> datetime:
        """Some days later; or exactly at the end of a period, or an instant before it."""
        pick = self.acts
        then = self.clock + timedelta(
            days=pick.choice((1, 3, 9, 20)), minutes=pick.randrange(1440), microseconds=pick.randrange(9)
        )
        spans = [span for span in self.life.model.spans("overage") if span.start <= self.clock < span.end]
        if spans and pick.random() < 0.3:
            _, edge = next(self.life.model.periods(spans[0].plan, spans[0].anchor, self.clock))
            then = min(then, edge - pick.choice((timedelta(0), timedelta(microseconds=1))))
        return then if then > self.clock else self.clock + timedelta(microseconds=1)

    def _move(self, now: datetime) -> None:
        services.set_clock(holder_id=self.account_of, now=now, idempotency_key=unique("clock"))
        self.life.log.append(f"it is {now}")
        self.clock = now
        needed = self.account.needs_run(now)
        self.account.move(now)
        if needed or self.bills.random() < 0.3:
            self._work(is_last=False, is_needed=needed)
        self._compare()

    def _work(self, *, is_last: bool, is_needed: bool = False) -> None:
        """The worker comes; at the pace of the life it bills overage too, and else the recurring charges alone."""
        model = self.life.model
        likely = {"in_time": 1.0, "steps": 0.25, "late": 0.03}[self.pace]
        self.scope = None if is_last or self.bills.random() < likely else "recurring"
        if self.scope is None and not is_needed and not is_last and self.bills.random() < 0.2:
            self.scope = "usage"
        model.events = list(self.account.events)
        with self._by(self.bills):
            self._run(self.life, self.clock, forced=is_last)
        self.account.follow()
        self._compare()

    @contextmanager
    def _by(self, source: random.Random) -> Iterator[None]:
        """Choose by this one for now, so that what the holder does is the same at each pace."""
        usual, self.random = self.random, source
        try:
            yield
        finally:
            self.random = usual

    def _any_options(self, forced: bool) -> tuple[str | None, bool, bool]:
        return self.scope, forced or self.bills.random() > 0.1, False

    def _change(self) -> None:
        """Something of the order, or a plan moves; the terms follow at once."""
        pick = self.acts
        before = list(self.life.model.amendments)
        if pick.random() < 0.15:
            self._move_plan(self.clock, self.clock)
        else:
            self._amend(self.life, self.clock, self.clock)
        if pick.random() < 0.2 and len(self.customer.coupons) < 2:
            self._give_coupon(self.life)
        if self.life.model.amendments != before:
            self.account.look()
            self.account.follow()
        self._compare()

    # Acts --------------------------------------------------------------------------------------------

    def _act(self) -> None:
        pick = self.acts
        kinds = {"spend": 8, "partial": 2, "hold": 3, "capture": 3, "release": 1, "refund": 4, "buy": 1}
        match pick.choices(list(kinds), list(kinds.values()))[0]:
            case "spend" | "partial" as how:
                self._spend(pick.choice((1, 7, 25, 60, 130)), partial=how == "partial")
            case "hold":
                self._hold(pick.choice((3, 20, 50)), timedelta(days=pick.choice((1, 5, 12, 30))))
            case "capture" if self.held:
                number, hold = self.held.pop(pick.randrange(len(self.held)))
                self._capture(number, hold)
            case "release" if self.held:
                number, hold = self.held.pop(pick.randrange(len(self.held)))
                services.release(holder_id=self.account_of, hold=number, idempotency_key=unique("release"))
                self.account.release(hold)
                self._note(f"release {number}")
            case "refund" if self.spent:
                self._refund(*pick.choice(self.spent))
            case "buy":
                amount, days = pick.choice((5, 40)), pick.choice((None, 15, 90))
                ends = None if days is None else self.clock + timedelta(days=days)
                services.grant(
                    holder_id=self.account_of, amount=amount, expires_at=ends, source="purchased", idempotency_key=unique("buy")
                )
                self.account.grant(amount, *([] if ends is None else [ends]))
                self._note(f"buy {amount} until {ends}")
        self._compare()

    def _asked(self, use_case: Any, **fields: Any) -> Any:
        """The entry that the ledger writes; None: it refuses."""
        try:
            return use_case(holder_id=self.account_of, idempotency_key=unique("act"), **fields)
        except BudgetExceeded as refused:
            self._compare_budget(refused.facts["limit"], refused.facts["used"])
            return None
        except InsufficientCredits as refused:
            overage = refused.facts.get("overage")
            assert overage is None or overage["used"] == self.account.used
            return None

    def _spend(self, amount: int, *, partial: bool) -> None:
        entry = self._asked(services.spend, amount=amount, partial=partial)
        spend = self.account.spend(amount, partial=partial)
        self._note(f"spend {amount} partial {partial}: {_shown(entry)}")
        self._same_parts(entry, spend)
        if spend is not None:
            self.spent.append((entry.sequence, spend))

    def _hold(self, amount: int, lasts: timedelta) -> None:
        entry = self._asked(services.hold, amount=amount, expires_at=self.clock + lasts)
        hold = self.account.hold(amount, self.clock + lasts)
        self._note(f"hold {amount} for {lasts}: {_shown(entry)}")
        assert (entry is None) == (hold is None)
        if hold is not None:
            assert (entry.postpaid or 0) == slow.on_overage(hold.parts)
            self.held.append((entry.sequence, hold))

    def _capture(self, number: int, hold: slow.Hold) -> None:
        held = sum(part for _, part in hold.parts)
        amount = self.acts.choice((held, max(held // 2, 1), held + 4))
        entry = self._asked(services.capture, hold=number, amount=amount, over_capture="if_available")
        spend = self.account.capture(hold, amount)
        self._note(f"capture {amount} of {number}: {_shown(entry)}")
        self._same_parts(entry, spend)
        if spend is None:
            self.held.append((number, hold))
        else:
            self.spent.append((entry.sequence, spend))

    def _refund(self, number: int, spend: slow.Spend) -> None:
        if not spend.left:
            return
        amount = self.acts.choice((spend.left, max(spend.left // 2, 1), 1))
        services.refund(holder_id=self.account_of, spend=number, amount=amount, idempotency_key=unique("refund"))
        self.account.refund(spend, amount)
        self._note(f"refund {amount} of {number}")

    def _note(self, text: str) -> None:
        self.life.log.append(text)

    def _same_parts(self, entry: Any, spend: slow.Spend | None) -> None:
        assert (entry is None) == (spend is None), "one of the two refuses it"
        if spend is not None:
            assert (entry.postpaid or 0) == slow.on_overage(spend.parts)
            assert sum(amount for _, amount in entry.drawn) == spend.left

    def _compare(self) -> None:
        """What the holder has and has used; holds that have expired are gone."""
        self.held = [(number, hold) for number, hold in self.held if hold in self.account.holds]
        balance = reads.balance(self.account_of)
        limit = None if balance.overage is None else balance.overage.limit
        used = 0 if balance.overage is None else balance.overage.used
        mine = 0 if balance.overage is None else self.account.used
        assert (balance.available, balance.owed, used) == (self.account.available, 0, mine), (balance, self.account)
        if balance.overage is not None:
            assert limit == self.account.limit
        else:
            assert self.account.limit == 0
        budgets = [each for each in reads.budgets(self.account_of) if each.is_in_force]
        assert [each.settings.window for each in budgets] == ([] if self.account.budget is None else [self.account.budget.window])
        for each in budgets:
            self._compare_budget(each.settings.limit, each.usage[0].used)

    def _compare_budget(self, limit: int, used: int) -> None:
        assert self.account.budget is not None
        assert (limit, used) == (self.account.budget.limit, self.account.used_of_budget)

    # Looking back ------------------------------------------------------------------------------------

    def audit(self) -> None:
        with connection.cursor() as cursor:
            # As the sessions of `audit_ledger` and `--check`: however busy the machine is.
            cursor.execute("SET LOCAL statement_timeout = 0")
        super().audit()
        found = audit([connection.connection], holder_id=self.account_of).findings
        assert found == [], found


def _shown(entry: Any) -> str:
    return "refused" if entry is None else f"{entry.sequence}, {entry.postpaid or 0} on overage"


def billed_at_last(simulator: LifeSimulator) -> list[tuple[Any, ...]]:
    """What each stretch of overage is billed at in the end, before coupons, and how many credits that is."""
    live = simulator.life.model.live("usage", "overage")
    return [(one.start, one.end, one.gross, one.quantity) for one in live if one.quantity or one.gross]
