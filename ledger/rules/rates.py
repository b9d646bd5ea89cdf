"""The price of quantities by a rate: exact, the sum of all components, rounded up once to whole credits."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ledger.errors import Invalid

WHOLE: Final = "quantity"
"""The only component of a rate that has no components."""


class RatePrice(NamedTuple):
    """`price` credits, 0 or more, for `per` units, 1 or more."""

    price: int
    per: int


Prices = Mapping[str, RatePrice]
"""The prices of a rate, by component."""
Quantities = Mapping[str, Decimal | int]
"""What was used, by component: each 0 or more."""


def cost_of(prices: Prices, quantities: Quantities) -> int:
    """Return what the quantities cost: the exact sum over all components, rounded up once to whole credits.

    Args:
        quantities: of components that the rate has; what is not named was not used.
    """
    numerator, denominator = 0, 1
    for name, quantity in quantities.items():
        price, per = prices[name]
        units, parts = quantity.as_integer_ratio()
        numerator, denominator = numerator * parts * per + units * price * denominator, denominator * parts * per
    return -(-numerator // denominator)


def quantities_of_all(prices: Prices, quantities: Quantities) -> dict[str, str]:
    """Return the quantities of all components as an entry keeps them: in plain digits, 0 for what is not named.

    Raises:
        Invalid: the rate does not have a component.
    """
    for name in quantities:
        if name not in prices:
            detail = f"The rate has no such component; it has {', '.join(prices)}."
            raise Invalid(pointer=f"/quantities/{name}", rule="unknown-component", detail=detail)
    return {name: as_text(quantities.get(name, 0)) for name in prices}


def as_text(quantity: Decimal | int) -> str:
    """Return a quantity in plain digits, without zeros at the end of its decimals."""
    text = f"{quantity:f}" if isinstance(quantity, Decimal) else str(quantity)
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity_words(rating: Mapping[str, Any]) -> str:
    """Return the quantity, or those that are not 0 with the names of their components: "1,200 input, 350.5 output".

    Args:
        rating: of an entry, or a request, with `quantity` or `quantities`.
    """
    if rating.get("quantity") is not None:
        return f"{rating['quantity']:,}"
    used = [f"{Decimal(quantity):,} {name}" for name, quantity in rating["quantities"].items() if Decimal(quantity)]
    return ", ".join(used) or "0"
