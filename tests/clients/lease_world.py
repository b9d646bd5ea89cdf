"""A ledger of a few lines, and a lease beside it that lives a random life: its steps are the cases of both languages.

`python -m tests.clients.lease_world` writes them to lease_cases.json.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, Final

from credit_ledger.journal import Journal
from credit_ledger.lease_state import Batch, LeaseExhausted, LeaseState, Terms, UnitPrice, use_of

CASES: Final = Path(__file__).with_name("lease_cases.json")
PRICES: Final = {"input": UnitPrice(1, 3), "output": UnitPrice(2, 1)}
EPOCH: Final = datetime(2027, 1, 1, tzinfo=UTC)
STEPS: Final = 120


def problem(status: int, slug: str, **facts: Any) -> dict[str, Any]:
    """The result of an operation that is refused."""
    body = {"type": f"https://x/problems/{slug}", "title": "No", "status": status, "outcome": "not_executed", **facts}
    return {"status": status, "problem": body}


@dataclass
class Ledger:
    """Credits of one account by single steps; its clock is apart from that of the gateway."""

    available: int
    skew_ms: int
    spent: int = 0
    sequence: int = 0
    holds: dict[int, list[int]] = field(default_factory=dict)
    """What each hold still holds, and when it expires by the clock of the ledger."""
    done: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def expire(self, now_ms: int) -> None:
        """Free what has expired."""
        for sequence in [each for each, (_, expires_ms) in self.holds.items() if expires_ms <= now_ms + self.skew_ms]:
            self.available += self.holds.pop(sequence)[0]

    def execute(self, batch: Batch, now_ms: int) -> list[dict[str, Any]]:
        """The results of a batch, the first ones again if it comes again."""
        if batch.key not in self.done:
            self.expire(now_ms)
            self.done[batch.key] = [self._result(operation, now_ms + self.skew_ms) for operation in batch.operations]
        return self.done[batch.key]

    def _result(self, operation: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        kind = operation["operation"]
        if operation.get("idempotency_key") in self.keys:
            return problem(422, "idempotency-key-reused")
        if kind in ("capture", "release", "extend") and operation["hold"] not in self.holds:
            return problem(409, "hold-closed", how="expired")
        if "expires_at" in operation and _ms(operation["expires_at"]) <= now_ms:
            return problem(400, "invalid-request")
        amount = self._amount(operation)
        if kind in ("hold", "spend") and amount > self.available:
            return problem(402, "insufficient-credits", available=self.available, requested=amount)
        self.keys |= {operation["idempotency_key"]} if "idempotency_key" in operation else set()
        return {"status": 201, "body": getattr(self, f"_{kind}")(operation, amount, now_ms)}

    @staticmethod
    def _amount(operation: Mapping[str, Any]) -> int:
        quantities = operation.get("quantities", {})
        cost = sum(Fraction(each) * PRICES[name].price / PRICES[name].per for name, each in quantities.items())
        return operation["amount"] if "amount" in operation else ceil(cost)

    def _entry(self, amount: int, now_ms: int, expires_ms: int | None = None) -> dict[str, Any]:
        self.sequence += 1
        instants = {"effective_at": _text(now_ms), "expires_at": None if expires_ms is None else _text(expires_ms)}
        return {"sequence": self.sequence, "amount": amount, "rating": None, **instants}

    def _hold(self, operation: Mapping[str, Any], amount: int, now_ms: int) -> dict[str, Any]:
        self.available -= amount
        expires_ms = _ms(operation["expires_at"])
        entry = self._entry(-amount, now_ms, expires_ms)
        self.holds[entry["sequence"]] = [amount, expires_ms]
        return entry | ({"rating": {"version": 1}} if "quantities" in operation else {})

    def _capture(self, operation: Mapping[str, Any], amount: int, now_ms: int) -> dict[str, Any]:
        held = self.holds[operation["hold"]]
        assert not operation["final"], "others are still decided against it"
        assert amount <= held[0], "a lease never captures more than it holds"
        held[0] -= amount
        self.spent += amount
        if not held[0]:
            del self.holds[operation["hold"]]
        return self._entry(0, now_ms)

    def _spend(self, operation: Mapping[str, Any], amount: int, now_ms: int) -> dict[str, Any]:
        self.available -= amount
        self.spent += amount
        return self._entry(-amount, now_ms)

    def _release(self, operation: Mapping[str, Any], amount: int, now_ms: int) -> dict[str, Any]:
        freed = self.holds.pop(operation["hold"])[0]
        self.available += freed
        return self._entry(freed, now_ms)

    def _extend(self, operation: Mapping[str, Any], amount: int, now_ms: int) -> dict[str, Any]:
        self.holds[operation["hold"]][1] = _ms(operation["expires_at"])
        return self._entry(0, now_ms, self.holds[operation["hold"]][1])


def _text(ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def _ms(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


class Life:
    """A lease that lives beside a ledger, and what was done and came of it, step by step."""

    def __init__(self, seed: int, journal: Path | None = None) -> None:
        self.random = chance = random.Random(seed)
        amount = chance.choice((5, 20, 100))
        self.is_rated = chance.random() < 0.4
        self.terms = Terms(
            "jane", amount, amount * chance.choice((1, 1, 4)), 60_000, 10_000, {"reference": "gateway"},
            "chat" if self.is_rated else None,
        )  # fmt: skip
        self.ledger = Ledger(available=chance.choice((50, 400, 3_000)), skew_ms=chance.randrange(-(10**9), 10**9))
        self.granted = self.ledger.available
        self.now_ms = chance.randrange(10**6)
        self.steps: list[list[Any]] = []
        self.elsewhere = 0
        """What others spent."""
        self.decided = self.uncharged = 0
        """Of the processes that have died."""
        self.crashes = 0
        self._path = journal
        self._begin()

    def _begin(self) -> None:
        self.journal = None if self._path is None else Journal(self._path)
        new = LeaseState(self.terms, "lease")
        self.state = new if self.journal is None else self.journal.begin(self.terms, lambda: "lease")
        if self.is_rated:
            self.state.prices[1] = PRICES
        self._do("learn", _text(self.now_ms + self.ledger.skew_ms))
        self._do("ask", 1)

    def crash(self) -> None:
        """Let the process die, and another begin with its journal."""
        assert self.journal is not None
        self.journal.close()
        self.decided += self.state.decided
        self.uncharged += self.state.uncharged
        self.crashes += 1
        self._begin()

    def live(self) -> None:
        """Take all steps, and close."""
        for _ in range(STEPS):
            self._step()
            self.check()
            if self.journal is not None and self.random.random() < 0.05:
                self.crash()
        self._do("close")
        while self._send(loses=0.3):
            self.check()

    def _step(self) -> None:
        chance = self.random.random()
        if chance < 0.6:
            self._decide()
        elif chance < 0.8:
            self._send(loses=0.3)
        elif chance < 0.9:
            self.now_ms += self.random.choice((1, 100, 3_000, 20_000, 45_000))
        elif chance < 0.95:
            self.elsewhere += (taken := self.random.randint(0, self.ledger.available))
            self.ledger.available -= taken
            self.ledger.keys.add(f"k{self.random.randrange(40)}")
        elif chance < 0.97:
            self.granted += 60
            self.ledger.available += 60
        else:
            self._do("ask", self.random.randint(1, 2 * self.terms.most))

    def _decide(self) -> None:
        chance = self.random
        reference = chance.choice((None, None, "a", "b"))
        key = f"k{chance.randrange(40)}" if chance.random() < 0.1 else None
        size = chance.randint(1, chance.choice((2, 10, self.terms.most)))
        quantities = None
        if self.is_rated and chance.random() < 0.7:
            quantities = {"input": f"{size}.5", "output": chance.choice(("0", "0.25", "1"))}
        self._do("decide", None if quantities else size, quantities, reference, key)
        if self.steps[-1][-1][0] == "decided" and not self.steps[-1][-1][3]:
            ends_ms = max(expires_ms for _, expires_ms in self.ledger.holds.values()) - self.ledger.skew_ms
            assert self.now_ms + self.terms.margin_ms < ends_ms, "a decision has time to be captured"

    def _send(self, *, loses: float) -> bool:
        """Send the next batch, by which some answers are lost; return whether there is more to send."""
        is_new = self.state.sent is None
        batch = self.state.next_batch(self.now_ms)
        if self.journal is not None and batch is not None and is_new:
            self.journal.sent(self.state, batch)
        self.steps.append([self.now_ms, "batch", None if batch is None else {"key": batch.key, "operations": batch.operations}])
        if batch is None:
            return False
        self.now_ms += self.random.choice((0, 50, 200))
        if self.random.random() < loses:
            self.now_ms += self.random.choice((0, 10_000))
            return True
        results = self.ledger.execute(batch, self.now_ms)
        if self.random.random() < loses:
            return True
        self.now_ms += self.random.choice((0, 50))
        self._do("settle", results)
        if self.journal is not None:
            self.journal.settled(self.state)
        return True

    def _do(self, name: str, *given: Any) -> None:
        self.steps.append([self.now_ms, name, *given, done := do(self.state, self.now_ms, name, *given, journal=self.journal)])
        assert done == json.loads(json.dumps(done))

    def check(self) -> None:
        """What must be true after each step."""
        self.ledger.expire(self.now_ms)
        held = sum(each for each, _ in self.ledger.holds.values())
        assert self.ledger.available + held + self.ledger.spent + self.elsewhere == self.granted
        assert self.ledger.available >= 0
        assert held <= self.terms.most, "at most one lease is held"
        alive = [each for each in self.state.holds if not each.is_retired]
        assert sum(each.left for each in alive if self.now_ms < each.ends_ms) <= held


def do(state: LeaseState, now_ms: int, name: str, *given: Any, journal: Journal | None = None) -> Any:
    """Take a step; return what comes of it, as JSON."""
    if name == "learn":
        return state.learn_time(given[0], now_ms)
    if name == "ask":
        return state.ask_for(given[0])
    if name == "close":
        return state.close()
    if name == "settle":
        assert state.sent is not None
        uncharged = state.settle(state.sent, given[0], now_ms)
        return [[each.problem.slug for each in uncharged], state.left(now_ms), state.captured, state.uncharged]
    amount, quantities, reference, key = given
    exact = None if quantities is None else {each: Fraction(quantity) for each, quantity in quantities.items()}
    use = use_of(reason=None, reference=reference, metadata=None, key=key, by_quantities=exact is not None)
    try:
        held, decision = state.decide(now_ms, use, amount=amount or 0, quantities=exact)
    except LeaseExhausted as refused:
        return ["exhausted", refused.requested, refused.left, refused.problem and refused.problem.slug, state.is_due(now_ms)]
    if held is not None:
        if journal is not None:
            journal.decided(held, use, decision.amount, exact)
        state.take(held, use, decision.amount, quantities=exact)
    return ["decided", decision.amount, decision.left, decision.repeated, state.is_due(now_ms)]


def cases() -> list[dict[str, Any]]:
    """Lives as both languages must live them."""
    lives = [Life(seed) for seed in range(12)]
    for life in lives:
        life.live()
    terms = [life.terms for life in lives]
    return [
        {
            "terms": {
                "holder": of.holder, "amount": of.amount, "most": of.most, "expires_in_ms": of.expires_in_ms,
                "margin_ms": of.margin_ms, "fields": of.fields, "rate": of.rate,
            },
            "prices": {name: list(price) for name, price in PRICES.items()},
            "steps": life.steps,
        }
        for of, life in zip(terms, lives, strict=True)
    ]  # fmt: skip


def text_of_cases() -> str:
    """The content of lease_cases.json."""
    return json.dumps(cases(), separators=(",", ":")).replace("],[", "],\n[") + "\n"


if __name__ == "__main__":
    CASES.write_text(text_of_cases())
