"""Usage events: recorded by the thousand, each key once and permanently."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

from django.db import connection

from billing.metering.allowances import TOLD_BY_SPENDS, Spent, spent_allowances
from billing.metering.expressions import NotComputable
from billing.metering.meters import CountedEvent, CurrentMeters, with_default
from billing.metering.uncounted import reasons_of, sentence_of
from billing.rating.aggregation import (
    MICROSECOND,
)
from billing.rating.money import decimal_text
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.values import Ref, Used
from ledger.database.statements import fetch_rows
from ledger.database.transactions import own_or_joined
from ledger.records import Record
from ledger.services import holders_time
from ledger.values import Metadata, Text, Time

MAX_EVENTS = 1_000
LONGEST_TRANSACTION = timedelta(hours=1)
"""The longest time between the recording of an event and its COMMIT: until then a run does not see it."""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BILLED_BY_ENTRIES = "billed-by-entries"
"""The code of an event whose meter the ledger's entries bill."""
IN_THE_FUTURE = "in-the-future"
"""The code of an event further ahead of its holder's time than clocks differ."""


class EventStatus(StrEnum):
    """The result of one event of a request."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    INVALID = "invalid"
    REFUSED = "refused"


EventKey = partial(Text, most=255, least=1, pattern=r"[\x20-\x7e]+")
"""The key of a usage event: printable ASCII."""


def digest_of(content: list[Any]) -> bytes:
    """Return SHA-256 over the content of an event, as JSON with its members in order."""
    form = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(form.encode()).digest()


def value_text(value: Decimal | None) -> str | None:
    """Return the value that was sent in its canonical form; None if the meter computes it."""
    return None if value is None else decimal_text(value)


@dataclass(frozen=True)
class NewEvent(Record):
    """One use of a service.

    Args:
        idempotency_key: unique permanently, over all subscriptions.
    """

    idempotency_key: Annotated[str, EventKey("Permanently unique.")]
    subscription: Annotated[str, Ref("The subscription that used it.")]
    meter: Annotated[str, Ref("The meter that counts it.")]
    occurred_at: Annotated[datetime, Time("When.")]
    value: Annotated[Decimal | None, Used("How much; left out if the meter computes it.")] = None
    properties: Annotated[
        dict[str, Any], Metadata("Properties, for the filters and groups of prices and the expression of the meter.")
    ] = field(default_factory=dict)

    default_value: ClassVar[Decimal | None] = None

    def content_digest(self) -> bytes:
        """SHA-256 over the content of the event as it was sent, with numbers and times in one canonical form."""
        occurred_at = self.occurred_at.astimezone(UTC).isoformat()
        return digest_of([self.subscription, self.meter, value_text(self.value), occurred_at, self.properties])


@dataclass(frozen=True)
class EnvelopedEvent(NewEvent):
    """One use of a service, which counts one if neither the event nor its meter says how much it is."""

    default_value: ClassVar[Decimal | None] = Decimal(1)


@dataclass(frozen=True, slots=True)
class EventResult:
    """The result of one event. The key is None if the event has no key.

    Args:
        detail: why it is not accepted, or why no invoice will count it.
        pointer: the field of the event that `detail` is about; empty for the whole.
        code: of an event that is refused, is in the future, or that no invoice will count: why, in a word.
        rate: of an event that is refused because entries bill its use, the rate of these entries.
    """

    idempotency_key: str | None
    result: EventStatus
    detail: str = ""
    pointer: str = ""
    code: str = ""
    rate: str = ""


# Keys are inserted in sorted order, so that two requests with common keys wait for each other in the same order. Only a new key
# gets an event, in the same statement, so no key is without its event.
TAKE_IN = """
    WITH sent AS (
        SELECT * FROM jsonb_to_recordset(%s::jsonb) AS sent(
            idempotency_key text, digest text, subscription_id bigint, meter text, occurred_at timestamptz,
            value numeric, properties jsonb, meter_version integer, corrects text, counts boolean
        )
    ), fresh AS (
        INSERT INTO billing_usagekey (
            idempotency_key, content_digest, subscription_id, occurred_at, recorded_at, meter_version
        )
        SELECT idempotency_key, decode(digest, 'hex'), subscription_id, occurred_at, clock_timestamp(), meter_version
        FROM sent ORDER BY idempotency_key
        ON CONFLICT (idempotency_key) DO NOTHING
        RETURNING idempotency_key, recorded_at
    ), taken AS (
        INSERT INTO billing_usageevent (
            subscription_id, meter, occurred_at, idempotency_key, value, properties, recorded_at, meter_version, corrects, counts
        )
        SELECT subscription_id, meter, occurred_at, idempotency_key, value, properties, recorded_at, meter_version, corrects,
            coalesce(counts, true)
        FROM sent JOIN fresh USING (idempotency_key)
        RETURNING idempotency_key
    )
    SELECT idempotency_key FROM taken
