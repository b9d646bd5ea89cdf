"""Plans, prices, coupons and amendments in sentences, as operators read them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from billing.orders.plans import PlanTerms
from billing.rating.money import minor_digits
from billing.rating.periods import Interval, Timing
from billing.rating.prices import Price, PriceKind, PriceModel, Tier
from billing.rating.tax import NOTES, STANDARD
from billing.rating.totals import CouponPer
from ledger.admin.kit.cells import instant_words
from ledger.typesetting.languages import ENGLISH
from ledger.units import unit_of

MEASURES: Final = {
    "sum": "{what}",
    "count": "event of {meter}",
    "max": "{what} at the highest",
    "last": "{what} at the end",
    "unique": "different {what}",
    "weighted_sum": "{what} on the time average",
}
"""The name of a meter's unit, by the aggregation of its events."""
PARTS: Final = {
    "second": "Part of a period is charged by the second.",
    "none": "Part of a period is charged in full.",
    "fixed_30": "Part of a period is charged in thirtieths of a month.",
}
"""How a part of a period is charged, if not by days."""


def amount(value: Decimal, currency: str) -> str:
    """Money in major units: at least the decimals of its currency, and any further ones that the amount has."""
    exact = value.normalize()
    has = max(-int(exact.as_tuple().exponent), 0)
    return f"{ENGLISH.number(exact, decimals=max(has, minor_digits(currency)))} {currency}"


def number(value: Decimal) -> str:
    """A quantity or rate."""
    return ENGLISH.number(value)


def every(interval: Interval) -> str:
    """How often, as in "billed every …": "month", "3 months"."""
    unit = interval.unit.value.replace("_", " ")
    return unit if interval.count == 1 else f"{interval.count} {unit}s"


# Plans -----------------------------------------------------------------------------------------------


def plan_sentences(terms: PlanTerms) -> list[str]:
    """What a subscription to the plan pays and gets."""
    period = every(terms.interval)
    sentences = [f"{terms.name} is billed every {period} in {terms.currency}."]
    sentences += [price_sentence(price, terms.currency, period) for _, price in terms.prices]
    if terms.minimum is not None:
        sentences.append(f"At least {amount(terms.minimum, terms.currency)} a {period}, before tax.")
    if terms.maximum is not None:
        sentences.append(f"At most {amount(terms.maximum, terms.currency)} a {period}, before tax.")
    return [*sentences, *([allowance_sentence(terms.allowance, period)] if terms.allowance else [])]


def allowance_sentence(allowance: Mapping[str, Any], period: str) -> str:
    """The credits that a plan grants."""
    unit = unit_of(allowance["credit_type"])
    granted = f"Grants {unit.amount(allowance['amount'])} every {period}"
    cap = allowance.get("rollover_cap")
    if cap is None:
        return f"{granted}; the rest expires with its {period}."
    return f"{granted}; up to {unit.number(cap)} of the rest carry over to the next one."


def price_sentence(price: Price, currency: str, period: str) -> str:
    """One price: what it costs, when it is billed, what is free, and its tax."""
    parts = [f"{price.key}: {_cost(price, currency, period)}", _when(price), *_free(price, currency)]
    sentences = [", ".join(part for part in parts if part) + "."]
    if price.credits is not None:
        unit = unit_of(price.credits.credit_type)
        per_unit = number(price.credits.per_unit.scaleb(-unit.scale))
        noun = unit.singular if per_unit == "1" else unit.unit
        sentences.append(f"Paid with {per_unit} {noun} each first; the invoice charges uncovered units.")
    sentences += _bounds(price, currency, period)
    if price.filters:
        passing = (f"{name} is {' or '.join(values)}" for name, values in price.filters)
        sentences.append(f"Only events whose {' and '.join(passing)}.")
    sentences += [PARTS[price.proration.value]] if price.proration.value in PARTS else []
    return " ".join([*sentences, _tax(price)])


def _cost(price: Price, currency: str, period: str) -> str:
    return COSTS[price.model](price, currency, period)


def _flat(price: Price, currency: str, period: str) -> str:
    return f"{_unit_amount(price, currency)} a {period}"


def _per_unit(price: Price, currency: str, period: str) -> str:
    return f"{_unit_amount(price, currency)} per {_unit(price, period)}"


def _per_package(price: Price, currency: str, period: str) -> str:
    assert price.package_size is not None
    return f"{_unit_amount(price, currency)} per started package of {number(price.package_size)} {_units(price)}"


def _percentage(price: Price, currency: str, period: str) -> str:
    assert price.rate is not None
    fixed = f" plus {amount(price.fixed_amount, currency)} an event" if price.fixed_amount else ""
    return f"{number(price.rate)} % of {_units(price)}{fixed}"


def _graduated(price: Price, currency: str, period: str) -> str:
    return f"per {_unit(price, period)}, each part at its own price: {_tiers(price.tiers, currency)}"


def _volume(price: Price, currency: str, period: str) -> str:
    return f"per {_unit(price, period)}, all at the price of the tier that is reached: {_tiers(price.tiers, currency)}"


def _graduated_percentage(price: Price, currency: str, period: str) -> str:
    return f"a percentage of {_units(price)}, each part at its own rate: {_tiers(price.tiers, currency)}"


