"""Checks that the bills still follow from amendments and usage events."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import groupby, starmap
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from billing.generator.state.open_claims import anchor_of
from billing.metering import usage
from billing.metering.corrections import stored_event
from billing.metering.expressions import ExpressionWrong, NotComputable, parse_expression
from billing.metering.measuring import Measure, measure
from billing.metering.partitions import month_after
from billing.models import Claim, Cursor, DroppedMonth, Price, Subscription, UsageEvent
from billing.orders import plans
from billing.orders.stored_versions import follows_from_amendments
from billing.rating.aggregation import KEPT, stored_usage
from billing.rating.periods import Schedule
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.prices.values import BilledBy
from ledger.database.statements import fetch_rows

EVENTS_PER_FETCH = 5_000

UNNUMBERED = """
    SELECT format('subscription %s: %s amendments, the last is %s', s.ref, count(a.sequence), coalesce(max(a.sequence), 0))
    FROM billing_subscription AS s LEFT JOIN billing_amendment AS a ON a.subscription_id = s.id
    GROUP BY s.id HAVING count(a.sequence) <> coalesce(max(a.sequence), 0) OR count(a.sequence) = 0
"""

# Every usage event, with the digest of its content that its key keeps.
EVENTS = """
    SELECT event.idempotency_key, subscription.ref, event.meter, event.value, event.occurred_at, event.properties,
        event.corrects, event.counts, event.meter_version, key.content_digest,
        (event.subscription_id, event.occurred_at, event.recorded_at, event.meter_version)
            IS NOT DISTINCT FROM (key.subscription_id, key.occurred_at, key.recorded_at, key.meter_version)
            -- The key of a correction does not say its meter, which is that of the event that it corrects.
            AND (event.corrects IS NULL OR EXISTS (
                SELECT FROM billing_usageevent AS corrected
                WHERE corrected.subscription_id = event.subscription_id AND corrected.meter = event.meter
                    AND corrected.occurred_at = event.occurred_at AND corrected.idempotency_key = event.corrects
                    AND corrected.counts))
    FROM billing_usageevent AS event
    LEFT JOIN billing_subscription AS subscription ON subscription.id = event.subscription_id
    LEFT JOIN billing_usagekey AS key ON key.idempotency_key = event.idempotency_key
"""

# The events whose value a meter computed, with the expression of the version that did.
COMPUTED = """
    SELECT event.idempotency_key, event.value, event.properties, meter.expression
    FROM billing_usageevent AS event
    LEFT JOIN billing_meter AS meter ON meter.code = event.meter AND meter.version = event.meter_version
    WHERE event.meter_version IS NOT NULL
"""

MISSING_EVENTS = """
    SELECT (SELECT count(*) FROM billing_usagekey) - (SELECT count(*) FROM billing_usageevent)
        - (SELECT coalesce(sum(events), 0) FROM billing_droppedmonth)
"""

CHANGED_KEYS = """
    SELECT format('keys of events of %s, which were dropped', to_char(month, 'YYYY-MM')) FROM billing_droppedmonth
    WHERE keys_digest IS DISTINCT FROM billing_dropped_keys_digest(month)
"""


class _StoredEvent(NamedTuple):
    """A row of EVENTS."""

    idempotency_key: str
    subscription: str
    meter: str
    value: Decimal
    occurred_at: datetime
    properties: Any
    corrects: str | None
    counts: bool
    meter_version: int | None
    digest: bytes | None
    is_where_its_key_says: bool


def origin_laws() -> Iterator[tuple[str, Iterable[str]]]:
    """Return the laws of amendments and usage events with their findings in words: changed or missing rows."""
    yield "hole in the amendments", fetch_rows(str, UNNUMBERED)
    yield "item versions do not follow from the amendments", _find_misversioned()
    yield "usage events are missing", _missing_events()
    yield "usage event differs from its key", _changed_events()
    yield "usage event has another value than its meter computes", _miscomputed_events()
    yield "usage differs from what was billed", _remeasure_claims()


def _find_misversioned() -> Iterator[str]:
    if fetch_rows(str, UNNUMBERED):
        # A separate law, because nothing follows from amendments with holes.
        return
    for subscription in Subscription.objects.order_by("id").iterator():
        try:
            follows = follows_from_amendments(subscription)
        except ObjectDoesNotExist:
            # The plan or price does not exist any more.
            follows = False
        if not follows:
            yield f"subscription {subscription.ref}"


def _missing_events() -> Iterator[str]:
    [missing] = fetch_rows(int, MISSING_EVENTS)
    if missing:
        yield f"{missing} keys have no event"


def _changed_events() -> Iterator[str]:
    yield from fetch_rows(str, CHANGED_KEYS)
    for row in starmap(_StoredEvent, _fetch_each(EVENTS)):
        event = stored_event({**row._asdict(), "properties": _properties(row.properties)})
        if row.digest is None or not row.is_where_its_key_says or event.content_digest() != bytes(row.digest):
            yield f"event {row.idempotency_key}"


def _miscomputed_events() -> Iterator[str]:
    for key, value, properties, expression in _fetch_each(COMPUTED):
        try:
            computed = parse_expression(expression or "").quantity_of(_properties(properties))
        except (ExpressionWrong, NotComputable):
            computed = None
        if computed != value:
            yield f"event {key}: {value} is recorded, {'nothing' if computed is None else computed} is computed"


def _fetch_each(sql: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement. Memory does not grow with their number."""
    # A cursor in the server, which needs a transaction.
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.execute(sql)
        while rows := cursor.fetchmany(EVENTS_PER_FETCH):
            yield from rows


