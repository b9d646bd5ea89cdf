"""What some pages of the docs need to be there, such as an invoice to print. Made over REST before the page runs."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final


class Caller:
    """Calls the ledger of a page, each write under its own key."""

    def __init__(self, environment: Mapping[str, str], page: str) -> None:
        self._url, self._key, self._page, self._calls = environment["LEDGER"], environment["KEY"], page, 0

    def write(self, path: str, body: dict[str, Any], method: str = "POST") -> dict[str, Any]:
        """What a write answers."""
        self._calls += 1
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"scene-{self._page.replace('/', '-')}-{self._calls}",
        }
        request = urllib.request.Request(f"{self._url}/{path}", json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


def first_of_month(before: int = 0) -> datetime:
    """The start of this month, or of one before."""
    day = datetime.now(UTC).date().replace(day=1)
    for _ in range(before):
        day = date.replace(day - timedelta(days=1), day=1)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def customer_of(call: Caller, ref: str, **fields: Any) -> str:
    """A customer; its reference."""
    address = {"line1": "Marktplatz 1", "postal_code": "10115", "city": "Berlin", "country": "DE"}
    call.write("customers", {"ref": ref, "name": "Ada Lovelace", "currency": "EUR", "address": address} | fields)
    return ref


def one_off_invoice(call: Caller, customer: str) -> int:
    """The id of an open invoice of 10.00 and its tax."""
    line = {"description": "Set-up", "unit_amount": "10.00", "tax_rate": "20"}
    return int(call.write(f"customers/{customer}/invoices", {"lines": [line]})["id"])


def subscribed(call: Caller, customer: str, subscription: str, plan: str) -> None:
    """A subscription of two months ago, at 10.00 a month and 0.02 per call, with 150 calls in its first month."""
    month = {"unit": "month", "count": 1}
    prices = [
        {"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10.00", "tax_rate": "20"},
        {
            "key": "calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.02", "meter": "calls",
            "aggregation": "sum", "tax_rate": "20",
        },
    ]  # fmt: skip
    call.write("plans", {"ref": plan, "name": "Basic", "currency": "EUR", "interval": month, "prices": prices})
    started_at = first_of_month(2)
    terms = {"ref": subscription, "customer": customer, "plan": plan, "started_at": started_at.isoformat()}
    call.write("subscriptions", terms)
    event = {
        "idempotency_key": f"{subscription}-calls", "subscription": subscription, "meter": "calls", "value": "150",
        "occurred_at": (started_at + timedelta(days=9)).isoformat(),
    }  # fmt: skip
    call.write("usage-events", {"events": [event]})


def _reference(call: Caller) -> dict[str, str]:
    customer = customer_of(call, "CUST-7")
    subscribed(call, customer, "SUB-1234", "basic")
    as_of = {"as_of": first_of_month(1).isoformat()}
    [invoice] = call.write("subscriptions/SUB-1234/invoices", as_of)["invoices"]
    call.write(f"invoices/{invoice['id']}/pay", {})
    as_of = {"as_of": first_of_month().isoformat(), "finalize": False}
    [draft] = call.write("subscriptions/SUB-1234/invoices", as_of)["invoices"]
    paid = one_off_invoice(call, customer_of(call, "CUST-10"))
    call.write(f"invoices/{paid}/pay", {})
    call.write(f"invoices/{paid}/credit-notes", {"reason": "Not done"})
    return {"INVOICE": str(invoice["id"]), "DRAFT": str(draft["id"])}


def _reminded(call: Caller) -> dict[str, str]:
    """An open invoice of a customer with an address of e-mail."""
    return {"INVOICE": str(one_off_invoice(call, customer_of(call, "CUST-8", holder_id="reminded", email="ada@example.com")))}


def _erased(call: Caller) -> dict[str, str]:
    one_off_invoice(call, customer_of(call, "CUST-9"))
    return {}


SCENES: Final[dict[str, Callable[[Caller], dict[str, str]]]] = {
    "reference/api.md": _reference,
    "how-to/dunning.md": _reminded,
    "how-to/operations/security.md": _erased,
}
"""Of each page that needs one, what makes its scene; it returns the variables of the page."""


def before(page: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Make the scene of a page; return the variables that its commands name."""
    scene = SCENES.get(page)
    return {} if scene is None else scene(Caller(environment, page))
