"""Usage measured in SQL, which reads each event once: what each price counts in a window, by each way to aggregate."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from billing.metering.filters import PASSES
from billing.models import Subscription
from billing.rating.aggregation import (
    KEPT,
    MAX_GROUP_CHARACTERS,
    MAX_GROUP_KEYS,
    MICROSECOND,
    NUMBER_PATTERN,
    Aggregation,
    Days,
    EventCharge,
    Filters,
    Group,
    RatingInput,
    grouped,
    in_order,
    together,
    usage_of_levels,
)
from billing.rating.money import decimal_text
from billing.rating.periods import instant_of
from billing.rating.prices.overage import credit_type_of, is_overage
from billing.rating.prices.price import Price
from ledger.database.statements import Loader, Statement, integer, parameter
from ledger.services.overage import overage_used
from ledger.services.rated_use import rated_use

_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class Measure:
    """A measurement: a usage price over `[start, end)` of one subscription.

    Args:
        full_start, full_end: the full period around it, whose seconds weight a weighted sum; by default the window.
        zone: the billing zone, whose days count for daily levels.
    """

    price: Price
    start: datetime
    end: datetime
    full_start: datetime | None = None
    full_end: datetime | None = None
    zone: ZoneInfo = _UTC

    @property
    def days(self) -> Days:
        """The days of the window. The day on which it starts counts, the day on which it ends does not."""
        first, end, full_start, full_end = (
            instant.astimezone(self.zone).date()
            for instant in (self.start, self.end, self.full_start or self.start, self.full_end or self.end)
        )
        return Days(first, end, max((full_end - full_start).days, 1), self.zone)

    @property
    def full_microseconds(self) -> int:
        """The length of the full period."""
        return ((self.full_end or self.end) - (self.full_start or self.start)) // MICROSECOND


_PASSES = f"""
        {PASSES.format(event="event", filters="measure.filters")}
        AND (measure.excluded IS NULL OR NOT EXISTS (
            SELECT FROM jsonb_array_elements(measure.excluded) AS earlier
            WHERE {PASSES.format(event="event", filters="earlier.value")}))
"""

# True if an event counts: it is no cancellation, and no later event corrects or cancels it.
COUNTS = """
        {event}.counts AND NOT EXISTS (
            SELECT FROM billing_usageevent AS later
            WHERE later.subscription_id = {event}.subscription_id AND later.meter = {event}.meter
                AND later.occurred_at = {event}.occurred_at AND later.corrects = {event}.idempotency_key)
"""
_COUNTS = COUNTS.format(event="event")

# The number that an event contributes: its value, or the number in a property.
_NUMBER = f"""
            CASE
                WHEN measure.property IS NULL THEN event.value
                WHEN jsonb_typeof(event.properties -> measure.property) IN ('number', 'string')
                    AND event.properties ->> measure.property ~ '{NUMBER_PATTERN}'
                THEN (event.properties ->> measure.property)::numeric
            END
"""

# The text of each property by which a price groups its usage, clipped.
_GROUP_KEYS = [f"group_{number}" for number in range(1, MAX_GROUP_KEYS + 1)]
_GROUPS = ", ".join(
    f"""
            CASE WHEN jsonb_typeof(event.properties -> measure.{key}) NOT IN ('object', 'array', 'null')
                THEN left(event.properties ->> measure.{key}, {MAX_GROUP_CHARACTERS}) END AS of_{key}"""
    for key in _GROUP_KEYS
)

# Shared by all aggregations: the windows to measure, and for each window the events that pass its filters. Of a price that is
# billed by entries, the ledger's entries are the events. OFFSET 0 keeps PostgreSQL from joining in another order: its plan for
# all values may otherwise read all events that the subscription ever had.
_EVENTS = f"""
    WITH measure AS (
        SELECT * FROM jsonb_to_recordset(%(measures)s::jsonb) AS measure(
            n int, meter text, starts_at timestamptz, ends_at timestamptz, full_us bigint, property text, filters jsonb,
            excluded jsonb, free_events bigint, free_amount numeric, rate numeric, fixed_amount numeric, least numeric,
            most numeric, midnights timestamptz[], first_day date, end_day date, credit_type text, of_rate text, component text,
            {", ".join(f"{key} text" for key in _GROUP_KEYS)}
        )
    ), counted AS (
        SELECT measure.*, event.occurred_at, event.recorded_at, event.{{order}} AS idempotency_key, event.value,
            CASE WHEN jsonb_typeof(event.properties -> measure.property) NOT IN ('object', 'array')
                THEN event.properties ->> measure.property END AS text,
            {_NUMBER} AS number{{groups}}
        FROM measure
        CROSS JOIN LATERAL (
            {{source}}
            OFFSET 0
        ) AS event
        WHERE {_PASSES} AND {{counts}}
    )
