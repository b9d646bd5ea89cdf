"""The catalogue: plans with their prices. A written version of a plan never changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.db.models import Max

from billing.models import Plan
from billing.models import Price as PriceRow
from billing.models.lookups import first_of
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.price_fields import PriceInvalid
from billing.rating.price_input import currency_fault, parse_prices, price_dict
from billing.rating.prices import Price
from ledger.database.lock_names import PLAN
from ledger.database.locks import advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """A version of a plan as the generator reads it."""

    id: int
    code: str
    name: str
    currency: str
    interval: Interval
    minimum: Decimal | None
    maximum: Decimal | None
    allowance: dict[str, Any] | None
    prices: tuple[tuple[int, Price], ...]
    """Row id and terms of each price, in the order in which lines are printed."""


def create_plan(
    *,
    code: str,
    name: str,
    currency: str,
    interval: Interval,
    prices: Sequence[Any],
    minimum: Decimal | None = None,
    maximum: Decimal | None = None,
    allowance: dict[str, Any] | None = None,
) -> Plan:
    """Write a plan, or its next version where the code exists; or raise and write nothing.

    Subscriptions keep the version of their order until an amendment names the plan again.

    Args:
        prices: as the REST contract gives them; each is checked by `billing.rating.price_input`.
        minimum, maximum: money per subscription and period, in major units.
        allowance: credits granted each period: `credit_type`, `amount`, `rollover_cap` (None: they expire with the period).

    Raises:
        PriceInvalid: a price or the currency is not valid; has every fault with its field.
        Invalid: the minimum is above the maximum.
    """
    parsed = _checked(currency, prices, minimum, maximum)
    allowance = _whole_allowance(allowance)
    with own_or_joined(), advisory_lock(PLAN(code)):
        last = Plan.objects.filter(code=code).aggregate(last=Max("version"))["last"]
        plan = Plan.objects.create(
            code=code,
            version=(last or 0) + 1,
            name=name,
            currency=currency,
            interval_unit=interval.unit.value,
            interval_count=interval.count,
            minimum=minimum,
            maximum=maximum,
            allowance=allowance,
        )
        PriceRow.objects.bulk_create(_price_row(plan, position, price) for position, price in enumerate(parsed))
        plan.refresh_from_db()
    return plan


def latest_plan(code: str, *, pointer: str = "/plan") -> Plan:
    """The newest version of a plan.

    Raises:
        Invalid: it does not exist; nothing was written.
    """
    plan = Plan.objects.filter(code=code).order_by("-version").first()
    if plan is None:
        raise Invalid(pointer=pointer, rule="exists", detail=f"plan {code!r} does not exist")
    return plan


def plan_of(code: str) -> Plan:
    """The newest version of a plan that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Plan.objects.filter(code=code).order_by("-version"), "plan", code)


@lru_cache(maxsize=4096)
def terms_of(plan_id: int) -> PlanTerms:
    """The terms of a version of a plan; kept in memory, since versions never change."""
    plan = Plan.objects.get(pk=plan_id)
    rows = PriceRow.objects.filter(plan_id=plan_id).order_by("position").values_list("id", "definition")
    parsed = parse_prices([definition for _, definition in rows])
    return PlanTerms(
        id=plan.pk,
        code=plan.code,
        name=plan.name,
        currency=plan.currency,
        interval=Interval(IntervalUnit(plan.interval_unit), plan.interval_count),
        minimum=plan.minimum,
        maximum=plan.maximum,
        allowance=plan.allowance,
        prices=tuple((row_id, price) for (row_id, _), price in zip(rows, parsed, strict=True)),
    )


@lru_cache(maxsize=16384)
def price_of(price_id: int) -> tuple[PlanTerms, Price]:
    """A price and the version of the plan that it belongs to; kept in memory, since neither ever changes."""
    plan_id = PriceRow.objects.values_list("plan_id", flat=True).get(pk=price_id)
    terms = terms_of(plan_id)
    return terms, next(price for known_id, price in terms.prices if known_id == price_id)


def _checked(currency: str, prices: Sequence[Any], minimum: Decimal | None, maximum: Decimal | None) -> tuple[Price, ...]:
    fault = currency_fault(currency)
    if fault is not None:
        raise PriceInvalid([fault])
    if minimum is not None and maximum is not None and minimum > maximum:
        raise Invalid(pointer="/minimum", rule="below-maximum", detail="the minimum must not exceed the maximum")
    return parse_prices(prices)


def _whole_allowance(allowance: dict[str, Any] | None) -> dict[str, Any] | None:
    """An allowance with all its fields, in the order of responses.

    Raises:
        Invalid: it grants nothing, or its rollover cap is below zero.
    """
    if allowance is None:
        return None
    cap = allowance.get("rollover_cap")
    if allowance["amount"] < 1:
        raise Invalid(pointer="/allowance/amount", rule="range", detail="must be at least 1")
    if cap is not None and cap < 0:
        raise Invalid(pointer="/allowance/rollover_cap", rule="range", detail="must not be negative")
    return {"credit_type": allowance.get("credit_type", "credits"), "amount": allowance["amount"], "rollover_cap": cap}


def _price_row(plan: Plan, position: int, price: Price) -> PriceRow:
    return PriceRow(
        plan_id=plan.pk,
        position=position,
        key=price.key,
        kind=price.kind.value,
        timing=price.timing.value,
        model=price.model.value,
        meter=price.meter or "",
        definition=price_dict(price),
    )
