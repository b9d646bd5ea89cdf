"""The outcome of one subscription in a run, and the sum of a run."""

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from django.db import Error, close_old_connections

from billing.errors import (
    BillingSuspended,
    InvoiceGenerationBusy,
    NotFound,
    PeriodAlreadyBilled,
    TaxesRefused,
    TaxesUnavailable,
)
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.steps import GenerationResult, InvoiceSummary
from ledger.database.locks import sqlstate
from ledger.errors import OutcomeUnknown, Retryable

PASSING_STATES = {
    "40P01": "a deadlock",
    "40001": "a serialization failure",
    "55P03": "a lock that was not granted in time",
    "57014": "a statement that took too long",
}


class RunOutcome(StrEnum):
    """The outcome of one subscription in a run."""

    CREATED = "created"
    FINALISED = "finalised"
    NOTHING_DUE = "nothing_due"
    BUSY = "busy"
    DEFERRED = "deferred"
    WAITS_FOR_TAXES = "waits_for_taxes"
    SUSPENDED = "suspended"
    FAILED = "failed"
    CONFLICT = "conflict"


BILLED = {RunOutcome.CREATED, RunOutcome.FINALISED}


RETRY = {RunOutcome.BUSY, RunOutcome.DEFERRED}


WAITING = {*RETRY, RunOutcome.WAITS_FOR_TAXES}
"""What the next run does. This run asks a provider of taxes once only: its answer is the same a moment later."""


SKIPPED = {*WAITING, RunOutcome.NOTHING_DUE}


TROUBLE = {RunOutcome.FAILED, RunOutcome.SUSPENDED, RunOutcome.CONFLICT}


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """The result for one subscription, small enough to send from a worker to its run."""

    subscription: str
    outcome: RunOutcome
    detail: str = ""
    traceback: str = ""
    duration_ms: float = 0.0
    invoices: tuple[InvoiceSummary, ...] = ()
    periods: int = 0
    late_usage_minor: int = 0
    granted: tuple[tuple[str, int], ...] = ()
    """Credit type and amount of each allowance."""
    returned: tuple[tuple[str, int], ...] = ()
    """Credit type and amount of what changes have taken back of allowances."""
    covered: tuple[tuple[str, int], ...] = ()
    """Credits spent on usage, less credits given back: credit type, credits."""
    customer: str = ""
    """Of a customer's consolidated invoices; `subscription` is empty then."""


def bill_one(ref: str, options: Options, act: Callable[..., GenerationResult] = generate.generate) -> SubscriptionResult:
    """Bill one subscription and return the result. Never raises; a failure leaves nothing behind."""
    began = time.perf_counter()
    try:
        generated = act(ref=ref, options=options)
    except InvoiceGenerationBusy:
        return SubscriptionResult(ref, RunOutcome.BUSY, "another process makes invoices for it")
    except (TaxesUnavailable, TaxesRefused) as error:
        return without_taxes(ref, error)
    except Retryable as error:
        return SubscriptionResult(ref, RunOutcome.DEFERRED, str(error)[:500])
    except OutcomeUnknown:
        # The next try bills what is not billed, whether or not the COMMIT took effect.
        close_old_connections()
        return SubscriptionResult(ref, RunOutcome.DEFERRED, "the connection broke during COMMIT, so the outcome is unknown")
    except BillingSuspended as error:
        return SubscriptionResult(ref, RunOutcome.SUSPENDED, str(error.facts["reason"]))
    except PeriodAlreadyBilled as error:
        return SubscriptionResult(ref, RunOutcome.CONFLICT, str(error))
    except NotFound:
        return SubscriptionResult(ref, RunOutcome.FAILED, "the subscription does not exist")
    except Exception as error:
        # A failure never stops the other subscriptions; its traceback is recorded.
        if isinstance(error, Error):
            close_old_connections()
            state = sqlstate(error) or ""
            if state in PASSING_STATES:
                return SubscriptionResult(ref, RunOutcome.DEFERRED, f"{PASSING_STATES[state]} ({state})")
        return SubscriptionResult(ref, RunOutcome.FAILED, f"{type(error).__name__}: {error}"[:500], traceback.format_exc())
    return _done_result(generated, (time.perf_counter() - began) * 1000)