COSTS: Final[Mapping[PriceModel, Callable[[Price, str, str], str]]] = {
    PriceModel.FLAT: _flat,
    PriceModel.UNIT: _per_unit,
    PriceModel.GRADUATED: _graduated,
    PriceModel.VOLUME: _volume,
    PriceModel.PACKAGE: _per_package,
    PriceModel.PERCENTAGE: _percentage,
    PriceModel.GRADUATED_PERCENTAGE: _graduated_percentage,
}
"""How each price model says what it costs, from a price, its currency and its period. A model without a row has no sentence."""


def _unit_amount(price: Price, currency: str) -> str:
    assert price.unit_amount is not None
    return amount(price.unit_amount, currency)


def _unit(price: Price, period: str) -> str:
    if price.kind == PriceKind.RECURRING:
        return f"unit and {period}"
    what = price.property or price.meter or "unit"
    aggregation = price.aggregation.value if price.aggregation else "sum"
    return MEASURES[aggregation].format(what=f"unit of {what}" if aggregation != "unique" else what, meter=price.meter)


def _units(price: Price) -> str:
    if price.kind == PriceKind.RECURRING:
        return "units"
    return str(price.property or price.meter)


def _tiers(tiers: Sequence[Tier], currency: str) -> str:
    parts = []
    for index, tier in enumerate(tiers):
        where = "any quantity" if tier.up_to is None and not index else "beyond"
        where = where if tier.up_to is None else f"up to {number(tier.up_to)}"
        cost = f"{number(tier.rate)} %" if tier.rate is not None else amount(tier.unit_amount or Decimal(0), currency)
        flat = f" plus {amount(tier.flat_amount, currency)} once" if tier.flat_amount else ""
        parts.append(f"{where} at {cost}{flat}")
    return "; ".join(parts)


def _when(price: Price) -> str:
    if price.kind == PriceKind.USAGE:
        return ""
    return "in advance" if price.timing == Timing.ADVANCE else "in arrears"


def _free(price: Price, currency: str) -> list[str]:
    parts = []
    if price.free_units:
        parts.append(f"the first {number(price.free_units)} free")
    if price.free_events:
        parts.append(f"the first {price.free_events:,} events free")
    if price.free_amount:
        parts.append(f"the first {amount(price.free_amount, currency)} free")
    return parts


def _bounds(price: Price, currency: str, period: str) -> list[str]:
    sentences = []
    if price.minimum is not None:
        sentences.append(f"At least {amount(price.minimum, currency)} a {period}.")
    if price.maximum is not None:
        sentences.append(f"At most {amount(price.maximum, currency)} a {period}.")
    return sentences


def _tax(price: Price) -> str:
    if price.tax_category in NOTES:
        return f"{NOTES[price.tax_category]}: no tax."
    category = "" if price.tax_category == STANDARD else f" (category {price.tax_category})"
    return f"{number(price.tax_rate)} % tax{category}." if price.tax_rate else f"No tax{category}."


# Amendments ------------------------------------------------------------------------------------------


def change_words(change: Mapping[str, Any], *, plans: Mapping[int, Any], zone: tzinfo, is_order: bool = False) -> str:
    """What an amendment changes; for the first one, the order itself.

    Args:
        change: as it is stored.
        plans: versions of plans by id.
        zone: the contract's, for its times.
    """
    parts = []
    if change.get("plan") is not None:
        plan = plans.get(change["plan"])
        words = "a plan that is missing" if plan is None else f"{plan.name} ({plan})"
        parts.append(f"ordered {words}" if is_order else f"plan becomes {words}")
    quantities = change.get("quantities") or {}
    parts += [f"{key}: {number(Decimal(text))}" for key, text in quantities.items()]
    if "ends_at" in change and not (is_order and change["ends_at"] is None):
        parts.append(f"ends {_instant(change['ends_at'], zone)}" if change["ends_at"] else "goes on without an end")
    if change.get("paused") is not None:
        parts.append("is paused" if change["paused"] else "goes on after the pause")
    if change.get("trial_end"):
        parts.append(f"trial ends {_instant(change['trial_end'], zone)}")
    return ", ".join(parts)


def _instant(text: str, zone: tzinfo) -> str:
    return instant_words(datetime.fromisoformat(text), zone)


# Coupons ---------------------------------------------------------------------------------------------


WHOSE_PERIODS: Final = {CouponPer.SUBSCRIPTION: "each subscription", CouponPer.CUSTOMER: "the customer"}


def coupon_words(coupon: Any) -> str:
    """What a coupon takes off, how often, and from what."""
    what = f"{number(coupon.value)} %" if coupon.kind == "percentage" else amount(coupon.value, coupon.currency)
    often = {"once": "once", "forever": "from every invoice"}.get(coupon.duration)
    if often is None:
        often = f"for {coupon.periods} period{'' if coupon.periods == 1 else 's'} of {WHOSE_PERIODS[coupon.per]}"
    words = f"{what} off, {often}"
    if coupon.prices:
        words += f", only from {' and '.join(coupon.prices)}"
    if coupon.plans:
        words += f", only on {' and '.join(coupon.plans)}"
    return words