"""

KNOWN_DIGESTS = "SELECT idempotency_key, content_digest FROM billing_usagekey WHERE idempotency_key = ANY(%s)"


# The subscriptions of the events, each with the instant up to which events count as past, by the clock of its customer's holder,
# with the meters whose use is billed by entries, each with its time and rate, and with those whose use credits pay for first.
KNOWN_SUBSCRIPTIONS = """
    SELECT s.ref, s.id, statement_timestamp() + interval '1 day', (
        SELECT json_agg(json_build_array(p.meter, extract(epoch FROM v.starts_at)::numeric::text,
            extract(epoch FROM v.ends_at)::numeric::text, p.definition -> 'entries' ->> 'rate'))
        FROM billing_itemversion AS v
        JOIN billing_price AS p ON p.id = v.price_id AND p.definition ->> 'billed_by' = 'entries'
        WHERE v.subscription_id = s.id AND v.superseded_at IS NULL), (
        SELECT json_agg(DISTINCT p.meter)
        FROM billing_itemversion AS v
        JOIN billing_price AS p ON p.id = v.price_id AND p.definition ? 'credits'
        WHERE v.subscription_id = s.id AND v.superseded_at IS NULL)
    FROM billing_subscription AS s JOIN billing_customer AS c ON c.id = s.customer_id
    WHERE s.ref = ANY(%s)
