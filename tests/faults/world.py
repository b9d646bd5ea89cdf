"""Requests of all kinds that write: what is asked next, from what was answered before.

Every name that is sent contains a token, so that a name in a response can be told from those of its own request.
"""

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.billing.factories import metered, recurring

HOT: Final = 6
"""How many holders are used at the same time: few, so that the processes wait for each other."""
PER_SET: Final = 300
"""After how many requests others are used: the lots of an account are limited."""
SHARES: Final = {"ledger": 0.6, "billing": 0.4}
MONTHS: Final = 10

Body = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request. `about` is the token of what it is about, which a response may name although the request does not."""

    kind: str
    method: str
    path: str
    body: Body
    key: str
    about: str = ""


@dataclass
class World:
    """What the clients know together. A method for each kind of request returns it, or None if nothing is there to ask for."""

    run: str
    """Six hexadecimal digits that no other run has."""
    related: dict[str, str] = field(default_factory=dict)
    """The holder that pays for a customer, by the customer's token."""
    number: int = 0
    """Of the request that was made last."""
    _count: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name what all share."""
        self.shared = self.token()
        self.token_pattern = re.compile(f"f{self.run}[0-9a-f]{{6}}")
        self.key_pattern = re.compile(f"k\\.f{self.run}[0-9a-f]{{6}}".encode())

    def token(self) -> str:
        """Return a part of a name that no other name has."""
        with self._guard:
            self._count += 1
            return f"f{self.run}{self._count:06x}"

    def holders(self, number: int) -> list[str]:
        """Return the holders that are used for the request of this number."""
        return [f"h.f{self.run}e{number // PER_SET:03x}{index:02x}" for index in range(HOT)]

    def next(self, number: int, chance: random.Random) -> Asked:
        """Return the next request: of a kind that is possible."""
        self.number = number
        while True:
            kinds = KINDS["ledger" if chance.random() < SHARES["ledger"] else "billing"]
            asked = chance.choice(kinds)(self, self.holders(number), chance)
            if asked is not None:
                return asked

    def learn(self, asked: Asked, body: Any) -> None:
        """Remember what a response made possible."""
        match asked.kind:
            case "spend":
                self._add("spends", (body["holder_id"], body["sequence"]))
            case "hold":
                self._add("holds", (body["holder_id"], body["sequence"]))
            case "customer" | "subscription":
                self._add(asked.kind, asked.about)
            case "coupon":
                self._add("coupon", asked.about)
            case "coupon given":
                self._add("given", (asked.about, body["coupon"]))
            case "grant":
                self._add("grants", (body["holder_id"], body["sequence"]))
            case "invoices" | "finalize" | "pay":
                for invoice in body.get("invoices", [body]):
                    self._add(invoice["state"], (invoice["id"], asked.about))

    def own_names(self, asked: Asked) -> set[str]:
        """Return the tokens that a response to the request may name."""
        named = f"{asked.path} {asked.body} {asked.key} {asked.about} {self.related.get(asked.about)} {self.shared}"
        return set(self.token_pattern.findall(named))

    def ask(self, kind: str, path: str, body: Body, *, method: str = "POST", about: str = "") -> Asked:
        """Return a request with a new key."""
        return Asked(kind, method, path, body, f"k.{self.token()}", about)

    def _add(self, name: str, value: Any) -> None:
        with self._guard:
            self._known.setdefault(name, []).append(value)

    def _take(self, name: str, chance: random.Random, *, keep: bool = False) -> Any:
        with self._guard:
            found = self._known.get(name)
            if not found:
                return None
            index = chance.randrange(len(found))
            return found[index] if keep else found.pop(index)

    # The ledger ----------------------------------------------------------------------------------------

    def grant(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask("grant", f"/v1/holders/{chance.choice(holders)}/grants", {"amount": 100_000})

    def spend(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask("spend", f"/v1/holders/{chance.choice(holders)}/spends", {"amount": chance.randint(1, 5)})

    def too_large_spend(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask("too large spend", f"/v1/holders/{chance.choice(holders)}/spends", {"amount": 10**15})

    def refund(self, holders: list[str], chance: random.Random) -> Asked | None:
        spent = self._take("spends", chance)
        return spent and self.ask("refund", f"/v1/holders/{spent[0]}/refunds", {"spend": spent[1]})

    def revocation(self, holders: list[str], chance: random.Random) -> Asked | None:
        granted = self._take("grants", chance)
        return granted and self.ask("revocation", f"/v1/holders/{granted[0]}/revocations", {"grant": granted[1], "amount": 1})

    def hold(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask("hold", f"/v1/holders/{chance.choice(holders)}/holds", {"amount": 1})

    def capture(self, holders: list[str], chance: random.Random) -> Asked | None:
        held = self._take("holds", chance)
        path = chance.choice(("captures", "release"))
        return held and self.ask("capture", f"/v1/holders/{held[0]}/holds/{held[1]}/{path}", {})

    def overdraft(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask(
            "overdraft", f"/v1/holders/{chance.choice(holders)}/overdraft", {"limit": chance.randint(0, 9)}, method="PUT"
        )

    def transfer(self, holders: list[str], chance: random.Random) -> Asked:
        one, other = chance.sample(holders, 2)
        return self.ask("transfer", f"/v1/holders/{one}/transfers", {"to": other, "amount": 1})

    def batch(self, holders: list[str], chance: random.Random) -> Asked:
        spends = [{"operation": "spend", "holder": chance.choice(holders), "amount": 1} for _ in range(chance.randint(1, 90))]
        return self.ask("batch", "/v1/batches", {"mode": chance.choice(("atomic", "each")), "operations": spends})

    def rate(self, holders: list[str], chance: random.Random) -> Asked:
        return self.ask("rate", "/v1/rates", {"ref": f"r.{self.shared}", "price": chance.randint(1, 9), "per": 1000})

    # Billing -------------------------------------------------------------------------------------------

    def plan(self, holders: list[str], chance: random.Random) -> Asked:
        body = {
            "ref": f"p.{self.shared}", "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1},
            "prices": [recurring(tax_rate="20"), metered(tax_rate="20")],
        }  # fmt: skip
        return self.ask("plan", "/v1/plans", body)

    def coupon(self, holders: list[str], chance: random.Random) -> Asked:
        token = self.token()
        body = {"ref": f"u.{token}", "kind": "percentage", "value": "10", "duration": "forever"}
        return self.ask("coupon", "/v1/coupons", body, about=token)

    def customer(self, holders: list[str], chance: random.Random) -> Asked:
        token = self.token()
        body: Body = {"ref": f"c.{token}", "name": "Ada", "currency": "EUR"}
        if chance.random() < 0.5:
            holder = self.related[token] = chance.choice(holders)
            body |= {"holder_id": holder, "credits": {"credit_type": "credits", "unit_value": "0.01"}}
        return self.ask("customer", "/v1/customers", body, about=token)

    def change(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("customer", chance, keep=True)
        return token and self.ask("change", f"/v1/customers/c.{token}", {"name": "Bea"}, method="PATCH", about=token)

    def coupon_given(self, holders: list[str], chance: random.Random) -> Asked | None:
        token, coupon = self._take("customer", chance, keep=True), self._take("coupon", chance, keep=True)
        if token is None or coupon is None:
            return None
        return self.ask("coupon given", f"/v1/customers/c.{token}/coupons", {"coupon": f"u.{coupon}"}, about=token)

    def coupon_taken(self, holders: list[str], chance: random.Random) -> Asked | None:
        given = self._take("given", chance)
        path = given and f"/v1/customers/c.{given[0]}/coupons/{given[1]}"
        return given and self.ask("coupon taken", path, {}, method="DELETE", about=given[0])

    def subscription(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("customer", chance)
        body = {"ref": f"s.{token}", "customer": f"c.{token}", "plan": f"p.{self.shared}", "started_at": "2026-01-01T00:00:00Z"}
        return token and self.ask("subscription", "/v1/subscriptions", body, about=token)

    def amendment(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("subscription", chance, keep=True)
        body = {"effective_at": f"2026-{chance.randint(2, MONTHS):02}-15T00:00:00Z", "quantities": {"base": chance.randint(1, 4)}}
        return token and self.ask("amendment", f"/v1/subscriptions/s.{token}/amendments", body, about=token)

    def charge(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("subscription", chance, keep=True)
        body = {"amount_minor": 500, "description": "Setup", "tax_rate": "20"}
        return token and self.ask("charge", f"/v1/subscriptions/s.{token}/charges", body, about=token)

    def usage(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("subscription", chance, keep=True)
        events = [
            {
                "idempotency_key": f"e.{self.token()}", "subscription": f"s.{token}", "meter": "calls", "value": 10,
                "occurred_at": f"2026-{chance.randint(1, MONTHS):02}-10T00:00:00Z",
            }
            for _ in range(3)
        ]  # fmt: skip
        return token and self.ask("usage", "/v1/usage-events", {"events": events}, about=token)

    def invoices(self, holders: list[str], chance: random.Random) -> Asked | None:
        token = self._take("subscription", chance, keep=True)
        body = {"as_of": f"2026-{chance.randint(1, MONTHS):02}-01T00:00:00Z", "finalize": chance.random() < 0.7}
        return token and self.ask("invoices", f"/v1/subscriptions/s.{token}/invoices", body, about=token)

    def deletion(self, holders: list[str], chance: random.Random) -> Asked | None:
        found = self._take("draft", chance)
        return found and self.ask("deletion", f"/v1/invoices/{found[0]}", {}, method="DELETE", about=found[1])

    def finalize(self, holders: list[str], chance: random.Random) -> Asked | None:
        return self._of_invoice("draft", "finalize", {}, chance)

    def settle_invoice(self, holders: list[str], chance: random.Random) -> Asked | None:
        what = chance.choice(("pay", "void", "mark-uncollectible"))
        return self._of_invoice(chance.choice(("open", "paid")), what, {"reason": "by hand"}, chance)

    def credit_note(self, holders: list[str], chance: random.Random) -> Asked | None:
        return self._of_invoice(chance.choice(("open", "paid")), "credit-notes", {"reason": "by hand"}, chance)

    def _of_invoice(self, state: str, what: str, body: Body, chance: random.Random) -> Asked | None:
        found = self._take(state, chance)
        return found and self.ask(what, f"/v1/invoices/{found[0]}/{what}", body, about=found[1])


Kind = Callable[[World, list[str], random.Random], Asked | None]
KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "ledger": (
        World.grant, World.spend, World.spend, World.spend, World.spend, World.too_large_spend, World.refund, World.hold,
        World.revocation,        World.capture, World.overdraft, World.transfer, World.batch, World.rate,
    ),
    "billing": (
        World.plan, World.coupon, World.customer, World.customer, World.change, World.coupon_given,
        World.coupon_taken, World.deletion, World.subscription, World.amendment, World.charge,
        World.usage, World.invoices, World.invoices, World.finalize, World.settle_invoice, World.credit_note,
    ),
}  # fmt: skip
