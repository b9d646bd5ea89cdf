"""The periods of prices billed by entries whose entries have changed since they were billed: refunds, and use recorded late."""

from datetime import datetime
from typing import Final, NamedTuple

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.claims import LateClaim
from billing.generator.state.subscription_state import BillableItems, SubscriptionState
from ledger.database.locks import Lock
from ledger.database.statements import fetch_rows
from ledger.services.rated_use import rated_use_changed

# What the open claims of a subscription bill by entries, and the end of the last of them.
BILLED: Final = """
    SELECT p.definition -> 'entries' ->> 'credit_type', p.definition -> 'entries' ->> 'rate', max(c.ends_at)
    FROM billing_claim AS c JOIN billing_price AS p ON p.id = c.price_id
    WHERE c.subscription_id = %s AND c.released_at IS NULL AND c.kind = 2 AND p.definition ->> 'billed_by' = 'entries'
    GROUP BY 1, 2
"""

CLAIMS_AT: Final = """
    SELECT c.id, c.starts_at, c.measure_again
    FROM billing_claim AS c
    JOIN billing_price AS p ON p.id = c.price_id AND p.definition ->> 'billed_by' = 'entries'
        AND p.definition -> 'entries' ->> 'credit_type' = %s AND p.definition -> 'entries' ->> 'rate' = %s
    WHERE c.subscription_id = %s AND c.released_at IS NULL AND c.kind = 2
        AND EXISTS (SELECT FROM unnest(%s::timestamptz[]) AS used (at) WHERE used.at >= c.starts_at AND used.at < c.ends_at)
"""


class _Billed(NamedTuple):
    """A row of BILLED."""

    credit_type: str
    rate: str
    until: datetime


def read_late_entries(lock: Lock, subscription: SubscriptionState, items: BillableItems) -> dict[int, LateClaim]:
    """Return the claims on periods billed by entries about which something was recorded since an earlier run, by id."""
    lock.ensure_held(invoice_key(subscription.ref))
    late_claims: dict[int, LateClaim] = {}
    if not subscription.holder_id or subscription.usage_seen_until is None:
        return late_claims
    if not any(span.price.is_billed_by_entries() for spans in items.usage.values() for span in spans):
        return late_claims
    for billed in fetch_rows(_Billed, BILLED, [subscription.id]):
        instants = rated_use_changed(
            holder_id=subscription.holder_id,
            credit_type=billed.credit_type,
            rate=billed.rate,
            since=subscription.usage_seen_until,
            until=billed.until,
        )
        if instants:
            values = [billed.credit_type, billed.rate, subscription.id, instants]
            late_claims |= {claim.id: claim for claim in fetch_rows(LateClaim, CLAIMS_AT, values)}
    return late_claims
