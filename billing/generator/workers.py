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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from django.db import Error, close_old_connections, connections, transaction

from billing.errors import InvoiceGenerationBusy, NotFound, Parked, PeriodAlreadyBilled
from billing.generator import generate
from billing.generator.due import DueWalk, Filter, due_together
from billing.generator.generate import Generated, Options, Scope
from ledger.database.locks import sqlstate
from ledger.errors import Retryable

PASSING_STATES = {
    "40P01": "a deadlock",
    "40001": "a serialization failure",
    "55P03": "a lock that was not granted in time",
    "57014": "a statement that took too long",
}
SLOWEST_KEPT = 5
LOOK_EVERY_S = 0.2


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
RETRY = {OutcomeKind.BUSY, OutcomeKind.DEFERRED}
SKIPPED = {*RETRY, OutcomeKind.NOTHING_DUE}
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
    aside: dict[int, int] = field(default_factory=dict)
    """How many subscriptions each worker has put aside at this moment, to come back to them."""
    durations_ms: list[float] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    workers_lost: int = 0
    limit_reached: bool = False
    time_is_up: bool = False
    """The run ended at its longest time with work left."""
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
        """Subscriptions that are put aside at this moment, or were until the end: busy, or deferred."""
        return sum(self.outcomes[kind] for kind in RETRY) + sum(self.aside.values())

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
            "time_is_up": self.time_is_up,
            "seconds": round(self.seconds, 3),
            "milliseconds": {"p50": _at(ordered, 0.5), "p95": _at(ordered, 0.95), "max": _at(ordered, 1.0)},
            "slowest": [{"subscription": ref, "milliseconds": round(ms, 1)} for ms, ref in self.slowest],
        }


def _at(ordered: list[float], portion: float) -> float:
    return round(ordered[min(int(len(ordered) * portion), len(ordered) - 1)], 1) if ordered else 0.0


# One subscription ------------------------------------------------------------------------------------


def bill_one(ref: str, options: Options, act: Callable[..., Generated] = generate.generate) -> Done:
    """Bill one subscription and say what became of it; never raises, and a failure leaves nothing behind."""
    began = time.perf_counter()
    try:
        generated = act(ref=ref, options=options)
    except InvoiceGenerationBusy:
        return Done(ref, OutcomeKind.BUSY, "another process makes invoices for it")
    except Retryable as error:
        return Done(ref, OutcomeKind.DEFERRED, f"{error.title}: {error}"[:500])
    except Parked as error:
        return Done(ref, OutcomeKind.PARKED, str(error.facts["reason"]))
    except PeriodAlreadyBilled as error:
        return Done(ref, OutcomeKind.CONFLICT, str(error))
    except NotFound:
        return Done(ref, OutcomeKind.FAILED, "the subscription does not exist")
    except Exception as error:
        # One failure never stops the others; it is kept with its traceback.
        if isinstance(error, Error):
            close_old_connections()
            state = sqlstate(error) or ""
            if state in PASSING_STATES:
                return Done(ref, OutcomeKind.DEFERRED, f"{PASSING_STATES[state]} ({state})")
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


class StopFlag(Protocol):
    """What a worker asks before each subscription: may it go on, and may it bill one more?"""

    def stopped(self) -> bool:
        """True when no more is to be begun."""

    def reserve(self) -> bool:
        """Reserve one of the subscriptions that may still be billed; False when none is left."""

    def give_back(self) -> None:
        """It was not billed after all."""


class LocalStopFlag:
    """The flag of a run in one process.

    Args:
        stop: asked each time whether the run has to end.
    """

    def __init__(self, limit: int | None, stop: Callable[[], bool]) -> None:
        self._left = limit
        self._stop = stop
        self._is_set = False

    def stopped(self) -> bool:
        """As `StopFlag` says."""
        self._is_set = self._is_set or self._stop()
        return self._is_set

    def reserve(self) -> bool:
        """As `StopFlag` says."""
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def give_back(self) -> None:
        """As `StopFlag` says."""
        if self._left is not None:
            self._left += 1


class SharedStopFlag:
    """The flag of several processes, of which any may be killed at any moment: what the kernel does not let go is not held."""

    def __init__(self, context: Any, limit: int | None) -> None:
        self._stop = context.RawValue("b", 0)
        self._left = None if limit is None else context.RawValue("q", limit)
        self._turn = None if limit is None else tempfile.TemporaryFile()  # noqa: SIM115  as long as the run

    def stopped(self) -> bool:
        """As `StopFlag` says."""
        return bool(self._stop.value)

    def reserve(self) -> bool:
        """As `StopFlag` says."""
        if self._left is None:
            return True
        with self._my_turn():
            if self._left.value <= 0:
                return False
            self._left.value -= 1
            return True

    def give_back(self) -> None:
        """As `StopFlag` says."""
        if self._left is not None:
            with self._my_turn():
                self._left.value += 1

    def set(self) -> None:
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


