"""The outcome of one subscription in a run."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from django.db import Error, close_old_connections

from billing.errors import BillingSuspended, InvoiceGenerationBusy, NotFound, PeriodAlreadyBilled
from billing.generator import generate
from billing.generator.options import Options
from billing.generator.results import GenerationResult, InvoiceSummary
from ledger.database.locks import sqlstate
from ledger.errors import OutcomeUnknown, Retryable

PASSING_STATES = {
    "40P01": "a deadlock",
    "40001": "a serialization failure",
    "55P03": "a lock that was not granted in time",
    "57014": "a statement that took too long",
}


class Outcome(StrEnum):
    """What became of one subscription in a run."""

    CREATED = "created"
    FINALISED = "finalised"
    NOTHING_DUE = "nothing_due"
    BUSY = "busy"
    DEFERRED = "deferred"
    SUSPENDED = "suspended"
    FAILED = "failed"
    CONFLICT = "conflict"


BILLED = {Outcome.CREATED, Outcome.FINALISED}


RETRY = {Outcome.BUSY, Outcome.DEFERRED}


SKIPPED = {*RETRY, Outcome.NOTHING_DUE}


TROUBLE = {Outcome.FAILED, Outcome.SUSPENDED, Outcome.CONFLICT}


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """The result for one subscription, small enough to send from a worker to its run."""

    subscription: str
    outcome: Outcome
    detail: str = ""
    traceback: str = ""
    duration_ms: float = 0.0
    invoices: tuple[InvoiceSummary, ...] = ()
    periods: int = 0
    late_usage_minor: int = 0
    granted: tuple[tuple[str, int], ...] = ()
    """Credit type and amount of each allowance."""
    covered: tuple[tuple[str, int], ...] = ()
    """Credits spent on usage, less credits given back: credit type, credits."""


def bill_one(ref: str, options: Options, act: Callable[..., GenerationResult] = generate.generate) -> SubscriptionResult:
    """Bill one subscription and return the result. Never raises; a failure leaves nothing behind."""
    began = time.perf_counter()
    try:
        generated = act(ref=ref, options=options)
    except InvoiceGenerationBusy:
        return SubscriptionResult(ref, Outcome.BUSY, "another process makes invoices for it")
    except Retryable as error:
        return SubscriptionResult(ref, Outcome.DEFERRED, f"{error.title}: {error}"[:500])
    except OutcomeUnknown:
        # The next try bills what is not billed, whether the COMMIT took effect or not.
        close_old_connections()
        return SubscriptionResult(ref, Outcome.DEFERRED, "the connection broke during COMMIT, so the outcome is unknown")
    except BillingSuspended as error:
        return SubscriptionResult(ref, Outcome.SUSPENDED, str(error.facts["reason"]))
    except PeriodAlreadyBilled as error:
        return SubscriptionResult(ref, Outcome.CONFLICT, str(error))
    except NotFound:
        return SubscriptionResult(ref, Outcome.FAILED, "the subscription does not exist")
    except Exception as error:
        # A failure never stops the other subscriptions; its traceback is recorded.
        if isinstance(error, Error):
            close_old_connections()
            state = sqlstate(error) or ""
            if state in PASSING_STATES:
                return SubscriptionResult(ref, Outcome.DEFERRED, f"{PASSING_STATES[state]} ({state})")
        return SubscriptionResult(ref, Outcome.FAILED, f"{type(error).__name__}: {error}"[:500], traceback.format_exc())
    return _done(generated, (time.perf_counter() - began) * 1000)


def _done(generated: GenerationResult, duration_ms: float) -> SubscriptionResult:
    granted = tuple((one.credit_type, one.amount) for one in generated.granted)
    if not generated.invoices:
        return SubscriptionResult(generated.subscription, Outcome.NOTHING_DUE, granted=granted)
    return SubscriptionResult(
        subscription=generated.subscription,
        outcome=Outcome.CREATED if all(one.is_draft for one in generated.invoices) else Outcome.FINALISED,
        duration_ms=duration_ms,
        invoices=tuple(generated.invoices),
        periods=generated.periods,
        late_usage_minor=generated.late_usage_minor,
        granted=granted,
        covered=tuple(generated.covered.items()),
    )
