"""A worker of a run: one short transaction for each subscription, independent of the others.

The workers of a run divide the list among themselves. Any number of runs, on any number of machines, share it: each skips
subscriptions that are locked or billed. At the end a worker tries the busy ones again: `locking.share`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from django.db import Error, transaction

from billing.errors import TaxesRefused, TaxesUnavailable
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.due import DueFilter, DueWalk, consolidating, due_together, share_invoices
from billing.generator.run.gathering import Turns, consolidate_next
from billing.generator.run.outcomes import (
    BILLED,
    RETRY,
    SKIPPED,
    WAITING,
    RunOutcome,
    SubscriptionResult,
    bill_one,
    of_customer,
    without_taxes,
)
from billing.generator.run.steps import GenerationResult
from billing.generator.run.stop_flags import StopFlag
from billing.tax_asking import asks_taxes
from ledger.database.locking import TurnResult, share
from ledger.database.locks import sqlstate
from ledger.database.transactions import own_or_joined
from ledger.previews import Preview
from ledger.services import preview

Item = TypeVar("Item")


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
    filter: DueFilter
    subscriptions: tuple[str, ...] = ()
    workers: int = 1
    limit: int | None = None
    retry_busy: int = 3
    retry_wait_s: float = 0.2
    max_runtime_s: float | None = None
    fail_fast: bool = False
    max_failures: int | None = None


class Note(StrEnum):
    """The reports of a worker to its run, beside results."""

    LIMIT_REACHED = "limit reached"
    WORK_LEFT = "stopped with work left"


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many subscriptions a worker will try again."""

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
    had_turn: set[str] = set()
    walk = DueWalk(job.filter, shard=shard, shards=job.workers)

    def bill(ref: str) -> TurnResult | None:
        if not _reserve(stop_flag, report):
            return TurnResult.END
        done = aside[ref] = _bill(ref, job.options, stop_flag, generate.generate)
        walk.missed(done.outcome in SKIPPED)
        if done.outcome in RETRY:
            return TurnResult.BUSY
        if done.outcome not in BILLED | WAITING:
            had_turn.add(ref)
        report(aside.pop(ref))
        return None

    refs = job.subscriptions[shard :: job.workers] if job.subscriptions else walk
    _share(job, stop_flag, report, refs, bill, waiting=lambda busy: report(Backlog(shard, len(busy))))
    report(Backlog(shard, 0))
    for done in aside.values():
        report(done)
    _consolidate(job, stop_flag, report, shard, had_turn)


def _consolidate(job: Work, stop_flag: StopFlag, report: Report, shard: int, had_turn: Collection[str]) -> None:
    """Make the consolidated invoices of the worker's customers, after all their subscriptions have had their turn.

    Args:
        had_turn: the subscriptions that stay due, because a person has to check them.
    """
    aside: dict[str, SubscriptionResult] = {}
    turns = Turns(job.filter, had_turn)

    def make(customer_ref: str) -> TurnResult | None:
        while True:
            done = bill_one(customer_ref, job.options, partial(_next_document, turns))
            if done.outcome in RETRY:
                aside[customer_ref] = of_customer(done)
                return TurnResult.BUSY
            aside.pop(customer_ref, None)
            if done.outcome == RunOutcome.NOTHING_DUE:
                return None
            report(of_customer(done))
            if done.outcome not in BILLED or _must_end(stop_flag, report):
                return None

    customers = consolidating(job.filter, job.subscriptions, shard=shard, shards=job.workers)
    _share(job, stop_flag, report, customers, make, waiting=lambda busy: report(Backlog(shard, len(busy))))
    report(Backlog(shard, 0))
    for done in aside.values():
        report(done)


def _next_document(turns: Turns, *, ref: str, options: Options) -> GenerationResult:
    """Make the next consolidated invoice of a customer that is ready, in its own transaction; without one, an empty result."""
    while True:
        with own_or_joined(customer=ref):
            made = consolidate_next(ref, turns, options)
        if made is None or made.invoices:
            return made or GenerationResult(ref)


def _share(
    job: Work,
    stop_flag: StopFlag,
    report: Report,
    items: Iterable[Item],
    bill: Callable[[Item], TurnResult | None],
    waiting: Callable[[Collection[Item]], None],
) -> None:
    """Share the items with all other workers for as long as the run lasts."""
    stop = partial(_must_end, stop_flag, report)
    share(items, bill, retries=job.retry_busy, wait_s=job.retry_wait_s, stop=stop, waiting=waiting)


def _must_end(stop_flag: StopFlag, report: Report) -> bool:
    """Return whether the worker must begin no further subscription, and report that work is left."""
    if stop_flag.stopped():
        report(Note.WORK_LEFT)
        return True
    return False


def _reserve(stop_flag: StopFlag, report: Report) -> bool:
    """Reserve a subscription of the limit, or report that the limit is reached."""
    if not stop_flag.reserve():
        report(Note.LIMIT_REACHED)
        return False
    return True


def _bill(ref: str, options: Options, stop_flag: StopFlag, act: Callable[..., GenerationResult]) -> SubscriptionResult:
    """Bill a subscription with `act`, and cancel its reservation if nothing was billed."""
    done = bill_one(ref, options, act)
    if done.outcome not in BILLED:
        stop_flag.give_back()
    return done


