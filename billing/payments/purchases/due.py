"""Tries the purchases that have a step to be done; any number of workers at the same time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from django.utils import timezone

from billing.models import DuePurchase
from billing.payments.purchases.settling import attempt

PAGE_ROWS: Final = 500


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
    found = SettledPurchases()
    for purchase_id in _due():
        if stop():
            break
        found.due += 1
        if dry_run:
            continue
        if attempt(purchase_id, wait=False):
            found.settled += 1
        else:
            found.failed += 1
    return found


def _due() -> Iterator[int]:
    """Yield the purchases that were due when the run began, the longest due first."""
    began, last = timezone.now(), 0
    rows = DuePurchase.objects.filter(due_at__lte=began)
    while page := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", "purchase_id")[:PAGE_ROWS]):
        yield from (purchase_id for _, purchase_id in page)
        last = page[-1][0]
