"""Whether what was billed still follows from what it was made of: amendments, and usage events."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, transaction

from billing.metering.partitions import month_after
from billing.metering.usage import Measure, NewEvent, measure
from billing.models import Claim, DroppedMonth, Subscription, UsageEvent
from billing.orders import plans
from billing.orders.subscriptions import follows_from_amendments
from billing.rating.aggregation import Aggregation
from billing.rating.periods import Schedule

EVENTS_PER_FETCH = 5_000
LONGEST_TRANSACTION = timedelta(minutes=1)
"""How long before a claim an event may have been recorded that the claim's run did not see, because it was not committed yet."""

UNNUMBERED = """
    SELECT format('subscription %s: %s amendments, the last is %s', s.ref, count(a.sequence), coalesce(max(a.sequence), 0))
    FROM billing_subscription AS s LEFT JOIN billing_amendment AS a ON a.subscription_id = s.id
    GROUP BY s.id HAVING count(a.sequence) <> coalesce(max(a.sequence), 0) OR count(a.sequence) = 0
"""

# Every usage event with the digest that its key keeps of its content.
EVENTS = """
    SELECT event.idempotency_key, subscription.ref, event.meter, event.value, event.occurred_at, event.properties,
        key.content_digest
    FROM billing_usageevent AS event
    LEFT JOIN billing_subscription AS subscription ON subscription.id = event.subscription_id
    LEFT JOIN billing_usagekey AS key ON key.idempotency_key = event.idempotency_key
"""

MISSING_EVENTS = """
    SELECT (SELECT count(*) FROM billing_usagekey) - (SELECT count(*) FROM billing_usageevent)
        - (SELECT coalesce(sum(events), 0) FROM billing_droppedmonth)
"""


def origin_findings() -> Iterator[dict[str, str]]:
    """Every amendment and usage event that is not what it was, or not there any more, one finding each."""
    with connection.cursor() as cursor:
        cursor.execute(UNNUMBERED)
        unnumbered = [what for (what,) in cursor.fetchall()]
        cursor.execute(MISSING_EVENTS)
        (missing,) = cursor.fetchone()
    for what in unnumbered:
        yield {"finding": "hole in the amendments", "what": what}
    if not unnumbered:
        for ref in _misversioned():
            yield {"finding": "item versions do not follow from the amendments", "what": f"subscription {ref}"}
    if missing:
        yield {"finding": "usage events are missing", "what": f"{missing} keys have no event"}
    for key in _changed_events():
        yield {"finding": "usage event differs from its key", "what": f"event {key}"}
    for what in _remeasured():
        yield {"finding": "usage differs from what was billed", "what": what}


def _misversioned() -> Iterator[str]:
    for subscription in Subscription.objects.order_by("id").iterator():
        try:
            follows = follows_from_amendments(subscription)
        except ObjectDoesNotExist:
            # The plan or price that is named is gone.
            follows = False
        if not follows:
            yield subscription.ref


def _changed_events() -> Iterator[str]:
    # A cursor in the server, which needs a transaction: what is fetched at once does not grow with the number of events.
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.execute(EVENTS)
        while rows := cursor.fetchmany(EVENTS_PER_FETCH):
            for key, ref, meter, value, occurred_at, properties, digest in rows:
                known = properties if isinstance(properties, dict) else json.loads(properties)
                event = NewEvent(key, ref, meter, value, occurred_at, known)
                if digest is None or event.content_digest() != bytes(digest):
                    yield key


def _remeasured() -> Iterator[str]:
    """Usage claims whose events, measured again, are fewer than were billed, or as many with another quantity.

    More events are no finding: they came late, and are billed as a difference or told of as never billed.
    """
    months = DroppedMonth.objects.values_list("month", flat=True)
    dropped = [(_midnight(month), _midnight(month_after(month, 1))) for month in months]
    subscriptions = {s.pk: s for s in Subscription.objects.all()}
    claims = Claim.objects.filter(kind=Claim.Kind.USAGE, released_at=None, price__isnull=False).order_by("subscription_id", "id")
    for subscription_id, group in groupby(claims.iterator(), key=lambda claim: claim.subscription_id):
        there = [one for one in group if not any(one.starts_at < end and one.ends_at > start for start, end in dropped)]
        subscription = subscriptions.get(subscription_id)
        if subscription is None or not there:
            continue
        for claim, found in zip(there, measure(subscription_id, [_window(subscription, one) for one in there]), strict=True):
            billed = claim.basis["usage"]
            is_other = found.events == billed["events"] and str(found.quantity) != billed["quantity"]
            if found.events < billed["events"] or (is_other and not _level_came_later(claim)):
                yield (
                    f"claim {claim.pk} of {subscription.ref}: {billed['events']} events, quantity {billed['quantity']} were "
                    f"billed; {found.events} events, quantity {found.quantity} are there"
                )


def _level_came_later(claim: Claim) -> bool:
    """True where a level may have been reported since that held when the claim's time began: it is not among its events."""
    _, price = plans.price_of(claim.price_id)
    return (
        price.aggregation == Aggregation.WEIGHTED_SUM
        and UsageEvent.objects.filter(
            subscription_id=claim.subscription_id,
            meter=price.meter,
            occurred_at__lt=claim.starts_at,
            recorded_at__gte=claim.created_at - LONGEST_TRANSACTION,
        ).exists()
    )


def _window(subscription: Subscription, claim: Claim) -> Measure:
    terms, price = plans.price_of(claim.price_id)
    schedule = Schedule.anchored_at(subscription.anchor_at, ZoneInfo(subscription.time_zone), terms.interval)
    period = schedule.period_at(claim.starts_at)
    return Measure(price, claim.starts_at, claim.ends_at, period.start, period.end)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
