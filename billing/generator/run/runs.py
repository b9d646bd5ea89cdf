"""A run with its workers, each a process: they divide the list, and the run sums up their results.

When a worker dies, its run bills the rest of the worker's list, or the next run does.
"""

import multiprocessing.connection
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import connections

from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter
from billing.generator.run.outcomes import RunSummary, SubscriptionResult
from billing.generator.run.stop_flags import LocalStopFlag, SharedStopFlag
from billing.generator.run.workers import Backlog, Message, Note, Report, Work, work

LOOK_EVERY_S = 0.2


def run(
    job: Work, *, on_done: Callable[[SubscriptionResult], None], on_tick: Callable[[RunSummary], None], stop: Callable[[], bool]
) -> RunSummary:
    """Run the workers until the list is done or they have to stop, and return the sum of their results.

    Args:
        on_done: called in this process for each subscription.
        on_tick: called several times a second.
        stop: called as often; True ends the run after the current subscription of each worker.
    """
    summary, began = RunSummary(), time.monotonic()

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
            case SubscriptionResult():
                summary.add(message)
                on_done(message)
            case Backlog():
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


def _run_workers(job: Work, summary: RunSummary, take: Report, must_stop: Callable[[], bool]) -> None:
    # The children are forks: they inherit the settings, and must not share a connection.
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
        # This process bills what a dead worker has left.
        work(job, stop_flag, take, shard)
    stop_flag.close()


class _Worker:
    """A worker process and its reports, through a separate pipe.

    A common queue would have a lock, and a worker that is killed while it holds the lock would block all others. If a pipe ends
    before its worker has reported the end, or in the middle of a message, the worker is lost.
    """

    def __init__(self, context: Any, job: Work, stop_flag: SharedStopFlag, shard: int) -> None:
        self.shard, self.finished = shard, False
        self.reports, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work_off, args=(job, stop_flag, sender, shard), daemon=True)
        self.process.start()
        # Closed before the next fork, which would keep it open.
        sender.close()

    def receive(self) -> Message | None:
        """Return the next report; None after the last."""
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
    """Do the work of a worker process. Only the run's process handles signals: it sets the flag, which ends the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        work(job, stop_flag, reports.send, shard)
        reports.send(shard)
    finally:
        connections.close_all()


def job_for(options: Options, **details: Any) -> Work:
    """A job whose filter agrees with its options."""
    due_filter = DueFilter(
        as_of=options.as_of,
        recurring=options.only != Scope.USAGE,
        usage=options.only != Scope.RECURRING,
        suspended=options.include_suspended,
        customers=details.pop("customers", None),
        plans=details.pop("plans", None),
        currency=details.pop("currency", None),
    )
    return replace(Work(options, due_filter), **details)
