"""A subscription with its customer and its cursor, read by one statement."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from billing.documents.invoice_locks import invoice_key
from billing.errors import NotFound
from billing.rating.periods import first_charged_instant
from billing.rating.tax import VatStatus, vat_status_of
from ledger.database.locks import Lock
from ledger.database.statements import Loader, Statement, boolean, decimal, instant, integer, parameter

SUBSCRIPTION_SQL = """
    SELECT s.id, s.ref, s.customer_id, s.started_at, s.trial_end, s.anchor_at, s.time_zone,
        c.ref AS customer_ref, c.name, c.language, c.address::text, c.vat_id, c.vat_status, c.terms_days,
        c.time_zone AS customer_time_zone, c.currency, c.holder_id, c.credit_type, c.credit_unit_value::text, c.grace_days,
        coalesce((SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id), 0) AS amendments,
        coalesce((SELECT max(o.sequence) FROM billing_charge AS o WHERE o.subscription_id = s.id), 0) AS charges,
        cursor.recurring_amendments_seen, cursor.usage_amendments_seen, cursor.recurring_due_at, cursor.usage_due_at,
        cursor.charges_seen,
        -- A hint that reaches beyond what is billed would hide what is not: then the run looks at everything.
        CASE WHEN cursor.claims_from < (
            SELECT max(c.ends_at) FROM billing_claim AS c WHERE c.subscription_id = s.id AND c.released_at IS NULL
        ) THEN cursor.claims_from END AS claims_from,
        cursor.usage_seen_until, clock_timestamp() AS read_at,
        (SELECT min(a.effective_at) FROM billing_amendment AS a
         WHERE a.subscription_id = s.id
            AND a.sequence > least(coalesce(cursor.recurring_amendments_seen, 0), coalesce(cursor.usage_amendments_seen, 0))
        ) AS first_unseen_amendment_at,
        (SELECT b.reason FROM billing_suspendedbilling AS b
         WHERE b.subscription_id = s.id AND b.resumed_at IS NULL) AS suspended_reason,
        EXISTS (SELECT FROM billing_customercoupon AS cc WHERE cc.customer_id = s.customer_id) AS has_coupons,
        EXISTS (SELECT FROM billing_creditnote AS n WHERE n.subscription_id = s.id AND n.released_at IS NULL) AS has_notes,
        EXISTS (SELECT FROM billing_invoice AS i
            WHERE i.subscription_id = s.id AND i.state = 'draft' AND i.grace_ends_at IS NOT NULL) AS has_drafts_in_grace
    FROM billing_subscription AS s
    JOIN billing_customer AS c ON c.id = s.customer_id
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE s.ref = %s
"""


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription, its customer and its cursor."""

    id: int
    ref: str
    customer_id: int
    active_from: datetime
    anchor_at: datetime
    time_zone: str
    customer_ref: str
    buyer: dict[str, Any]
    vat_status: VatStatus
    terms_days: int
    customer_time_zone: str
    currency: str
    holder_id: str
    credit_type: str
    credit_unit_value: Decimal | None
    amendments: int
    charges: int
    recurring_amendments_seen: int | None
    usage_amendments_seen: int | None
    recurring_due_at: datetime | None
    usage_due_at: datetime | None
    charges_seen: int | None
    claims_from: datetime | None
    usage_seen_until: datetime | None
    read_at: datetime
    first_unseen_amendment_at: datetime | None
    suspended_reason: str | None
    has_coupons: bool
    has_notes: bool
    grace_days: int
    has_drafts_in_grace: bool


SUBSCRIPTION_COLUMNS: Final[dict[str, Loader]] = {
    "id": integer, "ref": bytes.decode, "customer_id": integer, "started_at": instant, "trial_end": instant, "anchor_at": instant,
    "time_zone": bytes.decode, "customer_ref": bytes.decode, "name": bytes.decode, "language": bytes.decode,
    "address": json.loads, "vat_id": bytes.decode, "vat_status": bytes.decode, "terms_days": integer,
    "customer_time_zone": bytes.decode,
    "currency": bytes.decode, "holder_id": bytes.decode, "credit_type": bytes.decode, "credit_unit_value": decimal,
    "grace_days": integer, "amendments": integer, "charges": integer, "recurring_amendments_seen": integer,
    "usage_amendments_seen": integer, "recurring_due_at": instant, "usage_due_at": instant, "charges_seen": integer,
    "claims_from": instant, "usage_seen_until": instant, "read_at": instant, "first_unseen_amendment_at": instant,
    "suspended_reason": bytes.decode, "has_coupons": boolean, "has_notes": boolean, "has_drafts_in_grace": boolean,
}  # fmt: skip
"""The columns of SUBSCRIPTION_SQL in their order: fields of SubscriptionState, and what others of them are made from."""

SUBSCRIPTION = Statement(
    "subscription_to_bill", SUBSCRIPTION_SQL, [*SUBSCRIPTION_COLUMNS.values()],
    row=lambda values: dict(zip(SUBSCRIPTION_COLUMNS, values, strict=True)),
)  # fmt: skip


def read_subscription(lock: Lock, ref: str) -> SubscriptionState:
    """The subscription and its customer as they are now.

    Raises:
        NotFound: there is no such subscription.
    """
    lock.ensure_held(invoice_key(ref))
    fields = SUBSCRIPTION.execute([parameter(ref)])
    if fields is None:
        raise NotFound(resource="subscription", ref=ref)
    buyer = {name: fields.pop(name) for name in ("name", "language", "address", "vat_id", "vat_status")}
    return SubscriptionState(
        active_from=first_charged_instant(fields.pop("started_at"), fields.pop("trial_end")),
        buyer=buyer,
        vat_status=vat_status_of(buyer["vat_status"], buyer["vat_id"]),
        **fields,
    )
