"""Random subscriptions, simulated twice: by the product, through its services and runs, and by the slow calculator.

A simulation is made from its seed alone, so a failure is repeated by its number.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from billing.documents import invoices
from billing.documents.credit_refunds import NewCreditRefund, deposit_in, refund_in
from billing.documents.sellers import record_seller
from billing.errors import InvalidTransition, InvoiceCorrectedLater, InvoiceCreditRefunded
from billing.generator.options import Options, Scope
from billing.generator.run import outcomes, runs
from billing.generator.run.steps import InvoiceSummary
from billing.metering import usage
from billing.metering.corrections import Correction, EventCancellation, EventCorrection, take_in_all
from billing.metering.meters import create_meter
from billing.models import Claim, CreditPayment, Invoice, Item, Line
from billing.orders import coupons, customers, plans, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.item_versions import UnusedTime
from billing.orders.overrides import PriceOverride
from billing.orders.phases import Phase
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_walk import carry_out
from billing.orders.subscriptions import Wish
from billing.orders.tax_declarations import NewTax, declare
from billing.rating.periods import Interval, IntervalUnit
from billing.reads import credit_balance, invoice_documents
from ledger import reads, services
from ledger.json_values import time_text
from tests.billing.documents.issued import SELLER
from tests.billing.factories import transition, unique
from tests.billing.random_subscriptions import calculator as slow
from tests.billing.random_subscriptions.calculator.exact import without

BEGIN = datetime(2023, 11, 1, tzinfo=UTC)
MONTHS = 24
LONGER_THAN_A_PERIOD = timedelta(days=400)
"""After so long, a run has given back all that was charged in advance and does not count by a change ordered later."""
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago", "Pacific/Auckland",
    "Africa/Cairo",
)  # fmt: skip
INTERVALS = (
    ("month", 1), ("month", 1), ("month", 1), ("month", 2), ("quarter", 1), ("half_year", 1), ("year", 1), ("week", 1),
    ("week", 2), ("day", 10),
)  # fmt: skip
SHORTER = {
    ("month", 2): [("month", 1)],
    ("quarter", 1): [("month", 1)],
    ("half_year", 1): [("month", 1), ("quarter", 1), ("month", 2)],
    ("year", 1): [("month", 1), ("month", 1), ("quarter", 1), ("half_year", 1)],
    ("week", 2): [("week", 1), ("day", 2)],
    ("day", 10): [("day", 5)],
}
"""The intervals that prices of a plan with an interval may have."""
MODES = {"base": "day", "seat": "day", "tick": "second", "fix": "fixed_30", "solid": "none"}
"""How a key is prorated, on every plan: a change between ways of counting has no one answer."""
TAXES = (("S", "20"), ("S", "7.7"), ("AA", "5.5"), ("Z", "0"))
TWICE = "round(properties.twice / 3 * 1.5, 1)"
"""The expression of a meter whose events have twice their value as a property."""
LOCAL_TIMES = ((0, 0), (0, 0), (2, 30), (14, 45), (23, 59))


@dataclass(frozen=True)
class Traits:
    """What may happen in a simulation."""

    amends: bool = True
    usage: bool = True
    coupons: bool = True
    credits: bool = True
    voids: bool = True
    scopes: bool = True
    drafts: bool = True
    limits: bool = True
    bounds: bool = True
    charges: bool = True
    refunds: bool = True
    running: bool = True
    months: int = MONTHS


@dataclass
class SimulatedSubscription:
    """A subscription of the product, its model in the slow calculator, and a log of what was done."""

    ref: str
    model: slow.Subscription
    zone: ZoneInfo
    started_at: datetime
    held_back: timedelta
    documents: dict[int, slow.Document] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    used: list[tuple[str, slow.Event]] = field(default_factory=list)
    last_run: datetime = BEGIN


class Simulator:
    """One customer with one to three subscriptions, changed, used and billed at random."""

    COUNTS: tuple[int, ...] = (1, 1, 2, 3)
    """How many subscriptions are ordered first."""

    def __init__(self, seed: int, traits: Traits) -> None:
        self.seed, self.traits = seed, traits
        self.random = random.Random(seed)
        self.plans: list[tuple[str, slow.Plan]] = []
        self.sold: dict[str, list[slow.Plan]] = {}
        self.invoices = 0
        self.credited: set[int] = set()
        """Invoices of which credit notes gave all credits back."""
        currency = self.random.choice(("EUR", "EUR", "USD", "JPY", "BHD"))
        self.holder = ""
        self.customer = slow.Customer(currency)
        terms: dict[str, Any] = {}
        if traits.credits and self.random.random() < 0.4:
            self.holder = unique("holder")
            value = self.random.choice(("0.01", "0.07", "1", "0.001"))
            self.customer.unit_value = Fraction(value)
            terms = {"holder_id": self.holder, "credits": NewCredits(credit_type="credits", unit_value=Decimal(value))}
        held = self.random.choice((0, 0, 0, 7))
        # Not by `self.random`, which makes all else.
        coin = random.Random(f"coin {seed}").choice((0, 0, 0, 5, 10, 50))
        self.declares = random.Random(f"own taxes {seed}")
        self.meters = {key: f"meter-{key}" for key in ("calls", "data", "sent")}
        self.computed = random.Random(f"meters {seed}").choice(("", "data", "sent"))
        if self.computed:
            self.meters[self.computed] = create_meter(code=unique("meter"), expression=TWICE).code
        rules = "region" if self.declares.random() < 0.5 else "price"
        if rules == "region":
            self._declare_taxes()
            terms["address"] = {"country": "CA", "subdivision": "QC"}
            # A provider has no tax on tax.
            if not any(tax.is_compound for tax in self.customer.taxes) and random.Random(f"provider {seed}").random() < 0.5:
                rules = "provider"
        if coin or rules != "price":
            self.customer.coins = {currency: coin} if coin else {}
            details = {**SELLER, "ref": unique("seller"), "tax_rules": rules, **_prefixes()}
            coins = {"cash_rounding_minor": {currency: coin}} if coin else {}
            terms["seller"] = record_seller(details | coins, actor="test").ref
        terms |= self._customer_terms()
        self.customer_row = customers.create_customer(ref=unique("CUST"), name="Ada", currency=currency, hold_days=held, **terms)
        self.includes_tax = random.Random(f"tax {seed}").random() < 0.5
        self.bounded = traits.bounds and self.random.random() < 0.25
        for _ in range(3):
            self._make_plan(currency)
        self.subscriptions = [self._order() for _ in range(self.random.choice(self.COUNTS))]

    def _customer_terms(self) -> dict[str, Any]:
        """More terms of the customer."""
        return {}

    # Making it up ------------------------------------------------------------------------------------

    def _make_plan(self, currency: str) -> None:
        pick = self.random
        unit, count = pick.choice(INTERVALS)
        prices = [self._recurring(key) for key in pick.sample(sorted(MODES), pick.choice((1, 1, 2)))]
        if self.traits.usage:
            prices += [self._metered(key) for key in pick.sample(("calls", "data", "sent"), pick.choice((0, 1, 2)))]
        for price in prices:
            if pick.random() < 0.5 and (shorter := SHORTER.get((unit, count))):
                price["interval"] = dict(zip(("unit", "count"), pick.choice(shorter), strict=True))
        limits: dict[str, Any] = {}
        if self.bounded and pick.random() < 0.6:
            limits = pick.choice(({"minimum": self._money(9_000)}, {"maximum": self._money(9_000)}))
        threshold = self._money(9_000) if self.traits.running and pick.random() < 0.4 else None
        code = unique("plan")
        bounds: dict[str, Any] = {**limits, "threshold": threshold, "includes_tax": self.includes_tax}
        self.plans.append((code, self._sell(slow.Plan(code, currency, unit, count, tuple(prices), **bounds))))

    def _sell(self, plan: slow.Plan) -> slow.Plan:
        """Write a plan, or its next version."""
        limits = {"minimum": plan.minimum, "maximum": plan.maximum, "usage_threshold": plan.threshold}
        plans.create_plan(
            code=plan.code,
            name="Plan",
            currency=plan.currency,
            interval=Interval(IntervalUnit(plan.unit), plan.count),
            prices=list(plan.prices),
            tax_behavior="inclusive" if plan.includes_tax else "exclusive",
            **{name: Decimal(text) for name, text in limits.items() if text is not None},
        )
        self.sold.setdefault(plan.code, []).append(plan)
        return plan

    def _move_plan(self, since: datetime, until: datetime) -> None:
        """Sell a plan at other amounts, and move its subscribers, or some of them, to that version."""
        pick = self.random
        index = pick.randrange(len(self.plans))
        code, plan = self.plans[index]
        amounts = self._override(plan)["prices"]
        prices = tuple(price | amounts.get(price["key"], {}) for price in plan.prices)
        to = self._sell(replace(plan, prices=prices, version=plan.version + 1))
        self.plans[index] = code, to
        chosen = self.subscriptions if pick.random() < 0.7 else self.subscriptions[:1]
        instant = self._instant(pick.choice(chosen), since, until)
        refs = None if chosen is self.subscriptions else [simulated.ref for simulated in chosen]
        start_plan_move.execute(NewPlanMove(plan=code, effective_at=instant, subscriptions=refs, actor="test"))
        carry_out()
        for simulated in chosen:
            simulated.model.move(self.sold[code][:-1], to, instant)
            simulated.log.append(f"moved to {to} at {instant}")

    def _tax(self) -> dict[str, Any]:
        category, rate = self.random.choice(TAXES)
        return {"tax_category": category, "tax_rate": rate, "tax_class": self.declares.choice(("standard", "standard", "books"))}

    def _declare_taxes(self) -> None:
        """Two taxes, one only for a class, that change their rates on a day; for some sellers a third on both, or on the net."""
        pick = self.declares
        gst, qst, levy = (unique(name) for name in ("a-gst", "b-qst", "c-levy"))
        change, last = date(2024, 7, pick.randrange(1, 32)), date(2025, 3, pick.randrange(1, 32))
        every = ("standard", "books")
        self.customer.taxes = [
            slow.Tax("O", Fraction("5"), gst, classes=every, until=change),
            slow.Tax("O", Fraction("6.5"), gst, classes=every, since=change),
            slow.Tax("O", Fraction("9.975"), qst, until=last),
        ]
        if pick.random() < 0.6:
            self.customer.taxes.append(slow.Tax("O", Fraction("1.7"), levy, pick.random() < 0.7, ("books",), change))
        for tax in self.customer.taxes:
            declare(
                NewTax(
                    code=tax.code, name=tax.code, rate=Decimal(str(float(tax.rate))), category=tax.category, country="CA",
                    subdivision="QC", classes=list(tax.classes), is_compound=tax.is_compound,
                    valid_from=max(tax.since, date(2000, 1, 1)), valid_until=None if tax.until == date.max else tax.until,
                ),
                actor="test",
            )  # fmt: skip

    def _money(self, most: int = 10_000) -> str:
        return str(Decimal(self.random.randrange(1, most)) / 100)

    def _tiers(self, field_name: str) -> list[dict[str, Any]]:
        pick = self.random
        tops: list[int | None] = [*sorted(pick.sample(range(1, 60), pick.choice((1, 2)))), None]
        return [
            {"up_to": top, field_name: self._money(500), "flat_amount": self._money(1000) if pick.random() < 0.4 else None}
            | ({"package_size": pick.choice((3, "2.5"))} if field_name == "unit_amount" and pick.random() < 0.2 else {})
            for top in tops
        ]

    def _model(self, models: tuple[str, ...]) -> dict[str, Any]:
        model = self.random.choice(models)
        if model in ("graduated", "volume", "graduated_percentage"):
            tiers = self._tiers("rate" if model == "graduated_percentage" else "unit_amount")
            at_zero = {"flat_fee_at_zero": True} if model != "volume" and self.random.random() < 0.3 else {}
            return {"model": model, "tiers": tiers, **at_zero}
        if model == "percentage":
            extras = {
                "fixed_amount": "0.25", "free_events": 3, "free_amount": "40.5", "event_minimum": "0.6", "event_maximum": "1.1",
            }  # fmt: skip
            given = {name: value for name, value in extras.items() if self.random.random() < 0.5}
            return {"model": model, "rate": self._money(700), **given}
        price: dict[str, Any] = {"model": model, "unit_amount": self._money(2_000 if model == "flat" else 300)}
        if model == "package":
            price["package_size"] = self.random.choice((1, 7, "2.5"))
        if model in ("unit", "package") and self.random.random() < 0.5:
            price["free_units"] = self.random.choice((2, 10))
        return price

    def _recurring(self, key: str) -> dict[str, Any]:
        pick = self.random
        price = {
            "key": key, "kind": "recurring", "timing": pick.choice(("advance", "advance", "arrears")), "proration": MODES[key],
            **self._model(("flat", "flat", "unit", "graduated", "volume", "package")), **self._tax(),
        }  # fmt: skip
        if MODES[key] in ("day", "fixed_30") and pick.random() < 0.3:
            price["bill_last_day"] = True
        return price

    def _metered(self, key: str) -> dict[str, Any]:
        pick = self.random
        price = {
            "key": key, "kind": "usage", "timing": "arrears", "meter": self.meters[key],
            **self._model(("unit", "graduated", "volume", "package", "flat", "percentage", "graduated_percentage")),
            **self._tax(),
        }  # fmt: skip
        how = pick.choice(("count", "sum", "max", "last", "unique", "weighted_sum", "daily_level"))
        if price["model"] in slow.PERCENTAGES:
            how = "sum"
        price["aggregation"] = how
        if how == "unique":
            price["property"] = "user"
        grows = how in ("count", "sum", "max", "unique") and price["model"] != "volume"
        if self.traits.running and grows and pick.random() < 0.2:
            price["timing"] = "advance"
        if price["model"] in ("unit", "graduated", "volume", "package") and how != "daily_level" and pick.random() < 0.3:
            price["conversion"] = pick.choice(
                (
                    {"divide_by": "7", "rounding": "up"},
                    {"multiply_by": "1.5"},
                    {"divide_by": 3, "rounding": "half_up", "decimals": 1},
                )
            )
        if pick.random() < 0.25:
            price["filters"] = {"region": ["eu", "us"]}
        whole = {"free_units", "free_events", "free_amount", "conversion"}
        amount = {"unit": "unit_amount", "package": "unit_amount", "percentage": "rate"}.get(price["model"])
        if amount and not whole & set(price) and pick.random() < 0.5:
            takes: tuple[dict[str, list[str]], ...] = ({"user": ["a", "b"]}, {"region": ["us", "asia"], "user": ["b", "c", "d"]})
            price["buckets"] = [{"key": f"b{n}", "filters": one, amount: self._money(300)} for n, one in enumerate(takes)]
        is_level = how in ("weighted_sum", "daily_level")
        if not is_level and price["model"] != "flat" and not price.get("flat_fee_at_zero") and pick.random() < 0.3:
            price["group_by"] = pick.choice((["region"], ["region", "user"]))
        if self.traits.limits and pick.random() < 0.25:
            price["minimum"] = self._money(1_000)
        if self.traits.limits and pick.random() < 0.25:
            price["maximum"] = str(Decimal(self._money(4_000)) + 10)
        return price

    def _order(self) -> SimulatedSubscription:
        pick = self.random
        zone = ZoneInfo(pick.choice(ZONES))
        code, plan = pick.choice(self.plans)
        hour, minute = pick.choice(LOCAL_TIMES)
        anchor = slow.instant_of(self._some_end_of_month(hour, minute), zone)
        started = anchor
        if pick.random() < 0.6:
            started = anchor + timedelta(days=pick.randrange(-40, 40), minutes=pick.randrange(1440))
        ends_at = started + timedelta(days=pick.randrange(3, 700), minutes=pick.randrange(1440)) if pick.random() < 0.2 else None
        trial = started + timedelta(days=pick.randrange(1, 45)) if pick.random() < 0.25 else None
        quantities = self._quantities(plan)
        override = self._override(plan) if pick.random() < 0.1 else None
        times = {"started_at": started, "anchor_at": anchor, "trial_end": trial, "ends_at": ends_at}
        phases, modelled_phases = self._phases(started, plan) if trial is None and pick.random() < 0.25 else (None, [])
        ref = unique("SUB")
        held = pick.choice((None, None, None, 0, 12))
        ordered = {key: Decimal(value) for key, value in quantities.items()}
        self._create(
            ref=ref,
            customer=self.customer_row.ref,
            plan=code,
            time_zone=zone.key,
            quantities=ordered,
            price_override=_ordered(override),
            hold_days=held,
            phases=phases,
            **times,
        )
        modelled = {key: Fraction(value) for key, value in quantities.items()}
        model = slow.Subscription(customer=self.customer, plan=plan, zone=zone, quantities=modelled, override=override, **times)
        model.begin(modelled_phases)
        held = self.customer_row.hold_days if held is None else held
        return SimulatedSubscription(
            ref, model, zone, started, timedelta(days=held), log=[f"ordered {plan} in {zone} x{quantities} at {override} {times}"]
        )

    def _create(self, **order: Any) -> None:
        subscriptions.create_subscription(**order)

    def _phases(self, started: datetime, plan: slow.Plan) -> tuple[list[Phase], list[slow.Phase]]:
        """Two to four phases, as they are ordered and as they are calculated."""
        pick = self.random
        ordered: list[Phase] = []
        modelled: list[slow.Phase] = []
        count, day, by_count = pick.choice((2, 3, 4)), started, pick.random() < 0.6
        for index in range(count):
            length: dict[str, Any] = {}
            day += timedelta(days=pick.randrange(20, 120), minutes=pick.randrange(1440))
            if index < count - 1:
                length = {"intervals": pick.choice((1, 1, 2, 3))} if by_count else {"ends_at": day}
            code, other = pick.choice(self.plans) if pick.random() < 0.3 else ("", plan)
            plan = other
            quantities = self._quantities(plan) if pick.random() < 0.5 else {}
            override = self._override(plan) if pick.random() < 0.3 else None
            is_trial = index == 0 and pick.random() < 0.3
            ordered.append(
                Phase(
                    plan=code or None,
                    quantities={key: Decimal(value) for key, value in quantities.items()} or None,
                    price_override=_ordered(override),
                    trial=is_trial,
                    **length,
                )
            )
            terms = slow.Amendment(
                started,
                plan=plan if code else None,
                quantities={key: Fraction(value) for key, value in quantities.items()},
                sets_override=override is not None,
                override=override,
            )
            modelled.append(slow.Phase(terms, length.get("intervals", 0), length.get("ends_at"), is_trial))
        return ordered, modelled

    def _some_end_of_month(self, hour: int, minute: int) -> datetime:
        year, month, day = self.random.choice(
            ((2024, 1, 31), (2024, 1, 30), (2024, 2, 29), (2023, 12, 28), (2024, 1, 1), (2024, 2, 15))
        )
        return datetime(year, month, day, hour, minute)

    def _quantities(self, plan: slow.Plan) -> dict[str, str]:
        keys = [price["key"] for price in plan.prices if price["kind"] == "recurring"]
        return {key: self.random.choice(("1", "2", "3", "12", "2.5", "0")) for key in keys if self.random.random() < 0.6}

    # Running -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Month after month, change something at random, and now and then run the generator."""
        pick = self.random
        now = BEGIN
        down_until = BEGIN
        end = BEGIN + timedelta(days=30 * self.traits.months)
        while now < end:
            then = self._next_run(now + timedelta(days=pick.choice((3, 10, 17, 30, 31)), minutes=pick.randrange(1440)), now)
            for simulated in self.subscriptions:
                self.change_something(simulated, now, then)
            if self.traits.amends and pick.random() < 0.05:
                self._move_plan(now, then)
            now = then
            if now < down_until:
                continue
            if pick.random() < 0.08:
                down_until = now + timedelta(days=pick.randrange(30, 120))
                continue
            self._run_all(now)
        self._run_last(now + LONGER_THAN_A_PERIOD)
        self.audit()

    def _next_run(self, planned: datetime, now: datetime) -> datetime:
        """When the generator runs next."""
        return planned

    def _run_last(self, now: datetime) -> None:
        for simulated in self.subscriptions:
            self._run(simulated, now, forced=True)

    def change_something(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> None:
        pick = self.random
        if self.traits.usage:
            self._use(simulated, since, until)
        if self.traits.amends and pick.random() < 0.35:
            self._amend(simulated, since, until)
        if self.traits.charges and pick.random() < 0.05:
            amount, rate = pick.randrange(1, 5_000), pick.choice(("0", "20", "7.7"))
            subscriptions.charge_once(ref=simulated.ref, amount_minor=amount, description="One-off", tax_rate=Decimal(rate))
            simulated.model.charge(amount, Fraction(rate))
            simulated.log.append(f"charge {amount} at {rate}")
        if self.traits.coupons and len(self.customer.coupons) < 3 and pick.random() < 0.06:
            self._give_coupon(simulated)
        if self.traits.refunds:
            self._move_money(simulated)
        if self.holder and pick.random() < 0.3:
            amount = pick.randrange(1, 5_000)
            services.grant(holder_id=self.holder, amount=amount, idempotency_key=unique("grant"))
            self.customer.credits += amount
            simulated.log.append(f"granted {amount}")

    def _move_money(self, simulated: SimulatedSubscription) -> None:
        """Too much is paid, or credit is paid out."""
        pick, customer, currency = self.random, self.customer, self.customer.currency
        if pick.random() < 0.04:
            amount = pick.randrange(1, 4_000)
            deposit_in(
                customer_id=self.customer_row.pk, currency=currency, amount_minor=amount, reference="transfer", actor="test"
            )
            customer.notes.append(slow.Note(None, currency, amount))
            simulated.log.append(f"deposited {amount}")
        if customer.balance(currency) and pick.random() < 0.06:
            amount = pick.randrange(1, customer.balance(currency) + 1)
            request = NewCreditRefund(amount_minor=amount, currency=currency, reason="asked for")
            refund_in(customer_ref=self.customer_row.ref, request=request, actor="test")
            customer.refund(currency, amount)
            simulated.log.append(f"refunded {amount}")

    def _instant(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> datetime:
        """Somewhere between, or on a boundary of a local day, or somewhat before, or planned."""
        pick = self.random
        shift = pick.choice((0, 0, 0, 0, -35, -10, 20, 60))
        instant = since + timedelta(days=shift) + (until - since) * pick.random()
        instant = instant.replace(microsecond=0)
        if pick.random() < 0.4:
            local = instant.astimezone(simulated.zone).replace(tzinfo=None, hour=0, minute=0, second=0)
            instant = slow.instant_of(local, simulated.zone)
        return max(instant, simulated.started_at)

    def _amend(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> None:
        pick = self.random
        instant = self._instant(simulated, since, until)
        kinds = {"quantities": 5, "plan": 2, "paused": 2, "resumed": 3, "ends_at": 2, "override": 2, "anchor_at": 1}
        what = pick.choices(list(kinds), list(kinds.values()))[0]
        states = [state for state in simulated.model.states() if state[0] <= instant]
        plan = states[-1][1] if states else simulated.model.amendments[0].plan
        assert plan is not None
        if what == "plan":
            code, plan = pick.choice(self.plans)
            wish, modelled = Wish(plan=code), slow.Amendment(instant, plan=plan)
        elif what == "quantities":
            known = self._quantities(plan)
            if not known:
                return
            wish = Wish(quantities={key: Decimal(value) for key, value in known.items()})
            modelled = slow.Amendment(instant, quantities={key: Fraction(value) for key, value in known.items()})
        elif what in ("paused", "resumed"):
            charges = what == "paused" and pick.random() < 0.3
            wish = Wish(paused=what == "paused", charges_while_paused=charges or None)
            modelled = slow.Amendment(instant, paused=what == "paused", charges_while_paused=charges)
        elif what == "anchor_at":
            anchor = slow.instant_of(self._some_end_of_month(*pick.choice(LOCAL_TIMES)), simulated.zone)
            wish, modelled = Wish(anchor_at=anchor), slow.Amendment(instant, anchor_at=anchor)
        elif what == "override":
            override = self._override(plan) if pick.random() < 0.7 else None
            if override is not None:
                # Named amounts belong to the plan that counts then, also where it was changed within a pause.
                by_time = sorted(simulated.model.amendments, key=lambda one: one.effective_at)
                plans = [(one.effective_at, one.plan) for one in by_time if one.plan is not None]
                override["plan"] = ([each for at, each in plans if at <= instant] or [plans[0][1]])[-1].code
            wish = Wish(price_override=_ordered(override), sets_override=True)
            modelled = slow.Amendment(instant, sets_override=True, override=override)
        else:
            ends_at = instant + timedelta(days=pick.randrange(0, 60)) if pick.random() < 0.6 else None
            unused = pick.choice(list(UnusedTime)) if ends_at is not None and pick.random() < 0.6 else None
            wish = Wish(sets_end=True, ends_at=ends_at, unused_time=unused)
            modelled = slow.Amendment(instant, sets_end=True, ends_at=ends_at, unused=unused or "credit")
        try:
            subscriptions.amend_subscription(ref=simulated.ref, effective_at=instant, wish=wish)
        except subscriptions.Invalid:
            # The plan that counts at that instant is another than the last one that did before a pause.
            assert what in ("quantities", "override")
            return
        simulated.model.amend(modelled)
        simulated.log.append(f"amend {modelled}")

    def _override(self, plan: slow.Plan) -> dict[str, Any]:
        """Other amounts for some prices of a plan, or a percentage off, or both."""
        pick = self.random
        prices: dict[str, Any] = {}
        for price in pick.sample(plan.prices, pick.choice((0, 1, len(plan.prices)))):
            amounts = {name: self._money(300) for name in ("unit_amount", "rate") if name in price}
            if "tiers" in price:
                amounts = {"tiers": self._tiers("rate" if price["model"] == "graduated_percentage" else "unit_amount")}
            prices[price["key"]] = amounts
        percent = pick.choice(("10", "33.3", "100")) if not prices or pick.random() < 0.4 else None
        return {"plan": plan.code, "prices": prices, "percent_off": percent}

    def _use(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> None:
        pick = self.random
        events, modelled = [], []
        for _ in range(pick.choice((0, 2, 5, 9))):
            late = timedelta(days=pick.choice((0, 0, 0, 0, 20, 45, 100, 400)))
            occurred = since - late + (until - since) * pick.random()
            value = str(Decimal(pick.randrange(-400 if late and pick.random() < 0.2 else 0, 400)) / pick.choice((1, 10)))
            meter = self.meters[pick.choice(("calls", "data", "sent"))]
            properties = {"user": pick.choice("abcdefg"), "region": pick.choice(("eu", "us", "asia", ""))}
            properties = {name: text for name, text in properties.items() if text}
            sent = self._sent(meter, Decimal(value), properties)
            events.append(usage.NewEvent(unique("use"), simulated.ref, meter, occurred_at=occurred, **sent))
            modelled.append(slow.Event(meter, Fraction(value), occurred, sent["properties"]))
        results = usage.take_in(events, allow_future=True) if events else []
        assert {one.result for one in results} <= {usage.EventStatus.ACCEPTED}
        simulated.model.events += modelled
        simulated.used += [(event.idempotency_key, one) for event, one in zip(events, modelled, strict=True)]
        for one in modelled:
            simulated.log.append(f"use {one}")
        if simulated.used and pick.random() < 0.2:
            self._correct(simulated, pick.randrange(len(simulated.used)))

    def _sent(self, meter: str, value: Decimal, properties: Mapping[str, str]) -> dict[str, Any]:
        """The value and properties of an event that counts this number: without the value if its meter computes it."""
        if self.computed and meter == self.meters[self.computed]:
            return {"properties": {**properties, "twice": f"{value * 2:f}"}}
        return {"value": value, "properties": dict(properties)}

    def _correct(self, simulated: SimulatedSubscription, index: int) -> None:
        """Correct or cancel an event that counts."""
        pick = self.random
        key, known = simulated.used.pop(index)
        simulated.model.events.remove(known)
        named = {"idempotency_key": unique("fix"), "subscription": simulated.ref}
        made: Correction = EventCancellation(**named, cancels=key)
        if pick.random() < 0.5:
            value = pick.randrange(1, 400)
            sent = self._sent(known.meter, Decimal(value), known.properties)
            better = replace(known, value=Fraction(value), properties=sent["properties"])
            made = EventCorrection(**named, corrects=key, **sent)
            simulated.model.events.append(better)
            simulated.used.append((made.idempotency_key, better))
        assert [one.result for one in take_in_all([made])] == [usage.EventStatus.ACCEPTED]
        simulated.log.append(f"correct {known} by {made}")

    def _give_coupon(self, simulated: SimulatedSubscription) -> None:
        pick = self.random
        kind = pick.choice(("amount", "percentage"))
        value = self._money(3_000) if kind == "amount" else pick.choice(("10", "33.3", "50", "100"))
        if kind == "amount" and self.customer.currency == "JPY":
            value = str(int(Decimal(value)) + 1)
        duration = pick.choice(("once", "recurring", "forever"))
        prices = tuple(pick.sample(("base", "seat", "calls"), 2)) if pick.random() < 0.3 else ()
        plans = (self.plans[0][0],) if pick.random() < 0.2 else ()
        # A coupon can only name prices that one of its plans has.
        known = {price["key"] for _, plan in (self.plans[:1] if plans else self.plans) for price in plan.prices}
        one = slow.Coupon(
            code=unique("coupon"), kind=kind, value=Fraction(value), currency=self.customer.currency if kind == "amount" else "",
            duration=duration, periods=pick.choice((1, 3)) if duration == "recurring" else None,
            prices=tuple(key for key in prices if key in known), plans=plans,
            only=simulated.model if pick.random() < 0.3 else None,
        )  # fmt: skip
        coupons.create_coupon(
            code=one.code, kind=kind, value=Decimal(value), currency=one.currency or None, duration=duration, periods=one.periods,
            prices=one.prices, plans=one.plans,
        )  # fmt: skip
        row = self.customer_row
        if one.only is None:
            coupons.give_coupon(customer_id=row.pk, customer_ref=row.ref, customer_currency=row.currency, code=one.code)
        else:
            coupons.give_subscription_coupon(ref=simulated.ref, code=one.code)
        self.customer.coupons.append(one)
        simulated.log.append(f"coupon {one}")

    def _run_all(self, now: datetime) -> None:
        """Each by itself; or all of them after a dry run, which has to be the run also where they share credits and coupons."""
        if len(self.subscriptions) > 1 and self.random.random() < 0.3:
            dry = self._dry_run(now)
            assert dry == {simulated.ref: self._run(simulated, now, forced=True) for simulated in self.subscriptions}
            for simulated in self.subscriptions:
                self._after(simulated, now)
            return
        for simulated in self.subscriptions:
            self._run(simulated, now)
            self._after(simulated, now)

    def _dry_run(self, now: datetime) -> dict[str, list[Any]]:
        """Of each subscription's invoices: currency, total, what credits paid, how many lines."""
        done: list[outcomes.SubscriptionResult] = []
        refs = tuple(simulated.ref for simulated in self.subscriptions)
        job = runs.job_for(Options(as_of=now, dry_run=True), subscriptions=refs)
        runs.run(job, on_done=done.append, on_tick=lambda summary: None, stop=lambda: False)
        return {one.subscription: without_names(one) for one in done}

    # Running -----------------------------------------------------------------------------------------

    def _run(self, simulated: SimulatedSubscription, now: datetime, *, forced: bool = False) -> list[Any]:
        only, finalize, running = self._any_options(forced)
        simulated.log.append(f"run as of {now} only {only} finalize {finalize} running {running}")
        options = Options(as_of=now, only=Scope(only) if only else None, finalize=finalize, running_usage=running)
        done = outcomes.bill_one(simulated.ref, options)
        assert done.outcome in ("finalised", "created", "nothing_due"), (done.outcome, done.detail, done.traceback)
        made = invoice_documents(
            list(Invoice.objects.filter(pk__in=[one.invoice_id for one in done.invoices]).order_by("currency"))
        )
        expected = simulated.model.bill(now - simulated.held_back, only=only, finalize=finalize, running=running)
        assert_same(made, expected)
        self.invoices += len(made)
        for document, calculated in zip(made, expected, strict=True):
            simulated.documents[document["id"]] = calculated
            simulated.log.append(f"  made {document['number']} {document['total_minor']}")
        simulated.last_run = now - simulated.held_back
        if forced or self.random.random() < 0.2:
            again = outcomes.bill_one(simulated.ref, options)
            assert again.outcome == "nothing_due", "the same run twice billed something twice"
        return without_names(done)

    def _any_options(self, forced: bool) -> tuple[str | None, bool, bool]:
        """Which charges a run bills, whether it finalises, and whether it bills usage of running periods."""
        pick = self.random
        only = (
            pick.choice((None, None, None, "usage", "recurring"))
            if self.traits.scopes and not forced and not self.bounded
            else None
        )
        finalize = not (self.traits.drafts and pick.random() < 0.1) or forced
        return only, finalize, self.traits.running and not forced and pick.random() < 0.15

    def _after(self, simulated: SimulatedSubscription, now: datetime) -> None:
        """Drafts are finalised or deleted, some invoices paid, marked uncollectible or voided."""
        pick = self.random
        for pk, calculated in list(simulated.documents.items()):
            if calculated.state == "draft":
                if pick.random() < 0.5:
                    transition(pk, "finalize")
                    simulated.model.finalize(calculated)
                    simulated.log.append(f"finalise {pk}")
                    assert_same(invoice_documents([Invoice.objects.get(pk=pk)]), [calculated])
                elif not simulated.model.corrections(calculated):
                    invoices.delete_draft(pk)
                    simulated.model.void(calculated)
                    simulated.log.append(f"delete {pk}")
                    del simulated.documents[pk]
            elif calculated.state == "open" and pick.random() < 0.3:
                transition(pk, "pay")
                calculated.state = "paid"
            elif calculated.state == "open" and pick.random() < 0.05:
                transition(pk, "mark_uncollectible")
                calculated.state = "uncollectible"
        if self.traits.voids and simulated.documents and pick.random() < 0.25:
            self._void(simulated, *pick.choice(list(simulated.documents.items())[pick.choice((0, -4)) :]))

    def _void(self, simulated: SimulatedSubscription, pk: int, calculated: slow.Document) -> None:
        why = simulated.model.why_not_void(calculated)
        if not why or calculated.state == "void":
            transition(pk, "void")
            transition(pk, "void")
            if calculated.state != "void":
                simulated.model.void(calculated)
            simulated.log.append(f"void {pk}")
        else:
            try:
                transition(pk, "void")
            except InvoiceCorrectedLater:
                assert "corrected" in why
            except InvoiceCreditRefunded:
                assert "refunded" in why
            except InvalidTransition:
                assert "state" in why
            else:
                raise AssertionError(f"{pk} was voided although {why}")
        if self.holder:
            assert reads.balance(self.holder).available == self.customer.credits

    # Looking back ------------------------------------------------------------------------------------

    def audit(self) -> None:
        """Assert what has to be true at the end, whatever happened."""
        for simulated in self.subscriptions:
            for key in simulated.model.keys if simulated.model.activation == "started" else ():
                self._no_hole_and_no_overlap(simulated, key)
                if not self.customer.coupons:
                    self._adds_up(simulated, key)
                    self._usage_adds_up(simulated, key)
        self._numbers_follow_each_other()
        self._credit_is_what_is_left()
        if self.holder:
            self._credits_went_back_once()

    def _numbers_follow_each_other(self) -> None:
        """No other test numbers documents at the same time, so there is no hole between the first and the last."""
        ours = Invoice.objects.filter(customer_id=self.customer_row.pk, series_value__isnull=False).order_by("series_value")
        values = list(ours.values_list("series_value", flat=True))
        assert values == list(range(values[0], values[0] + len(values)) if values else [])

    def _credit_is_what_is_left(self) -> None:
        """What the customer is shown, note by note; all of it is of this customer, whichever subscription it came from."""
        shown = {one["currency"]: one["credit"] for one in credit_balance(self.customer_row.ref)["balances"]}
        left = {currency: [note["left_minor"] for note in notes] for currency, notes in shown.items()}
        expected: dict[str, list[int]] = {}
        for note in self.customer.notes:
            if note.left:
                expected.setdefault(note.currency, []).append(note.left)
        assert left == expected

    def _no_hole_and_no_overlap(self, simulated: SimulatedSubscription, key: str) -> None:
        """What is claimed of a recurring price is exactly when it counted, up to the last that was due.

        What a change that has not come yet will give back is still claimed: of a moved billing day, beyond its boundary.
        """
        as_of = simulated.last_run
        wanted = [
            (one.start, one.end)
            for one in simulated.model.stretches(key, as_of)
            if (price := one.plan.price(key)) is not None
            and price["kind"] == "recurring"
            and as_of >= (one.start if price["timing"] == "advance" else one.end)
        ]
        claims = Claim.objects.filter(item_id__in=_items(simulated, key), kind=1, released_at=None)
        claimed = sorted(claims.values_list("starts_at", "ends_at"))
        assert all(before[1] <= after[0] for before, after in pairwise(claimed)), "overlap"
        assert not [hole for one in wanted for hole in without(one, claimed)], "hole"
        assert all(start > as_of for claim in claimed for start, _ in without(claim, wanted)), "claimed beyond"

    def _adds_up(self, simulated: SimulatedSubscription, key: str) -> None:
        """The lines of a recurring price come to what it should have cost in all, to a rounding each."""
        if MODES.get(key, "none") == "none":
            return
        owed, stretches = simulated.model.owed_recurring(key, simulated.last_run)
        lines = Line.objects.filter(item_id__in=_items(simulated, key), kind__in=("recurring", "credit"))
        rows = lines.exclude(invoice__state="void")
        amounts = [line.rating.get("included_tax", {"amount_minor": line.amount_minor})["amount_minor"] for line in rows]
        differs = f"{key} was charged {sum(amounts)} in all and should have cost {float(owed)}"
        assert abs(sum(amounts) - owed) <= len(amounts) + stretches, differs

    def _usage_adds_up(self, simulated: SimulatedSubscription, key: str) -> None:
        """What each period of a usage price is billed at is what it costs by all events that are known, however they came."""
        claims = Claim.objects.filter(item_id__in=_items(simulated, key), kind=2, released_at=None)
        claimed = dict(claims.values_list("starts_at", "amount_minor"))
        owed = {one.start: simulated.model.owed_usage(one) for one in simulated.model.live("usage", key)}
        assert claimed == owed, key

    def _credits_went_back_once(self) -> None:
        entries = reads.entries(self.holder, limit=200)
        assert reads.balance(self.holder).available == self.customer.credits
        payments = CreditPayment.objects.filter(holder_id=self.holder)
        assert len([one for one in entries if one.kind == "spend"]) == payments.count()
        voided = [
            one for one in payments if one.invoice_id in self.credited or Invoice.objects.get(pk=one.invoice_id).state == "void"
        ]
        refunds = [one for one in entries if one.kind == "refund"]
        assert sorted((one.refers_to, one.amount) for one in refunds) == sorted(
            (one.spend_sequence, one.credits) for one in voided
        )


def _prefixes() -> dict[str, str]:
    """Prefixes of numbers that no other seller has."""
    own = "".join(character for character in unique("S").upper() if character.isalnum())[-11:]
    return {"invoice_prefix": own, "credit_note_prefix": f"{own}N"}


def _items(simulated: SimulatedSubscription, key: str) -> Any:
    """The ids of what a subscription ordered under a key."""
    return Item.objects.filter(subscription__ref=simulated.ref, price_key=key).values("id")


def _ordered(override: dict[str, Any] | None) -> PriceOverride | None:
    """The request for negotiated prices."""
    if override is None:
        return None
    percent = override["percent_off"]
    return PriceOverride(prices=override["prices"] or None, percent_off=None if percent is None else Decimal(percent))


# Comparing -------------------------------------------------------------------------------------------


def assert_same(made: list[dict[str, Any]], expected: list[slow.Document]) -> None:
    """Compare every line, tax and total."""
    currencies = [calculated.currency for calculated in expected]
    assert [one["currency"] for one in made] == currencies, [lines_of_calculator(calculated) for calculated in expected]
    for document, calculated in zip(made, expected, strict=True):
        ours, theirs = sorted(map(line_of_document, document["lines"])), lines_of_calculator(calculated)
        differ = {"made": [one for one in ours if one not in theirs], "expected": [one for one in theirs if one not in ours]}
        assert ours == theirs, differ
        taxes = [
            (one["category"], Fraction(one["rate"]), one.get("code", ""), one["base_minor"], one["amount_minor"])
            for one in document["taxes"]
        ]
        assert taxes == calculated.taxes
        figures = {
            "subtotal_minor": calculated.subtotal, "discount_minor": calculated.discount, "tax_minor": calculated.tax,
            "total_minor": calculated.total, "credit_notes_minor": calculated.notes, "credits_applied_minor": calculated.credits,
            "rounding_minor": calculated.rounding, "amount_due_minor": calculated.due, "state": calculated.state,
            "refunded_minor": calculated.refunded,
        }  # fmt: skip
        assert {name: document[name] for name in figures} == figures


def line_of_document(line: dict[str, Any]) -> tuple[str, ...]:
    """What two calculations of a line must agree on, from a document."""
    period = line["period"] or {"start": None, "end": None}
    return _as_text(
        line["kind"], line["price_key"] or "", period["start"], period["end"], Fraction(line["quantity"]), line["amount_minor"],
        line["discount_minor"], line["tax_category"], Fraction(line["tax_rate"]),
        "+".join(tax["code"] for tax in line.get("taxes", ())),
    )  # fmt: skip


def lines_of_calculator(calculated: slow.Document) -> list[tuple[str, ...]]:
    """What two calculations of a line must agree on, from the calculator."""
    return sorted(map(line_of_calculator, calculated.lines))


def line_of_calculator(line: slow.Line) -> tuple[str, ...]:
    """What two calculations of a line must agree on, from the calculator."""
    kind, key, start, end, quantity, *rest = line.compared()
    # Invoices say a quantity with 12 decimals at most.
    quantity = Fraction(slow.half_up(quantity * 10**12), 10**12)
    return _as_text(kind, key, start and time_text(start), end and time_text(end), quantity, *rest)


def without_names(done: outcomes.SubscriptionResult) -> list[InvoiceSummary]:
    """The invoices of a result without their ids and numbers, which no two runs share."""
    return [replace(invoice, invoice_id=0, number=None) for invoice in done.invoices]


def _as_text(*figures: Any) -> tuple[str, ...]:
    """The values as texts, which can be compared and printed."""
    return tuple(str(figure) for figure in figures)
