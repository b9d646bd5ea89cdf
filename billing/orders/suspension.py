"""Parking: a subscription that would be billed nonsense waits for somebody to look at it."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from billing.errors import NotParked
from billing.models import Parking
from billing.orders.subscriptions import subscription_of
from ledger.database.lock_names import SUSPENSION
from ledger.database.locks import advisory_lock


def park(*, ref: str, reason: str, facts: dict[str, Any] | None = None, run_id: UUID | None = None) -> Parking:
    """Keep the generator away from a subscription; parking what is parked changes nothing.

    Raises:
        NotFound: there is no such subscription.
    """
    subscription = subscription_of(ref)
    with transaction.atomic(), advisory_lock(SUSPENSION(ref)):
        standing = Parking.objects.filter(subscription_id=subscription.pk, unparked_at=None).first()
        if standing is not None:
            return standing
        return Parking.objects.create(subscription_id=subscription.pk, reason=reason, facts=facts or {}, run_id=run_id)


def unpark(*, ref: str, actor: str, reason: str) -> Parking:
    """Let the generator bill a subscription again, or raise and change nothing.

    Raises:
        NotFound, NotParked: there is no such subscription, or it is not parked.
    """
    subscription = subscription_of(ref)
    with transaction.atomic(), advisory_lock(SUSPENSION(ref)):
        standing = Parking.objects.filter(subscription_id=subscription.pk, unparked_at=None).first()
        if standing is None:
            raise NotParked(subscription=ref)
        Parking.objects.filter(pk=standing.pk).update(unparked_at=Now(), unparked_by=actor, unparked_reason=reason)
        standing.refresh_from_db()
    return standing
