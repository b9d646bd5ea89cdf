"""The computation of a line's amount, in words and numbers that the reader can check by hand. Pure.

A line stores its calculation as steps (`rating.prices.steps.Step`): "5,390,000 − 1,000,000 free = 4,390,000 × 0.00002 = 87.80".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from billing.rating.money import minor_digits
from billing.rating.prices.steps import StepReason
from ledger.typesetting.languages import ENGLISH, MINUS, Language
from ledger.units import CreditUnit, plain_unit

Step = Mapping[str, str | None]

CREDITS: Final = "credits"
"""The credit type that has its name in the texts."""
MICROSECONDS: Final = 1_000_000
RATES_NAMED: Final = 5
"""How many rates a line names; the others are one number."""
DAYS_AT_MOST: Final = 400
"""The most days of a full period. A share with a larger base counts microseconds."""


@dataclass(frozen=True, slots=True)
class Notation:
    """The notation of numbers: the language, its texts, the currency, and the units of credit types that have one."""

    language: Language
    texts: Mapping[str, str]
    currency: str
    units: Mapping[str, CreditUnit] = field(default_factory=dict)

    def money(self, amount_minor: int) -> str:
        """Return an amount of whole minor units, without its currency."""
        digits = minor_digits(self.currency)
        return self.language.number(Decimal(amount_minor).scaleb(-digits), decimals=digits)

    def price(self, amount: Decimal | str) -> str:
        """Return an exact amount in major units, with at least the decimals of its currency."""
        exact = Decimal(amount)
        has = max(-int(exact.normalize().as_tuple().exponent), 0)
        return self.language.number(exact, decimals=max(has, minor_digits(self.currency)))

    def number(self, value: Decimal | str) -> str:
        """A quantity."""
        return self.language.number(value)

    def counted(self, value: Decimal | str, nouns: str) -> str:
        """Return a quantity with the noun of these texts: "1 unit", "100 units"."""
        one, many = self.texts[nouns].split("|")
        return f"{self.number(value)} {one if Decimal(value) == 1 else many}"

    def credits(self, amount: int, credit_type: str) -> str:
        """Return an amount of credits with the decimals and unit of its type; without a unit, with the type's name."""
        unit = self.units.get(credit_type)
        if unit is not None:
            noun = unit.unit_of(amount) if self.language == ENGLISH else unit.unit
            return f"{self.language.number(unit.decimal(amount), decimals=unit.scale)} {noun}"
        if credit_type == CREDITS:
            return self.counted(Decimal(amount), "credits")
        return f"{self.number(Decimal(amount))} {plain_unit(credit_type).unit}"

    def with_credits(self, text: str, text_in_unit: str, amount: int, credit_type: str) -> str:
        """Return a text about an amount of credits; if its unit could mean money, the text that says credits."""
        name = text if credit_type == CREDITS and credit_type not in self.units else text_in_unit
        return self.texts[name].format(credits=self.credits(amount, credit_type))


def calculation(notation: Notation, line: Mapping[str, Any]) -> list[str]:
    """Return the notes under a line that explain its amount; no note if quantity times price explains it.

    What is billed by entries names the rate, and its component if the price is that of one; an overage the rates by which it was
    used.

    Args:
        line: a line of `GET /v1/invoices/{id}`.
    """
    rating = line["rating"]
    included = rating.get("included_tax")
    if included:
        # The amounts of the price, which includes tax: quantity and price do not explain the amount beside them.
        line = {**line, **included, "unit_amount": None}
    return [
        *_entries(notation, rating.get("entries")),
        *_by_rate(notation, rating.get("by_rate")),
        *_conversion(notation, rating.get("conversion")),
        *_steps(notation, line, rating.get("steps") or []),
        *_share(notation, line, rating),
        *_negotiated_words(notation, line, rating.get("list_price")),
        *_covered_words(notation, rating.get("covered")),
        *_discount(notation, line),
        *_included_tax(notation, included),
    ]


def _entries(notation: Notation, entries: Mapping[str, str | None] | None) -> Iterator[str]:
    if entries:
        text = notation.texts["by_rate" if entries["component"] is None else "by_component"]
        yield text.format(rate=entries["rate"], component=entries["component"])


