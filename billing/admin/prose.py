"""Plans, prices, coupons and amendments in sentences for operators."""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from billing.models import VatLookup
from billing.orders.item_versions import AllowanceChange
from billing.orders.plans import PlanTerms
from billing.rating.money import MINOR_DIGITS
from billing.rating.periods import Interval, Timing
from billing.rating.prices.overage import affordable, is_overage
from billing.rating.prices.price import Price, PriceKind, Proration
from billing.rating.prices.values import Conversion, Rounding
from billing.rating.prices.wording import Wording, amount, number
from billing.rating.totals import CouponPer
from billing.rating.vat import NOTES, STANDARD, LookupOutcome, TaxBehavior
from ledger.services.budgets import HARD, scope_words, window_words
from ledger.staff.kit.cells import instant_words
from ledger.units import purpose_words, unit_of

MEASURES: Final = {
    "sum": "{what}",
    "count": "event of {meter}",
    "max": "{what} at the highest",
    "last": "{what} at the end",
    "unique": "different {what}",
    "weighted_sum": "{what} on the time average",
    "daily_level": "{what} kept for the period, by the day",
}
"""The name of a meter's unit, by the aggregation of its events."""
ROUNDED: Final = {Rounding.UP: "rounded up", Rounding.DOWN: "rounded down", Rounding.HALF_UP: "rounded half up"}
PARTS: Final = {
    "second": "Part of a period is charged by the second.",
    "none": "Part of a period is charged in full.",
    "fixed_30": "Part of a period is charged in thirtieths of a month.",
}
"""How a price charges a part of a period, if not by days."""
CONSOLIDATION: Final = {
    True: "it shares one invoice a day with the customer's other subscriptions",
    False: "its invoices are separate",
    None: "it shares invoices as the customer says",
}
UNUSED: Final = {
    "refund": ", and unused time that was paid in money is paid out",
    "skip": ", and what is charged in advance stays charged",
}
"""What the end of a subscription does with unused time, if it does not credit it."""


def every(interval: Interval) -> str:
    """Return the interval as in "billed every …": "month", "3 months"."""
    unit = interval.unit.value.replace("_", " ")
    return unit if interval.count == 1 else f"{interval.count} {unit}s"


def lookup_words(row: VatLookup) -> str:
    """Return what VIES said about a VAT id, in a sentence."""
    asked = f"asked {instant_words(row.asked_at)}"
    if row.outcome == LookupOutcome.UNAVAILABLE:
        return f"VIES, {asked}, gave no answer about the VAT id ({row.error}); the next run asks again."
    whose = ", ".join(filter(None, [row.name, row.address]))
    number = f" The consultation number is {row.consultation}." if row.consultation else ""
    return f"VIES, {asked}, says that the VAT id is {row.outcome}{f': {whose}' if whose else ''}.{number}"


# Plans -----------------------------------------------------------------------------------------------


def plan_sentences(terms: PlanTerms) -> list[str]:
    """Return what a subscription to the plan pays and gets, in sentences."""
    period = every(terms.interval)
    sentences = [f"{terms.name} is billed every {period} in {terms.currency}."]
    sentences += [
        price_sentence(price, terms.currency, every(terms.interval_of(price)))
        for _, price in terms.prices
        if not is_overage(price)
    ]
    is_inclusive = terms.tax_behavior == TaxBehavior.INCLUSIVE
    tax = "with tax" if is_inclusive else "before tax"
    if terms.minimum is not None:
        sentences.append(f"At least {amount(terms.minimum, terms.currency)} a {period}, {tax}.")
    if terms.maximum is not None:
        sentences.append(f"At most {amount(terms.maximum, terms.currency)} a {period}, {tax}.")
    if terms.usage_threshold is not None:
        threshold = amount(terms.usage_threshold, terms.currency)
        sentences.append(f"Usage is invoiced before its period ends as soon as {threshold} of it are not invoiced.")
    sentences += ["All amounts include tax."] if is_inclusive else []
    if terms.trial_days is not None:
        days = "the first day" if terms.trial_days == 1 else f"the first {terms.trial_days} days"
        sentences.append(f"An order begins with a trial, unless it says otherwise: nothing is charged for {days}.")
    sentences += [] if terms.on_sale else ["It is retired: no order takes it any more."]
    sentences += [allowance_sentence(terms.allowance, period)] if terms.allowance else []
    return [*sentences, *overage_sentences(terms, period), *map(budget_sentence, terms.budgets)]


