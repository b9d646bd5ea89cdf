"""Making the invoices of many subscriptions: one short transaction each, whatever happens to the others.

The workers of a run divide the list among themselves; any number of runs, on any number of machines, share it by skipping what
is locked or done. What was busy is tried again at the end. What a worker that died had not done is done by its run, or the next.
"""

import fcntl
import multiprocessing
import multiprocessing.connection
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from django.db import Error, close_old_connections, connections

from billing.errors import InvoiceGenerationBusy, NotFound, Parked, PeriodAlreadyBilled
from billing.generator import generate
from billing.generator.due import DueWalk, Filter
from billing.generator.generate import Generated, Options, Scope
from ledger.database.locks import sqlstate
from ledger.errors import Retryable

PASSING_STATES = {"40P01", "40001", "55P03", "57014"}
SLOWEST_KEPT = 5


class OutcomeKind(StrEnum):
    """What became of one subscription in a run."""

    CREATED = "created"
    FINALISED = "finalised"
    NOTHING_DUE = "nothing_due"
    BUSY = "busy"
    DEFERRED = "deferred"
    PARKED = "parked"
    FAILED = "failed"
    CONFLICT = "conflict"


BILLED = {OutcomeKind.CREATED, OutcomeKind.FINALISED}
AGAIN = {OutcomeKind.BUSY, OutcomeKind.DEFERRED}
MISSES = {*AGAIN, OutcomeKind.NOTHING_DUE}
TROUBLE = {OutcomeKind.FAILED, OutcomeKind.PARKED, OutcomeKind.CONFLICT}


@dataclass(frozen=True, slots=True)
class Done:
    """What was done for one subscription, small enough to be sent from a worker to its run."""

    subscription: str
    outcome: OutcomeKind
    detail: str = ""
    traceback: str = ""
    duration_ms: float = 0.0
    invoices: tuple[tuple[int, str | None, str, int, int, int], ...] = ()
    """Of each: id, number, currency, total, credits applied, lines."""
    periods: int = 0
    late_usage_minor: int = 0
    granted: tuple[tuple[str, int], ...] = ()
    """Of each allowance: credit type, amount."""
    covered: tuple[tuple[str, int], ...] = ()
    """What was spent on usage, less what was given back: credit type, credits."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a run has to do.

    Args:
        subscriptions: these and no others; empty: those that are due.
        limit: bill at most so many subscriptions; None: all.
        retry_busy, retry_wait_s: how often, and after how long, to come back to what was busy.
        max_runtime_s: begin nothing after so long; None: no limit.
    """

    options: Options
    filter: Filter
    subscriptions: tuple[str, ...] = ()
    workers: int = 1
    limit: int | None = None
    retry_busy: int = 3
    retry_wait_s: float = 0.2
    max_runtime_s: float | None = None
    fail_fast: bool = False
    max_failures: int | None = None


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
    durations_ms: list[float] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    workers_lost: int = 0
    limit_reached: bool = False
    seconds: float = 0.0

    def add(self, done: Done) -> None:
        """Count one subscription."""
        self.outcomes[done.outcome] += 1
        self.invoices += len(done.invoices)
        self.periods += done.periods
        self.late_usage_minor += done.late_usage_minor
        for credit_type, amount in done.granted:
            self.credits_granted[credit_type] += amount
        for credit_type, amount in done.covered:
            self.credits_spent_on_usage[credit_type] += amount
        for _, _, currency, total_minor, credits_minor, lines in done.invoices:
            money = self.money.setdefault(currency, {"invoices": 0, "total_minor": 0, "credits_applied_minor": 0})
            money["invoices"] += 1
            money["total_minor"] += total_minor
            money["credits_applied_minor"] += credits_minor
            self.lines += lines
        if done.outcome in BILLED:
            self.durations_ms.append(done.duration_ms)
            self.slowest = sorted([*self.slowest, (done.duration_ms, done.subscription)], reverse=True)[:SLOWEST_KEPT]

    @property
    def failures(self) -> int:
        """Subscriptions that somebody has to look at."""
        return sum(self.outcomes[kind] for kind in TROUBLE) + self.workers_lost

    @property
    def waiting(self) -> int:
        """Subscriptions that were busy until the end."""
        return sum(self.outcomes[kind] for kind in AGAIN)

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        ordered = sorted(self.durations_ms)
        return {
            "outcomes": {kind.value: self.outcomes[kind] for kind in OutcomeKind},
            "invoices": self.invoices,
            "lines": self.lines,
            "money": self.money,
            "periods": self.periods,
            "late_usage_minor": self.late_usage_minor,
            "credits_granted": dict(self.credits_granted),
            "credits_spent_on_usage": dict(self.credits_spent_on_usage),
            "workers_lost": self.workers_lost,
            "limit_reached": self.limit_reached,
            "seconds": round(self.seconds, 3),
            "milliseconds": {"p50": _at(ordered, 0.5), "p95": _at(ordered, 0.95), "max": _at(ordered, 1.0)},
            "slowest": [{"subscription": ref, "milliseconds": round(ms, 1)} for ms, ref in self.slowest],
        }


