"""The allowance of a plan as a recurring grant of the ledger: its terms on the account, and the periods that the ledger granted.

Orders and runs set the terms; from then on the ledger grants each full period by the first write after its start, whatever run is
late. The next run claims what the ledger granted, as if it had granted it itself, and only then compares claims with the target.
So what a change cuts goes back, and a period is granted once. See docs/adr/0163.

Runs grant themselves: the parts of periods that changes leave, allowances that roll over, whose cap counts what they granted, and
those that pay for usage or invoices in the order of their due dates.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple

from billing.documents.invoice_locks import invoice_key
from billing.errors import SubscriptionNotStarted
from billing.generator.state.allowance_times import AllowancePart, AllowanceSpan, next_full_part, purpose_text
from billing.generator.state.allowances import AllowanceGrant
from billing.generator.state.subscription_state import BillableItems, SubscriptionState, read_items, read_subscription
from billing.models import Claim
from billing.orders.subscriptions import started
from billing.rating.periods import instant_of
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import Refused, Retryable
from ledger.periods import IntervalUnit
from ledger.values import MAX_AMOUNT

MOST_UNITS: Final = 100
REASON: Final = "Plan allowance"
log = logging.getLogger("billing.allowances")

CLAIMED: Final = """
    SELECT COALESCE(max((snapshot ->> 'adopted')::bigint), 0) FROM billing_claim
    WHERE subscription_id = %s AND kind = 5 AND snapshot ->> 'credit_type' = %s
"""
CLAIMED_UNTIL: Final = """
    SELECT max(ends_at) FROM billing_claim WHERE subscription_id = %s AND released_at IS NULL AND kind = 5
"""
ITEM: Final = """
    SELECT item_id FROM billing_itemversion WHERE subscription_id = %s ORDER BY price_id IS NULL DESC, id LIMIT 1
"""


class _Terms(NamedTuple):
    """The terms of an allowance on the account."""

    amount: int
    interval: str
    interval_count: int
    anchor_at: datetime
    time_zone: str
    first_at: datetime
    ends_at: datetime | None
    applies_to: dict[str, Any] | None


def name_of(subscription: SubscriptionState) -> str:
    """Return the name of the recurring grant of a subscription's allowance."""
    return f"plan-{subscription.id}"


# What the ledger granted -----------------------------------------------------------------------------


def claim_granted(lock: Lock, subscription: SubscriptionState, spans: Sequence[AllowanceSpan]) -> list[AllowanceGrant]:
    """Have the ledger grant the periods that are due by the terms on the account, and claim what it granted since the last run.

    Lock order: the caller has the subscription's lock and its turn for the customer's account; then the holder's.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    name, found = name_of(subscription), []
    with holder_lock(subscription.holder_id) as holder:
        for credit_type in ledger.credit_types_of(holder_id=subscription.holder_id, recurring_grant=name):
            granted = _unclaimed(holder, subscription, credit_type)
            found += [_claim(subscription, spans, credit_type, one) for one in granted]
    return found


def _unclaimed(holder: Lock, subscription: SubscriptionState, credit_type: str) -> list[ledger.GrantedPeriod]:
    """Have the ledger grant what is due, and return the periods that it granted since the last run."""
    [since] = fetch_rows(int, CLAIMED, [subscription.id, credit_type])
    return ledger.granted_under(
        holder,
        holder_id=subscription.holder_id,
        credit_type=credit_type,
        recurring_grant=name_of(subscription),
        since=since,
    )


def has_terms(subscription: SubscriptionState) -> bool:
    """Return whether the account has, or had, terms of the subscription's allowance."""
    holder_id = subscription.holder_id
    return bool(holder_id and ledger.credit_types_of(holder_id=holder_id, recurring_grant=name_of(subscription)))


def _claim(
    subscription: SubscriptionState, spans: Sequence[AllowanceSpan], credit_type: str, granted: ledger.GrantedPeriod
) -> AllowanceGrant:
    start, end = granted.starts_at, granted.ends_at
    of = [span.item_id for span in spans if span.start <= start and (span.end is None or start < span.end)]
    claim = Claim.objects.create(
        subscription_id=subscription.id,
        item_id=of[0] if of else fetch_rows(int, ITEM, [subscription.id])[0],
        kind=Claim.Kind.ALLOWANCE,
        starts_at=start,
        ends_at=end,
        quantity=granted.amount,
        amount_minor=0,
        snapshot={
            "credit_type": credit_type,
            "amount": granted.amount,
            "terms": AllowancePart.terms_of_full(credit_type, granted.amount, start, end, purpose_text(granted.applies_to)),
            "key": granted.idempotency_key,
            "cuts": 0,
            "holder_id": subscription.holder_id,
            "grant": granted.sequence,
            "adopted": granted.sequence,
            "rollover_grants": {},
            "lapsed": 0,
            "expires_at": end.isoformat(),
            "pays_usage": False,
            "left": 0,
            "times": 0,
        },
    )
    return AllowanceGrant(credit_type, granted.amount, granted.sequence, None, claim.pk, start, end)


# What it grants next ---------------------------------------------------------------------------------


