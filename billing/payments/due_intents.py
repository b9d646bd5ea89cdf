"""Takes further what is due: events, payment intents and refunds; any number of workers at the same time."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.db import connections
from django.utils import timezone

from billing.payments.advancing import advance, send_refund
from billing.payments.models import PaymentIntent, ProviderEvent, ProviderRefund
from billing.payments.provider_events import handle
from billing.reads.pages import walked

LOOK_EVERY_S: Final = 0.5
"""How often a run that stays looks for what has become due: a customer waits for the address of a checkout."""
Step = Callable[[int], bool]
STEPS: Final[tuple[tuple[str, Any, Step], ...]] = (
    ("events", ProviderEvent, handle), ("intents", PaymentIntent, advance), ("refunds", ProviderRefund, send_refund),
)  # fmt: skip


@dataclass(slots=True)
class Advanced:
    """The counts of one run."""

    events: int = 0
    intents: int = 0
    refunds: int = 0
    failed: int = 0

    @property
    def due(self) -> int:
        """How much was due."""
        return self.events + self.intents + self.refunds


def advance_due(
    *, dry_run: bool = False, stop: Callable[[], bool] = lambda: False, workers: int = 1, stays: bool = False
) -> Advanced:
    """Take further what is due when the run begins.

    Args:
        dry_run: count it, and ask nobody.
        stop: called before each; True ends the run.
        workers: at most how many providers' answers are waited for at the same time.
        stays: go on looking for what becomes due until `stop` says so.
    """
    counts = Advanced()
    with _asking(workers, counts) as ask:
        while True:
            due_before = counts.due
            _advance_once(counts, ask, dry_run=dry_run, stop=stop)
            if not stays or stop():
                return counts
            if counts.due == due_before:
                time.sleep(LOOK_EVERY_S)


def _advance_once(counts: Advanced, ask: Callable[[Step, int], None], *, dry_run: bool, stop: Callable[[], bool]) -> None:
    began = timezone.now()
    for name, model, step in STEPS:
        for pk in walked(model.objects.filter(due_at__lte=began)):
            if stop():
                return
            setattr(counts, name, getattr(counts, name) + 1)
            if not dry_run:
                ask(step, pk)


@contextmanager
def _asking(workers: int, counts: Advanced) -> Iterator[Callable[[Step, int], None]]:
    """Give the block a function that takes one row further, in one of several threads; failures are counted."""
    if workers == 1:

        def ask_here(step: Step, pk: int) -> None:
            counts.failed += step(pk)

        yield ask_here
        return
    waiting: set[Future[bool]] = set()

    def count(done: set[Future[bool]]) -> None:
        waiting.difference_update(done)
        counts.failed += sum(each.result() for each in done)

    def ask(step: Step, pk: int) -> None:
        waiting.add(pool.submit(_step_in_thread, step, pk))
        if len(waiting) >= workers:
            count(wait(waiting, return_when=FIRST_COMPLETED).done)

    with ThreadPoolExecutor(workers, "asks-provider") as pool:
        yield ask
    count(set(waiting))


def _step_in_thread(step: Step, pk: int) -> bool:
    try:
        return step(pk)
    finally:
        connections.close_all()  # payments are rare
