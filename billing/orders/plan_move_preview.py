"""What a plan move would change, per subscription and in sum."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

from billing.models import Activation, Customer, CustomerCoupon, Plan, Subscription
from billing.models.columns import first_of
from billing.orders import plans
from billing.orders.item_versions import AmendmentChange, OrderedTerms, terms_at
from billing.orders.overrides import Override, overridden
from billing.orders.plan_move_orders import NewPlanMove, versions_of
from billing.orders.plan_move_walk import MoveCandidate, Outcome, candidates, decide
from billing.orders.stored_versions import changes_of
from billing.rating.periods import months_of
from billing.rating.prices.price import PriceKind
from billing.rating.prices.pricing import quote
from billing.reads.revenue_value import Fee, monthly_minor_of

MOST_SUMMED: Final = 10_000
"""Beyond this number of subscriptions a preview shows no sums."""


@dataclass(frozen=True, slots=True)
class MovePreview:
    """What a plan move would do to one subscription.

    Args:
        before_minor, after_minor: what it is charged a month at its quantities and negotiated prices, without coupons.
        notes: what else concerns the change: see `_notes`.
    """

    subscription: str
    customer: str
    from_plan: Plan
    takes_effect_at: datetime
    currency_before: str
    before_minor: int
    currency: str
    after_minor: int
    notes: tuple[str, ...]


@dataclass(slots=True)
class CurrencySum:
    """The sums over all subscriptions of a move in a currency."""

    currency: str
    subscriptions: int = 0
    before_minor: int = 0
    after_minor: int = 0

    @property
    def difference_minor(self) -> int:
        """What the move brings more a month."""
        return self.after_minor - self.before_minor


@dataclass(frozen=True, slots=True)
class MovesPreview:
    """What a plan move would do, per subscription and in sum.

    Args:
        sums: over all subscriptions that it would move; None: they are more than MOST_SUMMED.
        left_out: how many of its candidates stay, by the reason; None as for `sums`.
        subscriptions: the first ones after the one that was named.
        following: the ref to name for the next ones; None: there are no more.
    """

    plan: Plan
    from_versions: list[int]
    effective_at: datetime
    sums: list[CurrencySum] | None
    left_out: dict[str, int] | None
    subscriptions: list[MovePreview]
    following: str | None


class _Decided(NamedTuple):
    candidate: MoveCandidate
    changes: Sequence[AmendmentChange]
    outcome: Outcome
    instants: tuple[datetime, ...]


def move_preview(request: NewPlanMove, *, after: str | None, limit: int) -> MovesPreview:
    """Return what a plan move would do. Nothing is written, and no lock is taken.

    Args:
        after: the ref of the subscription after which the page begins, in the order in which a move goes through them.
        limit: how many subscriptions.

    Raises:
        NotFound: the plan does not exist.
        Invalid: as ordering it would.
    """
    target, from_plans = versions_of(request)
    since = 0 if after is None else first_of(Subscription.objects.filter(ref=after), "subscription", after).pk
    sums: dict[str, CurrencySum] = {}
    left_out: Counter[str] = Counter()
    shown: list[_Decided] = []
    prices = _MonthlyAmounts()
    moved = 0
    for one in _decide_moves(request, target, from_plans):
        if one.outcome != Outcome.MOVED:
            left_out[one.outcome.value] += 1
            continue
        moved += 1
        if one.candidate.id > since and len(shown) <= limit:
            shown.append(one)
        if moved <= MOST_SUMMED:
            _add(sums, prices, one, target)
        elif len(shown) > limit:
            break
    known = Plan.objects.in_bulk(from_plans)
    return MovesPreview(
        plan=target,
        from_versions=sorted(plan.version for plan in known.values()),
        effective_at=request.effective_at,
        sums=[sums[currency] for currency in sorted(sums)] if moved <= MOST_SUMMED else None,
        left_out=dict(left_out) if moved <= MOST_SUMMED else None,
        subscriptions=_previews(shown[:limit], target, known, prices),
        following=shown[limit - 1].candidate.ref if len(shown) > limit else None,
    )


def _decide_moves(request: NewPlanMove, target: Plan, from_plans: Sequence[int]) -> Iterator[_Decided]:
    last = 0
    while next_candidates := candidates(from_plans=from_plans, refs=request.subscriptions, after=last):
        changes = changes_of([one.id for one in next_candidates])
        for one in next_candidates:
            decision = decide(changes[one.id], to_plan=target.pk, from_plans=from_plans, effective_at=request.effective_at)
            yield _Decided(one, changes[one.id], decision.outcome, decision.instants)
        last = next_candidates[-1].id


class _MonthlyAmounts:
    """What subscriptions are charged a month; equal orders are computed once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    def of(self, plan_id: int, terms: OrderedTerms) -> tuple[str, int]:
        """Return the currency and the amount a month on a version of a plan, in minor units, without coupons."""
        quantities = {key: str(quantity) for key, quantity in terms.quantities.items()}
        name = json.dumps([plan_id, quantities, terms.override], sort_keys=True)
        if name not in self._known:
            self._known[name] = _monthly(plan_id, terms.quantities, terms.override)
        return self._known[name]