"""

# n, quantity as text, events, free quantity as text, free events; of a price that groups its usage, then the group as JSON.
_COUNT = _EVENTS + "SELECT n, count(*)::text, count(*), '0', 0{group} FROM counted GROUP BY {key}"
_SUM = _EVENTS + "SELECT n, coalesce(sum(number), 0)::text, count(*), '0', 0{group} FROM counted GROUP BY {key}"
_MAX = _EVENTS + "SELECT n, coalesce(max(number), 0)::text, count(*), '0', 0{group} FROM counted GROUP BY {key}"
_LAST = (
    _EVENTS
    + """
    SELECT n,
        coalesce((array_agg(number ORDER BY occurred_at DESC, recorded_at DESC, idempotency_key DESC)
            FILTER (WHERE number IS NOT NULL))[1], 0)::text,
        count(*), '0', 0{group}
    FROM counted GROUP BY {key}
"""
)
_UNIQUE = (
    _EVENTS
    + """
    SELECT n, count(DISTINCT CASE WHEN property IS NULL THEN value::text ELSE text END)::text, count(*), '0', 0{group}
    FROM counted GROUP BY {key}
"""
)
# The level that holds when a window starts.
_HELD_BEFORE = f"""
            SELECT {_NUMBER} AS number
            FROM billing_usageevent AS event
            WHERE event.subscription_id = %(subscription)s AND event.meter = measure.meter
                AND event.occurred_at < measure.starts_at AND {_NUMBER} IS NOT NULL AND {_PASSES} AND {_COUNTS}
            ORDER BY event.occurred_at DESC, event.recorded_at DESC, event.idempotency_key DESC
            LIMIT 1
"""
# Each value holds until the next event or the end of the window; the last event before the window gives the value at its start.
# Ten units held for half of the period are five, even if the subscription was not active in the other half.
_WEIGHTED_SUM = (
    _EVENTS
    + f"""
    , before AS (
        SELECT measure.n, measure.full_us, measure.ends_at, measure.starts_at AS at, coalesce(held.number, 0) AS number,
            '-infinity'::timestamptz AS recorded_at, '' AS idempotency_key
        FROM measure
        LEFT JOIN LATERAL ({_HELD_BEFORE}) AS held ON true
    ), steps AS (
        SELECT n, full_us, ends_at, at, number, recorded_at, idempotency_key FROM before
        UNION ALL
        SELECT n, full_us, ends_at, occurred_at, number, recorded_at, idempotency_key FROM counted WHERE number IS NOT NULL
    ), held AS (
        SELECT n, full_us, number,
            lead(at, 1, ends_at) OVER (PARTITION BY n ORDER BY at, recorded_at, idempotency_key) - at AS span
        FROM steps
    )
    SELECT n,
        sum(number * (extract(epoch FROM span) * 1000000))::text || '/' || min(full_us),
        count(*) - 1, '0', 0
    FROM held GROUP BY n
