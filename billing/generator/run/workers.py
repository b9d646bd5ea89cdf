"""A worker of a run: one short transaction for each subscription, independent of the others.

The workers of a run divide the list among themselves. Any number of runs, on any number of machines, share it: each skips
subscriptions that are locked or billed. At the end a worker tries the busy ones again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db import Error

from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.due import DueWalk, Filter, due_together
from billing.generator.run.outcomes import BILLED, RETRY, SKIPPED, Outcome, SubscriptionResult, bill_one
from billing.generator.run.steps import GenerationResult
from billing.generator.run.stop_flags import StopFlag
from ledger.database.locks import sqlstate
from ledger.services import preview

LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a run.

    Args:
        subscriptions: only these; empty: all that are due.
        limit: bill at most this number of subscriptions; None: all.
        retry_busy, retry_wait_s: how often to try busy subscriptions again, and how long to wait before.
        max_runtime_s: begin no subscription after this time; None: no limit.
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


class Note(StrEnum):
    """What a worker reports to its run besides results."""

    LIMIT_REACHED = "limit reached"
    WORK_LEFT = "stopped with work left"


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of subscriptions that a worker will try again."""

    shard: int
    subscriptions: int


Message = SubscriptionResult | Backlog | Note


Report = Callable[[Message], None]


def work(job: Work, stop_flag: StopFlag, report: Report, shard: int = 0) -> None:
    """Walk the list of one worker: bill each subscription, try busy and deferred ones again, and report each."""
    if job.options.dry_run:
        _dry_run(job, stop_flag, report, shard)
        return
    aside: dict[str, SubscriptionResult] = {}
    if _walk(job, stop_flag, report, shard, aside):
        _come_back(job, stop_flag, report, shard, aside)
    report(Backlog(shard, 0))
    for done in aside.values():
        report(done)


def _walk(job: Work, stop_flag: StopFlag, report: Report, shard: int, aside: dict[str, SubscriptionResult]) -> bool:
    """Try each subscription once, and put busy and deferred ones aside. False: the worker has to end."""
    walk = DueWalk(job.filter, shard=shard, shards=job.workers)
    for ref in job.subscriptions[shard :: job.workers] if job.subscriptions else walk:
        done = _attempt(job, stop_flag, ref, report)
        if done is None:
            return False
        if done.outcome in RETRY:
            aside[ref] = done
            report(Backlog(shard, len(aside)))
        walk.missed(done.outcome in SKIPPED)
    return True


def _come_back(job: Work, stop_flag: StopFlag, report: Report, shard: int, aside: dict[str, SubscriptionResult]) -> None:
    """Try the subscriptions that were put aside again; each that stays there keeps its last result."""
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
            report(Backlog(shard, len(aside)))


def _pause(seconds: float, stop_flag: StopFlag) -> None:
    """Wait, at most until the run has to end."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0 and not stop_flag.stopped():
        time.sleep(min(left_s, LOOK_EVERY_S))


def _attempt(job: Work, stop_flag: StopFlag, ref: str, report: Report) -> SubscriptionResult | None:
    """Bill a subscription and report it, unless it has to wait. None: the worker has to end first."""
    done = _try(job, stop_flag, ref, report, generate.generate)
    if done is not None and done.outcome not in RETRY:
        report(done)
    return done


def _try(
    job: Work, stop_flag: StopFlag, ref: str, report: Report, act: Callable[..., GenerationResult]
) -> SubscriptionResult | None:
    """Bill a subscription with `act`. None: the worker has to end first."""
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
    """As `work`, with the subscriptions of each customer in one preview.

    They share credits and coupons: what one subscription has used is not available to the next, as in a real run. The lock of a
    subscription is held only while that one is worked out, and no holder's lock is taken.
    """
    aside: dict[tuple[str, ...], list[SubscriptionResult]] = {}
    groups: Iterable[tuple[str, ...]] = due_together(job.filter, job.subscriptions, shard=shard, shards=job.workers)
    for retries_left in range(job.retry_busy, -1, -1):
        goes_on = _try_groups(job, stop_flag, report, groups, aside, shard, may_wait=retries_left > 0)
        if not goes_on or not aside:
            break
        _pause(job.retry_wait_s, stop_flag)
        groups = list(aside)
    report(Backlog(shard, 0))
    for tried in aside.values():
        for done in tried:
            report(done)


def _try_groups(
    job: Work,
    stop_flag: StopFlag,
    report: Report,
    groups: Iterable[tuple[str, ...]],
    aside: dict[tuple[str, ...], list[SubscriptionResult]],
    shard: int,
    *,
    may_wait: bool,
) -> bool:
    """Dry-run each group and report it, or put it aside where one of them has to wait. False: the worker has to end."""
    for refs in groups:
        aside.pop(refs, None)
        tried = _try_together(job, stop_flag, refs, report)
        is_whole = len(tried) == len(refs)
        if is_whole and may_wait and any(done.outcome in RETRY for done in tried):
            aside[refs] = tried
            report(Backlog(shard, sum(len(group) for group in aside.values())))
            for done in tried:
                if done.outcome in BILLED:
                    stop_flag.give_back()
            continue
        for done in tried:
            report(done)
        if not is_whole:
            return False
    return True


def _try_together(job: Work, stop_flag: StopFlag, refs: Sequence[str], report: Report) -> list[SubscriptionResult]:
    """Dry-run these subscriptions on one snapshot and return their results; fewer where the worker has to end."""
    tried: list[SubscriptionResult] = []
    try:
        with preview(one_snapshot=True):
            for ref in refs:
                done = _try(job, stop_flag, ref, report, generate.dry_run_in)
                if done is None:
                    break
                tried.append(done)
    except Error as error:
        return [SubscriptionResult(ref, Outcome.DEFERRED, sqlstate(error) or "") for ref in refs]
    return tried
