"""Corrections and cancellations of usage events: further events, beside the event that then no longer counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from django.db import IntegrityError, connection, transaction

from billing.metering.expressions import NotComputable
from billing.metering.meters import CountedEvent, CurrentMeters
from billing.metering.usage import (
    KNOWN_DIGESTS,
    EventKey,
    EventResult,
    EventStatus,
    KnownSubscription,
    NewEvent,
    OtherTellings,
    digest_of,
    known_subscriptions,
    not_computable,
    row_of,
    take_in,
    value_text,
    write,
)
from billing.rating.values import Ref, Used
from ledger.database.statements import fetch_rows
from ledger.database.transactions import own_or_joined
from ledger.records import Record
from ledger.values import Metadata

TRIES: Final = 3
"""How often corrections are looked at again after another request corrected one of their events first."""

# The event of each key with what corrected it. The row of the key has its subscription and time, so one partition is read.
ORIGINALS = """
    SELECT key.idempotency_key, key.subscription_id, event.meter, key.occurred_at, event.counts, later.idempotency_key
    FROM billing_usagekey AS key
    LEFT JOIN billing_usageevent AS event ON event.subscription_id = key.subscription_id
        AND event.occurred_at = key.occurred_at AND event.idempotency_key = key.idempotency_key
    LEFT JOIN billing_usageevent AS later ON later.subscription_id = event.subscription_id AND later.meter = event.meter
        AND later.occurred_at = event.occurred_at AND later.corrects = event.idempotency_key
    WHERE key.idempotency_key = ANY(%s)
