"""Worked examples of customers with several subscriptions: invoices that they share, and starts that wait for their payment.

Each is ordered over REST and billed twice from the beginning: over REST, subscription by subscription, and by the command.
Amounts are in minor units.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.utils import timezone

from billing.auditing import consistency
from billing.generator import activations
from tests.billing.factories import metered, recurring, unique
from tests.billing.random_subscriptions.worked_examples import Price, Step, bill
from tests.ledger.rest.conftest import ApiClient
from tests.parts import spread

pytestmark = pytest.mark.django_db

Made = tuple[str, list[tuple[int | None, str, int]], int, int]
"""An invoice: its state, its lines (which subscription, kind, amount), its tax, and what is due."""
WAITS = {"starts_when_paid": True}


@dataclass(frozen=True)
class CustomerExample:
    """What a customer orders, what happens, and all invoices of the customer afterwards, by number.

    Args:
        orders: prices and other terms of each subscription.
        plan: what differs from a monthly plan in EUR.
    """

    name: str
    orders: list[tuple[list[Price], dict[str, Any]]]
    steps: list[Step]
    made: list[Made]
    shares: bool = True
    plan: dict[str, Any] = field(default_factory=dict)
    coupon: dict[str, Any] | None = None


def fee(amount: str, **more: Any) -> tuple[list[Price], dict[str, Any]]:
    """An order of a fee a month, with calls."""
    order = {name: more.pop(name) for name in ("starts_when_paid", "started_at") if name in more}
    return [recurring(unit_amount=amount, **more), metered(**more)], order


def use(number: int, value: str, day: str) -> Step:
    """Calls of a subscription by its number."""
    return "use", (number, value, f"2026-{day}T12:00:00Z")


def end(number: int, day: str) -> Step:
    """The end of a subscription."""
    return "amend", (number, {"effective_at": f"2026-{day}T00:00:00Z", "ends_at": f"2026-{day}T00:00:00Z"})


EXAMPLES = [
    # 20 % of 30.07 is 6.014; of each alone 2.006 and 4.008.
    CustomerExample("one tax on the sum", [fee("10.03", tax_rate="20"), fee("20.04", tax_rate="20")], [bill("01-01")],
        [("open", [(0, "recurring", 1003), (1, "recurring", 2004)], 601, 3608)]),
    # 29.97 / 1.19 is 25.18: 8.39, 16.79 less 8.39, 25.18 less 16.79; tax 4.78, and 0.01 is rounding.
    CustomerExample("tax that prices include", [fee("9.99", tax_rate="19")] * 3, [bill("01-01")],
        [("open", [(0, "recurring", 839), (1, "recurring", 840), (2, "recurring", 839)], 478, 2997)],
        plan={"tax_behavior": "inclusive"}),
    # 21 of 31 days go back: -21.00 and 20.00 with 20 % are -1.20 together, which is carried.
    CustomerExample("credits and charges are netted", [fee("31.00", tax_rate="20"), fee("20.00", tax_rate="20")],
        [bill("01-01"), end(0, "01-11"), bill("02-01")],
        [("open", [(0, "recurring", 3100), (1, "recurring", 2000)], 1020, 6120),
         ("paid", [(0, "credit", -2100), (1, "recurring", 2000), (None, "carried", 100)], 0, 0)]),
    # The credit of 01-11 has an invoice for itself; on 02-01 it pays 20.00 of the 20.00.
    CustomerExample("credit of one pays for the other", [fee("31.00"), fee("20.00")],
        [bill("01-01"), end(0, "01-11"), bill("01-11"), bill("02-01")],
        [("open", [(0, "recurring", 3100), (1, "recurring", 2000)], 0, 5100),
         ("paid", [(0, "credit", -2100), (0, "carried", 2100)], 0, 0), ("paid", [(1, "recurring", 2000)], 0, 0)]),
    CustomerExample("late, all months are on one invoice", [fee("10.00"), fee("20.00")], [use(1, "50", "01-05"), bill("02-01")],
        [("open", [(0, "recurring", 1000), (0, "recurring", 1000), (1, "recurring", 2000), (1, "recurring", 2000),
          (1, "usage", 100)], 0, 6100)]),
    # Half of 10.01 is 5.01, half of 20.01 is 10.01: each subscription rounds by itself, and 15.00 of 30.02 are left.
    CustomerExample("a coupon lowers each subscription", [fee("10.01"), fee("20.01")], [bill("01-01")],
        [("open", [(0, "recurring", 1001), (1, "recurring", 2001)], 0, 1500)],
        coupon={"kind": "percentage", "value": "50", "duration": "recurring", "periods": 1}),
    CustomerExample("who starts on another day has an invoice alone",
        [fee("10.00"), fee("20.00"), fee("40.00", started_at="2026-01-02T00:00:00Z")], [bill("01-01"), bill("01-02")],
        [("open", [(0, "recurring", 1000), (1, "recurring", 2000)], 0, 3000), ("open", [(2, "recurring", 4000)], 0, 4000)]),
    CustomerExample("paid in time, then billed with its calls", [fee("30.00", **WAITS)],
        [bill("01-15"), use(0, "100", "01-05"), ("pay", (0, 3000)), bill("02-01")],
        [("paid", [(0, "recurring", 3000)], 0, 3000), ("open", [(0, "recurring", 3000), (0, "usage", 200)], 0, 3200)],
        shares=False),
    # 10.00 of the 30.00 came: it is credit, and pays 10.00 of the 20.00.
    CustomerExample("paid in part, and expired", [fee("30.00", **WAITS), fee("20.00")],
        [("pay", (0, 1000)), ("expire", 0), bill("01-01"), bill("01-15")],
        [("paid", [(0, "recurring", 3000)], 0, 1000), ("open", [(1, "recurring", 2000)], 0, 1000)], shares=False),
    CustomerExample("canceled, and paid too late", [fee("30.00", **WAITS), fee("20.00")],
        [("cancel", 0), ("pay", (0, 3000)), bill("01-01")],
        [("void", [(0, "recurring", 3000)], 0, 3000), ("paid", [(1, "recurring", 2000)], 0, 0)], shares=False),
    # 35.00 came for 30.00: 5.00 pays a part of the invoice that both share from February on.
    CustomerExample("a separate first invoice, later ones are shared", [fee("30.00", **WAITS), fee("20.00")],
        [bill("01-01"), ("pay", (0, 3500)), bill("02-01")],
        [("paid", [(0, "recurring", 3000)], 0, 3000), ("open", [(1, "recurring", 2000)], 0, 2000),
         ("open", [(0, "recurring", 3000), (1, "recurring", 2000)], 0, 4500)]),
]  # fmt: skip


class Ordered:
    """The subscriptions of an example, ordered over REST."""

    def __init__(self, api: ApiClient, example: CustomerExample) -> None:
        self.api, self.customer = api, unique("CUST")
        terms = {"ref": self.customer, "name": "Ada", "currency": "EUR", "consolidated_invoicing": example.shares}
        self._post("/v1/customers", terms)
        if example.coupon is not None:
            code = unique("coupon")
            self._post("/v1/coupons", {"ref": code} | example.coupon)
            self._post(f"/v1/customers/{self.customer}/coupons", {"coupon": code})
        self.refs: list[str] = []
        self.first: dict[int, int] = {}
        for number, (prices, more) in enumerate(example.orders):
            plan = {"ref": unique("plan"), "name": "Plan", "currency": "EUR", "interval": {"unit": "month", "count": 1}}
            self._post("/v1/plans", plan | {"prices": prices} | example.plan)
            self.refs.append(unique("SUB"))
            order = {"ref": self.refs[-1], "customer": self.customer, "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z"}
            activation = self._post("/v1/subscriptions", order | more).get("activation")
            if activation is not None:
                self.first[number] = activation["invoice"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = self.api.post(path, body)
        assert response.status_code in (200, 201), response.content
        return response.json()

    def do(self, step: Step) -> None:
        """Something other than billing."""
        match step:
            case "use", (number, value, occurred_at):
                event = {"idempotency_key": unique("use"), "subscription": self.refs[number], "meter": "calls"}
                events = [event | {"value": value, "occurred_at": occurred_at}]
                [taken] = self._post("/v1/usage-events", {"events": events, "allow_future": True})["results"]
                assert taken["result"] == "accepted"
            case "amend", (number, wish):
                self._post(f"/v1/subscriptions/{self.refs[number]}/amendments", wish)
            case "pay", (number, amount):
                self._post("/v1/payments", {"invoice": self.first[number], "payment": unique("pay"), "amount_minor": amount})
            case "cancel", number:
                self._post(f"/v1/subscriptions/{self.refs[number]}/cancel", {})
            case "expire", _:
                with mock.patch.object(activations, "present", return_value=timezone.now() + timedelta(days=31)):
                    assert activations.expire(self.refs[step[1]]) is not None

    def bill_over_rest(self, as_of: str) -> None:
        for ref in self.refs:
            self._post(f"/v1/subscriptions/{ref}/invoices", {"as_of": as_of})

    def bill_by_command(self, as_of: str) -> None:
        chosen = (word for ref in self.refs for word in ("--subscription", ref))
        call_command("generate_invoices", "--as-of", as_of, *chosen, "--no-progress", stdout=StringIO(), stderr=StringIO())

    def made(self) -> list[Made]:
        """All invoices of the customer, by number."""
        number = {ref: index for index, ref in enumerate(self.refs)}
        found = self.api.get(f"/v1/invoices?customer={self.customer}").json()["results"]
        return [
            (
                one["state"],
                [(number.get(line["subscription"]), line["kind"], line["amount_minor"]) for line in one["lines"]],
                one["tax_minor"],
                one["amount_due_minor"],
            )
            for one in sorted(found, key=lambda one: one["number"])
        ]


@pytest.mark.parametrize("example", spread(EXAMPLES, test=EXAMPLES[::3], check=EXAMPLES), ids=lambda example: example.name)
@pytest.mark.parametrize("billed_by", spread(["rest", "command"], test=["rest"]))
def test_worked_customer(api: ApiClient, example: CustomerExample, billed_by: str) -> None:
    ordered = Ordered(api, example)
    for step in example.steps:
        if step[0] == "bill":
            (ordered.bill_over_rest if billed_by == "rest" else ordered.bill_by_command)(step[1])
        else:
            ordered.do(step)
    assert ordered.made() == example.made
    assert consistency.check() == []
