"""A dry run, then the run: every document the same, whatever the subscriptions of a customer share.

A life is its seed. The dry run is that of the command, over all subscriptions of the customer; the run bills them in that order.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing import reads
from billing.auditing import consistency
from billing.errors import InvalidTransition, InvoiceCorrectedLater
from billing.generator.options import Options
from billing.generator.run import outcomes, runs
from billing.models import Customer, Invoice, Subscription
from billing.orders import coupons
from billing.orders.customers import NewCredits
from billing.rating.periods import Interval, IntervalUnit
from ledger import services
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    at,
    metered,
    recurring,
    transition,
    unique,
    use,
)
from tests.billing.random_subscriptions.simulator import Simulator, Traits
from tests.parts import spread

pytestmark = pytest.mark.django_db

NEW = {"id", "number", "state"}
"""What a dry run does not give."""
KEPT = (
    "ledger_entry",
    "billing_invoice",
    "billing_line",
    "billing_claim",
    "billing_cursor",
    "billing_couponuse",
    "billing_creditnote",
)


def shown(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what only a run gives."""
    return {name: value for name, value in document.items() if name not in NEW}


def rows() -> list[tuple[int, Any]]:
    """How many rows there are of what a run writes, and the versions of the newest."""
    found = []
    with connection.cursor() as cursor:
        for table in KEPT:
            cursor.execute(f"SELECT count(*), max(xmin::text::bigint) FROM {table}")
            found.append(cursor.fetchone())
    return found


def dry_run(refs: list[str], now: datetime) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The documents that the command's dry run shows, and its sums; asserts that nothing was written."""
    documents: list[dict[str, Any]] = []

    def render(invoice_id: int) -> dict[str, Any]:
        documents.append(shown(reads.invoice_document(invoice_id)))
        return documents[-1]

    before = rows()
    sums = run(refs, Options(as_of=now, dry_run=True, render=render))
    assert rows() == before
    return documents, sums


def run(refs: list[str], options: Options) -> dict[str, Any]:
    """The sums of a run over these subscriptions."""
    job = runs.job_for(options, subscriptions=tuple(refs))
    done: list[outcomes.SubscriptionResult] = []
    figures = runs.run(job, on_done=done.append, on_tick=lambda summary: None, stop=lambda: False).as_dict()
    assert not [(one.detail, one.traceback) for one in done if one.outcome not in ("finalised", "created", "nothing_due")]
    return {
        name: figures[name] for name in ("outcomes", "money", "lines", "credits_granted", "credits_spent_on_usage", "periods")
    }


def made_by(act: Callable[[], Any]) -> list[dict[str, Any]]:
    """The documents that a run makes, in its order."""
    last = Invoice.objects.order_by("-id").values_list("id", flat=True).first() or 0
    act()
    return [
        shown(reads.invoice_document(pk))
        for pk in Invoice.objects.filter(id__gt=last).order_by("id").values_list("id", flat=True)
    ]


class DryRunFirst(Simulator):
    """The simulation of `test_random_subscriptions.py`, each run after a dry run over all subscriptions."""

    def _run_all(self, now: datetime) -> None:
        documents, _ = dry_run([simulated.ref for simulated in self.subscriptions], now)
        made = [
            document
            for simulated in self.subscriptions
            for document in made_by(lambda simulated=simulated: self._run(simulated, now, forced=True))  # type: ignore[misc]
        ]
        assert documents == made
        for simulated in self.subscriptions:
            self._after(simulated, now)