"""


class KnownSubscription(NamedTuple):
    """A row of KNOWN_SUBSCRIPTIONS."""

    ref: str
    id: int
    latest: datetime
    billed_by_entries: Any
    paid_in_credits: Any

    def rate_of(self, meter: str, occurred_at: datetime) -> str | None:
        """Return the rate whose entries bill the use of a meter at an instant; None if events bill it."""
        at = Decimal((occurred_at - EPOCH) // MICROSECOND).scaleb(-6)
        for named, start, end, rate in self.billed_by_entries or ():
            if named == meter and Decimal(start) <= at and (end is None or at < Decimal(end)):
                return str(rate)
        return None


class OtherTellings:
    """What tells the use of events already, and bills it: the entries of a rate, or spends of the allowance that pays for it.

    Args:
        uses: the subscription, the meter and the instant of each event.
    """

    def __init__(self, uses: Iterable[tuple[KnownSubscription, str, datetime]]) -> None:
        paid = [(known.id, meter, at) for known, meter, at in uses if meter in (known.paid_in_credits or ())]
        self._spent: list[Spent] = []
        if paid:
            instants = [at for _, _, at in paid]
            self._spent = spent_allowances(
                {one for one, _, _ in paid}, {meter for _, meter, _ in paid}, since=min(instants), until=max(instants)
            )

    def refusal(self, key: str, subscription: KnownSubscription, meter: str, occurred_at: datetime) -> EventResult | None:
        """Return why an event would tell a use again; None if it tells it first."""
        if meter.startswith(METER_PREFIX):
            detail = "the ledger's entries bill what this meter counts"
            return EventResult(key, EventStatus.REFUSED, detail, "/meter", BILLED_BY_ENTRIES)
        rate = subscription.rate_of(meter, occurred_at)
        if rate is not None:
            detail = (
                f"the spends, holds and captures by the rate {rate} bill this use; an event would tell it twice, so send none"
            )
            return EventResult(key, EventStatus.REFUSED, detail, "/meter", BILLED_BY_ENTRIES, rate)
        for spent in self._spent:
            if spent.concerns(subscription.id, meter, occurred_at):
                detail = (
                    f"spends have taken {spent.credit_type} of the allowance that pays for this use, so an event would tell it "
                    "twice; either spend or send events, or let the price say also_spent if the spends are for something else"
                )
                return EventResult(key, EventStatus.REFUSED, detail, "/meter", TOLD_BY_SPENDS)
        return None


def known_subscriptions(refs: Collection[str]) -> dict[str, KnownSubscription]:
    """Return the subscriptions of events, by ref; without those that do not exist."""
    by_clock = holders_time(KNOWN_SUBSCRIPTIONS, holder="c.holder_id")
    return {known.ref: known for known in fetch_rows(KnownSubscription, by_clock, [list(refs)])}


def take_in(events: Sequence[NewEvent], *, allow_future: bool = False) -> list[EventResult]:
    """Write the events whose keys are new, and return the result of each; all in one transaction.

    A known key with the same content is a duplicate, also after its meter has changed; with other content it is a conflict, which
    changes nothing. An event of an unknown subscription, one without a quantity, or one in the future is invalid, and one whose
    use spends have told already is refused; neither uses its key.

    Args:
        allow_future: also write events more than a day ahead of the server's time, or of the test clock of the customer's holder.
    """
    with own_or_joined(), connection.cursor() as cursor:
        known_by_ref = known_subscriptions({event.subscription for event in events})
        meters = CurrentMeters({event.meter for event in events})
        uses = [(event, known_by_ref[event.subscription]) for event in events if event.subscription in known_by_ref]
        tellings = OtherTellings((known, event.meter, event.occurred_at) for event, known in uses)
        counted = [_count_event(event, known_by_ref.get(event.subscription), meters, tellings, allow_future) for event in events]
        first: dict[str, CountedEvent[NewEvent]] = {}
        for one in counted:
            if isinstance(one, CountedEvent):
                first.setdefault(one.event.idempotency_key, one)
        rows = {
            key: row_of(one, known_by_ref[one.event.subscription].id, one.event.meter, one.event.occurred_at)
            for key, one in first.items()
        }
        accepted = write(rows)
        cursor.execute(KNOWN_DIGESTS, [[event.idempotency_key for event in events if event.idempotency_key not in accepted]])
        known = {key: bytes(digest) for key, digest in cursor.fetchall()}
        known |= {key: first[key].event.content_digest() for key in accepted}
        new = {id(first[key]): result for key, result in accepted.items()}
        return [new.get(id(one)) or _result(event, one, known_by_ref, known) for event, one in zip(events, counted, strict=True)]


def write(rows: Mapping[str, dict[str, Any]]) -> dict[str, EventResult]:
    """Write the events whose keys are new, in the caller's transaction. Return their results, which say if nothing counts them.

    Args:
        rows: what `TAKE_IN` reads, by key.
    """
    if not rows:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(TAKE_IN, [json.dumps(list(rows.values()))])
        keys = [key for (key,) in cursor.fetchall()]
    reasons = reasons_of([rows[key] for key in keys if rows[key].get("counts", True)])
    return {key: _accept_event(key, reasons.get(key)) for key in keys}


def _accept_event(key: str, reason: str | None) -> EventResult:
    if reason is None:
        return EventResult(key, EventStatus.ACCEPTED)
    return EventResult(key, EventStatus.ACCEPTED, sentence_of(reason), code=reason)


def _count_event(
    event: NewEvent,
    subscription: KnownSubscription | None,
    meters: CurrentMeters,
    tellings: OtherTellings,
    allow_future: bool,
) -> CountedEvent[NewEvent] | EventResult:
    """Return the event with its quantity, or why it is refused if its key is new."""
    key = event.idempotency_key
    if subscription is None:
        return EventResult(key, EventStatus.INVALID, f"there is no subscription {event.subscription!r}")
    told = tellings.refusal(key, subscription, event.meter, event.occurred_at)
    if told is not None:
        return told
    if event.occurred_at > subscription.latest and not allow_future:
        detail = "lies more than a day in the future, which only a request with allow_future may record"
        return EventResult(key, EventStatus.INVALID, detail, "/occurred_at", IN_THE_FUTURE)
    try:
        return meters.counted(event, event.meter)
    except NotComputable as wrong:
        return not_computable(key, wrong)


def not_computable(key: str, wrong: NotComputable) -> EventResult:
    """Return the result of an event without a quantity."""
    return EventResult(key, EventStatus.INVALID, wrong.detail, wrong.pointer)


def _result(
    event: NewEvent,
    one: CountedEvent[NewEvent] | EventResult,
    known_by_ref: Mapping[str, KnownSubscription],
    known: Mapping[str, bytes],
) -> EventResult:
    """Return the result of an event that was not accepted."""
    digest = known.get(event.idempotency_key)
    if isinstance(one, EventResult) and (digest is None or event.subscription not in known_by_ref):
        return one
    is_same = digest in (event.content_digest(), with_default(event).content_digest())
    return EventResult(event.idempotency_key, EventStatus.DUPLICATE if is_same else EventStatus.CONFLICT)


def row_of(one: CountedEvent[Any], subscription_id: int, meter: str | None, occurred_at: datetime) -> dict[str, Any]:
    """Return an event as `TAKE_IN` reads it."""
    return {
        "idempotency_key": one.event.idempotency_key,
        "digest": one.event.content_digest().hex(),
        "subscription_id": subscription_id,
        "meter": meter,
        "occurred_at": occurred_at.isoformat(),
        "value": decimal_text(one.quantity),
        "properties": dict(one.event.properties),
        "meter_version": one.meter_version,
    }
