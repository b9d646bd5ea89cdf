"""What another price would have brought: the usage of invoiced periods, rated again at it. Nothing is written, no lock is taken.

A claim stores the usage that its invoice charged, exactly, with the units that credits paid for. So the periods are not measured
again: the same functions that rated them rate them at the other price.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.utils import timezone

from billing.errors import NotFound
from billing.generator.state.open_claims import anchor_of, read_coverage
from billing.models import Plan
from billing.models import Price as PriceRow
from billing.orders import plans
from billing.orders.plans import PlanTerms
from billing.rating.aggregation import RatingInput, stored_usage
from billing.rating.money import to_minor
from billing.rating.periods import Schedule
from billing.rating.prices.overage import OVERAGE_MODELS, OveragePrice
from billing.rating.prices.price import Price, PriceKind
from billing.rating.prices.pricing import rate_uncovered
from billing.rating.prices.reading import COMMON, parse_price, price_dict
from billing.rating.proration import share
from billing.rating.values import Ref
from ledger.database.statements import fetch_rows
from ledger.errors import Invalid
from ledger.periods import add_months
from ledger.records import Record, UseCase
from ledger.values import Integer, ListOf

MOST_PLANS: Final = 20
MOST_MONTHS: Final = 12
MOST_PERIODS: Final = 20_000
"""How many periods a trial rates at most."""
SUBSCRIPTIONS_AT_ONCE: Final = 500
CUSTOMERS_NAMED: Final = 10
KEPT: Final = frozenset({*COMMON, "conversion", "credits"}) - {"model"}
"""What stays of the price that is replaced: how usage is measured, taxed and bounded."""
MEASURES: Final = (
    "meter", "aggregation", "billed_by", "entries", "property", "filters", "group_by", "interval", "conversion", "credits",
)  # fmt: skip
"""The fields by which two prices measure the same usage of the same periods."""
USUAL_MONTHS: Final = 3
MODELS_TRIED: Final = frozenset({*OVERAGE_MODELS, "flat"})
"""The models of prices that can be replaced: they price a number, and a claim stores it whatever the amounts are."""

# Subscriptions that have or had one of the prices, their own negotiated forms included.
SUBSCRIPTIONS: Final = """
    SELECT DISTINCT v.subscription_id
    FROM billing_price AS p JOIN billing_itemversion AS v ON v.price_id = p.id
    WHERE coalesce(p.list_price_id, p.id) = ANY(%(prices)s) AND p.plan_id = ANY(%(plans)s) AND v.subscription_id > %(after)s
    ORDER BY 1
    LIMIT %(most)s
"""
# The whole periods that they were invoiced for, or that cost nothing; those of drafts and running periods are not over.
PERIODS: Final = """
    SELECT c.price_id, coalesce(p.list_price_id, p.id), s.customer_id, c.subscription_id, s.anchor_at, s.time_zone,
        c.starts_at, c.ends_at, c.snapshot::text,
        EXISTS (
            SELECT FROM billing_itemversion AS v
            WHERE v.subscription_id = c.subscription_id AND v.superseded_at IS NULL AND v.is_termination
                AND v.ends_at = c.ends_at
        )
    FROM billing_claim AS c
    JOIN billing_price AS p ON p.id = c.price_id AND coalesce(p.list_price_id, p.id) = ANY(%(prices)s)
    JOIN billing_subscription AS s ON s.id = c.subscription_id
    LEFT JOIN billing_invoice AS i ON i.id = c.invoice_id
    WHERE c.subscription_id = ANY(%(subscriptions)s) AND c.released_at IS NULL AND c.kind = 2
        AND c.ends_at > %(since)s AND c.ends_at <= %(until)s AND i.state IS DISTINCT FROM 'draft'
        AND NOT coalesce((c.snapshot ->> 'running')::bool, false)
    ORDER BY c.subscription_id, c.ends_at
    LIMIT %(most)s
