"""The recurring revenue of subscriptions now, and of each customer at the end of a month as it was recorded by then.

Note [A month that is over does not change]
    A version of an item says from when until when it counts, and from when until when that was on record: a back-dated amendment
        supersedes versions and inserts others. So the end of a month is read from the versions that counted and were on record
        then, in the zone of the subscription. What is recorded later with an earlier time counts in the month of its recording.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from billing.rating.money import round_half_up, to_minor
from billing.rating.periods import Interval, IntervalUnit, first_charged_instant, months_of
from billing.rating.prices.pricing import quote
from billing.rating.prices.reading import parse_price
from billing.rating.totals import CouponTerms, Duration
from billing.rating.vat import TaxBehavior
from billing.reads.revenue_movement import CustomerMonth
from billing.reads.revenue_value import Fee, HeldCoupon, monthly_minor_of
from ledger.database.statements import fetch_rows

LAST_ZONE: Final = timedelta(hours=12)
"""A month ends this much later than in UTC in the last zone."""

_LOCAL: Final = "{0} AT TIME ZONE s.time_zone"
_MONTH: Final = f"(extract(year FROM {_LOCAL}) * 12 + extract(month FROM {_LOCAL}) - 1)::int"
_SINCE: Final = (
    f"greatest({_MONTH.format('v.starts_at')}, {_MONTH.format('v.recorded_at')}, {_MONTH.format('activation.settled_at')})"
)
_UNTIL: Final = f"least({_MONTH.format('v.ends_at')}, {_MONTH.format('v.superseded_at')})"

# A version counts at the ends of the months `[since, until)`: from that in which it counted and was on record, to the one before
# that in which it ended or was superseded. Before its first payment, a subscription that waits for it brings nothing.
VERSIONS: Final = f"""
    SELECT s.customer_id, v.subscription_id, v.plan_id, v.price_id, v.quantity, {_SINCE}, {_UNTIL}
    FROM billing_itemversion AS v
    JOIN billing_price AS p ON p.id = v.price_id AND p.kind = 'recurring'
    JOIN billing_subscription AS s ON s.id = v.subscription_id
    LEFT JOIN billing_activation AS activation ON activation.subscription_id = s.id
    WHERE coalesce(activation.state, 'started') = 'started' AND
        v.recorded_at < %(known)s AND v.starts_at < %(known)s AND {_SINCE} < coalesce({_UNTIL}, 2147483647)
    ORDER BY s.customer_id, v.subscription_id, v.id
"""
TRIALS: Final = f"""
    SELECT s.id, {_MONTH.format("s.trial_end")}, array_agg({_MONTH.format("a.recorded_at")} ORDER BY a.sequence),
        array_agg({_MONTH.format("(a.change ->> 'trial_end')::timestamptz")} ORDER BY a.sequence)
    FROM billing_subscription AS s
    LEFT JOIN billing_amendment AS a ON a.subscription_id = s.id AND a.change ? 'trial_end'
    WHERE s.trial_end IS NOT NULL
    GROUP BY s.id
"""
COUPONS: Final = """
    SELECT held.customer_id, held.subscription_id, c.code, c.kind, c.value, c.currency, c.duration, c.periods, c.per,
        c.prices::text, c.plans::text, held.given_at, held.taken_off_at
    FROM billing_customercoupon AS held
    JOIN billing_coupon AS c ON c.id = held.coupon_id
    WHERE c.duration <> 'once' AND (%(customers)s::bigint[] IS NULL OR held.customer_id = ANY(%(customers)s))
    ORDER BY held.id