def budget_sentence(budget: Mapping[str, Any]) -> str:
    """Return a budget of a plan, in a sentence."""
    most = unit_of(budget["credit_type"]).amount(budget["limit"])
    per = f" for each {budget['per_quantity_of']}" if budget["per_quantity_of"] else ""
    window = window_words(budget["window"], budget["hours"], "UTC")
    whose = scope_words(budget["by"], budget["label"], budget["subject"])
    whose += f" within {budget['parent']}" if budget["parent"] else ""
    beyond = "more is refused" if budget["mode"] == HARD else "more is spent and shown"
    return f"The budget {budget['budget']}: at most {most}{per} {window} for {whose}; {beyond}."


def overage_sentences(terms: PlanTerms, period: str) -> list[str]:
    """Return what may be used beyond the credits of the holder and what it costs, in sentences."""
    if terms.overage is None:
        return []
    price = next(price for _, price in terms.prices if is_overage(price))
    unit = unit_of(terms.overage["credit_type"])
    if terms.overage["limit_credits"] is not None:
        most = f"up to {unit.amount(terms.overage['limit_credits'])} a {period}"
    elif terms.overage["limit_minor"] is not None:
        most_credits = affordable(price, terms.overage["limit_minor"], terms.currency)
        money = amount(Decimal(terms.overage["limit_minor"]).scaleb(-MINOR_DIGITS[terms.currency]), terms.currency)
        most = f"as many as cost {money} a {period}" + (
            "" if most_credits is None else f", which are {unit.amount(most_credits)}"
        )
    else:
        most = "without a limit"
    if terms.overage["per_quantity_of"]:
        most += f" for each {terms.overage['per_quantity_of']}"
    return [f"Beyond them, {unit.unit} may be used {most}.", price_sentence(price, terms.currency, period)]


def allowance_sentence(allowance: Mapping[str, Any], period: str) -> str:
    """Return the credits that a plan grants, in a sentence."""
    unit = unit_of(allowance["credit_type"])
    period = every(Interval(**allowance["interval"])) if allowance["interval"] else period
    per = f" for each {allowance['per_quantity_of']}" if allowance["per_quantity_of"] else ""
    trial = ", also in a trial" if allowance["in_trial"] else ""
    purpose = purpose_words(allowance["applies_to"])
    granted = f"Grants {unit.amount(allowance['amount'])}{per} every {period}{trial}{purpose and f', {purpose}'}"
    cap = allowance.get("rollover_cap")
    if cap is None:
        return f"{granted}; the rest expires with its {period}."
    return f"{granted}; up to {unit.number(cap)} of the rest roll over into the next one."


def price_sentence(price: Price, currency: str, period: str) -> str:
    """Return one price in sentences: its cost, when it is billed, what is free, and its tax."""
    say = Wording(currency, period, _unit(price, period), _units(price))
    called = f"{price.name} ({price.key})" if price.name else price.key
    parts = [f"{called}: {price.costs(say)}", _when(price, period), *price.free(say)]
    sentences = [", ".join(part for part in parts if part) + "."]
    if price.credits is not None:
        unit = unit_of(price.credits.credit_type)
        per_unit = number(price.credits.per_unit.scaleb(-unit.scale))
        noun = unit.singular if per_unit == "1" else unit.unit
        sentences.append(f"Paid with {per_unit} {noun} each first; the invoice charges uncovered units.")
        if price.credits.also_spent:
            sentences.append("Callers also spend these credits, for something else.")
    if price.conversion is not None:
        sentences.append(_conversion(price.conversion))
    sentences += _bounds(price, currency, period)
    if price.entries is not None:
        component = "" if price.entries.component is None else f"{price.entries.component} of the "
        sentences.append(f"Measured by spends and holds: the {component}rate {price.entries.rate}. Usage events are refused.")
    if price.filters:
        passing = (f"{name} is {' or '.join(values)}" for name, values in price.filters)
        counted = "events" if price.entries is None else "spends and holds"
        sentences.append(f"Only {counted} whose {' and '.join(passing)}.")
    if price.group_by:
        each = " and ".join(price.group_by)
        sentences.append(f"Each {each} is charged by itself, on a separate line.")
    sentences += [PARTS[price.proration.value]] if price.proration.value in PARTS else []
    if price.proration == Proration.NONE and price.kind == PriceKind.RECURRING:
        sentences.append("More units within a period are free until the next one, and fewer give nothing back.")
    return " ".join([*sentences, _tax(price)])