class Note(StrEnum):
    """What a worker tells its run beside what it has done."""

    LIMIT_REACHED = "limit reached"
    WORK_LEFT = "stopped with work left"


@dataclass(frozen=True, slots=True)
class Aside:
    """How many subscriptions a worker has put aside at this moment, to come back to them."""

    shard: int
    subscriptions: int


Message = Done | Aside | Note
Report = Callable[[Message], None]


def work(job: Work, stop_flag: StopFlag, report: Report, shard: int = 0) -> None:
    """Walk the list of one worker: bill what can be billed, come back to what was busy or deferred, report each."""
    if job.options.dry_run:
        _dry_run(job, stop_flag, report, shard)
        return
    aside: dict[str, Done] = {}
    if _walk(job, stop_flag, report, shard, aside):
        _come_back(job, stop_flag, report, shard, aside)
    report(Aside(shard, 0))
    for done in aside.values():
        report(done)


def _walk(job: Work, stop_flag: StopFlag, report: Report, shard: int, aside: dict[str, Done]) -> bool:
    """Try each once and put aside what has to wait; False when the worker has to end."""
    walk = DueWalk(job.filter, shard=shard, shards=job.workers)
    for ref in job.subscriptions[shard :: job.workers] if job.subscriptions else walk:
        done = _attempt(job, stop_flag, ref, report)
        if done is None:
            return False
        if done.outcome in RETRY:
            aside[ref] = done
            report(Aside(shard, len(aside)))
        walk.missed(done.outcome in SKIPPED)
    return True


def _come_back(job: Work, stop_flag: StopFlag, report: Report, shard: int, aside: dict[str, Done]) -> None:
    """Try what was put aside a few times more; what stays there keeps the last reason."""
    for _ in range(job.retry_busy):
        if not aside:
            return
        _pause(job.retry_wait_s, stop_flag)
        for ref in list(aside):
            done = _attempt(job, stop_flag, ref, report)
            if done is None:
                return
            if done.outcome in RETRY:
                aside[ref] = done
            else:
                del aside[ref]
            report(Aside(shard, len(aside)))