"""
PRICES: Final = "SELECT id, key, definition::text FROM billing_price WHERE id = ANY(%s)"
PLANS: Final = "SELECT id, code, currency, interval_unit, interval_count, tax_behavior FROM billing_plan WHERE id = ANY(%s)"
CONTRACTS: Final = "SELECT id, started_at, trial_end, time_zone FROM billing_subscription WHERE id = ANY(%s)"


IsOn = Callable[[datetime, datetime | None, ZoneInfo], bool]
"""Whether a coupon that lasts from the first to the second instant counts, for a subscription in that zone."""


class PricedItem(NamedTuple):
    """A recurring price at a quantity."""

    customer_id: int
    subscription_id: int
    plan_id: int
    price_id: int
    quantity: Decimal


class Version(NamedTuple):
    """An item at the ends of the months `[since, until)`."""

    customer_id: int
    subscription_id: int
    plan_id: int
    price_id: int
    quantity: Decimal
    since: int
    until: int | None

    @property
    def item(self) -> PricedItem:
        return PricedItem(*self[:5])


class RevenuePlan(NamedTuple):
    """What the value of an item needs of its plan."""

    code: str
    currency: str
    interval: Interval
    tax_behavior: str


class Contract(NamedTuple):
    """What the duration of a coupon needs of a subscription."""

    charged_from: datetime
    zone: ZoneInfo


class Segment(NamedTuple):
    """A subscription brings an amount at the ends of the months `[since, until)`, on a plan."""

    plan: str
    currency: str
    since: int
    until: int
    minor: int


@dataclass(slots=True)
class RevenueTerms:
    """Prices, plans and coupons of the subscriptions at hand, each read once."""

    plans: dict[int, RevenuePlan]
    prices: dict[int, tuple[str, Any]]
    coupons: dict[int, list[HeldCoupon]]
    contracts: dict[int, Contract]
    _monthly: dict[tuple[int, Decimal], Fraction] = field(default_factory=dict)
    _values: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def minor(self, items: Sequence[PricedItem], coupons: Iterable[CouponTerms]) -> int:
        """Return what the items of a subscription bring a month."""
        key = (tuple((item.price_id, item.quantity) for item in items), tuple(coupons))
        known = self._values.get(key)
        if known is None:
            plan = self.plans[items[0].plan_id]
            fees = [Fee(self.prices[item.price_id][0], plan.code, self._monthly_of(item)) for item in items]
            known = monthly_minor_of(fees, key[1], plan.interval, plan.currency)
            if plan.tax_behavior == TaxBehavior.INCLUSIVE:
                known = round_half_up(known * self._share_without_tax(items))
            self._values[key] = known
        return known

    def _share_without_tax(self, items: Sequence[PricedItem]) -> Fraction:
        """Return what is left of amounts that include tax, by the rates of the items."""
        amounts = [(self._monthly_of(item), self.prices[item.price_id][1].tax_rate) for item in items]
        with_tax = sum(amount for amount, _ in amounts)
        return sum(amount / (1 + Fraction(rate) / 100) for amount, rate in amounts) / with_tax if with_tax else Fraction(1)

    def _monthly_of(self, item: PricedItem) -> Fraction:
        known = self._monthly.get((item.price_id, item.quantity))
        if known is None:
            plan = self.plans[item.plan_id]
            price = self.prices[item.price_id][1]
            exact = quote(price, item.quantity, plan.currency).exact
            known = self._monthly[item.price_id, item.quantity] = exact / months_of(price.interval or plan.interval)
        return known


def terms_of(items: Iterable[PricedItem | Version], *, customers: Sequence[int] | None) -> RevenueTerms:
    """Read the terms of items.

    Args:
        customers: whose coupons; None: of all customers.
    """
    items = list(items)
    plans = fetch_rows(_plan, PLANS, [list({item.plan_id for item in items})])
    prices = fetch_rows(_price, PRICES, [list({item.price_id for item in items})])
    coupons: dict[int, list[HeldCoupon]] = {}
    for held in fetch_rows(_held_coupon, COUPONS, {"customers": customers}):
        coupons.setdefault(held.customer_id, []).append(held)
    discounted = list({item.subscription_id for item in items if item.customer_id in coupons})
    return RevenueTerms(dict(plans), dict(prices), coupons, dict(fetch_rows(_contract, CONTRACTS, [discounted])))


def _plan(pk: int, code: str, currency: str, unit: str, count: int, tax_behavior: str) -> tuple[int, RevenuePlan]:
    return pk, RevenuePlan(code, currency, Interval(IntervalUnit(unit), count), tax_behavior)


def _price(pk: int, key: str, definition: str) -> tuple[int, tuple[str, Any]]:
    return pk, (key, parse_price(json.loads(definition)))


def _contract(pk: int, started_at: datetime, trial_end: datetime | None, zone: str) -> tuple[int, Contract]:
    return pk, Contract(first_charged_instant(started_at, trial_end), ZoneInfo(zone))


def _held_coupon(
    customer_id: int, subscription_id: int | None, code: str, kind: str, value: Decimal, currency: str, duration: str,
    periods: int | None, per: str, prices: str, plans: str, given_at: datetime, taken_off_at: datetime | None,
) -> HeldCoupon:  # fmt: skip
    terms = CouponTerms(
        code=code,
        duration=Duration(duration),
        amount_minor=to_minor(value, currency) if kind == "amount" else None,
        percent=value if kind == "percentage" else None,
        prices=frozenset(json.loads(prices)),
        plans=frozenset(json.loads(plans)),
    )
    return HeldCoupon(customer_id, subscription_id, terms, currency, periods, per, given_at, taken_off_at)


# Now -------------------------------------------------------------------------------------------------


def minor_now(items: Iterable[PricedItem], *, now: datetime) -> dict[int, int]:
    """Return what subscriptions bring a month, by their ids.

    Args:
        items: of all subscriptions of their customers that are charged now, as a recurring amount of a customer is that of the
            oldest.
    """
    items = sorted(items)
    terms = terms_of(items, customers=list({item.customer_id for item in items}))
    found: dict[int, int] = {}
    for customer_id, of_customer in groupby(items, attrgetter("customer_id")):
        parts = {pk: list(part) for pk, part in groupby(of_customer, attrgetter("subscription_id"))}
        found |= _values(terms, customer_id, parts, lambda since, until, zone: since <= now and (until is None or until > now))
    return found


def _values(terms: RevenueTerms, customer_id: int, parts: dict[int, list[PricedItem]], is_on: IsOn) -> dict[int, int]:
    """Return the value of each subscription of a customer at one time, the oldest first."""
    held = terms.coupons.get(customer_id, [])
    given: set[str] = set()
    found = {}
    for pk, items in parts.items():
        plan, usable = terms.plans[items[0].plan_id], []
        for coupon in held:
            contract = terms.contracts[pk]
            if not _is_usable(coupon, pk, plan) or not is_on(*coupon.lasts(*contract, plan.interval), contract.zone):
                continue
            if coupon.is_for_one_subscription:
                if coupon.terms.code in given:
                    continue
                given.add(coupon.terms.code)
            usable.append(coupon.terms)
        found[pk] = terms.minor(items, usable)
    return found


def _is_usable(coupon: HeldCoupon, subscription_id: int, plan: RevenuePlan) -> bool:
    is_theirs = coupon.subscription_id in (None, subscription_id) and coupon.currency in ("", plan.currency)
    return is_theirs and (not coupon.terms.plans or plan.code in coupon.terms.plans)


# At the end of a month -------------------------------------------------------------------------------


def number_of(month: date) -> int:
    """Return a month as a number: months since the year 0."""
    return month.year * 12 + month.month - 1


def first_day(number: int) -> date:
    """The inverse of `number_of`."""
    return date(number // 12, number % 12 + 1, 1)


def customer_months(month: date) -> list[CustomerMonth]:
    """Return each customer who has brought something up to the end of a month, in each currency.

    It reads each version of a recurring price once. See Note [A month that is over does not change].

    Args:
        month: its first day.
    """
    this = number_of(month)
    return [one for customer_id, segments in _segments_until(this) for one in _customer_months(customer_id, segments, this)]


def monthly_by_plan_until(month: date, *, months: int) -> dict[tuple[date, str, str], int]:
    """Return what each plan brought at the end of each of the last months, in minor units: by month, plan and currency.

    It reads each version of a recurring price once. See Note [A month that is over does not change].

    Args:
        month: the first day of the last one.
    """
    this = number_of(month)
    sums: Counter[tuple[date, str, str]] = Counter()
    for _, segments in _segments_until(this):
        for segment in segments:
            for number in range(max(segment.since, this - months + 1), min(segment.until, this + 1)):
                sums[first_day(number), segment.plan, segment.currency] += segment.minor
    return dict(sums)


def _segments_until(this: int) -> Iterator[tuple[int, list[Segment]]]:
    """Yield each customer's segments up to the end of a month."""
    end = first_day(this + 1)
    known = datetime(end.year, end.month, 1, tzinfo=UTC) + LAST_ZONE
    versions = [version for version in fetch_rows(Version, VERSIONS, {"known": known}) if version.since <= this]
    terms = terms_of(versions, customers=None)
    trials = dict(fetch_rows(_trial, TRIALS))
    for customer_id, of_customer in groupby(versions, attrgetter("customer_id")):
        parts = {pk: list(part) for pk, part in groupby(of_customer, attrgetter("subscription_id"))}
        # Without coupons, each subscription is computed on its own.
        groups = [parts] if customer_id in terms.coupons else [{pk: part} for pk, part in parts.items()]
        yield customer_id, [each for group in groups for each in _segments(terms, trials, customer_id, group, this)]