def _conversion(conversion: Conversion) -> str:
    factor, how = conversion.multiply_by, "multiplied"
    if conversion.divide_by is not None:
        factor, how = conversion.divide_by, "divided"
    sentence = f"The quantity of the period is {how} by {number(factor or Decimal(1))}"
    if conversion.rounding == Rounding.NONE:
        return f"{sentence} first."
    decimals = f"{conversion.decimals} decimal{'' if conversion.decimals == 1 else 's'}" if conversion.decimals else "whole units"
    return f"{sentence} and {ROUNDED[conversion.rounding]} to {decimals} first."


def _unit(price: Price, period: str) -> str:
    if price.kind == PriceKind.RECURRING:
        return f"unit and {period}"
    what = price.property or price.meter or "unit"
    aggregation = price.aggregation.value if price.aggregation else "sum"
    words = MEASURES[aggregation].format(what=f"unit of {what}" if aggregation != "unique" else what, meter=price.meter)
    return f"converted {words}" if price.conversion is not None else words


def _units(price: Price) -> str:
    if price.kind == PriceKind.RECURRING:
        return "units"
    return str(price.property or price.meter)


def _when(price: Price, period: str) -> str:
    if price.is_due_as_recorded():
        return "charged as it is recorded"
    if price.kind == PriceKind.USAGE:
        return "" if price.interval is None else f"billed every {period}"
    return "in advance" if price.timing == Timing.ADVANCE else "in arrears"


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

ALLOWANCE_CHANGES: Final = {
    AllowanceChange.KEEP: "the credits of the running period stay",
    AllowanceChange.FULL: "all credits of the new period are granted at once",
}


def change_words(change: Mapping[str, Any], *, plans: Mapping[int, Any], zone: tzinfo, is_order: bool = False) -> str:
    """Return the changes of an amendment in words; for the first one, the order itself.

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
    if change.get("allowance_change"):
        parts.append(ALLOWANCE_CHANGES[change["allowance_change"]])
    quantities = change.get("quantities") or {}
    parts += [f"{key}: {number(Decimal(text))}" for key, text in quantities.items()]
    if "price_override" in change:
        parts.append(override_words(change["price_override"]))
    if "ends_at" in change and not (is_order and change["ends_at"] is None):
        unused = UNUSED.get(change.get("unused_time", ""), "")
        parts.append(f"ends {_instant(change['ends_at'], zone)}{unused}" if change["ends_at"] else "continues without an end")
    if change.get("paused") is not None:
        charges = ", and fees are charged in the pause" if change.get("charges_while_paused") else ""
        parts.append(f"is paused{charges}" if change["paused"] else "continues after the pause")
    if change.get("anchor_at"):
        anchor, moves = (_instant(change[name], zone) for name in ("anchor_at", "moves_at"))
        parts.append(f"periods count from {anchor}, beginning {moves}")
    if "hold_days" in change:
        days = change["hold_days"]
        parts.append("invoices as the customer's" if days is None else f"invoices {days} days after they are due")
    if "consolidated_invoicing" in change:
        parts.append(CONSOLIDATION[change["consolidated_invoicing"]])
    if change.get("withdraws"):
        parts.insert(0, "phases that have not begun are replaced")
    if change.get("phase"):
        parts.insert(0, f"phase {change['phase']} begins")
    if change.get("trial_end"):
        parts.append(f"trial ends {_instant(change['trial_end'], zone)}")
    return ", ".join(parts)


def override_words(override: Mapping[str, Any] | None) -> str:
    """Return negotiated prices in words."""
    if override is None:
        return "pays the plan's prices again"
    named = [f"{key} with {_amounts_words(amounts)}" for key, amounts in override["prices"].items()]
    percent = override["percent_off"]
    rest = [] if percent is None else [f"{number(Decimal(percent))} % off {'the other' if named else 'all'} prices"]
    return f"negotiated prices: {', '.join([*named, *rest])}"


def _amounts_words(amounts: Mapping[str, Any]) -> str:
    return " and ".join(
        f"{name.replace('_', ' ')} {value}" if isinstance(value, str) else f"{'no' if value is None else 'its own'} {name}"
        for name, value in amounts.items()
    )


def _instant(text: str, zone: tzinfo) -> str:
    return instant_words(datetime.fromisoformat(text), zone)


# Coupons ---------------------------------------------------------------------------------------------


WHOSE_PERIODS: Final = {CouponPer.SUBSCRIPTION: "each subscription", CouponPer.CUSTOMER: "the customer"}


def coupon_words(coupon: Any) -> str:
    """Return the discount of a coupon in words: how much, how often, and on what."""
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