def _pause(seconds: float, stop_flag: StopFlag) -> None:
    """Wait, but no longer than until the run has to end."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0 and not stop_flag.stopped():
        time.sleep(min(left_s, LOOK_EVERY_S))


def _attempt(job: Work, stop_flag: StopFlag, ref: str, report: Report) -> Done | None:
    """Bill one and report it, unless it has to wait; None when the worker has to end with this one undone."""
    done = _try(job, stop_flag, ref, report, generate.generate)
    if done is not None and done.outcome not in RETRY:
        report(done)
    return done


def _try(job: Work, stop_flag: StopFlag, ref: str, report: Report, act: Callable[..., Generated]) -> Done | None:
    """Bill one in this way; None when the worker has to end with this one undone."""
    if stop_flag.stopped():
        report(Note.WORK_LEFT)
        return None
    if not stop_flag.reserve():
        report(Note.LIMIT_REACHED)
        return None
    done = bill_one(ref, job.options, act)
    if done.outcome not in BILLED:
        stop_flag.give_back()
    return done


def _dry_run(job: Work, stop_flag: StopFlag, report: Report, shard: int) -> None:
    """As `work`, with the subscriptions of each customer in one transaction that is rolled back.

    They share credits and coupons, so what one of them has used is not there for the next, as in the run.
    """
    aside: dict[tuple[str, ...], list[Done]] = {}
    groups: Iterable[tuple[str, ...]] = due_together(job.filter, job.subscriptions, shard=shard, shards=job.workers)
    for retries_left in range(job.retry_busy, -1, -1):
        goes_on = _try_groups(job, stop_flag, report, groups, aside, shard, may_wait=retries_left > 0)
        if not goes_on or not aside:
            break
        _pause(job.retry_wait_s, stop_flag)
        groups = list(aside)
    report(Aside(shard, 0))
    for tried in aside.values():
        for done in tried:
            report(done)


def _try_groups(
    job: Work,
    stop_flag: StopFlag,
    report: Report,
    groups: Iterable[tuple[str, ...]],
    aside: dict[tuple[str, ...], list[Done]],
    shard: int,
    *,
    may_wait: bool,
) -> bool:
    """Dry-run each group and report it, or put it aside where one of it may wait; False when the worker has to end."""
    for refs in groups:
        aside.pop(refs, None)
        tried = _try_together(job, stop_flag, refs, report)
        is_whole = len(tried) == len(refs)
        if is_whole and may_wait and any(done.outcome in RETRY for done in tried):
            aside[refs] = tried
            report(Aside(shard, sum(len(group) for group in aside.values())))
            for done in tried:
                if done.outcome in BILLED:
                    stop_flag.give_back()
            continue
        for done in tried:
            report(done)
        if not is_whole:
            return False
    return True


def _try_together(job: Work, stop_flag: StopFlag, refs: Sequence[str], report: Report) -> list[Done]:
    """Dry-run these in one transaction and say what became of each; fewer than these when the worker has to end."""
    tried: list[Done] = []
    try:
        with transaction.atomic(durable=True):
            for ref in refs:
                done = _try(job, stop_flag, ref, report, generate.dry_run_in)
                if done is None:
                    break
                tried.append(done)
            transaction.set_rollback(True)
    except Error as error:
        return [Done(ref, OutcomeKind.DEFERRED, sqlstate(error) or "") for ref in refs]
    return tried


# All workers -----------------------------------------------------------------------------------------


def run(job: Work, *, on_done: Callable[[Done], None], on_tick: Callable[[Summary], None], stop: Callable[[], bool]) -> Summary:
    """Run the workers until the list is done or something stops them, and sum up what they did.

    Args:
        on_done: called in this process for each subscription.
        on_tick: called several times a second.
        stop: asked as often; True lets each worker finish the subscription it is at, and ends the run.
    """
    summary, began = Summary(), time.monotonic()

    def is_late() -> bool:
        return job.max_runtime_s is not None and time.monotonic() - began >= job.max_runtime_s

    def must_stop() -> bool:
        on_tick(summary)
        failed = (job.fail_fast and summary.failures > 0) or (
            job.max_failures is not None and summary.failures > job.max_failures
        )
        return stop() or is_late() or failed

    def take(message: Message) -> None:
        summary.seconds = time.monotonic() - began
        match message:
            case Done():
                summary.add(message)
                on_done(message)
            case Aside():
                summary.aside[message.shard] = message.subscriptions
            case Note.LIMIT_REACHED:
                summary.limit_reached = True
            case Note.WORK_LEFT:
                summary.time_is_up = summary.time_is_up or is_late()
        on_tick(summary)

    if job.workers == 1:
        _run_here(job, take, must_stop)
    else:
        _run_workers(job, summary, take, must_stop)
    summary.seconds = time.monotonic() - began
    return summary


def _run_here(job: Work, take: Report, must_stop: Callable[[], bool]) -> None:
    work(job, LocalStopFlag(job.limit, must_stop), take)


def _run_workers(job: Work, summary: Summary, take: Report, must_stop: Callable[[], bool]) -> None:
    # Forked: the children inherit the settings as they are, and a connection must not be shared.
    connections.close_all()
    context = multiprocessing.get_context("fork")
    stop_flag = SharedStopFlag(context, job.limit)
    workers = [_Worker(context, job, stop_flag, shard) for shard in range(job.workers)]
    reporting = {worker.reports: worker for worker in workers}
    while reporting:
        ready = multiprocessing.connection.wait(list(reporting), timeout=LOOK_EVERY_S)
        for reports in ready:
            message = reporting[reports].receive()
            if message is None:
                del reporting[reports]
            else:
                take(message)
        if must_stop():
            stop_flag.set()
    for worker in workers:
        worker.process.join()
    lost = [worker.shard for worker in workers if not worker.finished]
    summary.workers_lost = len(lost)
    for shard in lost:
        summary.aside.pop(shard, None)
        # What a worker that died had not done yet is done here.
        work(job, stop_flag, take, shard)
    stop_flag.close()


class _Worker:
    """A worker process and what it says, through a pipe of its own.

    A queue for all would have a lock; who is killed while holding that silences the others for good. When a pipe ends before
    its worker has said that it is done, or in the middle of a message, the worker is lost.
    """

    def __init__(self, context: Any, job: Work, stop_flag: SharedStopFlag, shard: int) -> None:
        self.shard, self.finished = shard, False
        self.reports, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work_off, args=(job, stop_flag, sender, shard), daemon=True)
        self.process.start()
        # Closed before the next one is forked, which would keep it open.
        sender.close()

    def receive(self) -> Message | None:
        """The next thing that it says; None when there will be no more."""
        try:
            message: Message | int = self.reports.recv()
        except (EOFError, OSError):
            message = -1
        if isinstance(message, int):
            self.finished = message == self.shard
            self.reports.close()
            return None
        return message


def _work_off(job: Work, stop_flag: SharedStopFlag, reports: Any, shard: int) -> None:
    """What a worker process does. The run's process receives the signals and sets the flag; this one finishes what it is at."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        work(job, stop_flag, reports.send, shard)
        reports.send(shard)
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
