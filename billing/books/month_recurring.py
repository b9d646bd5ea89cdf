"""Recurring revenue (MRR) in a month: its movement with the rates of churn, and the cohorts of customers."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Final

from billing.books.month_parts import columns_of, split
from billing.models import Customer
from billing.reads.revenue_history import customer_months, first_day
from billing.reads.revenue_movement import MOVEMENTS, Cohort, CustomerMonth, Movement, cohorts, movements
from ledger.totals.figures import (
    Figure,
    FigureAmount,
    FigureColumn,
    FigureLink,
    FigureQuantity,
    FigureRow,
    FigureSection,
    Reference,
    Rows,
    count,
    money,
    percent,
)
from ledger.units import CreditUnit, currency_unit, plain_unit

RECURRING, COHORTS = "recurring", "cohorts"
COHORTS_SHOWN: Final = 12
CUSTOMERS: Final = "customers"
PARTS: Final = (("mrr", "MRR"), (CUSTOMERS, "customers"))
COHORT_PARTS: Final = (
    (CUSTOMERS, "customers"), ("kept", "kept"), ("kept_rate", "retention"), ("first", "MRR then"), ("mrr", "MRR now"),
    ("mrr_rate", "MRR retention"),
)  # fmt: skip
DEFINITIONS: Final = {
    "opening": "What recurring prices bring a month: as negotiated, less coupons that last; without usage and tax.",
    "new": "Customers who bring something for the first time.",
    "reactivation": "Customers who bring something again, and brought nothing at the start.",
    "expansion": "Customers who bring more than at the start.",
    "contraction": "Customers who bring less.",
    "churn": "Customers who bring nothing any more.",
    "customer_churn": "Customers with churn, in percent of those at the start.",
    "gross_churn": "Churn and contraction, in percent of MRR at the start.",
    "net_churn": "Gross churn less expansion and reactivation.",
}
RATES: Final = {"customer_churn": "Customer churn", "gross_churn": "Gross MRR churn", "net_churn": "Net MRR churn"}
EARLIER: Final = "earlier"


def sections(month: date) -> list[FigureSection]:
    """Return the sections of recurring revenue; none if no customer has ever brought any."""
    customers = customer_months(month)
    moves = {one.currency: one for one in movements(customers)}
    if not moves:
        return []
    columns = columns_of(moves, PARTS)
    of_cohorts = columns_of(moves, COHORT_PARTS)
    note = f"Customers by the first month at whose end they brought something; kept and now are at the end of {month:%B %Y}."
    return [
        FigureSection(RECURRING, "Recurring revenue (MRR)", columns, _movement(columns, moves)),
        FigureSection(COHORTS, "Cohorts", of_cohorts, _cohorts(of_cohorts, customers), note, first="First month"),
    ]


def _movement(columns: Sequence[FigureColumn], moves: dict[str, Movement]) -> list[Figure]:
    def figure(
        key: str, title: str, minor: Callable[[Movement], int], customers: Callable[[Movement], int], **more: bool
    ) -> Figure:
        amounts: list[FigureAmount | None] = []
        for column in columns:
            currency, part = split(column.key)
            one = moves[currency]
            amounts.append(count(customers(one), CUSTOMERS) if part == CUSTOMERS else money(minor(one), currency))
        return Figure(key, title, amounts, DEFINITIONS.get(key, ""), **more)

    opening = figure("opening", "At the start", lambda one: one.opening_minor, lambda one: one.opening_customers, is_sum=True)
    closing = figure("closing", "At the end", lambda one: one.closing_minor, lambda one: one.closing_customers, is_sum=True)
    moved = [figure(key, title, partial(_moved_minor, key), partial(_moved_customers, key)) for key, title in MOVEMENTS.items()]
    rates = [_rate(key, title, columns, moves) for key, title in RATES.items()]
    return [opening, *moved, closing, *rates]


def _moved_minor(key: str, one: Movement) -> int:
    return one.moved_minor[key]


def _moved_customers(key: str, one: Movement) -> int:
    return one.moved_customers[key]


def _rate(key: str, title: str, columns: Sequence[FigureColumn], moves: dict[str, Movement]) -> Figure:
    of = CUSTOMERS if key == "customer_churn" else "mrr"
    places = [split(column.key) for column in columns]
    amounts = [percent(getattr(moves[currency], key)) if part == of else None for currency, part in places]
    return Figure(key, title, amounts, DEFINITIONS[key])


def _cohorts(columns: Sequence[FigureColumn], customers: Sequence[CustomerMonth]) -> list[Figure]:
    by_key: dict[str, dict[str, Cohort]] = {}
    for one in cohorts(customers, shown=COHORTS_SHOWN):
        by_key.setdefault(_cohort_key(one.first), {})[one.currency] = one
    keys = sorted(by_key, key=lambda key: (key != EARLIER, key))
    return [
        Figure(key, "Before" if key == EARLIER else key, [_of_cohort(column, by_key[key]) for column in columns]) for key in keys
    ]


def _cohort_key(first: int | None) -> str:
    return EARLIER if first is None else f"{first_day(first):%Y-%m}"


def _of_cohort(column: FigureColumn, parts: dict[str, Cohort]) -> FigureAmount | None:
    currency, part = split(column.key)
    one = parts.get(currency)
    if one is None:
        return None
    return {
        CUSTOMERS: count(one.customers, CUSTOMERS),
        "kept": count(one.kept_customers, CUSTOMERS),
        "kept_rate": percent(one.kept_percent),
        "first": money(one.first_minor, currency),
        "mrr": money(one.now_minor, currency),
        "mrr_rate": percent(one.minor_percent),
    }[part]


# Rows ------------------------------------------------------------------------------------------------

WITH_ROWS: Final = {RECURRING: ("mrr", CUSTOMERS), COHORTS: (CUSTOMERS, "kept", "first", "mrr")}
HEADINGS: Final = ("Customer", "Ref", "First month", "MRR at the start", "MRR at the end")


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the customers of a movement or a cohort."""
    currency, part = split(column)
    if part not in WITH_ROWS.get(section, ()):
        return None
    all_values = [(one, _value(one, section, figure, part)) for one in customer_months(month) if one.currency == currency]
    values = [(one, value) for one, value in all_values if value]
    customers = Customer.objects.filter(pk__in=[one.customer_id for one, _ in values])
    names = {pk: (name, ref) for pk, name, ref in customers.values_list("pk", "name", "ref")}
    unit = currency_unit(currency)
    if not values:
        return None
    cells = [
        FigureRow((-abs(value), one.customer_id), _cells(one, names.get(one.customer_id), unit), value) for one, value in values
    ]
    title = {**MOVEMENTS, "opening": "At the start", "closing": "At the end"}.get(figure, f"Cohort {figure}")
    heads, counts = dict((*COHORT_PARTS, *PARTS)), part in (CUSTOMERS, "kept")
    return Rows(
        f"{title}: {currency} {heads.get(part, part)}",
        [*HEADINGS, heads.get(part, part)],
        cells,
        plain_unit(CUSTOMERS) if counts else unit,
    )


def _cells(one: CustomerMonth, named: tuple[str, str] | None, unit: CreditUnit) -> list[object]:
    name, ref = named or ("", "")
    link = FigureLink("billing_customer_change", key=str(one.customer_id))
    return [
        Reference(name, link),
        ref,
        f"{first_day(one.first):%Y-%m}",
        FigureQuantity(one.before_minor, unit),
        FigureQuantity(one.now_minor, unit),
    ]


def _value(one: CustomerMonth, section: str, figure: str, part: str) -> int:
    """Return what a customer adds to a figure: minor units, or 1."""
    if section == COHORTS:
        first = one.first if one.first > one.month - COHORTS_SHOWN else None
        minor = {"first": one.first_minor, CUSTOMERS: 1}.get(part, one.now_minor) if _cohort_key(first) == figure else 0
    elif figure == "opening":
        minor = one.before_minor
    elif figure == "closing":
        minor = one.now_minor
    else:
        minor = one.change_minor if one.movement == figure else 0
    return int(minor != 0) if part in (CUSTOMERS, "kept") else minor
