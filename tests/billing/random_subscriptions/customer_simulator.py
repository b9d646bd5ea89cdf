"""Random customers: their subscriptions share invoices, or stand aside, and some start when they are paid.

The slow calculator decides which drafts become one document, what it comes to, and what is given back of an order that expires.
"""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from billing.documents import invoices
from billing.documents.invoice_payments import record_payment
from billing.errors import SubscriptionNotStarted
from billing.generator import activations
from billing.generator.options import Options, Scope
from billing.generator.run import outcomes, runs
from billing.generator.run.steps import InvoiceSummary
from billing.models import Activation, Invoice, InvoicedSubscription
from billing.orders import customers, subscriptions
from billing.orders.subscriptions import Wish
from billing.reads import invoice_documents
from tests.billing.factories import transition, unique
from tests.billing.random_subscriptions import calculator as slow
from tests.billing.random_subscriptions.simulator import (
    BEGIN,
    ZONES,
    SimulatedSubscription,
    Simulator,
    Traits,
    assert_same,
    line_of_calculator,
    line_of_document,
    without_names,
)

Whose = tuple[tuple[str, ...], str, str, datetime | None, bool]
"""What tells documents of a run apart: subscriptions, currency, kind of charges, up to when, and whether it waits for others."""
OK = {"finalised", "created", "nothing_due"}