"""
)
# The days of the window begin at the given midnights, because the server may know another zone by the same name. A day has the
# last level reported on it, else that of the day before.
_DAILY_LEVEL = (
    _EVENTS
    + f"""
    , changes AS (
        SELECT DISTINCT ON (n, day) n, first_day + width_bucket(occurred_at, midnights) - 1 AS day, number
        FROM counted WHERE number IS NOT NULL
        ORDER BY n, day, occurred_at DESC, recorded_at DESC, idempotency_key DESC
    ), steps AS (
        SELECT measure.n, measure.first_day AS day, coalesce(held.number, 0) AS number
        FROM measure
        LEFT JOIN LATERAL ({_HELD_BEFORE}) AS held ON true
        WHERE NOT EXISTS (SELECT FROM changes WHERE changes.n = measure.n AND changes.day = measure.first_day)
        UNION ALL
        SELECT n, day, number FROM changes
    ), held AS (
        SELECT steps.n, number, lead(day, 1, end_day) OVER (PARTITION BY steps.n ORDER BY day) - day AS days
        FROM steps JOIN measure ON measure.n = steps.n
    ), levels AS (
        SELECT n, number, sum(days) AS days FROM held GROUP BY n, number
    )
    SELECT n, json_agg(json_build_array(number::text, days))::text,
        (SELECT count(*) FROM changes WHERE changes.n = levels.n), '0', 0
    FROM levels GROUP BY n
"""
)
# Percentages count the free part until either allowance is exceeded; the row number and running sum of each event show that. The
# bounds per event, `least` and `most`, apply to the rate and fee of each event that pays for an amount above zero.
_PERCENTAGE = (
    _EVENTS
    + """
    , running AS (
        SELECT {key}, number, free_events, free_amount, rate, fixed_amount, least, most,
            row_number() OVER by_time AS position,
            sum(number) OVER by_time AS reached
        FROM counted
        WHERE number IS NOT NULL
        WINDOW by_time AS (PARTITION BY {key} ORDER BY occurred_at, recorded_at, idempotency_key)
    ), judged AS (
        SELECT *, (free_events IS NOT NULL AND position > free_events) AS beyond_events,
            (free_amount IS NOT NULL AND reached > free_amount) AS beyond_amount
        FROM running
    ), limited AS (
        SELECT *, min(position) FILTER (WHERE beyond_events OR beyond_amount) OVER (PARTITION BY {key}) AS first_paying
        FROM judged
    ), charged AS (
        SELECT *,
            CASE
                WHEN free_events IS NULL AND free_amount IS NULL OR position > first_paying THEN number
                WHEN position = first_paying THEN CASE WHEN beyond_events THEN number ELSE reached - free_amount END
                ELSE 0
            END AS paying
        FROM limited
    )
    SELECT n, sum(number)::text, count(*),
        CASE
            WHEN bool_and(free_events IS NULL AND free_amount IS NULL) THEN '0'
            WHEN min(first_paying) IS NULL THEN sum(number)::text
            WHEN bool_or(position = first_paying AND beyond_events) THEN
                coalesce(sum(number) FILTER (WHERE position < first_paying), 0)::text
            ELSE min(free_amount)::text
        END,
        CASE
            WHEN bool_and(free_events IS NULL AND free_amount IS NULL) THEN 0
            WHEN min(first_paying) IS NULL THEN count(*)
            ELSE min(first_paying) - 1
        END,
        coalesce(sum(greatest(least - (paying * rate + fixed_amount), 0)) FILTER (WHERE paying > 0), 0)::text,
        coalesce(sum(greatest(paying * rate + fixed_amount - most, 0)) FILTER (WHERE paying > 0), 0)::text{group}
    FROM charged GROUP BY {key}