@dataclass(frozen=True, slots=True)
class Trial:
    """The end of a trial, by month, and the months in which it was moved, each with the end that it then had."""

    ends: int
    moved: tuple[tuple[int, int], ...]

    def is_over(self, month: int) -> bool:
        """Return whether the trial was over at the end of the month, as it was recorded by then.

        Only a trial that goes on can be moved: it was not over before that.
        """
        known = [ends for recorded, ends in self.moved if recorded <= month]
        if not known and self.moved:
            return False
        return (known[-1] if known else self.ends) <= month

    @property
    def edges(self) -> Iterator[int]:
        """The months in which the answer may change."""
        yield self.ends
        for recorded, ends in self.moved:
            yield recorded
            yield ends


def _trial(pk: int, ends: int, recorded: list[int | None], moved_to: list[int | None]) -> tuple[int, Trial]:
    pairs = zip(recorded, moved_to, strict=True)
    return pk, Trial(ends, tuple((month, until) for month, until in pairs if month is not None and until is not None))


def _segments(
    terms: RevenueTerms, trials: dict[int, Trial], customer_id: int, parts: dict[int, list[Version]], last: int
) -> Iterator[Segment]:
    """Yield what each of the subscriptions brings, for stretches of months in which nothing changes."""
    for since, until in pairwise(_edges(terms, trials, parts, last)):
        counted = {
            pk: [version.item for version in part if version.since <= since and (version.until is None or version.until > since)]
            for pk, part in parts.items()
            if pk not in trials or trials[pk].is_over(since)
        }
        charged = {pk: items for pk, items in counted.items() if items}
        for pk, minor in _values(terms, customer_id, charged, partial(_is_on_at_end_of, since)).items():
            if minor > 0:
                plan = terms.plans[charged[pk][0].plan_id]
                yield Segment(plan.code, plan.currency, since, until, minor)