"""


@dataclass(frozen=True, kw_only=True)
class NewPriceTrial(Record):
    """A usage price, and another one in its place."""

    plans: Annotated[
        list[str],
        ListOf(Ref("A plan."), "The plans whose price it is, all of their versions; of one currency.", least=1, most=MOST_PLANS),
    ]
    price: Annotated[str, Ref("The key of a usage price of the plans; `overage` for that of their overage.")]
    replaced_by: Annotated[
        dict[str, Any],
        OveragePrice("The other price. How usage is measured, its minimum and maximum, and its tax stay those of the plan."),
    ]
    months: Annotated[int, Integer("Periods that ended within this number of months.", least=1, most=MOST_MONTHS)] = USUAL_MONTHS


@dataclass(slots=True)
class TrialSum:
    """Periods added up, in minor units, before discounts and tax.

    Args:
        before_minor: what was charged; after_minor: what the other price would have charged.
    """

    periods: int = 0
    before_minor: int = 0
    after_minor: int = 0

    @property
    def difference_minor(self) -> int:
        """What the other price would have brought more."""
        return self.after_minor - self.before_minor

    def add(self, before_minor: int, after_minor: int) -> None:
        """Add a period."""
        self.periods += 1
        self.before_minor += before_minor
        self.after_minor += after_minor


@dataclass(slots=True)
class PriceTrial:
    """What another price would have brought.

    Args:
        by_plan: by plan and version. by_customer: by the id of the customer.
        negotiated: how many periods have negotiated prices; they stay, and count in no sum.
        subscriptions: the ids of those that have such a period.
        is_whole: False: there are more than MOST_PERIODS, and the others are left out.
    """

    currency: str
    since: datetime
    until: datetime
    total: TrialSum = field(default_factory=TrialSum)
    by_plan: dict[tuple[str, int], TrialSum] = field(default_factory=dict)
    by_customer: dict[int, TrialSum] = field(default_factory=dict)
    negotiated: int = 0
    subscriptions: set[int] = field(default_factory=set)
    is_whole: bool = True

    def most_affected(self) -> list[tuple[int, TrialSum]]:
        """Return the customers whose sum would change most, at most CUSTOMERS_NAMED."""
        changed = [(customer, each) for customer, each in self.by_customer.items() if each.difference_minor]
        return sorted(changed, key=lambda row: (-abs(row[1].difference_minor), row[0]))[:CUSTOMERS_NAMED]


class _Period(NamedTuple):
    """A row of PERIODS."""

    price_id: int
    list_price_id: int
    customer_id: int
    subscription_id: int
    anchor_at: datetime
    time_zone: str
    starts_at: datetime
    ends_at: datetime
    snapshot: str
    is_terminated: bool


class _Replaced(NamedTuple):
    """A price of a version of a plan, and the one in its place."""

    terms: PlanTerms
    version: int
    price: Price
    other: Price


def compute_trial(request: NewPriceTrial, until: datetime) -> PriceTrial:
    """Return what the other price would have brought for the periods that ended until then. Nothing is written.

    Raises:
        NotFound: a plan does not exist.
        Invalid: a plan has no such usage price, the price has another model than MODELS_TRIED or buckets, or the plans have
            different currencies.
        PriceInvalid: the other price does not fit what stays.
    """
    return _compute(_replaced_prices(request), add_months(until, -request.months), until)


def compute_version_trials(plan: Plan, until: datetime) -> dict[str, PriceTrial | None]:
    """Return, by the key of each usage price that a version of a plan changes, what it would have brought for USUAL_MONTHS.

    Args:
        plan: the version, which may be one of a preview.

    Returns:
        None for a price that measures in another way, or whose usage is stored for its own amounts. A price that no earlier
        version has, or that all have as it is, has no trial.
    """
    new = {price.key: price for _, price in plans.terms_of.__wrapped__(plan.pk).prices if price.kind == PriceKind.USAGE}
    by_key: dict[str, dict[int, _Replaced]] = {}
    rows = PriceRow.objects.filter(plan__code=plan.code, kind=PriceKind.USAGE.value, subscription=None)
    earlier = rows.exclude(plan_id=plan.pk).filter(key__in=new).order_by("-plan__version")
    for row_id, version in earlier.values_list("pk", "plan__version"):
        terms, price = plans.price_of(row_id)
        by_key.setdefault(price.key, {})[row_id] = _Replaced(terms, version, price, new[price.key])
    since = add_months(until, -USUAL_MONTHS)
    return {
        key: _compute(replaced, since, until) if all(_is_comparable(each, plan.currency) for each in replaced.values()) else None
        for key, replaced in by_key.items()
        if any(each.price != each.other for each in replaced.values())
    }


def _is_comparable(replaced: "_Replaced", currency: str) -> bool:
    """Return whether the usage that a claim stores for one price is that of the other, which is in this currency."""
    price, other = replaced.price, replaced.other
    has_other_use = price.buckets or other.buckets or not {price.model, other.model} <= MODELS_TRIED
    is_same_use = all(getattr(price, name) == getattr(other, name) for name in MEASURES)
    return is_same_use and not has_other_use and replaced.terms.currency == currency


def _compute(replaced: "Mapping[int, _Replaced]", since: datetime, until: datetime) -> PriceTrial:
    trial = PriceTrial(next(iter(replaced.values())).terms.currency, since, until)
    left = MOST_PERIODS
    for subscriptions in _subscriptions(replaced):
        named = {"subscriptions": subscriptions, "prices": list(replaced), "since": since, "until": until, "most": left + 1}
        periods = fetch_rows(_Period, PERIODS, named)
        for period in periods[:left]:
            _add(trial, period, replaced[period.list_price_id])
        left -= len(periods)
        if left < 0:
            trial.is_whole = False
            break
    return trial


try_price = UseCase(NewPriceTrial, lambda request: compute_trial(request, timezone.now()))


def _replaced_prices(request: NewPriceTrial) -> dict[int, _Replaced]:
    """Return the prices that are replaced, by their ids, the newest version of the first plan first."""
    replaced: dict[int, _Replaced] = {}
    for index, code in enumerate(dict.fromkeys(request.plans)):
        versions = list(Plan.objects.filter(code=code).order_by("-version"))
        if not versions:
            raise NotFound(resource="plan", ref=code)
        rows = PriceRow.objects.filter(plan__in=versions, key=request.price, kind=PriceKind.USAGE.value, subscription=None)
        by_plan = {row.plan_id: row.pk for row in rows}
        if not by_plan:
            raise Invalid(pointer="/price", rule="usage-price", detail=f"plan {code!r} has no usage price of this key")
        for version in (each for each in versions if each.pk in by_plan):
            terms, price = plans.price_of(by_plan[version.pk])
            replaced[by_plan[version.pk]] = _Replaced(terms, version.version, price, other_price(price, request.replaced_by))
            if terms.currency != next(iter(replaced.values())).terms.currency:
                detail = f"plan {code!r}, version {version.version}, has another currency"
                raise Invalid(pointer=f"/plans/{index}", rule="one-currency", detail=detail)
    return replaced


def other_price(price: Price, replaced_by: Mapping[str, Any]) -> Price:
    """Return the price with other amounts; it measures, taxes and bounds as before.

    Raises:
        Invalid: the price has buckets, or a model beyond MODELS_TRIED.
        PriceInvalid: the amounts do not fit what stays.
    """
    if price.buckets or price.model not in MODELS_TRIED:
        detail = f"its usage is stored for its own amounts; replace {', '.join(sorted(MODELS_TRIED))}, without buckets"
        raise Invalid(pointer="/price", rule="not-a-number", detail=detail)
    own = {name: value for name, value in price_dict(price).items() if name in KEPT}
    return parse_price({**own, **replaced_by}, pointer="/replaced_by")


def _subscriptions(replaced: Mapping[int, _Replaced]) -> Iterator[list[int]]:
    plan_ids = [each.terms.id for each in replaced.values()]
    named = {"prices": list(replaced), "plans": plan_ids, "most": SUBSCRIPTIONS_AT_ONCE}
    after = 0
    while page := fetch_rows(int, SUBSCRIPTIONS, {**named, "after": after}):
        yield page
        after = page[-1]


def _add(trial: PriceTrial, period: _Period, replaced: _Replaced) -> None:
    trial.subscriptions.add(period.subscription_id)
    if period.price_id != period.list_price_id:
        trial.negotiated += 1
        return
    snapshot = json.loads(period.snapshot)
    usage = stored_usage(snapshot["usage"]) if "usage" in snapshot else RatingInput(Fraction(0))
    covered = _covered_units(snapshot)
    currency, bound = trial.currency, _Bound.of(period, snapshot, replaced)
    before = bound.apply(replaced.price, snapshot.get("gross_minor", 0), currency)
    after = bound.apply(replaced.other, rate_uncovered(replaced.other, usage, covered, currency).amount_minor, currency)
    sums = (
        trial.total,
        trial.by_plan.setdefault((replaced.terms.code, replaced.version), TrialSum()),
        trial.by_customer.setdefault(period.customer_id, TrialSum()),
    )
    for each in sums:
        each.add(before, after)


def _covered_units(snapshot: Mapping[str, Any]) -> Sequence[tuple[Fraction, Fraction]]:
    """Return the units that credits paid for, as the amount of the claim has them."""
    known = read_coverage(snapshot)
    return (known["short_of"] or known["coverage"].stretches) if known else ()


@dataclass(frozen=True, slots=True)
class _Bound:
    """The part of a full period for which the minimum and maximum of a price count."""

    fraction: Fraction

    @classmethod
    def of(cls, period: _Period, snapshot: Mapping[str, Any], replaced: _Replaced) -> "_Bound":
        price = replaced.price
        bounds = (price.minimum, price.maximum, replaced.other.minimum, replaced.other.maximum)
        if all(each is None for each in bounds):
            return cls(Fraction(1))
        interval = replaced.terms.interval_of(price)
        schedule = Schedule.anchored_at(anchor_of(snapshot) or period.anchor_at, ZoneInfo(period.time_zone), interval)
        part = schedule.period_at(period.starts_at).clip(period.starts_at, period.ends_at)
        assert part is not None
        known = share(schedule, part, price.proration, terminated=period.is_terminated, bill_last_day=price.bill_last_day)
        return cls(known.fraction)

    def apply(self, price: Price, amount_minor: int, currency: str) -> int:
        if price.maximum is not None:
            amount_minor = min(amount_minor, to_minor(Fraction(price.maximum) * self.fraction, currency))
        if price.minimum is not None:
            amount_minor = max(amount_minor, to_minor(Fraction(price.minimum) * self.fraction, currency))
        return amount_minor