def _by_rate(notation: Notation, by_rate: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if by_rate:
        parts = [
            f"{each['rate'] or notation.texts['no_rate']} {notation.number(each['credits'])}" for each in by_rate[:RATES_NAMED]
        ]
        rest = sum(each["credits"] for each in by_rate[RATES_NAMED:])
        parts += [f"{notation.texts['other']} {notation.number(rest)}"] if rest else []
        yield notation.texts["by_rates"].format(parts=", ".join(parts))


def rates_of(line: Mapping[str, Any]) -> list[str]:
    """Return the rates by which the use of a line was decided, of an overage the most used ones; empty for other lines."""
    rating = line.get("rating") or {}
    if rating.get("entries"):
        return [rating["entries"]["rate"]]
    return [each["rate"] for each in rating.get("by_rate") or () if each["rate"]][:RATES_NAMED]


def _conversion(notation: Notation, conversion: Mapping[str, str] | None) -> Iterator[str]:
    if not conversion:
        return
    sign, factor = ("÷", conversion["divide_by"]) if conversion["divide_by"] else ("×", conversion["multiply_by"])
    product = f"{notation.number(conversion['measured'])} {sign} {notation.number(factor)}"
    yield f"{product} = {notation.number(conversion['quantity'])}{notation.texts.get('rounded_' + conversion['rounding'], '')}"


def _steps(notation: Notation, line: Mapping[str, Any], steps: Sequence[Step]) -> Iterator[str]:
    has_buckets = any(step.get("bucket") for step in steps)
    free = steps[0] if steps and _is_free(steps[0]) and len(steps) > 1 and not has_buckets else None
    charged = steps[1:] if free is not None else steps
    if free is None and len(charged) == 1 and _says_itself(line, charged[0]):
        return
    if free is not None and len(charged) == 1:
        yield _after_free(notation, free, charged[0])
        return
    if len(steps) == 1 and _is_free(steps[0]):
        yield f"{notation.number(steps[0]['units'] or '0')} {notation.texts['free']}"
        return
    for step in steps:
        bucket = f"{step.get('bucket') or notation.texts['other']}: " if has_buckets else ""
        yield bucket + (_range(notation, step) if len(steps) > 1 else "") + _product(notation, step)


def _is_free(step: Step) -> bool:
    return Decimal(step["unit_amount"] or 0) == 0 == Decimal(step["flat_amount"] or 0)


def _says_itself(line: Mapping[str, Any], step: Step) -> bool:
    """Return whether the columns for quantity and price show the whole calculation."""
    unit_amount = line["unit_amount"]
    return (
        unit_amount is not None
        and Decimal(step["units"] or 0) == Decimal(line["quantity"])
        and Decimal(step["unit_amount"] or 0) == Decimal(unit_amount)
        and not Decimal(step["flat_amount"] or 0)
    )


def _after_free(notation: Notation, free: Step, charged: Step) -> str:
    upper, free_units = Decimal(charged["to"] or 0), Decimal(free["units"] or 0)
    rest = upper - free_units
    begins = f"{notation.number(upper)} {MINUS} {notation.number(free_units)} {notation.texts['free']} = "
    if rest != Decimal(charged["units"] or 0):
        begins += f"{notation.number(rest)}; "
    return begins + _product(notation, charged)


def _range(notation: Notation, step: Step) -> str:
    """Return the range of the quantity that a step prices, or the bound that adds or takes off its amount."""
    if step.get("reason") in (StepReason.EVENT_MINIMUM, StepReason.EVENT_MAXIMUM):
        return f"{notation.texts[str(step['reason'])]}: "
    lower, upper = step["from"], step["to"]
    if lower is None or upper is None:
        return ""
    words = notation.texts["between"].format(lower=notation.number(lower), upper=notation.number(upper))
    return f"{words}: "


def _product(notation: Notation, step: Step) -> str:
    units, flat = Decimal(step["units"] or 0), Decimal(step["flat_amount"] or 0)
    parts = []
    if units or not flat:
        parts.append(f"{notation.number(units)} × {notation.price(step['unit_amount'] or '0')}")
    if flat:
        parts.append(notation.price(flat))
    if len(parts) == 1 and flat:
        return parts[0]
    return f"{' + '.join(parts)} = {notation.price(step['amount'] or '0')}"


def _share(notation: Notation, line: Mapping[str, Any], rating: Mapping[str, Any]) -> Iterator[str]:
    share = rating.get("share")
    if not share or share["used"] == share["of"]:
        return
    used, of, words = share["used"], share["of"], "days"
    if of > DAYS_AT_MOST:
        used, of, words = used // MICROSECONDS, of // MICROSECONDS, "seconds"
    part = notation.texts[words].format(used=notation.number(used), of=notation.number(of))
    yield f"{notation.price(rating['exact'])} × {part} = {notation.money(line['amount_minor'])}"


def _negotiated_words(notation: Notation, line: Mapping[str, Any], list_price: Mapping[str, Any] | None) -> Iterator[str]:
    """Say that a price was negotiated, and the plan's own amount if that is one number."""
    if list_price is None:
        return
    if line["unit_amount"] is None or "unit_amount" not in list_price:
        yield notation.texts["negotiated"]
        return
    yield notation.texts["negotiated_from"].format(price=notation.price(list_price["unit_amount"]))


def _covered_words(notation: Notation, covered: Mapping[str, Any] | None) -> Iterator[str]:
    if not covered or not covered["credits"]:
        return
    text = notation.texts["in_credits" if covered["credits"] > 0 else "credits_back"]
    yield text.format(
        units=notation.counted(abs(Decimal(covered["units"])), "units"),
        credits=notation.credits(abs(covered["credits"]), covered["credit_type"]),
    )


def _included_tax(notation: Notation, included: Mapping[str, Any] | None) -> Iterator[str]:
    if included:
        amount = notation.money(included["amount_minor"] - included["discount_minor"])
        yield notation.texts["with_tax"].format(amount=amount, rate=notation.number(included["rate"]))


def _discount(notation: Notation, line: Mapping[str, Any]) -> Iterator[str]:
    if line["discount_minor"]:
        yield notation.texts["line_discount"].format(amount=notation.money(-line["discount_minor"]))