def _edges(terms: RevenueTerms, trials: dict[int, Trial], parts: dict[int, list[Version]], last: int) -> list[int]:
    """Return the months in which something of the subscriptions changes, in order, and the month after the last."""
    found: set[int] = set()
    for pk, part in parts.items():
        found.update(version.since for version in part)
        found.update(version.until for version in part if version.until is not None)
        found.update(trials[pk].edges if pk in trials else ())
        for coupon in terms.coupons.get(part[0].customer_id, ()):
            for plan in {terms.plans[version.plan_id] for version in part}:
                times = coupon.lasts(*terms.contracts[pk], plan.interval)
                found.update(_month_in(time, terms.contracts[pk].zone) for time in times if time is not None)
    return [*sorted(month for month in found if month <= last), last + 1]


def _is_on_at_end_of(month: int, start: datetime, end: datetime | None, zone: ZoneInfo) -> bool:
    return _month_in(start, zone) <= month and (end is None or _month_in(end, zone) > month)


def _month_in(instant: datetime, zone: ZoneInfo) -> int:
    return number_of(instant.astimezone(zone).date())


def _customer_months(customer_id: int, segments: Sequence[Segment], this: int) -> Iterator[CustomerMonth]:
    """Yield the customer in each currency."""
    for currency in sorted({segment.currency for segment in segments}):
        own = [segment for segment in segments if segment.currency == currency]
        first = min(segment.since for segment in own)
        yield CustomerMonth(customer_id, currency, this, first, _at(own, first), _at(own, this - 1), _at(own, this))


def _at(segments: Iterable[Segment], month: int) -> int:
    return sum(segment.minor for segment in segments if segment.since <= month < segment.until)