def _properties(stored: Any) -> dict[str, Any]:
    known: dict[str, Any] = stored if isinstance(stored, dict) else json.loads(stored)
    return known


def _remeasure_claims() -> Iterator[str]:
    """Yield usage claims with fewer events than were billed, or with the same number but another quantity.

    More events are not a finding: they came late, and a later run bills the difference or reports them as never billed.
    """
    months = DroppedMonth.objects.values_list("month", flat=True)
    dropped = [(_midnight(month), _midnight(month_after(month, 1))) for month in months]
    subscriptions = {s.pk: s for s in Subscription.objects.all()}
    claims = Claim.objects.filter(kind=Claim.Kind.USAGE, released_at=None, price__isnull=False)
    # What entries of the ledger bill is computed again from these: see `billing.auditing.consistency`.
    by_entries = Price.objects.filter(Q(meter__startswith=METER_PREFIX) | Q(definition__billed_by=BilledBy.ENTRIES.value))
    claims = claims.exclude(price__in=by_entries)
    claims = claims.order_by("subscription_id", "id")
    for subscription_id, group in groupby(claims.iterator(), key=lambda claim: claim.subscription_id):
        there = [one for one in group if not any(one.starts_at < end and one.ends_at > start for start, end in dropped)]
        subscription = subscriptions.get(subscription_id)
        if subscription is None or not there:
            continue
        for claim, measured in zip(there, measure(subscription_id, [_window(subscription, one) for one in there]), strict=True):
            billed = stored_usage(claim.snapshot["usage"])
            is_other = measured.events == billed.events and measured != billed
            is_wrong = measured.events < billed.events or (is_other and not _level_came_later(claim))
            if is_wrong and not _is_corrected(claim):
                yield (
                    f"claim {claim.pk} of {subscription.ref}: {billed.events} events, quantity {billed.quantity} were "
                    f"billed; {measured.events} events, quantity {measured.quantity} are there"
                )


def _is_corrected(claim: Claim) -> bool:
    """Return whether an event of the claim was corrected or cancelled: the next run bills the difference."""
    _, price = plans.price_of(claim.price_id)
    since = {} if price.aggregation in KEPT else {"occurred_at__gte": claim.starts_at}
    return _not_compared(claim).filter(occurred_at__lt=claim.ends_at, corrects__isnull=False, **since).exists()


def _level_came_later(claim: Claim) -> bool:
    """Return whether a client may have reported later a level that held at the claim's start: its event is not in the claim."""
    _, price = plans.price_of(claim.price_id)
    return price.aggregation in KEPT and _not_compared(claim).filter(occurred_at__lt=claim.starts_at).exists()


def _not_compared(claim: Claim) -> QuerySet[UsageEvent]:
    """Return the events of the claim's meter that no run has compared with the claim: it was made before they came, or while
    they did, and no later run has looked at them; or a run has left out what they change.
    """
    _, price = plans.price_of(claim.price_id)
    later = UsageEvent.objects.filter(
        subscription_id=claim.subscription_id, meter=price.meter, recorded_at__gte=claim.created_at - usage.LONGEST_TRANSACTION
    )
    seen_until = Cursor.objects.filter(pk=claim.subscription_id).values_list("usage_seen_until", flat=True).first()
    return later if seen_until is None or claim.measure_again else later.filter(recorded_at__gt=seen_until)


def _window(subscription: Subscription, claim: Claim) -> Measure:
    terms, price = plans.price_of(claim.price_id)
    schedule = Schedule.anchored_at(
        anchor_of(claim.snapshot) or subscription.anchor_at, ZoneInfo(subscription.time_zone), terms.interval_of(price)
    )
    period = schedule.period_at(claim.starts_at)
    return Measure(price, claim.starts_at, claim.ends_at, period.start, period.end, schedule.zone)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