class CustomerSimulator(Simulator):
    """One customer with two to six subscriptions.

    Args:
        shares: the customer has consolidated invoices; subscriptions may stand aside.
        waits: some subscriptions start when they are paid.
    """

    COUNTS = (2, 3, 3, 4)

    def __init__(self, seed: int, traits: Traits, *, shares: bool = True, waits: bool = True) -> None:
        self.extra = random.Random(f"customer {seed}")
        self.shares, self.waits = shares, waits
        self.customer_shares = shares
        self.shift = timedelta(0)
        self.is_incomplete = False
        self.own_choice: dict[str, bool] = {}
        self.first: dict[str, tuple[int, slow.Document]] = {}
        """The first invoice of each subscription that waits for its payment, or waited in vain."""
        self.parts: dict[int, slow.Part] = {}
        super().__init__(seed, traits)
        self.whole = SimulatedSubscription("", self.subscriptions[0].model, self.customer.zone, BEGIN, timedelta(0))
        """All documents of the customer but those that wait."""
        for pk, calculated in [*self.first.values()]:
            if calculated.state == "paid":
                self.whole.documents[pk] = calculated

    # Ordering ------------------------------------------------------------------------------------------

    def _customer_terms(self) -> dict[str, Any]:
        self.customer.zone = ZoneInfo(self.extra.choice(ZONES))
        return {"consolidated_invoicing": self.shares, "time_zone": self.customer.zone.key}

    def _make_plan(self, currency: str) -> None:
        other = self.shares and bool(self.plans) and self.extra.random() < 0.15
        super()._make_plan(self.extra.choice(("JPY", "BHD", "EUR")) if other else currency)

    def _some_end_of_month(self, hour: int, minute: int) -> datetime:
        return super()._some_end_of_month(hour, minute) + self.shift

    def _create(self, **order: Any) -> None:
        has_trial = order["trial_end"] is not None or any(phase.trial for phase in order["phases"] or ())
        self.is_incomplete = self.waits and not has_trial and self.extra.random() < 0.6
        if self.is_incomplete:
            hours = self.extra.choice((None, 1, 720))
            activations.order_subscription(**order, starts_when_paid=True, payment_timeout_hours=hours)
        else:
            super()._create(**order)

    def _order(self) -> SimulatedSubscription:
        simulated = super()._order()
        simulated.model.is_consolidated = self.customer_shares
        if self.is_incomplete:
            self._compare_first(simulated)
        return simulated

    def _compare_first(self, simulated: SimulatedSubscription) -> None:
        activation = Activation.objects.get(subscription__ref=simulated.ref)
        made = [] if activation.invoice_id is None else [Invoice.objects.get(pk=activation.invoice_id)]
        expected = simulated.model.order_first()
        assert_same(invoice_documents(made), expected)
        simulated.log.append(f"waits for {[one.due for one in expected]}")
        assert self._state(simulated) == simulated.model.activation
        for row, calculated in zip(made, expected, strict=True):
            self.first[simulated.ref] = row.pk, calculated

    @staticmethod
    def _state(simulated: SimulatedSubscription) -> str:
        state = Activation.objects.get(subscription__ref=simulated.ref).state
        return "never" if state in ("expired", "canceled") else str(state)

    # Changing ------------------------------------------------------------------------------------------

    def change_something(self, simulated: SimulatedSubscription, since: datetime, until: datetime) -> None:
        if simulated.model.activation == "started":
            super().change_something(simulated, since, until)
            if self.shares and self.extra.random() < 0.05:
                self._stand_aside(simulated, since)
            return
        if self.traits.usage:
            self._use(simulated, since, until)
        if self.traits.coupons and len(self.customer.coupons) < 3 and self.extra.random() < 0.06:
            self._give_coupon(simulated)
        self._move_money(simulated)
        if simulated.ref in self.first:
            self._settle(simulated, *self.first[simulated.ref])

    def _give_coupon(self, simulated: SimulatedSubscription) -> None:
        """Coupons are in the customer's currency, so a subscription in another one has none."""
        if all(state.plan.currency == self.customer.currency for state in simulated.model.states()):
            super()._give_coupon(simulated)

    def _stand_aside(self, simulated: SimulatedSubscription, since: datetime) -> None:
        """The subscription, or all without their own choice, share invoices or not from the next run on."""
        pick = self.extra
        if pick.random() < 0.2:
            self.customer_shares = not self.customer_shares
            customers.change_customer(ref=self.customer_row.ref, consolidated_invoicing=self.customer_shares)
        else:
            choice = pick.choice((True, False, None))
            instant = self._instant(simulated, since, since)
            wish = Wish(sets_consolidation=True, consolidated_invoicing=choice)
            subscriptions.amend_subscription(ref=simulated.ref, effective_at=instant, wish=wish)
            self.own_choice.pop(simulated.ref, None)
            if choice is not None:
                self.own_choice[simulated.ref] = choice
        for one in self.subscriptions:
            one.model.is_consolidated = self.own_choice.get(one.ref, self.customer_shares)
            one.log.append(f"shares invoices: {one.model.is_consolidated}")

    def _settle(self, simulated: SimulatedSubscription, pk: int, first: slow.Document) -> None:
        """The first invoice is paid, in parts, or not; or money comes after the order expired."""
        pick, model = self.extra, simulated.model
        what = pick.choice(("pay", "pay", "part", "more", "expire", "cancel", "wait", "wait"))
        left = first.due - first.paid
        if model.activation == "never":
            if pick.random() < 0.15:
                self._pay(simulated, pk, first, pick.randrange(1, 5_000))
            return
        match what:
            case "pay":
                self._pay(simulated, pk, first, left)
            case "part" if left > 1:
                self._pay(simulated, pk, first, pick.randrange(1, left))
            case "more":
                self._pay(simulated, pk, first, left + pick.randrange(1, 3_000))
            case "expire" | "cancel":
                self._never_start(simulated, pk, first, what)
            case _:
                self._refused_while_it_waits(simulated, pk)
                if first.state == "open" and pick.random() < 0.2:
                    transition(pk, "mark_uncollectible")
                    first.state = "uncollectible"
        assert self._state(simulated) == model.activation
        row = invoice_documents([Invoice.objects.get(pk=pk)])[0]
        figures = {"state": first.state, "amount_due_minor": first.due, "credit_notes_minor": first.notes}
        assert {name: row[name] for name in figures} == figures
        if model.activation == "started":
            self.whole.documents[pk] = first

    def _pay(self, simulated: SimulatedSubscription, pk: int, first: slow.Document, amount: int) -> None:
        record_payment(invoice=pk, payment=unique("pay"), amount_minor=amount)
        simulated.model.pay(first, amount)
        simulated.log.append(f"paid {amount}: {first.paid} of {first.due}")

    def _never_start(self, simulated: SimulatedSubscription, pk: int, first: slow.Document, what: str) -> None:
        assert what == "cancel" or activations.expire(simulated.ref) is None, "it expired before its time"
        if what == "cancel":
            activations.cancel_order(ref=simulated.ref)
        else:
            with mock.patch.object(activations, "present", return_value=timezone.now() + timedelta(days=31)):
                assert activations.expire(simulated.ref) is not None
                assert activations.expire(simulated.ref) is None, "given back twice"
        if first.paid:
            self.credited.add(pk)
        simulated.model.never_start(first)
        simulated.log.append(f"{what}: {first.paid} was paid")

    @staticmethod
    def _refused_while_it_waits(simulated: SimulatedSubscription, pk: int) -> None:
        with pytest.raises(SubscriptionNotStarted):
            subscriptions.amend_subscription(ref=simulated.ref, effective_at=simulated.started_at, wish=Wish(paused=True))
        with pytest.raises(SubscriptionNotStarted):
            subscriptions.charge_once(ref=simulated.ref, amount_minor=100, description="One-off")
        with pytest.raises(SubscriptionNotStarted):
            transition(pk, "void")

    # Running -------------------------------------------------------------------------------------------

    def _next_run(self, planned: datetime, now: datetime) -> datetime:
        """Often at the instant at which something becomes due."""
        if self.extra.random() < 0.6:
            return planned
        due = {
            instant + simulated.held_back
            for simulated in self.subscriptions
            for stretch in simulated.model.stretches("", planned)
            for instant in stretch.time
        }
        return self.extra.choice(sorted(one for one in due if now < one <= planned) or [planned])

    def _run_all(self, now: datetime) -> None:
        pick = self.extra
        if len(self.subscriptions) < 6 and pick.random() < 0.06:
            self.shift = now - datetime(2024, 1, 31, tzinfo=BEGIN.tzinfo)
            self.subscriptions.append(self._order())
            self._register_first(self.subscriptions[-1])
        only, finalize, running = self._any_options(forced=False)
        options = Options(as_of=now, only=Scope(only) if only else None, finalize=finalize, running_usage=running)
        chosen = self.subscriptions
        if pick.random() < 0.25:
            chosen = pick.sample(chosen, pick.randrange(1, len(chosen) + 1))
        self._run_some(chosen, options)
        self._after_all(now)

    def _register_first(self, simulated: SimulatedSubscription) -> None:
        if simulated.ref in self.first and self.first[simulated.ref][1].state == "paid":
            pk, calculated = self.first[simulated.ref]
            self.whole.documents[pk] = calculated

    def settle_at_last(self, simulated: SimulatedSubscription) -> None:
        """What still waits for its payment is paid."""
        if simulated.model.activation == "waiting":
            pk, first = self.first[simulated.ref]
            self._pay(simulated, pk, first, first.due - first.paid)
            self._register_first(simulated)

    def _run_last(self, now: datetime) -> None:
        for simulated in self.subscriptions:
            self.settle_at_last(simulated)
        self._run_some(self.subscriptions, Options(as_of=now))
        # What waits for a charge of the same day is made on the next day.
        while self.customer.waiting:
            now += timedelta(days=1)
            self._run_some(self.subscriptions, Options(as_of=now))

    def _run_some(self, chosen: list[SimulatedSubscription], options: Options) -> None:
        """Run the generator for these subscriptions, after a dry run, and again; compare all that it makes."""
        now, only = options.as_of, None if options.only is None else options.only.value
        self.whole.log.append(f"run {[one.ref for one in chosen]} {options}")
        before = set(Invoice.objects.filter(customer_id=self.customer_row.pk).values_list("pk", flat=True))
        dry = self._outcomes(chosen, options, dry=True) if self.extra.random() < 0.3 else None
        done = self._outcomes(chosen, options)
        assert dry is None or dry == done, f"the dry run was not the run: {dry} / {done}"
        expected: list[slow.Document] = []
        for simulated in chosen:
            model, as_of = simulated.model, now - simulated.held_back
            shares = model.is_consolidated
            made = model.bill(as_of, only=only, finalize=options.finalize and not shares, running=options.running_usage)
            simulated.last_run = as_of
            if shares:
                slow.wait(model, made, now, only, not options.finalize)
            else:
                expected += made
        expected += self._consolidated(chosen, now, only)
        known = set(self.parts.values())
        expected += [part.document for part in self.customer.waiting if part not in known]
        self._compare(before, expected)
        if self.extra.random() < 0.3:
            assert not any(self._outcomes(chosen, options).values()), "the same run twice billed something twice"
            self._compare(set(Invoice.objects.filter(customer_id=self.customer_row.pk).values_list("pk", flat=True)), [])

    def _consolidated(self, chosen: list[SimulatedSubscription], now: datetime, only: str | None) -> list[slow.Document]:
        if len(chosen) == len(self.subscriptions):
            return slow.consolidate(self.customer, now, {one.model: one.held_back for one in self.subscriptions}, only)
        # After a run of some, others may still be due, or may have to be looked at: the product says which days wait.
        waiting = Invoice.objects.filter(customer_id=self.customer_row.pk, state="draft", consolidates_on__isnull=False)
        wait = set(waiting.values_list("consolidates_on", flat=True))
        ready = sorted({part.day for part in self.customer.waiting} - wait)
        if now.astimezone(self.customer.zone).date() in ready:
            self._nobody_else_is_due(chosen, now, only)
        return [document for day in ready for document in slow.consolidate_day(self.customer, day)]

    def _nobody_else_is_due(self, chosen: list[SimulatedSubscription], now: datetime, only: str | None) -> None:
        billed = {part.of for part in self.customer.waiting if part.day == now.astimezone(self.customer.zone).date()}
        later = copy.deepcopy(self.customer)
        for simulated, model in zip(self.subscriptions, later.subscriptions, strict=True):
            if simulated not in chosen and simulated.model not in billed and model.is_consolidated:
                assert model.bill(now - simulated.held_back, only=only, finalize=False) == [], "the invoice did not wait"

    def _outcomes(
        self, chosen: list[SimulatedSubscription], options: Options, *, dry: bool = False
    ) -> dict[str, list[InvoiceSummary]]:
        """What a run says that it made, by subscription or customer; drafts that went onto an invoice are part of it."""
        done: list[outcomes.SubscriptionResult] = []
        job = runs.job_for(replace(options, dry_run=dry), subscriptions=tuple(simulated.ref for simulated in chosen))
        runs.run(job, on_done=done.append, on_tick=lambda summary: None, stop=lambda: False)
        assert all(one.outcome in OK for one in done), [(one.outcome, one.detail, one.traceback) for one in done]
        found: dict[str, list[InvoiceSummary]] = {}
        for one in done:
            found.setdefault(one.subscription or one.customer, []).extend(without_names(one))
        return {whose: made for whose, made in found.items() if made}

    # Comparing -----------------------------------------------------------------------------------------

    def _compare(self, before: set[int], expected: list[slow.Document]) -> None:
        """Compare each new document, and each draft that became one."""
        rows = list(Invoice.objects.filter(customer_id=self.customer_row.pk).order_by("id"))
        made = {
            self._whose(row): row
            for row in rows
            if row.pk not in before or (row.pk in self.parts and row.consolidates_on is None)
        }
        self.parts = {row.pk: self.parts[row.pk] for row in rows if row.pk in self.parts and row.consolidates_on is not None}
        part_of = {part.document: part for part in self.customer.waiting}
        wanted = {self._whose_of(one, one in part_of): one for one in expected}
        assert set(made) == set(wanted), (set(made) - set(wanted), set(wanted) - set(made))
        for whose, row in made.items():
            calculated = wanted[whose]
            [document] = invoice_documents([row])
            assert_same([document], [calculated])
            if calculated in part_of:
                self.parts[row.pk] = part_of[calculated]
            else:
                self.whole.documents[row.pk] = calculated
                self.whole.log.append(f"  made {row.number} {row.total_minor} {whose}")
            if len(calculated.of) > 1:
                self._lines_name_their_subscription(document, calculated)

    def _whose(self, row: Invoice) -> Whose:
        refs = InvoicedSubscription.objects.filter(invoice_id=row.pk).values_list("subscription_ref", flat=True)
        named = tuple(sorted(refs)) if row.subscription_id is None else (row.subscription_ref,)
        return named, row.currency, row.scope, row.as_of, row.consolidates_on is not None

    def _whose_of(self, calculated: slow.Document, waits: bool) -> Whose:
        refs = {simulated.model: simulated.ref for simulated in self.subscriptions}
        return tuple(sorted(refs[one] for one in calculated.of)), calculated.currency, calculated.only, calculated.as_of, waits

    def _lines_name_their_subscription(self, document: dict[str, Any], calculated: slow.Document) -> None:
        refs = {simulated.model: simulated.ref for simulated in self.subscriptions}
        assert document["subscription"] is None
        assert sorted((line["subscription"] or "", line_of_document(line)) for line in document["lines"]) == sorted(
            ("" if line.whose is None else refs[line.whose], line_of_calculator(line)) for line in calculated.lines
        )
        named = [line["subscription"] for line in document["lines"] if line["subscription"]]
        assert len(set(named)) == 1 + sum(one != other for one, other in pairwise(named)), "not by subscription"

    # Afterwards ----------------------------------------------------------------------------------------

    def _after_all(self, now: datetime) -> None:
        for _ in range(2):
            self._after(self.whole, now)
        if self.parts and self.extra.random() < 0.1:
            self._take_part_away(*self.extra.choice(list(self.parts.items())))

    def _take_part_away(self, pk: int, part: slow.Part) -> None:
        """A person finalises or deletes a draft that waits for others."""
        model, draft = part.of, part.document
        if self.extra.random() < 0.5:
            transition(pk, "finalize")
            model.finalize(draft)
            assert_same(invoice_documents([Invoice.objects.get(pk=pk)]), [draft])
            self.whole.documents[pk] = draft
        elif model.corrections(draft):
            return
        else:
            invoices.delete_draft(pk)
            model.void(draft)
        self.customer.waiting.remove(part)
        del self.parts[pk]
        self.whole.log.append(f"{pk} does not wait: {draft.state}")

    def audit(self) -> None:
        super().audit()
        for simulated in self.subscriptions:
            if simulated.ref in self.first:
                assert self._state(simulated) == simulated.model.activation


def simulate(seed: int, traits: Traits, **forms: bool) -> CustomerSimulator:
    """Run one simulation; print what was done in it when it fails."""
    simulator = CustomerSimulator(seed, traits, **forms)
    try:
        simulator.run()
    except BaseException:
        for simulated in [*simulator.subscriptions, simulator.whole]:
            print("\n".join(["", simulated.ref, *simulated.log]))
        raise
    return simulator
