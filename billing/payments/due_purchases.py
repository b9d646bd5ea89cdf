"""Tries the purchases that have a step to be done; any number of workers at the same time."""

from collections.abc import Callable
from dataclasses import dataclass

from django.utils import timezone

from billing.payments.models import DuePurchase
from billing.payments.purchase_settling import attempt
from billing.reads.pages import walked


@dataclass(slots=True)
class SettledPurchases:
    """The counts of one run."""

    due: int = 0
    settled: int = 0
    failed: int = 0


def settle_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> SettledPurchases:
    """Try each purchase that is due once, each in a short transaction; skip those that another worker is at.

    Args:
        dry_run: count what is due, and write nothing.
        stop: called before each purchase; True ends the run.
    """
    counts = SettledPurchases()
    for purchase_id in walked(DuePurchase.objects.filter(due_at__lte=timezone.now()), "purchase_id"):
        if stop():
            break
        counts.due += 1
        if dry_run:
            continue
        if attempt(purchase_id, wait=False):
            counts.settled += 1
        else:
            counts.failed += 1
    return counts
