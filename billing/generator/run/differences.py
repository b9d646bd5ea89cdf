"""Why an invoice differs from the one before it, line by line. Pure: of documents as the REST contract has them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

Line = Mapping[str, Any]
CORRECTIONS = {"credit", "late_usage", "minimum", "maximum", "carried"}


class Because(StrEnum):
    """Why the amount of a line changed."""

    NEW = "new"
    GONE = "gone"
    ONE_OFF = "one_off"
    CORRECTION = "correction"
    PLAN = "plan"
    PRICE = "price"
    QUANTITY = "quantity"
    USAGE = "usage"
    PRORATION = "proration"
    COUPON = "coupon"
    TAX = "tax"


@dataclass(frozen=True, slots=True)
class LineDifference:
    """The lines of one price on both invoices, after discounts and with the tax rate of each.

    Args:
        title: as the later invoice has it; of a line that is gone, as the earlier one.
    """

    kind: str
    price_key: str | None
    title: str
    before_minor: int
    after_minor: int
    because: tuple[Because, ...]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[LineDifference, ...]:
    """Return the differences of two invoices; lines that are the same in amount, price, quantity and tax are left out.

    The amounts of all differences add up to the difference of the invoices before tax.
    """
    earlier, later = _by_price(before["lines"]), _by_price(after["lines"])
    found = [_difference(earlier.get(key, []), later.get(key, [])) for key in dict.fromkeys([*later, *earlier])]
    return tuple(one for one in found if one is not None)


def _by_price(lines: Iterable[Line]) -> dict[tuple[Any, ...], list[Line]]:
    """Return the lines of each price of a subscription; those of its groups of usage apart."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        group = tuple(sorted(line["rating"].get("group", {}).items()))
        found.setdefault((line["subscription"], line["kind"], line["price_key"] or line["title"], group), []).append(line)
    return found


def _difference(earlier: list[Line], later: list[Line]) -> LineDifference | None:
    because = tuple(_because(earlier, later))
    amounts = _net(earlier), _net(later)
    if not because and amounts[0] == amounts[1]:
        return None
    shown = (later or earlier)[0]
    return LineDifference(shown["kind"], shown["price_key"], shown["title"], *amounts, because or (Because.PRORATION,))


def _net(lines: Iterable[Line]) -> int:
    return sum(line["amount_minor"] - line["discount_minor"] for line in lines)


def _because(earlier: list[Line], later: list[Line]) -> Iterable[Because]:
    kind = (later or earlier)[0]["kind"]
    if kind == "charge" or kind in CORRECTIONS:
        if _net(earlier) != _net(later):
            yield Because.ONE_OFF if kind == "charge" else Because.CORRECTION
        return
    if not earlier or not later:
        yield Because.NEW if later else Because.GONE
        return
    if earlier[-1]["title"] != later[0]["title"]:
        yield Because.PLAN
    if earlier[-1]["unit_amount"] != later[0]["unit_amount"]:
        yield Because.PRICE
    if _quantities(earlier) != _quantities(later):
        yield Because.USAGE if kind == "usage" else Because.QUANTITY
    if _shares(earlier) != _shares(later):
        yield Because.PRORATION
    if _discounts(earlier) != _discounts(later):
        yield Because.COUPON
    if {_tax(line) for line in earlier} != {_tax(line) for line in later}:
        yield Because.TAX


def _quantities(lines: Iterable[Line]) -> list[Decimal]:
    return [Decimal(line["quantity"]) for line in lines]


def _shares(lines: Iterable[Line]) -> list[Decimal]:
    """Return the share of a full period of each line; months of different lengths are all whole."""
    shares = [line["rating"].get("share") for line in lines]
    return [Decimal(1) if share is None else Decimal(share["used"]) / Decimal(share["of"]) for share in shares]


def _discounts(lines: Iterable[Line]) -> int:
    return sum(line["discount_minor"] for line in lines)


def _tax(line: Line) -> tuple[str, Decimal]:
    return line["tax_category"], Decimal(line["tax_rate"])