"""


@dataclass(frozen=True, kw_only=True)
class EventCorrection(Record):
    """Another value, and other properties, for an event: of the same subscription, meter and time."""

    idempotency_key: Annotated[str, EventKey("Permanently unique, as that of an event.")]
    subscription: Annotated[str, Ref("The subscription of the event.")]
    corrects: Annotated[str, EventKey("The key of the event that no longer counts.")]
    value: Annotated[Decimal | None, Used("How much it was; left out if the meter computes it.")] = None
    properties: Annotated[dict[str, Any], Metadata("The properties that it has from now on.")] = field(default_factory=dict)

    counts: ClassVar[bool] = True
    default_value: ClassVar[Decimal | None] = None

    @property
    def target(self) -> str:
        """The key of the event that no longer counts."""
        return self.corrects

    def content_digest(self) -> bytes:
        """SHA-256 over its content as it was sent, with the number in one canonical form."""
        return digest_of([self.subscription, {"corrects": self.corrects}, value_text(self.value), self.properties])


@dataclass(frozen=True, kw_only=True)
class EventCancellation(Record):
    """An event no longer counts, and no other takes its place."""

    idempotency_key: Annotated[str, EventKey("Permanently unique, as that of an event.")]
    subscription: Annotated[str, Ref("The subscription of the event.")]
    cancels: Annotated[str, EventKey("The key of the event that no longer counts.")]

    counts: ClassVar[bool] = False
    value: ClassVar[Decimal] = Decimal(0)
    properties: ClassVar[dict[str, Any]] = {}

    @property
    def target(self) -> str:
        """The key of the event that no longer counts."""
        return self.cancels

    def content_digest(self) -> bytes:
        """SHA-256 over its content."""
        return digest_of([self.subscription, {"cancels": self.cancels}])


Correction = EventCorrection | EventCancellation


class _Original(NamedTuple):
    """A row of ORIGINALS; `meter` is None if the events of its month were dropped."""

    idempotency_key: str
    subscription_id: int
    meter: str | None
    occurred_at: datetime
    counts: bool | None
    corrected_by: str | None


def stored_event(row: dict[str, Any]) -> NewEvent | Correction:
    """Return the request that a stored event came from, unchecked.

    Args:
        row: the fields of a new event, with `corrects`, `counts` and `meter_version` as they are stored.
    """
    known = {name: row[name] for name in ("idempotency_key", "subscription")}
    content = {"value": row["value"] if row["meter_version"] is None else None, "properties": row["properties"]}
    if row["corrects"] is None:
        return NewEvent(**known, **content, meter=row["meter"], occurred_at=row["occurred_at"])
    if row["counts"]:
        return EventCorrection(**known, **content, corrects=row["corrects"])
    return EventCancellation(**known, cancels=row["corrects"])


def take_in_all(events: Sequence[NewEvent | Correction], *, allow_future: bool = False) -> list[EventResult]:
    """Write new events, then corrections and cancellations, and return the result of each; all in one transaction.

    A correction or cancellation of an unknown event, of an event of another subscription, or of a cancellation is invalid; if the
    event is corrected or cancelled already, it is a conflict. A correction of an event whose use spends have told is refused,
    and a cancellation is not: it tells no use. What is not accepted does not use its key.

    Args:
        allow_future: as for `take_in`; a correction is at the time of its event.
    """
    with own_or_joined():
        new = iter(take_in([event for event in events if isinstance(event, NewEvent)], allow_future=allow_future))
        corrected = iter(_correct([event for event in events if not isinstance(event, NewEvent)]))
        return [next(new) if isinstance(event, NewEvent) else next(corrected) for event in events]


def _correct(corrections: Sequence[Correction]) -> list[EventResult]:
    if not corrections:
        return []
    subscriptions = known_subscriptions({one.subscription for one in corrections})
    first: dict[str, Correction] = {}
    for one in corrections:
        first.setdefault(one.idempotency_key, one)
    results: dict[str, EventResult] = {}
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                results = _decide(first, subscriptions)
            break
        except IntegrityError:  # Another request corrected one of the events in the meantime: look again.
            continue
    known = _known_digests(list(first))
    return [_result(one, first, results, known) for one in corrections]


def _result(
    one: Correction, first: dict[str, Correction], results: dict[str, EventResult], known: dict[str, bytes]
) -> EventResult:
    key = one.idempotency_key
    result = results.get(key)
    if result is not None and (first[key] is one or result.result != EventStatus.ACCEPTED):
        return result
    is_same = known.get(key) == one.content_digest()
    return EventResult(key, EventStatus.DUPLICATE if is_same else EventStatus.CONFLICT)


def _decide(first: dict[str, Correction], subscriptions: dict[str, KnownSubscription]) -> dict[str, EventResult]:
    """Write the corrections that are possible. Return the results of all whose keys are new.

    Raises:
        IntegrityError: another request corrected one of the events first; nothing was written.
    """
    results: dict[str, EventResult] = {}
    used = _known_digests(list(first))
    waiting = [one for key, one in first.items() if key not in used]
    while waiting:
        originals = {row.idempotency_key: row for row in fetch_rows(_Original, ORIGINALS, [[one.target for one in waiting]])}
        meters = CurrentMeters({row.meter for row in originals.values() if row.meter is not None})
        tellings = OtherTellings(_uses(waiting, originals, subscriptions))
        ready: dict[str, CountedEvent[Any]] = {}
        later: list[Correction] = []
        keys = {one.idempotency_key for one in waiting}
        for one in waiting:
            refusal = _refusal(one, originals.get(one.target), subscriptions.get(one.subscription), tellings, ready)
            if refusal is None:
                try:
                    ready[one.target] = _count_correction(one, originals[one.target], meters)
                except NotComputable as wrong:
                    results[one.idempotency_key] = not_computable(one.idempotency_key, wrong)
            elif one.target in keys and one.target not in originals and one.target != one.idempotency_key:
                later.append(one)
            else:
                results[one.idempotency_key] = refusal
        results |= _write(ready, originals)
        if not ready:
            results |= {one.idempotency_key: _unknown(one) for one in later}
            break
        waiting = later
    return results


def _uses(
    corrections: Sequence[Correction], originals: dict[str, _Original], subscriptions: dict[str, KnownSubscription]
) -> Iterator[tuple[KnownSubscription, str, datetime]]:
    """Yield the subscription, the meter and the instant of each event that is corrected."""
    for one in corrections:
        original, known = originals.get(one.target), subscriptions.get(one.subscription)
        if original is not None and original.meter is not None and known is not None:
            yield known, original.meter, original.occurred_at


def _count_correction(one: Correction, original: _Original, meters: CurrentMeters) -> CountedEvent[Any]:
    """Return the correction with its quantity, by the meter of the event."""
    if isinstance(one, EventCancellation):
        return CountedEvent(one, one.value)
    return meters.counted(one, original.meter or "")


def _refusal(
    one: Correction,
    original: _Original | None,
    subscription: KnownSubscription | None,
    tellings: OtherTellings,
    ready: dict[str, CountedEvent[Any]],
) -> EventResult | None:
    """Return why an event cannot be corrected; None if it can."""
    key = one.idempotency_key
    if subscription is None:
        return EventResult(key, EventStatus.INVALID, f"there is no subscription {one.subscription!r}")
    if original is None:
        return _unknown(one)
    if original.subscription_id != subscription.id:
        return EventResult(key, EventStatus.INVALID, f"the event {one.target!r} is of another subscription")
    if original.meter is None:
        return EventResult(
            key, EventStatus.INVALID, f"the event {one.target!r} is billed, and the events of its month were dropped"
        )
    if not original.counts:
        return EventResult(key, EventStatus.INVALID, f"{one.target!r} is a cancellation, which cannot be corrected")
    told = tellings.refusal(key, subscription, original.meter, original.occurred_at) if one.counts else None
    if told is not None:
        return told
    by = ready[one.target].event.idempotency_key if one.target in ready else original.corrected_by
    if by is not None:
        return EventResult(key, EventStatus.CONFLICT, f"the event {one.target!r} is already corrected or cancelled by {by!r}")
    return None


def _unknown(one: Correction) -> EventResult:
    return EventResult(one.idempotency_key, EventStatus.INVALID, f"there is no event with the key {one.target!r}")


def _write(corrections: dict[str, CountedEvent[Any]], originals: dict[str, _Original]) -> dict[str, EventResult]:
    return write(
        {
            one.event.idempotency_key: row_of(
                one, originals[target].subscription_id, originals[target].meter, originals[target].occurred_at
            )
            | {"corrects": target, "counts": one.event.counts}
            for target, one in corrections.items()
        }
    )


def _known_digests(keys: list[str]) -> dict[str, bytes]:
    with connection.cursor() as cursor:
        cursor.execute(KNOWN_DIGESTS, [keys])
        return {key: bytes(digest) for key, digest in cursor.fetchall()}
