"""Takes further what is due: events, payment intents and refunds; any number of workers at the same time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from billing.models import PaymentIntent, ProviderEvent, ProviderRefund
from billing.payments.collecting.advancing import advance, send_refund
from billing.payments.collecting.events import handle
from billing.reads.pages import walked


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
    found, began = Advanced(), timezone.now()
    steps: tuple[tuple[str, Any, Callable[[int], bool]], ...] = (
        ("events", ProviderEvent, handle), ("intents", PaymentIntent, advance), ("refunds", ProviderRefund, send_refund),
    )  # fmt: skip
    for name, model, step in steps:
        for pk in walked(model.objects.filter(due_at__lte=began)):
            if stop():
                return found
            setattr(found, name, getattr(found, name) + 1)
            if not dry_run:
                found.failed += step(pk)
    return found
