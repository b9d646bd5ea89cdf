"""What a plan brings to the account of the holder, set in the transaction of the payment that starts a subscription."""

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.allowance_terms import set_allowance_terms
from billing.generator.state.overage import set_overage
from billing.generator.state.plan_budgets import set_budgets
from billing.generator.state.subscription_state import read_items, read_subscription
from ledger.database.locks import holder_key, try_advisory_lock


def set_terms_at_start(ref: str) -> None:
    """Set the overage, the budgets and the allowance of a subscription that has just started, and have its credits granted.

    No run has billed it, and none does before the transaction commits: until then it waits for everybody else.

    Raises:
        LockBusy: another session has the subscription's lock or the holder's; nothing was written.
    """
    with try_advisory_lock(invoice_key(ref)) as lock:
        subscription = read_subscription(lock, ref)
        if not subscription.holder_id or subscription.suspended_reason is not None:
            return
        with try_advisory_lock(holder_key(subscription.holder_id)):
            items = read_items(lock, subscription)
            set_overage(lock, subscription, items)
            set_budgets(lock, subscription, items)
            set_allowance_terms(lock, subscription, items, grants_now=True)
