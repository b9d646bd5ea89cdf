"""A subscription that waits starts with the payment of its first invoice, and what its plan brings comes in the same transaction.

Note [A payment does not fail for credits]
    Who pays holds `payment/<invoice>`, which comes after the lock of a subscription. So the terms are set under locks that are
    only tried, within a savepoint. If they are not free, or the ledger refuses, the payment stays as it is, and what follows an
    order follows after COMMIT, where it can wait.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from django.db import transaction

from billing.models import Activation, Subscription
from billing.orders.subscriptions import tell_followers
from ledger.errors import Retryable

log = logging.getLogger("billing.starting")

STARTERS: Final[list[Callable[[str], object]]] = []
"""What sets the terms of a subscription that has just started, by its reference, in the caller's transaction."""


def start_with_the_payment(act: Callable[[str], object]) -> None:
    """Register what comes with the first payment; a second registration changes nothing."""
    if act not in STARTERS:
        STARTERS.append(act)


@contextmanager
def starting_if_paid(invoice_id: int) -> Iterator[None]:
    """Run the block, which changes what is due or paid of an invoice; then set the terms of the subscription that it started.

    See Note [A payment does not fail for credits]. The caller has the lock of the invoice's payments.
    """
    waiting = Activation.objects.filter(invoice_id=invoice_id, state=Activation.State.WAITING).first()
    yield
    if waiting is None or not Activation.objects.filter(pk=waiting.pk, state=Activation.State.STARTED).exists():
        return
    subscription = Subscription.objects.get(pk=waiting.subscription_id)
    for act in STARTERS:
        try:
            with transaction.atomic():
                act(subscription.ref)
        except Retryable as busy:
            log.info("%s: what its plan brings follows after the payment: %s", subscription.ref, busy)
        except Exception:
            log.exception("%s: what its plan brings follows after the payment.", subscription.ref)
    tell_followers(subscription)