"""
)

_LOADERS: list[Loader] = [integer, bytes.decode, integer, bytes.decode, integer]
_SQL = {
    Aggregation.COUNT: _COUNT,
    Aggregation.SUM: _SUM,
    Aggregation.MAX: _MAX,
    Aggregation.LAST: _LAST,
    Aggregation.UNIQUE: _UNIQUE,
    Aggregation.WEIGHTED_SUM: _WEIGHTED_SUM,
    Aggregation.DAILY_LEVEL: _DAILY_LEVEL,
}


def _text(sql: str, of: Mapping[str, str]) -> str:
    """Return the SQL for whole windows, or for each group of a window."""
    for name, text in of.items():
        sql = sql.replace(f"{{{name}}}", text)
    return sql


_BY_EVENTS = {
    "source": """SELECT * FROM billing_usageevent
            WHERE subscription_id = %(subscription)s AND meter = measure.meter
                AND occurred_at >= measure.starts_at AND occurred_at < measure.ends_at""",
    "counts": _COUNTS,
    "order": "idempotency_key",
}
_BY_ENTRIES = {
    "source": rated_use(
        holder="%(holder)s", credit_type="measure.credit_type", rate="measure.of_rate", component="measure.component",
        starts="measure.starts_at", ends="measure.ends_at",
    ),
    "counts": "true",
    "order": "sequence",
}  # fmt: skip
_OF_A_WINDOW = {"key": "n", "group": "", "groups": ""}
_BY_AGGREGATION = {
    name: Statement(f"usage_{name.value}", _text(sql, _BY_EVENTS | _OF_A_WINDOW), _LOADERS) for name, sql in _SQL.items()
}
_OF_PERCENTAGES = Statement(
    "usage_percentage", _text(_PERCENTAGE, _BY_EVENTS | _OF_A_WINDOW), [*_LOADERS, bytes.decode, bytes.decode]
)
_OF_DAYS = _BY_AGGREGATION[Aggregation.DAILY_LEVEL]

# The same of each group. The limit is one row more than all windows may have, so that a window with too many groups shows.
_OF_GROUPS = {
    "key": ", ".join(["n", *(f"of_{key}" for key in _GROUP_KEYS)]),
    "group": f", json_build_array({', '.join(f'of_{key}' for key in _GROUP_KEYS)})::text",
    "groups": f", {_GROUPS}",
}
_GROUPS_BY_AGGREGATION = {
    name: Statement(
        f"usage_groups_{name.value}", _text(sql, _BY_EVENTS | _OF_GROUPS) + "\nLIMIT %(most)s", [*_LOADERS, bytes.decode]
    )
    for name, sql in _SQL.items()
    if name not in KEPT
}
_GROUPS_OF_PERCENTAGES = Statement(
    "usage_groups_percentage",
    _text(_PERCENTAGE, _BY_EVENTS | _OF_GROUPS) + "\nLIMIT %(most)s",
    [*_LOADERS, bytes.decode, bytes.decode, bytes.decode],
)

# The same of entries, whose quantities are added up.
_OF_ENTRIES = Statement("usage_of_entries", _text(_SUM, _BY_ENTRIES | _OF_A_WINDOW), _LOADERS)
_PERCENTAGES_OF_ENTRIES = Statement(
    "usage_percentage_of_entries", _text(_PERCENTAGE, _BY_ENTRIES | _OF_A_WINDOW), [*_LOADERS, bytes.decode, bytes.decode]
)
_GROUPS_OF_ENTRIES = Statement(
    "usage_groups_of_entries", _text(_SUM, _BY_ENTRIES | _OF_GROUPS) + "\nLIMIT %(most)s", [*_LOADERS, bytes.decode]
)
_PERCENTAGES_OF_GROUPS_OF_ENTRIES = Statement(
    "usage_groups_percentage_of_entries",
    _text(_PERCENTAGE, _BY_ENTRIES | _OF_GROUPS) + "\nLIMIT %(most)s",
    [*_LOADERS, bytes.decode, bytes.decode, bytes.decode],
)
_OF_EACH_GROUP = {
    *_GROUPS_BY_AGGREGATION.values(), _GROUPS_OF_PERCENTAGES, _GROUPS_OF_ENTRIES, _PERCENTAGES_OF_GROUPS_OF_ENTRIES,
}  # fmt: skip


def measure(subscription_id: int, measures: Sequence[Measure], *, most_groups: int | None = None) -> list[RatingInput]:
    """Return the usage of each window, by one statement per kind of aggregation; each bucket of a price reads its events once.

    The usage of a plan's overage, and of a price that is billed by entries, is the sum over the ledger's entries.

    Args:
        most_groups: of a window with more groups, at least one more than this number is returned; None: all are.
    """
    by_events = [one for one in measures if not is_overage(one.price)]
    measured = iter(_by_events(subscription_id, by_events, most_groups))
    used = iter(_on_overage(subscription_id, [one for one in measures if is_overage(one.price)]))
    return [next(used) if is_overage(one.price) else next(measured) for one in measures]


def _on_overage(subscription_id: int, measures: Sequence[Measure]) -> list[RatingInput]:
    """Return what the customer's holder used on overage in each window: the sum over the ledger's entries."""
    if not measures:
        return []
    ref, holder_id = Subscription.objects.values_list("ref", "customer__holder_id").get(pk=subscription_id)
    used: dict[int, dict[str | None, int]] = {}
    for credit_type in {credit_type_of(one.price) for one in measures}:
        places = [place for place, one in enumerate(measures) if credit_type_of(one.price) == credit_type]
        stretches = [(measures[place].start, measures[place].end) for place in places]
        amounts = overage_used(holder_id=holder_id, credit_type=credit_type, reference=ref, stretches=stretches)
        used |= dict(zip(places, amounts, strict=True))
    return [
        RatingInput(Fraction(sum(used[place].values())), by_rate=tuple(used[place].items())) for place in range(len(measures))
    ]


def _by_events(subscription_id: int, measures: Sequence[Measure], most_groups: int | None) -> list[RatingInput]:
    apart = [one.price.apart() for one in measures]
    flat = [replace(one, price=price) for one, prices in zip(measures, apart, strict=True) for _, price in prices]
    measured = iter(_measure_groups(subscription_id, flat, most_groups))
    return [_whole(one.price, [next(measured) for _ in prices]) for one, prices in zip(measures, apart, strict=True)]


def _whole(price: Price, buckets: Sequence[Mapping[Group, RatingInput]]) -> RatingInput:
    """Return the usage of all groups and buckets of a price."""
    nothing = price.converted(RatingInput(Fraction(0)))
    if not price.group_by:
        return together([bucket.get((), nothing) for bucket in buckets])
    groups = in_order({group for bucket in buckets for group in bucket})
    return grouped({group: together([bucket.get(group, nothing) for bucket in buckets]) for group in groups})


def _measure_groups(subscription_id: int, measures: Sequence[Measure], most_groups: int | None) -> list[dict[Group, RatingInput]]:
    usage_by_group: list[dict[Group, RatingInput]] = [{} for _ in measures]
    reads_entries = any(one.price.is_billed_by_entries() for one in measures)
    holder_id = _holder_of(subscription_id) if reads_entries else None
    for sql in {_statement(one.price) for one in measures}:
        rows = [_parameters(n, one) for n, one in enumerate(measures) if _statement(one.price) == sql]
        parameters = {"measures": parameter(json.dumps(rows)), "subscription": parameter(subscription_id)}
        parameters["holder"] = parameter(holder_id)
        if sql in _OF_EACH_GROUP:
            parameters["most"] = parameter(None if most_groups is None else most_groups * len(rows) + 1)
            for n, *facts, texts in sql.read(parameters):
                usage_by_group[n][_group(measures[n].price, texts)] = _usage(n, *facts)
            continue
        made = _levels_of(measures) if sql is _OF_DAYS else _usage
        for n, *facts in sql.read(parameters):
            usage_by_group[n][()] = made(n, *facts)
    return [
        {group: one.price.converted(usage) for group, usage in by_group.items()}
        for one, by_group in zip(measures, usage_by_group, strict=True)
    ]


def _holder_of(subscription_id: int) -> str:
    holder_id: str = Subscription.objects.values_list("customer__holder_id", flat=True).get(pk=subscription_id)
    return holder_id


def _group(price: Price, texts: str) -> Group:
    return tuple(json.loads(texts)[: len(price.group_by)])


def _usage(
    n: int, quantity: str, events: int, free_quantity: str, free_events: int, raised: str = "0", lowered: str = "0"
) -> RatingInput:
    return RatingInput(_quantity(quantity), events, Fraction(free_quantity), free_events, Fraction(raised), Fraction(lowered))


def _levels_of(measures: Sequence[Measure]) -> Callable[..., RatingInput]:
    """Return how the levels of a window become its usage."""

    def made(n: int, levels: str, events: int, *_: Any) -> RatingInput:
        days_by_level = [(Fraction(level), days) for level, days in json.loads(levels)]
        return usage_of_levels(days_by_level, measures[n].days.of, events)

    return made


def _quantity(text: str) -> Fraction:
    """Return a number, or the quotient of a numerator and denominator: an average over time need not terminate."""
    numerator, _, denominator = text.partition("/")
    return Fraction(numerator) / Fraction(denominator or 1)


def _statement(price: Price) -> Statement:
    if price.is_billed_by_entries():
        if price.counts_money:
            return _PERCENTAGES_OF_GROUPS_OF_ENTRIES if price.group_by else _PERCENTAGES_OF_ENTRIES
        return _GROUPS_OF_ENTRIES if price.group_by else _OF_ENTRIES
    if price.counts_money:
        return _GROUPS_OF_PERCENTAGES if price.group_by else _OF_PERCENTAGES
    assert price.aggregation is not None
    return (_GROUPS_BY_AGGREGATION if price.group_by else _BY_AGGREGATION)[price.aggregation]


def _parameters(n: int, one: Measure) -> dict[str, Any]:
    return {
        "n": n,
        "meter": one.price.meter,
        **_entries_parameters(one.price),
        **_window(one),
        "full_us": one.full_microseconds,
        "property": one.price.property,
        "filters": _filters(one.price.filters),
        "excluded": [_filters(filters) for filters in one.price.excluded] or None,
        "free_events": one.price.free_events,
        "free_amount": None if one.price.free_amount is None else decimal_text(one.price.free_amount),
        **_charge_parameters(one.price.event_charge()),
        **dict(zip(_GROUP_KEYS, one.price.group_by, strict=False)),
    }


def _window(one: Measure) -> dict[str, Any]:
    if one.price.aggregation != Aggregation.DAILY_LEVEL:
        return {"starts_at": one.start.isoformat(), "ends_at": one.end.isoformat()}
    days = one.days
    every_day = (days.first + timedelta(days=number) for number in range((days.end - days.first).days + 1))
    *midnights, ends_at = (instant_of(datetime.combine(day, time()), one.zone).isoformat() for day in every_day)
    return {
        "starts_at": midnights[0] if midnights else ends_at,
        "ends_at": ends_at,
        "midnights": midnights,
        "first_day": days.first.isoformat(),
        "end_day": days.end.isoformat(),
    }


def _filters(filters: Filters) -> dict[str, list[str]]:
    return {name: list(values) for name, values in filters}


def _entries_parameters(price: Price) -> dict[str, str | None]:
    if price.entries is None:
        return {}
    return {"credit_type": price.entries.credit_type, "of_rate": price.entries.rate, "component": price.entries.component}


def _charge_parameters(charge: EventCharge | None) -> dict[str, str | None]:
    if charge is None:
        return {}
    of_charge = {"rate": charge.rate, "fixed_amount": charge.fixed_amount, "least": charge.minimum, "most": charge.maximum}
    return {name: None if value is None else decimal_text(value) for name, value in of_charge.items()}
