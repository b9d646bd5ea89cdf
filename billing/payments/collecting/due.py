"""Takes further what is due: events, payment intents and refunds; any number of workers at the same time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.utils import timezone

from billing.models import PaymentIntent, ProviderEvent, ProviderRefund
from billing.payments.collecting.advancing import advance, send_refund
from billing.payments.collecting.events import handle

PAGE_ROWS: Final = 500


@dataclass(slots=True)
class Advanced:
    """The counts of one run."""

    events: int = 0
    intents: int = 0
    refunds: int = 0
    failed: int = 0


def advance_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> Advanced:
    """Take further what was due when the run began.

    Args:
        dry_run: count it, and ask nobody.
        stop: called before each; True ends the run.
    """
    found = Advanced()
    steps: tuple[tuple[str, Any, Callable[[int], bool]], ...] = (
        ("events", ProviderEvent, handle), ("intents", PaymentIntent, advance), ("refunds", ProviderRefund, send_refund),
    )  # fmt: skip
    for name, model, step in steps:
        for pk in _due(model):
            if stop():
                return found
            setattr(found, name, getattr(found, name) + 1)
            if not dry_run:
                found.failed += step(pk)
    return found


def _due(model: Any) -> Iterator[int]:
    began, last = timezone.now(), 0
    while page := list(
        model.objects.filter(due_at__lte=began, pk__gt=last).order_by("pk").values_list("pk", flat=True)[:PAGE_ROWS]
    ):
        yield from page
        last = page[-1]