class SharedCredits:
    """A customer whose subscriptions share credits, allowances and coupons; some with a grace, which rates drafts again."""

    def __init__(self, seed: int) -> None:
        pick = self.random = random.Random(seed)
        self.holder = unique("holder")
        pays = pick.random() < 0.7
        self.customer: Customer = CustomerFactory(
            holder_id=self.holder, grace_days=pick.choice((0, 0, 0, 5, 20)),
            credits=NewCredits(credit_type="credits", unit_value=Decimal(pick.choice(("0.01", "0.07", "1")))) if pays else None,
        )  # fmt: skip
        services.grant(holder_id=self.holder, amount=pick.choice((1, 300, 5_000)), idempotency_key="first")
        if pick.random() < 0.2:
            services.set_overdraft(holder_id=self.holder, limit=500, idempotency_key="overdraft")
        plans = [self._plan() for _ in range(2)]
        self.subscriptions: list[Subscription] = [
            SubscriptionFactory(customer=self.customer.ref, plan=pick.choice(plans)) for _ in range(pick.choice((1, 2, 3, 5)))
        ]

    def _plan(self) -> str:
        pick = self.random
        per_unit = pick.choice(("1", "2.5", "0.3"))
        prices = [metered(credits={"per_unit": per_unit}), recurring(tax_rate="20", unit_amount=pick.choice(("3.33", "20.00")))]
        if pick.random() < 0.4:
            prices.append(metered("mails", aggregation="count", minimum="1.50"))
        allowance = None
        if pick.random() < 0.6:
            # Allowances that pay for usage or invoices, that expire, or that roll over.
            cap = pick.choice((None, None, 0, 50))
            allowance = {"credit_type": "credits", "amount": pick.choice((20, 100, 1_000)), "rollover_cap": cap}
        plan = PlanFactory(prices=prices, allowance=allowance, interval=Interval(IntervalUnit.MONTH, pick.choice((1, 1, 2))))
        return str(plan.code)

    def live(self) -> None:
        """Use, buy, spend, void and bill for a year; each run is the dry run before it."""
        for month in range(2, 13):
            self._change(month)
            if self.random.random() < 0.3:
                continue
            self._bill(at(month, self.random.choice((1, 1, 9, 27))))
            if self.random.random() < 0.3:
                self._void()
        # Of what was voided last, too.
        self._bill(at(1, year=2027))

    def _bill(self, now: datetime) -> None:
        refs = [one.ref for one in self.subscriptions]
        documents, sums = dry_run(refs, now)
        real: dict[str, Any] = {}
        made = made_by(lambda: real.update(run(refs, Options(as_of=now))))
        assert documents == made
        assert sums == real

    def _change(self, month: int) -> None:
        pick = self.random
        for subscription in self.subscriptions:
            for _ in range(pick.choice((0, 1, 3))):
                # Late, negative, or of the month that is over.
                past = max(1, month - pick.choice((1, 1, 1, 2)))
                use(
                    subscription,
                    str(pick.choice((1, 7, 60, 150, -5))),
                    at(past, pick.randrange(1, 28)),
                    pick.choice(("calls", "mails")),
                )
        if pick.random() < 0.5:
            services.grant(
                holder_id=self.holder, amount=pick.randrange(1, 900), idempotency_key=unique("grant"),
                priority=pick.choice((1, 100)), source=pick.choice(("purchased", "promotional")),
            )  # fmt: skip
        if pick.random() < 0.3:
            self._give_coupon()

    def _give_coupon(self) -> None:
        pick = self.random
        terms: dict[str, Any] = pick.choice(
            (
                {"kind": "percentage", "value": Decimal(25), "duration": "once"},
                {"kind": "percentage", "value": Decimal(10), "duration": "recurring", "periods": 2},
                {"kind": "amount", "value": Decimal("7.77"), "currency": "EUR", "duration": "once"},
                {"kind": "amount", "value": Decimal("1.00"), "currency": "EUR", "duration": "forever"},
            )
        )
        code = coupons.create_coupon(code=unique("coupon"), **terms).code
        coupons.give_coupon(
            customer_id=self.customer.pk, customer_ref=self.customer.ref, customer_currency=self.customer.currency, code=code
        )

    def _void(self) -> None:
        mine = Invoice.objects.filter(customer_id=self.customer.pk, state="open").order_by("-id").values_list("id", flat=True)
        if mine:
            with suppress(InvalidTransition, InvoiceCorrectedLater):
                transition(self.random.choice(list(mine)[:3]), "void")


def live_with_shared_credits(seed: int) -> None:
    """Live one life, and audit it."""
    SharedCredits(seed).live()
    # The last run as of an instant of the past leaves drafts whose grace is over by the clock.
    assert [one for one in consistency.check() if one["finding"] != "draft past its grace"] == []


@pytest.mark.parametrize("seed", spread(range(6), test=[5]))
def test_a_dry_run_over_shared_credits_is_the_run(seed: int) -> None:
    live_with_shared_credits(seed)


def test_a_dry_run_of_named_subscriptions_pays_in_the_order_in_which_they_are_named() -> None:
    holder, plan = unique("holder"), PlanFactory(prices=[recurring()]).code
    services.grant(holder_id=holder, amount=500, idempotency_key="first")
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(unit_value=Decimal("0.01")))
    refs = [SubscriptionFactory(customer=customer.ref, plan=plan).ref for _ in range(2)][::-1]
    documents, _ = dry_run(refs, at(1))
    assert documents == made_by(lambda: run(refs, Options(as_of=at(1))))
    assert [(one["subscription"], one["credits_applied_minor"]) for one in documents] == [(refs[0], 500), (refs[1], 0)]


@pytest.mark.parametrize("seed", spread(range(5_000, 5_003), test=(), check=()))
def test_a_dry_run_of_random_subscriptions_is_the_run(seed: int) -> None:
    DryRunFirst(seed, Traits(scopes=False, drafts=False, months=12)).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 256))
def test_many_dry_runs_over_shared_credits_are_the_runs(seed: int) -> None:
    live_with_shared_credits(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6_000, 6_250))
def test_many_dry_runs_of_random_subscriptions_are_the_runs(seed: int) -> None:
    DryRunFirst(seed, Traits(scopes=False, drafts=False)).run()