def without_taxes(ref: str, error: TaxesUnavailable | TaxesRefused) -> SubscriptionResult:
    """Return the result of a subscription for which the provider of taxes has no answer: the next run asks again."""
    return SubscriptionResult(ref, RunOutcome.WAITS_FOR_TAXES, f"{error.title}: {error.facts['why']}"[:500])


def of_customer(done: SubscriptionResult) -> SubscriptionResult:
    """Return the result of a customer's consolidated invoices; `bill_one` names the customer as it names a subscription."""
    numbers = ", ".join(one.number or f"draft {one.invoice_id}" for one in done.invoices)
    detail = done.detail or f"customer {done.subscription}: {numbers}"
    return replace(done, subscription="", customer=done.subscription, detail=detail[:500])


def _done_result(generated: GenerationResult, duration_ms: float) -> SubscriptionResult:
    granted = tuple((one.credit_type, one.amount) for one in generated.granted)
    returned = tuple((one.credit_type, one.amount) for one in generated.returned)
    if not generated.invoices:
        return SubscriptionResult(generated.subscription, RunOutcome.NOTHING_DUE, granted=granted, returned=returned)
    return SubscriptionResult(
        subscription=generated.subscription,
        outcome=RunOutcome.CREATED if all(one.is_draft for one in generated.invoices) else RunOutcome.FINALISED,
        duration_ms=duration_ms,
        invoices=tuple(generated.invoices),
        periods=generated.periods,
        late_usage_minor=generated.late_usage_minor,
        granted=granted,
        returned=returned,
        covered=tuple(generated.covered.items()),
    )


SLOWEST_KEPT = 5


@dataclass(slots=True)
class RunSummary:
    """The sum of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    invoices: int = 0
    lines: int = 0
    money: dict[str, dict[str, int]] = field(default_factory=dict)
    periods: int = 0
    late_usage_minor: int = 0
    credits_granted: Counter[str] = field(default_factory=Counter)
    credits_taken_back: Counter[str] = field(default_factory=Counter)
    credits_spent_on_usage: Counter[str] = field(default_factory=Counter)
    aside: dict[int, int] = field(default_factory=dict)
    """How many subscriptions each worker will try again."""
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
        self.invoices += sum(not one.is_part for one in done.invoices)
        self.periods += done.periods
        self.late_usage_minor += done.late_usage_minor
        for credit_type, amount in done.granted:
            self.credits_granted[credit_type] += amount
        for credit_type, amount in done.returned:
            self.credits_taken_back[credit_type] += amount
        for credit_type, amount in done.covered:
            self.credits_spent_on_usage[credit_type] += amount
        for invoice in done.invoices:
            if invoice.is_part:
                continue
            money = self.money.setdefault(invoice.currency, {"invoices": 0, "total_minor": 0, "credits_applied_minor": 0})
            money["invoices"] += 1
            money["total_minor"] += invoice.total_minor
            money["credits_applied_minor"] += invoice.credits_applied_minor
            self.lines += invoice.lines
        if done.outcome in BILLED:
            self.durations_ms.append(done.duration_ms)
            self.slowest = sorted([*self.slowest, (done.duration_ms, done.subscription or done.customer)], reverse=True)[
                :SLOWEST_KEPT
            ]

    @property
    def failures(self) -> int:
        """The subscriptions that a person has to check."""
        return sum(self.outcomes[kind] for kind in TROUBLE) + self.workers_lost

    @property
    def waiting(self) -> int:
        """The subscriptions that wait for another try, or that stayed busy, deferred or without taxes to the end."""
        return sum(self.outcomes[kind] for kind in WAITING) + sum(self.aside.values())

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        ordered = sorted(self.durations_ms)
        return {
            "outcomes": {kind.value: self.outcomes[kind] for kind in RunOutcome},
            "invoices": self.invoices,
            "lines": self.lines,
            "money": self.money,
            "periods": self.periods,
            "late_usage_minor": self.late_usage_minor,
            "credits_granted": dict(self.credits_granted),
            "credits_taken_back": dict(self.credits_taken_back),
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
