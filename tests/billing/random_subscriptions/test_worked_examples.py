"""The worked examples of billing, ordered over REST and billed twice from the beginning: over REST and by the command.

`POST /v1/subscriptions/{ref}/invoices` and `manage.py generate_invoices` both have to come to the amounts in
`worked_examples.py`, and so has the dry run before each.
"""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from ledger import reads, services
from tests.billing.factories import unique
from tests.billing.random_subscriptions.worked_examples import EXAMPLES, Example, Step
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


class Ordered:
    """An example as a new subscription, ordered over REST."""

    def __init__(self, api: ApiClient, example: Example) -> None:
        self.api, self.example = api, example
        self.used: list[str] = []
        self.ref, self.customer, self.plan = unique("SUB"), unique("CUST"), unique("plan")
        currency = example.plan.get("currency", "EUR")
        customer: dict[str, Any] = {"ref": self.customer, "name": "Ada", "currency": currency}
        self.holder = unique("holder")
        granted, unit_value = example.credits or (example.holds, None)
        if granted is not None:
            services.grant(holder_id=self.holder, amount=granted, idempotency_key="first")
            customer["holder_id"] = self.holder
        if unit_value is not None:
            customer["credits"] = {"credit_type": "credits", "unit_value": unit_value}
        self._post("/v1/customers", customer)
        terms = {"currency": "EUR", "interval": {"unit": "month", "count": 1}} | example.plan
        self._post("/v1/plans", {"ref": self.plan, "name": "Plan", "prices": example.prices} | terms)
        order = {"started_at": "2026-01-01T00:00:00Z"} | example.order
        self._post("/v1/subscriptions", {"ref": self.ref, "customer": self.customer, "plan": self.plan} | order)
        for coupon in example.coupons:
            code = unique("coupon")
            self._post("/v1/coupons", {"ref": code} | coupon)
            self._post(f"/v1/customers/{self.customer}/coupons", {"coupon": code})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = self.api.post(path, body)
        assert response.status_code in (200, 201), response.content
        return response.json()

    def do(self, step: Step) -> None:
        """Something other than billing."""
        what, given = step
        if what == "amend":
            self._post(f"/v1/subscriptions/{self.ref}/amendments", given)
            return
        event = {"idempotency_key": unique("use"), "subscription": self.ref}
        if what == "correct":
            number, value = given
            key = self.used[number]
            event |= {"cancels": key} if value is None else {"corrects": key, "value": value}
        else:
            value, occurred_at, properties = given
            event |= {"meter": "calls", "value": value, "occurred_at": occurred_at, "properties": properties}
        self.used.append(event["idempotency_key"])
        response = self._post("/v1/usage-events", {"events": [event], "allow_future": True})
        assert [one["result"] for one in response["results"]] == ["accepted"]

    def bill_over_rest(self, as_of: str, running: bool) -> list[dict[str, Any]]:
        """What `POST …/invoices` makes; the dry run before it has to show the same."""
        path = f"/v1/subscriptions/{self.ref}/invoices"
        wanted = {"as_of": as_of, "running_usage": running}
        dry = self._post(path, wanted | {"dry_run": True})["invoices"]
        made: list[dict[str, Any]] = self._post(path, wanted)["invoices"]
        assert list(map(without_identity, dry)) == list(map(without_identity, made))
        return made

    def bill_by_command(self, as_of: str, running: bool) -> list[dict[str, Any]]:
        """What the command makes; the summary of the dry run before it has to be the same."""
        known = self._invoices()
        asked = ["--running-usage"] if running else []
        dry, real = self._command(as_of, "--dry-run", *asked), self._command(as_of, *asked)
        for name in ("invoices", "lines", "money", "periods", "late_usage_minor", "credits_spent_on_usage"):
            assert dry[name] == real[name]
        return [one for one in self._invoices() if one not in known]

    def _command(self, as_of: str, *more: str) -> dict[str, Any]:
        out = StringIO()
        call_command(
            "generate_invoices", "--as-of", as_of, "--subscription", self.ref, "--format", "json", "--no-progress", *more,
            stdout=out, stderr=StringIO(),
        )  # fmt: skip
        summary: dict[str, Any] = json.loads(out.getvalue())
        return summary

    def _invoices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"/v1/invoices?subscription={self.ref}").json()["results"]
        return found


def without_identity(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what a dry run cannot have: its id, number and state."""
    lines = [line | {"rating": {k: v for k, v in line["rating"].items() if k != "credits"}} for line in document["lines"]]
    return {name: value for name, value in document.items() if name not in ("id", "number", "state")} | {"lines": lines}


WAYS = ("rest", "command")
EACH_IN_TEST, EACH_IN_CHECK = 9, 3
"""Odd, so that both ways come in turn."""


def example_by_way(number: int, example: Example, way: str) -> Any:
    """Each ninth example in `make test`, each third in `make check`, with one of the two ways, in turn; all in `make prove`."""
    is_its_turn = WAYS[number % len(WAYS)] == way
    marks = [] if is_its_turn and number % EACH_IN_TEST == 0 else [pytest.mark.slow]
    if is_its_turn and number % EACH_IN_CHECK == 0:
        marks.append(pytest.mark.check)
    return pytest.param(example, way, id=f"{way}-{example.name}", marks=marks)


@pytest.mark.parametrize(
    ("example", "billed_by"), [example_by_way(number, example, way) for number, example in enumerate(EXAMPLES) for way in WAYS]
)
def test_worked_example(api: ApiClient, example: Example, billed_by: str) -> None:
    ordered = Ordered(api, example)
    made: list[dict[str, Any]] = []
    for step in example.steps:
        if step[0] in ("bill", "bill so far"):
            bill = ordered.bill_over_rest if billed_by == "rest" else ordered.bill_by_command
            made = bill(step[1], step[0] == "bill so far")
        else:
            ordered.do(step)

    [invoice] = made
    lines = [(line["kind"], line["price_key"], line["amount_minor"]) for line in invoice["lines"]]
    assert sorted(lines, key=str) == sorted(example.lines, key=str)
    due = example.total if example.due is None else example.due
    assert (invoice["discount_minor"], invoice["tax_minor"]) == (example.discount, example.tax)
    assert (invoice["total_minor"], invoice["amount_due_minor"]) == (example.total, due)
    if example.left is not None:
        assert reads.balance(ordered.holder).available == example.left
    if example.starts is not None:
        assert [line["period"]["start"] for line in invoice["lines"]] == [f"{start}:00.000000Z" for start in example.starts]
