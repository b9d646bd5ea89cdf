"""The sum of a run."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from billing.generator.outcomes import BILLED, RETRY, TROUBLE, Outcome, SubscriptionResult

SLOWEST_KEPT = 5


@dataclass(slots=True)
class Summary:
    """The sum of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    invoices: int = 0
    lines: int = 0
    money: dict[str, dict[str, int]] = field(default_factory=dict)
    periods: int = 0
    late_usage_minor: int = 0
    credits_granted: Counter[str] = field(default_factory=Counter)
    credits_spent_on_usage: Counter[str] = field(default_factory=Counter)
    aside: dict[int, int] = field(default_factory=dict)
    """The number of subscriptions that each worker will try again."""
    durations_ms: list[float] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    workers_lost: int = 0
    limit_reached: bool = False
    time_is_up: bool = False
    """The run reached its longest time with work left."""
    seconds: float = 0.0

    def add(self, done: SubscriptionResult) -> None:
        """Count one subscription."""
        self.outcomes[done.outcome] += 1
        self.invoices += len(done.invoices)
        self.periods += done.periods
        self.late_usage_minor += done.late_usage_minor
        for credit_type, amount in done.granted:
            self.credits_granted[credit_type] += amount
        for credit_type, amount in done.covered:
            self.credits_spent_on_usage[credit_type] += amount
        for invoice in done.invoices:
            money = self.money.setdefault(invoice.currency, {"invoices": 0, "total_minor": 0, "credits_applied_minor": 0})
            money["invoices"] += 1
            money["total_minor"] += invoice.total_minor
            money["credits_applied_minor"] += invoice.credits_applied_minor
            self.lines += invoice.lines
        if done.outcome in BILLED:
            self.durations_ms.append(done.duration_ms)
            self.slowest = sorted([*self.slowest, (done.duration_ms, done.subscription)], reverse=True)[:SLOWEST_KEPT]

    @property
    def failures(self) -> int:
        """Subscriptions that a person has to check."""
        return sum(self.outcomes[kind] for kind in TROUBLE) + self.workers_lost

    @property
    def waiting(self) -> int:
        """Subscriptions that are put aside at this moment, or stayed so until the end: busy or deferred."""
        return sum(self.outcomes[kind] for kind in RETRY) + sum(self.aside.values())

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        ordered = sorted(self.durations_ms)
        return {
            "outcomes": {kind.value: self.outcomes[kind] for kind in Outcome},
            "invoices": self.invoices,
            "lines": self.lines,
            "money": self.money,
            "periods": self.periods,
            "late_usage_minor": self.late_usage_minor,
            "credits_granted": dict(self.credits_granted),
            "credits_spent_on_usage": dict(self.credits_spent_on_usage),
            "workers_lost": self.workers_lost,
            "limit_reached": self.limit_reached,
            "time_is_up": self.time_is_up,
            "seconds": round(self.seconds, 3),
            "milliseconds": {"p50": _at(ordered, 0.5), "p95": _at(ordered, 0.95), "max": _at(ordered, 1.0)},
            "slowest": [{"subscription": ref, "milliseconds": round(ms, 1)} for ms, ref in self.slowest],
        }


def _at(ordered: list[float], portion: float) -> float:
    return round(ordered[min(int(len(ordered) * portion), len(ordered) - 1)], 1) if ordered else 0.0