def set_allowance_terms_of(ref: str) -> None:
    """Set the terms of a subscription's allowance, as `set_allowance_terms` does, in a transaction of its own: after an order.

    While its billing is suspended, the ledger grants nothing. A subscription that waits for its first payment, and one whose
    locks are not free within lock_timeout, has its terms set by the next run.
    """
    try:
        with locked_transaction(invoice_key(ref)) as lock:
            started(ref)
            subscription = read_subscription(lock, ref)
            set_allowance_terms(lock, subscription, read_items(lock, subscription))
    except (SubscriptionNotStarted, Retryable) as error:
        log.info("%s: the terms of the allowance follow with the next run: %s", ref, error)


def set_allowance_terms(lock: Lock, subscription: SubscriptionState, items: BillableItems) -> None:
    """Set the terms by which the ledger grants the next full periods, or end earlier ones, unless the account has them already.

    Lock order: the caller has the subscription's lock; then the holder's.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    # An amendment may have replaced all of the time in which a plan granted credits.
    if not subscription.holder_id or not (items.allowances or subscription.amendments > 1):
        return
    name = name_of(subscription)
    known_types = ledger.credit_types_of(holder_id=subscription.holder_id, recurring_grant=name)
    credit_types = sorted({*known_types, *(span.credit_type for span in items.allowances)})
    if not credit_types:
        return
    with holder_lock(subscription.holder_id) as holder:
        granted = [one for credit_type in known_types for one in _unclaimed(holder, subscription, credit_type)]
        part = _next_part(subscription, items, granted)
        for credit_type in credit_types:
            _set(holder, subscription, credit_type, _terms(part) if part and part.span.credit_type == credit_type else None)


def _next_part(
    subscription: SubscriptionState, items: BillableItems, granted: Sequence[ledger.GrantedPeriod]
) -> AllowancePart | None:
    """Return the next full period that the ledger can grant, after what was granted; None if there is none.

    Args:
        granted: what no run has claimed yet.
    """
    if subscription.suspended_reason is not None:
        return None
    after = ledger.time_of(subscription.holder_id)
    [claimed] = fetch_rows(lambda until: until or after, CLAIMED_UNTIL, [subscription.id])
    part = next_full_part(items.allowances, after, max([claimed, *(one.ends_at for one in granted)]))
    return part if part is not None and _can_be_granted(subscription, part.span) else None


def _can_be_granted(subscription: SubscriptionState, span: AllowanceSpan) -> bool:
    """Return whether its credits pay for spends alone and expire with their period: see the top of this module."""
    pays_invoices = subscription.credit_unit_value is not None and subscription.credit_type == span.credit_type
    pays_invoices = pays_invoices and not span.applies_to
    is_whole = Fraction(span.amount).denominator == 1 and span.amount <= MAX_AMOUNT
    return span.rollover_cap is None and span.usage_schedule is None and not pays_invoices and is_whole


def _terms(part: AllowancePart) -> _Terms | None:
    span, schedule = part.span, part.span.schedule
    unit, count = schedule.interval.unit, schedule.interval.count
    if unit in (IntervalUnit.QUARTER, IntervalUnit.HALF_YEAR):
        unit, count = IntervalUnit.MONTH, schedule.interval.months
    # The last part is not granted in advance if the end cuts its period.
    ends_at = None if span.end is None else schedule.period_at(span.end).start
    anchor_at = instant_of(schedule.anchor, schedule.zone)
    if count > MOST_UNITS or anchor_at > part.part.start:
        return None
    return _Terms(int(span.amount), unit.value, count, anchor_at, schedule.zone.key, part.part.start, ends_at, span.pays_for)


def _set(holder: Lock, subscription: SubscriptionState, credit_type: str, wanted: _Terms | None) -> None:
    named: dict[str, Any] = {
        "holder_id": subscription.holder_id,
        "credit_type": credit_type,
        "recurring_grant": name_of(subscription),
    }
    known = ledger.recurring_grant_under(holder, **named)
    present = None if known is None or known.next_us is None else known
    if wanted is None and present is None:
        return
    if wanted is not None and present is not None and _as_stored(present) == _as_wanted(wanted):
        return
    named |= {"reason": REASON, "reference": f"subscription {subscription.ref}", "actor": "billing"}
    # Each setting follows the one before it, so the same terms can be set again later.
    key = f"allowance-terms/{subscription.ref}/{credit_type}/{0 if known is None else known.setting}"
    try:
        if wanted is None:
            ledger.end_recurring_grant_under(holder, **named, drops_due=True, idempotency_key=f"{key}/end")
        else:
            digest = hashlib.sha256(json.dumps(_as_wanted(wanted)).encode()).hexdigest()[:16]
            terms = wanted._asdict() | {"starts_at": wanted.anchor_at}
            del terms["anchor_at"]
            ledger.set_recurring_grant_under(holder, **named, **terms, idempotency_key=f"{key}/{digest}")
    except Refused as refused:
        log.warning("%s: the allowance is granted by runs, as the ledger refuses its terms: %s", subscription.ref, refused)


def _as_wanted(terms: _Terms) -> list[Any]:
    return [each.astimezone(UTC).isoformat() if isinstance(each, datetime) else each for each in terms]


def _as_stored(known: Any) -> list[Any]:
    terms = known.terms
    ends_at = None if terms.ends_us is None else ledger.instant_of_us(terms.ends_us)
    first_at = ledger.instant_of_us(known.next_us)
    return _as_wanted(
        _Terms(
            terms.amount, terms.interval, terms.interval_count, ledger.instant_of_us(terms.starts_us), terms.time_zone, first_at,
            ends_at, terms.applies_to,
        )
    )  # fmt: skip
