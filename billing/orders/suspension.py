"""Suspended billing: instead of nonsense, the generator bills nothing of a subscription until a person resumes billing."""

from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from billing.errors import BillingNotSuspended
from billing.models import SuspendedBilling
from billing.orders.subscriptions import subscription_of, tell_followers
from ledger.database.lock_names import SUSPENSION
from ledger.database.locking import insert_once
from ledger.database.transactions import locked_transaction


def suspend(*, ref: str, reason: str, facts: dict[str, Any] | None = None, run_id: UUID | None = None) -> SuspendedBilling:
    """Suspend the billing of a subscription. If it is suspended already, return the existing row and change nothing.

    Raises:
        NotFound: the subscription does not exist.
    """
    suspended, is_new = insert_once(
        SUSPENSION(ref),
        check=lambda: _find_suspended(ref),
        insert=lambda: SuspendedBilling.objects.create(
            subscription_id=subscription_of(ref).pk, reason=reason, facts=facts or {}, run_id=run_id
        ),
    )
    if is_new:
        # The ledger grants no allowance while nothing is billed.
        tell_followers(subscription_of(ref))
    return suspended


def resume(*, ref: str, actor: str, reason: str) -> SuspendedBilling:
    """Resume the billing of a subscription, or raise and change nothing.

    Raises:
        NotFound: the subscription does not exist. BillingNotSuspended: its billing is not suspended.
    """
    with locked_transaction(SUSPENSION(ref)):
        subscription_of(ref)
        suspended = _find_suspended(ref)
        if suspended is None:
            raise BillingNotSuspended(subscription=ref)
        SuspendedBilling.objects.filter(pk=suspended.pk).update(resumed_at=Now(), resumed_by=actor, resume_reason=reason)
        suspended.refresh_from_db()
    return suspended


def _find_suspended(ref: str) -> SuspendedBilling | None:
    return SuspendedBilling.objects.filter(subscription__ref=ref, resumed_at=None).first()