def _dry_run(job: Work, stop_flag: StopFlag, report: Report, shard: int) -> None:
    """Work as `work` does, with the subscriptions of each customer in one preview.

    They share credits and coupons: what one subscription has used is not available to the next, as in a real run. The lock of a
        subscription is held only during its own part, and no holder's lock is taken.
    """
    aside: dict[tuple[str, ...], list[SubscriptionResult]] = {}
    consolidated: set[str] = set()

    def bill(refs: tuple[str, ...]) -> TurnResult | None:
        aside.pop(refs, None)
        tried = _try_together(job, stop_flag, refs, report, consolidated)
        is_whole = len([done for done in tried if not done.customer]) == len(refs)
        if is_whole and any(done.outcome in RETRY for done in tried):
            aside[refs] = tried
            _give_back(stop_flag, tried)
            return TurnResult.BUSY
        for done in tried:
            report(done)
        return None if is_whole else TurnResult.END

    groups: Iterable[tuple[str, ...]] = due_together(job.filter, job.subscriptions, shard=shard, shards=job.workers)
    _share(job, stop_flag, report, groups, bill, waiting=lambda busy: report(Backlog(shard, sum(map(len, busy)))))
    report(Backlog(shard, 0))
    for done in (done for tried in aside.values() for done in tried):
        if done.customer or done.outcome not in BILLED or _reserve(stop_flag, report):
            report(done)
    if not job.subscriptions:
        _dry_consolidate(job, stop_flag, report, shard, consolidated)


def _dry_consolidate(job: Work, stop_flag: StopFlag, report: Report, shard: int, had_turn: Collection[str]) -> None:
    """Make the consolidated invoices of drafts that wait, of the customers without a subscription that is due."""
    aside: dict[str, list[SubscriptionResult]] = {}

    def make(customer_ref: str) -> TurnResult | None:
        try:
            with preview(one_snapshot=True) as shown:
                tried = _tried_documents(shown, job, [customer_ref], Turns(job.filter))
        except Error as error:
            tried = [of_customer(SubscriptionResult(customer_ref, RunOutcome.DEFERRED, sqlstate(error) or ""))]
        if any(done.outcome in RETRY for done in tried):
            aside[customer_ref] = tried
            return TurnResult.BUSY
        aside.pop(customer_ref, None)
        for done in tried:
            report(done)
        return None

    customers = (ref for ref in consolidating(job.filter, shard=shard, shards=job.workers) if ref not in had_turn)
    _share(job, stop_flag, report, customers, make, waiting=lambda busy: report(Backlog(shard, len(busy))))
    report(Backlog(shard, 0))
    for done in (done for tried in aside.values() for done in tried):
        report(done)


def _try_together(
    job: Work, stop_flag: StopFlag, refs: Sequence[str], report: Report, consolidated: set[str]
) -> list[SubscriptionResult]:
    """Dry-run these subscriptions on one snapshot and return their results; fewer if the worker has to end.

    If some of them share invoices, the rows and locks of all stay until their consolidated invoices are made.

    Args:
        consolidated: the customers whose consolidated invoices it has made are added.
    """
    tried: list[SubscriptionResult] = []

    @asks_taxes
    def attempt() -> None:
        _give_back(stop_flag, tried)
        tried.clear()
        with preview(one_snapshot=True) as shown:
            shares = share_invoices(refs)
            act = generate.dry_run_staying if shares else generate.dry_run_in
            for ref in refs:
                if _must_end(stop_flag, report) or not _reserve(stop_flag, report):
                    return
                tried.append(_bill(ref, job.options, stop_flag, act))
            if shares or job.subscriptions:
                turns = Turns(job.filter, {done.subscription for done in tried if done.outcome not in BILLED | WAITING})
                customers = list(consolidating(job.filter, refs))
                tried.extend(_tried_documents(shown, job, customers, turns))
                consolidated.update(customers)

    try:
        attempt()
    except Error as error:
        return [SubscriptionResult(ref, RunOutcome.DEFERRED, sqlstate(error) or "") for ref in refs]
    except (TaxesUnavailable, TaxesRefused) as error:
        _give_back(stop_flag, tried)
        return [without_taxes(ref, error) for ref in refs]
    return tried


def _tried_documents(shown: Preview, job: Work, customers: Iterable[str], turns: Turns) -> list[SubscriptionResult]:
    """Make the consolidated invoices of customers in a preview; their rows stay until it ends."""
    tried: list[SubscriptionResult] = []
    for customer_ref in customers:
        while True:
            with shown.attempt(), transaction.atomic():
                done = bill_one(customer_ref, job.options, partial(_next_document, turns))
            if done.outcome == RunOutcome.NOTHING_DUE:
                break
            tried.append(of_customer(done))
            if done.outcome not in BILLED:
                break
            shown.rows_stay()
    return tried


def _give_back(stop_flag: StopFlag, tried: Collection[SubscriptionResult]) -> None:
    """Cancel the reservations of subscriptions whose results are thrown away."""
    for done in tried:
        if done.outcome in BILLED and not done.customer:
            stop_flag.give_back()