def _at(ordered: list[float], share: float) -> float:
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 1) if ordered else 0.0


# One subscription ------------------------------------------------------------------------------------


def bill_one(ref: str, options: Options) -> Done:
    """Bill one subscription and say what became of it; never raises, and a failure leaves nothing behind."""
    began = time.perf_counter()
    try:
        generated = generate.generate(ref=ref, options=options)
    except InvoiceGenerationBusy:
        return Done(ref, OutcomeKind.BUSY)
    except Retryable as error:
        return Done(ref, OutcomeKind.DEFERRED, str(error))
    except Parked as error:
        return Done(ref, OutcomeKind.PARKED, str(error.facts["reason"]))
    except PeriodAlreadyBilled as error:
        return Done(ref, OutcomeKind.CONFLICT, str(error))
    except NotFound:
        return Done(ref, OutcomeKind.FAILED, "there is no such subscription")
    except Exception as error:
        # One failure never stops the others; it is kept with its traceback.
        if isinstance(error, Error):
            close_old_connections()
            if sqlstate(error) in PASSING_STATES:
                return Done(ref, OutcomeKind.DEFERRED, sqlstate(error) or "")
        return Done(ref, OutcomeKind.FAILED, f"{type(error).__name__}: {error}"[:500], traceback.format_exc())
    return _done(generated, (time.perf_counter() - began) * 1000)


def _done(generated: Generated, duration_ms: float) -> Done:
    granted = tuple((one.credit_type, one.amount) for one in generated.granted)
    if not generated.invoices:
        return Done(generated.subscription, OutcomeKind.NOTHING_DUE, granted=granted)
    return Done(
        subscription=generated.subscription,
        outcome=OutcomeKind.CREATED if all(one.is_draft for one in generated.invoices) else OutcomeKind.FINALISED,
        duration_ms=duration_ms,
        invoices=tuple(
            (one.invoice_id, one.number, one.currency, one.total_minor, one.credits_applied_minor, one.lines)
            for one in generated.invoices
        ),
        periods=generated.periods,
        late_usage_minor=generated.late_usage_minor,
        granted=granted,
        covered=tuple(generated.covered.items()),
    )


# One worker ------------------------------------------------------------------------------------------


class Brake(Protocol):
    """What a worker asks before each subscription: may it go on, and may it bill one more?"""

    def stopped(self) -> bool:
        """True when no more is to be begun."""

    def take(self) -> bool:
        """Take one of the subscriptions that may still be billed; False when none is left."""

    def give_back(self) -> None:
        """It was not billed after all."""


class LocalBrake:
    """The brake of a run in one process."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit
        self.stop = False

    def stopped(self) -> bool:
        """As `Brake` says."""
        return self.stop

    def take(self) -> bool:
        """As `Brake` says."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    def give_back(self) -> None:
        """As `Brake` says."""
        if self.left is not None:
            self.left += 1


class SharedBrake:
    """The brake of several processes, of which any may be killed at any moment: what the kernel does not let go is not held."""

    def __init__(self, context: Any, limit: int | None) -> None:
        self._stop = context.RawValue("b", 0)
        self._left = None if limit is None else context.RawValue("q", limit)
        self._turn = None if limit is None else tempfile.TemporaryFile()  # noqa: SIM115  as long as the run

    def stopped(self) -> bool:
        """As `Brake` says."""
        return bool(self._stop.value)

    def take(self) -> bool:
        """As `Brake` says."""
        if self._left is None:
            return True
        with self._my_turn():
            if self._left.value <= 0:
                return False
            self._left.value -= 1
            return True

    def give_back(self) -> None:
        """As `Brake` says."""
        if self._left is not None:
            with self._my_turn():
                self._left.value += 1

    def pull(self) -> None:
        """Let every worker end after the subscription it is at."""
        self._stop.value = 1

    def close(self) -> None:
        """Let go of what it was counted with."""
        if self._turn is not None:
            self._turn.close()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        # A record lock belongs to the process and ends with it; a semaphore would stay taken.
        assert self._turn is not None
        fcntl.lockf(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)


LIMIT_REACHED = "limit reached"


def work(job: Work, brake: Brake, report: Callable[[Done | str], None], share: int = 0) -> None:
    """Walk the list of one worker: bill what can be billed, come back to what was busy, report each."""
    busy: list[str] = []
    walk = DueWalk(job.filter, share=share, shares=job.workers)
    for ref in job.subscriptions[share :: job.workers] if job.subscriptions else walk:
        outcome = _attempt(job, brake, ref, busy.append, report)
        if outcome is None:
            return
        walk.missed(outcome in MISSES)
    for _ in range(job.retry_busy):
        if not busy or brake.stopped():
            break
        time.sleep(job.retry_wait_s)
        again, busy = busy, []
        for position, ref in enumerate(again):
            if _attempt(job, brake, ref, busy.append, report) is None:
                busy += again[position:]
                break
    for ref in busy:
        report(Done(ref, OutcomeKind.BUSY))


