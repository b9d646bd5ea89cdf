"""How recurring revenue moved in a month, and what is left of the customers who began in the same month. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from billing.rating.money import round_half_up

MOVEMENTS: Final = {
    "new": "New",
    "reactivation": "Reactivation",
    "expansion": "Expansion",
    "contraction": "Contraction",
    "churn": "Churn",
}
"""The movements, with their titles. Each customer has at most one in a month."""


class CustomerMonth(NamedTuple):
    """The recurring revenue of a customer in a currency, in minor units a month.

    Args:
        first: the first month at whose end it was above 0; months count from the year 0.
        first_minor: at the end of that month.
        before_minor, now_minor: at the end of the month before, and of this month.
    """

    customer_id: int
    currency: str
    month: int
    first: int
    first_minor: int
    before_minor: int
    now_minor: int

    @property
    def change_minor(self) -> int:
        return self.now_minor - self.before_minor

    @property
    def movement(self) -> str:
        """One of MOVEMENTS; empty if nothing changed."""
        if not self.change_minor:
            return ""
        if not self.before_minor:
            return "new" if self.first == self.month else "reactivation"
        if not self.now_minor:
            return "churn"
        return "expansion" if self.change_minor > 0 else "contraction"


@dataclass(frozen=True, slots=True)
class Movement:
    """A currency in a month, in minor units: opening + the movements = closing, in money and in customers.

    Args:
        moved_minor, moved_customers: by MOVEMENTS; customers who bring more or less than before are counted too.
    """

    currency: str
    opening_minor: int
    moved_minor: dict[str, int]
    closing_minor: int
    opening_customers: int
    moved_customers: dict[str, int]
    closing_customers: int

    @property
    def customer_churn(self) -> Decimal | None:
        """Customers who left, in percent of those at the start; None if there were none."""
        return _percent(self.moved_customers["churn"], self.opening_customers)

    @property
    def gross_churn(self) -> Decimal | None:
        """Churn and contraction, in percent of the opening."""
        return _percent(-self.moved_minor["churn"] - self.moved_minor["contraction"], self.opening_minor)

    @property
    def net_churn(self) -> Decimal | None:
        """Gross churn less expansion and reactivation; below 0 if these are more."""
        return _percent(self.moved_minor["new"] + self.opening_minor - self.closing_minor, self.opening_minor)


class Cohort(NamedTuple):
    """The customers who began in a month, in a currency: then, and at the end of the month at hand.

    `first` is None for all months before those that are shown.
    """

    currency: str
    first: int | None
    customers: int
    first_minor: int
    kept_customers: int
    now_minor: int

    @property
    def kept_percent(self) -> Decimal | None:
        """How many of the customers bring something, in percent."""
        return _percent(self.kept_customers, self.customers)

    @property
    def minor_percent(self) -> Decimal | None:
        """What they bring, in percent of what they brought first; above 100 if it grew."""
        return _percent(self.now_minor, self.first_minor)


def movements(customers: Iterable[CustomerMonth]) -> list[Movement]:
    """Return the movement of each currency."""
    customer_months: dict[str, list[CustomerMonth]] = {}
    for one in customers:
        customer_months.setdefault(one.currency, []).append(one)
    return [_movement(currency, customer_months[currency]) for currency in sorted(customer_months)]


def _movement(currency: str, customers: list[CustomerMonth]) -> Movement:
    minor, number = dict.fromkeys(MOVEMENTS, 0), dict.fromkeys(MOVEMENTS, 0)
    for one in customers:
        if one.movement:
            minor[one.movement] += one.change_minor
            number[one.movement] += 1
    return Movement(
        currency,
        sum(one.before_minor for one in customers),
        minor,
        sum(one.now_minor for one in customers),
        sum(one.before_minor > 0 for one in customers),
        number,
        sum(one.now_minor > 0 for one in customers),
    )


def cohorts(customers: Iterable[CustomerMonth], *, shown: int) -> list[Cohort]:
    """Return the cohorts, the oldest first.

    Args:
        shown: how many months have a cohort each, up to this month; those before are one.
    """
    customer_months: dict[tuple[str, int], list[CustomerMonth]] = {}
    for one in customers:
        first = one.first if one.first > one.month - shown else -1
        customer_months.setdefault((one.currency, first), []).append(one)
    return [_cohort(currency, first, customer_months[currency, first]) for currency, first in sorted(customer_months)]


def _cohort(currency: str, first: int, customers: list[CustomerMonth]) -> Cohort:
    return Cohort(
        currency,
        None if first < 0 else first,
        len(customers),
        sum(one.first_minor for one in customers),
        sum(one.now_minor > 0 for one in customers),
        sum(one.now_minor for one in customers),
    )


def _percent(part: int, whole: int) -> Decimal | None:
    """Return a part in percent of the whole, with one decimal, rounded half up; None for a whole of 0."""
    if not whole:
        return None
    return Decimal(round_half_up(Fraction(part * 1_000, whole))).scaleb(-1)
