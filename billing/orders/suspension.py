"""Suspended billing: the generator leaves a subscription alone, rather than bill nonsense, until a person resumes billing."""

from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from billing.errors import BillingNotSuspended
from billing.models import SuspendedBilling
from billing.orders.subscriptions import subscription_of
from ledger.database.lock_names import SUSPENSION
from ledger.database.locks import advisory_lock
from ledger.database.transactions import own_or_joined


def suspend(*, ref: str, reason: str, facts: dict[str, Any] | None = None, run_id: UUID | None = None) -> SuspendedBilling:
    """Suspend the billing of a subscription. Returns the first row, and changes nothing, where it is suspended already.

    Raises:
        NotFound: there is no such subscription.
    """
    subscription = subscription_of(ref)
    with own_or_joined(), advisory_lock(SUSPENSION(ref)):
        suspended = _suspended(subscription.pk)
        if suspended is not None:
            return suspended
        return SuspendedBilling.objects.create(subscription_id=subscription.pk, reason=reason, facts=facts or {}, run_id=run_id)


def resume(*, ref: str, actor: str, reason: str) -> SuspendedBilling:
    """Resume the billing of a subscription, or raise and change nothing.

    Raises:
        NotFound, BillingNotSuspended: there is no such subscription, or its billing is not suspended.
    """
    subscription = subscription_of(ref)
    with own_or_joined(), advisory_lock(SUSPENSION(ref)):
        suspended = _suspended(subscription.pk)
        if suspended is None:
            raise BillingNotSuspended(subscription=ref)
        SuspendedBilling.objects.filter(pk=suspended.pk).update(resumed_at=Now(), resumed_by=actor, resume_reason=reason)
        suspended.refresh_from_db()
    return suspended


def _suspended(subscription_id: int) -> SuspendedBilling | None:
    return SuspendedBilling.objects.filter(subscription_id=subscription_id, resumed_at=None).first()