def _monthly(plan_id: int, quantities: Mapping[str, Decimal], override: Override | None) -> tuple[str, int]:
    plan = plans.terms_of(plan_id)
    fees: list[Fee] = []
    for _, price in plan.prices:
        if price.kind == PriceKind.RECURRING:
            paid = price if override is None else overridden(price, plan.code, override)
            exact = quote(paid, quantities.get(price.key, Decimal(1)), plan.currency).exact
            fees.append(Fee(price.key, plan.code, exact / months_of(plan.interval_of(price))))
    return plan.currency, monthly_minor_of(fees, (), plan.interval, plan.currency)


def _amounts(prices: _MonthlyAmounts, one: _Decided, target: Plan) -> tuple[OrderedTerms, tuple[str, int], tuple[str, int]]:
    terms = terms_at(one.changes, one.instants[0])
    return terms, prices.of(terms.plan_id, terms), prices.of(target.pk, terms)


def _add(sums: dict[str, CurrencySum], prices: _MonthlyAmounts, one: _Decided, target: Plan) -> None:
    _, (currency_before, before_minor), (currency, after_minor) = _amounts(prices, one, target)
    for each in {currency_before, currency}:
        sums.setdefault(each, CurrencySum(each))
    sums[currency_before].before_minor += before_minor
    sums[currency].after_minor += after_minor
    sums[currency].subscriptions += 1


def _previews(shown: Sequence[_Decided], target: Plan, known: Mapping[int, Plan], prices: _MonthlyAmounts) -> list[MovePreview]:
    rows = Subscription.objects.in_bulk([one.candidate.id for one in shown])
    customers = Customer.objects.in_bulk({row.customer_id for row in rows.values()})
    given = CustomerCoupon.objects.filter(customer_id__in=customers, taken_off_at=None)
    coupons = set(given.values_list("customer_id", "subscription_id"))
    activations = Activation.objects.filter(subscription_id__in=rows, state=Activation.State.WAITING)
    waiting = set(activations.values_list("subscription_id", flat=True))
    previews: list[MovePreview] = []
    for one in shown:
        row = rows[one.candidate.id]
        terms, (currency_before, before_minor), (currency, after_minor) = _amounts(prices, one, target)
        has_coupon = bool({(row.customer_id, None), (row.customer_id, row.pk)} & coupons)
        previews.append(
            MovePreview(
                subscription=row.ref,
                customer=customers[row.customer_id].ref,
                from_plan=known[terms.plan_id],
                takes_effect_at=one.instants[0],
                currency_before=currency_before,
                before_minor=before_minor,
                currency=currency,
                after_minor=after_minor,
                notes=_notes(one, row, terms, has_coupon=has_coupon, is_incomplete=row.pk in waiting),
            )
        )
    return previews


def _notes(one: _Decided, row: Subscription, terms: OrderedTerms, *, has_coupon: bool, is_incomplete: bool) -> tuple[str, ...]:
    instant = one.instants[0]
    notes = {
        "incomplete": is_incomplete,
        "trial": row.trial_end is not None and row.trial_end > instant,
        "paused": terms.paused,
        "negotiated-prices": terms.override is not None,
        "pending-amendments": any(change.effective_at > instant for change in one.changes),
        "coupons": has_coupon,
    }
    return tuple(name for name, is_so in notes.items() if is_so)