def _attempt(
    job: Work, brake: Brake, ref: str, keep: Callable[[str], None], report: Callable[[Done | str], None]
) -> OutcomeKind | None:
    """Bill one and say what became of it; None when the worker has to end."""
    if brake.stopped():
        return None
    if not brake.take():
        report(LIMIT_REACHED)
        return None
    done = bill_one(ref, job.options)
    if done.outcome not in BILLED:
        brake.give_back()
    if done.outcome in AGAIN:
        keep(ref)
    else:
        report(done)
    return done.outcome


# All workers -----------------------------------------------------------------------------------------


def run(job: Work, *, on_done: Callable[[Done], None], on_tick: Callable[[Summary], None], stop: Callable[[], bool]) -> Summary:
    """Run the workers until the list is done or something stops them, and sum up what they did.

    Args:
        on_done: called in this process for each subscription.
        on_tick: called several times a second.
        stop: asked as often; True lets each worker finish the subscription it is at, and ends the run.
    """
    summary, began = Summary(), time.monotonic()

    def must_stop() -> bool:
        late = job.max_runtime_s is not None and time.monotonic() - began > job.max_runtime_s
        failed = (job.fail_fast and summary.failures > 0) or (
            job.max_failures is not None and summary.failures > job.max_failures
        )
        return stop() or late or failed

    def take(message: Done | str) -> None:
        summary.seconds = time.monotonic() - began
        if isinstance(message, Done):
            summary.add(message)
            on_done(message)
        elif message == LIMIT_REACHED:
            summary.limit_reached = True
        on_tick(summary)

    if job.workers == 1:
        _run_here(job, take, must_stop)
    else:
        _run_workers(job, summary, take, must_stop)
    summary.seconds = time.monotonic() - began
    return summary


def _run_here(job: Work, take: Callable[[Done | str], None], must_stop: Callable[[], bool]) -> None:
    brake = LocalBrake(job.limit)

    def report(message: Done | str) -> None:
        take(message)
        brake.stop = brake.stop or must_stop()

    brake.stop = must_stop()
    work(job, brake, report)


def _run_workers(job: Work, summary: Summary, take: Callable[[Done | str], None], must_stop: Callable[[], bool]) -> None:
    # Forked: the children inherit the settings as they are, and a connection must not be shared.
    connections.close_all()
    context = multiprocessing.get_context("fork")
    brake = SharedBrake(context, job.limit)
    workers = [_Worker(context, job, brake, share) for share in range(job.workers)]
    reporting = {worker.reports: worker for worker in workers}
    while reporting:
        ready = multiprocessing.connection.wait(list(reporting), timeout=0.2)
        for reports in ready:
            message = reporting[reports].said()
            if message is None:
                del reporting[reports]
            else:
                take(message)
        if not ready:
            take("")
        if must_stop():
            brake.pull()
    for worker in workers:
        worker.process.join()
    lost = [worker.share for worker in workers if not worker.finished]
    summary.workers_lost = len(lost)
    for share in lost:
        # What a worker that died had not done yet is done here.
        work(job, brake, take, share)
    brake.close()


class _Worker:
    """A worker process and what it says, through a pipe of its own.

    A queue for all would have a lock; who is killed while holding that silences the others for good. When a pipe ends before
    its worker has said that it is done, or in the middle of a message, the worker is lost.
    """

    def __init__(self, context: Any, job: Work, brake: SharedBrake, share: int) -> None:
        self.share, self.finished = share, False
        self.reports, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work_off, args=(job, brake, sender, share), daemon=True)
        self.process.start()
        # Closed before the next one is forked, which would keep it open.
        sender.close()

    def said(self) -> Done | str | None:
        """The next thing that it says; None when there will be no more."""
        try:
            message: Done | str | int = self.reports.recv()
        except (EOFError, OSError):
            message = -1
        if isinstance(message, int):
            self.finished = message == self.share
            self.reports.close()
            return None
        return message


def _work_off(job: Work, brake: SharedBrake, reports: Any, share: int) -> None:
    """What a worker process does. The run's process hears the signals and pulls the brake; this one finishes what it is at."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        work(job, brake, reports.send, share)
        reports.send(share)
    finally:
        connections.close_all()


def job_for(options: Options, **details: Any) -> Work:
    """A job whose filter agrees with its options."""
    wanted = Filter(
        as_of=options.as_of,
        recurring=options.only != Scope.USAGE,
        usage=options.only != Scope.RECURRING,
        parked=options.include_parked,
        customers=details.pop("customers", None),
        plans=details.pop("plans", None),
        currency=details.pop("currency", None),
    )
    return replace(Work(options, wanted), **details)
