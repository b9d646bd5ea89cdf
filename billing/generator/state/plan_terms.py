"""What a plan brings to the account of the holder: overage, budgets and allowance, set in one transaction from one reading.

The transaction of the payment that starts a subscription sets them, or one of its own after each order, or a run. So the account
never has the overage of one plan beside the allowance of another: if the session ends in between, nothing is set, and the next
run of the subscription sets all.
"""

import logging

from billing.documents.invoice_locks import invoice_key
from billing.errors import SubscriptionNotStarted
from billing.generator.state.allowance_terms import set_allowance_terms
from billing.generator.state.overage import set_overage
from billing.generator.state.plan_budgets import set_budgets
from billing.generator.state.subscription_state import BillableItems, SubscriptionState, read_items, read_subscription
from billing.orders.subscriptions import started
from ledger.database.locks import Lock, holder_key, try_advisory_lock
from ledger.database.transactions import locked_transaction
from ledger.errors import Retryable

log = logging.getLogger("billing.terms")


def set_terms_of(ref: str) -> None:
    """Set what the plan of a subscription brings, in a transaction of its own: after an order, at once.

    While its billing is suspended, the ledger grants no allowance; the run that bills it next sets the rest. A subscription that
    waits has its terms set by its first payment; one whose locks are not free within lock_timeout, by the next run.
    """
    try:
        with locked_transaction(invoice_key(ref)) as lock:
            started(ref)
            subscription = read_subscription(lock, ref)
            set_terms(lock, subscription, read_items(lock, subscription), grants_now=True)
    except (SubscriptionNotStarted, Retryable) as error:
        log.info("%s: what the plan brings follows with the next run: %s", ref, error)


def set_terms_at_start(ref: str) -> None:
    """Set what the plan of a subscription that has just started brings, and have its credits granted, in the open transaction.

    No run has billed it, and none does before the transaction commits: until then it waits for everybody else.

    Raises:
        LockBusy: another session has the subscription's lock or the holder's; nothing was written.
    """
    with try_advisory_lock(invoice_key(ref)) as lock:
        subscription = read_subscription(lock, ref)
        if not subscription.holder_id or subscription.suspended_reason is not None:
            return
        with try_advisory_lock(holder_key(subscription.holder_id)):
            set_terms(lock, subscription, read_items(lock, subscription), grants_now=True)


def set_terms(lock: Lock, subscription: SubscriptionState, items: BillableItems, *, grants_now: bool = False) -> None:
    """Set the overage, the budgets and the allowance of the plan that the subscription is on now, unless the account has them.

    While billing is suspended, overage and budgets stay as they are, and the terms of the allowance end.

    Lock order: the caller has the subscription's lock; then the holder's.

    Args:
        grants_now: have the ledger also grant what has begun; False: the run that calls this, or the next one, grants it.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    if subscription.suspended_reason is None:
        set_overage(lock, subscription, items)
        set_budgets(lock, subscription, items)
    set_allowance_terms(lock, subscription, items, grants_now=grants_now)
