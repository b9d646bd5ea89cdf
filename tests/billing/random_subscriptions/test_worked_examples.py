"""The conventions of billing by example, three and more of each, with their arithmetic: over REST and by the command.

Each example is ordered over REST, and billed twice from the beginning: once by `POST /v1/subscriptions/{ref}/invoices`, once by
`manage.py generate_invoices`. Both have to come to the figures worked out here, and so has the dry run before each.
"""

import json
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from ledger import reads, services
from tests.billing.factories import metered, recurring, unique
from tests.ledger.api.conftest import ApiClient

pytestmark = pytest.mark.django_db

Step = tuple[str, Any]
Amounts = list[tuple[str, str | None, int]]


@dataclass(frozen=True)
class Example:
    """What is ordered, what happens, and what the last run has to make: kind, price and amount of each line, tax, and total."""

    name: str
    prices: list[dict[str, Any]]
    steps: list[Step]
    lines: Amounts
    total: int
    tax: int = 0
    discount: int = 0
    due: int | None = None
    starts: list[str] | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    coupons: list[dict[str, Any]] = field(default_factory=list)
    credits: tuple[int, str] | None = None
    holds: int | None = None
    """Credits of a holder who pays usage with them, and no invoices."""
    left: int | None = None
    """How many of the credits are left."""


def bill(as_of: str) -> Step:
    """A step of an example: bill up to a day of 2026."""
    return "bill", f"{as_of}T00:00:00Z" if len(as_of) == 10 else f"2026-{as_of}T00:00:00Z"


def calls(value: str, day: str = "01-05", **properties: str) -> Step:
    """A step of an example: that many calls on a day of 2026."""
    return "use", (value, f"2026-{day}T12:00:00Z", properties)


def amend(day: str, **wish: Any) -> Step:
    """A step of an example: a change from a day of 2026 on."""
    return "amend", {"effective_at": f"2026-{day}T00:00:00Z", **wish}


def percent_coupon(value: str, **limits: Any) -> dict[str, Any]:
    """A percentage coupon, for ever."""
    return {"kind": "percentage", "value": value, "duration": "forever"} | limits


def money_coupon(value: str, **limits: Any) -> dict[str, Any]:
    """A coupon of an amount, used once."""
    return {"kind": "amount", "value": value, "currency": "EUR", "duration": "once"} | limits


TIERS = [
    {"up_to": 10, "unit_amount": "1.00", "flat_amount": "2.00"},
    {"up_to": 100, "unit_amount": "0.50"},
    {"up_to": None, "unit_amount": "0.10", "flat_amount": "1.00"},
]
RATES = [{"up_to": 1000, "rate": "1"}, {"up_to": None, "rate": "0.5", "flat_amount": "2.00"}]
JAN_TO_FEB = {"started_at": "2026-01-01T00:00:00Z"}


def tiered_price(model: str, tiers: list[dict[str, Any]]) -> dict[str, Any]:
    """A usage price in tiers."""
    price = metered(model=model, tiers=tiers)
    del price["unit_amount"]
    return price


def percentage(rate: str, **fields: Any) -> dict[str, Any]:
    """A usage price that is a percentage of the value."""
    price = metered(model="percentage", rate=rate, **fields)
    del price["unit_amount"]
    return price


def january(name: str, price: dict[str, Any], uses: list[Step], amount: int) -> Example:
    """An example of one usage price, billed for January."""
    return Example(name, [price], [*uses, bill("02-01")], [("usage", "calls", amount)], amount)


PERIODS = [
    # Clamped to the last of a short month, and back to the 31st after it.
    Example("31st in a common year", [recurring()], [bill("03-31")], [("recurring", "base", 1000)] * 3, 3000,
            order={"started_at": "2026-01-31T00:00:00Z"},
            starts=["2026-01-31T00:00:00.000000Z", "2026-02-28T00:00:00.000000Z", "2026-03-31T00:00:00.000000Z"]),
    Example("31st in a leap year", [recurring()], [bill("2024-03-01")], [("recurring", "base", 1000)] * 2, 2000,
            order={"started_at": "2024-01-31T00:00:00Z"}, starts=["2024-01-31T00:00:00.000000Z", "2024-02-29T00:00:00.000000Z"]),
    # 02:30 in Berlin: +01:00 until 29 March, when it does not exist and is 03:30 +02:00; then 02:30 +02:00.
    Example("a local time that does not exist", [recurring()], [bill("05-01")], [("recurring", "base", 1000)] * 4, 4000,
            order={"started_at": "2026-01-29T01:30:00Z", "time_zone": "Europe/Berlin"},
            starts=["2026-01-29T01:30:00.000000Z", "2026-02-28T01:30:00.000000Z", "2026-03-29T01:30:00.000000Z",
                    "2026-04-29T00:30:00.000000Z"]),
    # 02:30 in Berlin exists twice on 25 October: the first, at +02:00.
    Example("a local time that exists twice", [recurring()], [bill("10-31")], [("recurring", "base", 1000)] * 2, 2000,
            order={"started_at": "2026-09-25T00:30:00Z", "time_zone": "Europe/Berlin"},
            starts=["2026-09-25T00:30:00.000000Z", "2026-10-25T00:30:00.000000Z"]),
    # 16 to 31 January are 16 of 31 days.
    Example("a stub before the anchor", [recurring(unit_amount="31.00")], [bill("01-16")], [("recurring", "base", 1600)], 1600,
            order={"started_at": "2026-01-16T00:00:00Z", "anchor_at": "2026-02-01T00:00:00Z"}),
    Example("a stub after the anchor", [recurring(unit_amount="28.00")], [bill("02-08")], [("recurring", "base", 2100)], 2100,
            order={"started_at": "2026-02-08T00:00:00Z", "anchor_at": "2026-01-01T00:00:00Z"}),
    Example("a quarter has three months", [recurring(unit_amount="90.00", timing="arrears")], [bill("04-01")],
            [("recurring", "base", 9000)], 9000, plan={"interval": {"unit": "quarter", "count": 1}}),
    Example("weeks", [recurring(unit_amount="7.00")], [bill("01-15")], [("recurring", "base", 700)] * 3, 2100,
            plan={"interval": {"unit": "week", "count": 1}},
            starts=["2026-01-01T00:00:00.000000Z", "2026-01-08T00:00:00.000000Z", "2026-01-15T00:00:00.000000Z"]),
    Example("half a year", [recurring()], [bill("07-01")], [("recurring", "base", 1000)] * 2, 2000,
            plan={"interval": {"unit": "half_year", "count": 1}}),
    # In advance 3, at the end of the period 2.
    Example("catching up in advance and in arrears", [recurring(), recurring("past", "5.00", timing="arrears")],
            [bill("03-01")],
            [("recurring", "base", 1000), ("recurring", "base", 1000), ("recurring", "past", 500), ("recurring", "base", 1000),
             ("recurring", "past", 500)], 4000),
]  # fmt: skip

MODELS = [
    Example("flat, times the quantity", [recurring(unit_amount="9.99")], [bill("01-01")], [("recurring", "base", 2997)], 2997,
            order={"quantities": {"base": 3}}),
    Example("flat, half a unit", [recurring(unit_amount="9.99")], [bill("01-01")], [("recurring", "base", 500)], 500,
            order={"quantities": {"base": "0.5"}}),
    january("flat, for any use", metered(model="flat", unit_amount="5.00"), [calls("7")], 500),
    # (120 - 20) x 0.05
    january("unit, beyond what is free", metered(unit_amount="0.05", free_units=20), [calls("120")], 500),
    january("unit, all of it free", metered(unit_amount="0.05", free_units=20), [calls("10")], 0),
    # 7 x 0.3333 = 2.3331
    january("unit, rounded once", metered(unit_amount="0.3333"), [calls("3"), calls("4")], 233),
    # 10 x 1.00 + 2.00
    january("graduated, the end of a tier", tiered_price("graduated", TIERS), [calls("10")], 1200),
    # 12.00 + 1 x 0.50
    january("graduated, into the second tier", tiered_price("graduated", TIERS), [calls("11")], 1250),
    # 12.00 + 90 x 0.50 + 50 x 0.10 + 1.00
    january("graduated, into the last", tiered_price("graduated", TIERS), [calls("150")], 6300),
    # 10 x 1.00 + 2.00
    january("volume, the end of a tier", tiered_price("volume", TIERS), [calls("10")], 1200),
    january("volume, cheaper for one more", tiered_price("volume", TIERS), [calls("11")], 550),
    # 150 x 0.10 + 1.00
    january("volume, the last tier", tiered_price("volume", TIERS), [calls("150")], 1600),
    january("volume, nothing used", tiered_price("volume", TIERS), [], 200),
    january("package, all free", metered(model="package", package_size=100, free_units=50, unit_amount="5.00"),
            [calls("50")], 0),
    january("package, begun", metered(model="package", package_size=100, free_units=50, unit_amount="5.00"), [calls("51")],
            500),
    # 101 units in packages of 100
    january("package, two", metered(model="package", package_size=100, free_units=50, unit_amount="5.00"), [calls("151")],
            1000),
    # 150 x 2.9 % = 4.35, and 2 x 0.30
    january("percentage and a fee", percentage("2.9", fixed_amount="0.30"), [calls("100"), calls("50", "01-06")], 495),
    # The first is free: 50 x 2.9 % = 1.45, and 0.30
    january("percentage, one event free", percentage("2.9", fixed_amount="0.30", free_events=1), [calls("100"), calls("50",
            "01-06")], 175),
    # 30 beyond 120: 0.87, and 0.30 for the event that went beyond
    january("percentage, an amount free", percentage("2.9", fixed_amount="0.30", free_amount="120"),
              [calls("100"), calls("50", "01-06")], 117),
    january("graduated percentage, the first tier", tiered_price("graduated_percentage", RATES), [calls("800")], 800),
    january("graduated percentage, its end", tiered_price("graduated_percentage", RATES), [calls("1000")], 1000),
    # 10.00 + 2.00 + 500 x 0.5 %
    january("graduated percentage, the second tier", tiered_price("graduated_percentage", RATES), [calls("1500")], 1450),
]  # fmt: skip

THREE = [calls("3", "01-05", user="a"), calls("5", "01-10", user="b"), calls("2", "01-20", user="a")]


def aggregated(aggregation: str, **fields: Any) -> dict[str, Any]:
    """A usage price of 1.00 for each unit of an aggregate."""
    return metered(unit_amount="1.00", aggregation=aggregation, **fields)


AGGREGATIONS = [
    january("count", aggregated("count"), THREE, 300),
    january("sum", aggregated("sum"), THREE, 1000),
    january("max", aggregated("max"), THREE, 500),
    january("last", aggregated("last"), THREE, 200),
    january("unique", aggregated("unique", property="user"), THREE, 200),
    january("filtered", aggregated("sum", filters={"user": ["a"]}), THREE, 500),
    # 31 held from noon of the 11th: 20.5 of 31 days
    january("weighted sum", aggregated("weighted_sum"), [calls("31", "01-11")], 2050),
    # 31 for 10 days, 62 for 10.5
    january("weighted sum of two values", aggregated("weighted_sum"), [calls("31", "01-11"), calls("62", "01-21")], 3100),
    # 31 held since December
    january("weighted sum of what held before", aggregated("weighted_sum"),
              [("use", ("31", "2025-12-05T12:00:00Z", {}))], 3100),
]  # fmt: skip

LIMITS = [
    Example("a price's minimum", [metered(minimum="5.00")], [calls("100"), bill("02-01")],
            [("usage", "calls", 200), ("minimum", "calls", 300)], 500),
    Example("a price's maximum", [metered(maximum="5.00")], [calls("1000"), bill("02-01")], [("usage", "calls", 2000)], 500,
            discount=1500),
    # 16 of 31 days: 16.00
    Example("the minimum of a stub", [metered(minimum="31.00")], [bill("02-01")],
            [("usage", "calls", 0), ("minimum", "calls", 1600)], 1600,
            order={"started_at": "2026-01-16T00:00:00Z", "anchor_at": "2026-01-01T00:00:00Z"}),
    # 10.00 in advance for January, 2.00 used: 13.00 are missing
    Example("a plan's minimum", [recurring(), metered()], [bill("01-01"), calls("100"), bill("02-01")],
            [("recurring", "base", 1000), ("usage", "calls", 200), ("minimum", None, 1300)], 2500, plan={"minimum": "25.00"}),
    Example("a plan's maximum", [recurring(), metered()], [bill("01-01"), calls("1000"), bill("02-01")],
            [("recurring", "base", 1000), ("usage", "calls", 2000), ("maximum", None, -1500)], 1500, plan={"maximum": "15.00"}),
    # 2.00 less 50 % is 1.00: 4.00 are missing
    Example("a minimum after discounts", [metered(minimum="5.00")], [calls("100"), bill("02-01")],
            [("usage", "calls", 200), ("minimum", "calls", 400)], 500, discount=100, coupons=[percent_coupon("50")]),
]  # fmt: skip

A_DAY = recurring(unit_amount="31.00")
PAST = {"timing": "arrears", "unit_amount": "31.00"}
PRORATION = [
    # 21 days at 1 given back, 21 at 2 charged
    Example("a change of quantity", [A_DAY], [bill("01-01"), amend("01-11", quantities={"base": 2}), bill("01-11")],
            [("credit", "base", -2100), ("recurring", "base", 4200)], 2100),
    Example("a change planned ahead", [recurring(**PAST)], [amend("01-11", quantities={"base": 2}), bill("02-01")],
            [("recurring", "base", 1000), ("recurring", "base", 4200)], 5200),
    # Half price: 10.50 of the 21.00 that are not used was paid
    Example("a credit less its line's discount", [A_DAY], [bill("01-01"), amend("01-11", quantities={"base": 2}),
            bill("01-11")],
            [("credit", "base", -1050), ("recurring", "base", 4200)], 1050, discount=2100, coupons=[percent_coupon("50")]),
    # 5.00 more: 11 days of 31 at 31.00 given back in a back-dated change, at 2 charged
    Example("a back-dated change", [A_DAY], [bill("02-01"), amend("01-21", quantities={"base": 2}), bill("02-02")],
            [("credit", "base", -1100), ("recurring", "base", 2200), ("credit", "base", -3100), ("recurring", "base", 6200)],
            4200),
    Example("days until the end", [recurring(**PAST)], [bill("02-01")], [("recurring", "base", 1000)], 1000,
            order={"ends_at": "2026-01-11T12:00:00Z"}),
    Example("the last day as well", [recurring(**PAST, bill_last_day=True)], [bill("02-01")], [("recurring", "base", 1100)],
            1100,
            order={"ends_at": "2026-01-11T12:00:00Z"}),
    # 10.5 of 31 days
    Example("by the second", [recurring(**PAST, proration="second")], [bill("02-01")], [("recurring", "base", 1050)], 1050,
            order={"ends_at": "2026-01-11T12:00:00Z"}),
    # Berlin's March has 743 hours: 31.00 x 252 / 743 of the hours until the 11th at noon
    Example("by the second in a month with a short day", [recurring(**PAST, proration="second")], [bill("04-02")],
            [("recurring", "base", 1051)], 1051,
            order={"started_at": "2026-02-28T23:00:00Z", "time_zone": "Europe/Berlin", "ends_at": "2026-03-11T11:00:00Z"}),
    Example("by the second, half of February", [recurring(**PAST, proration="second")], [bill("03-01")],
            [("recurring", "base", 1550)], 1550,
            order={"started_at": "2026-02-01T00:00:00Z", "ends_at": "2026-02-15T00:00:00Z"}),
    Example("whole, whatever is used", [recurring(**PAST, proration="none")], [bill("02-01")], [("recurring", "base", 3100)],
            3100,
            order={"ends_at": "2026-01-11T12:00:00Z"}),
    Example("whole, a stub", [recurring(unit_amount="31.00", proration="none")], [bill("01-16")], [("recurring", "base",
            3100)], 3100,
            order={"started_at": "2026-01-16T00:00:00Z", "anchor_at": "2026-01-01T00:00:00Z"}),
    Example("whole, a change counts from the next period", [recurring(unit_amount="31.00", proration="none")],
            [bill("01-01"), amend("01-11", quantities={"base": 2}), bill("02-01")], [("recurring", "base", 6200)], 6200),
    # 15 of 30
    Example("months of 30 days, January", [recurring(timing="arrears", unit_amount="30.00", proration="fixed_30")],
            [bill("02-01")],
            [("recurring", "base", 1500)], 1500, order={"ends_at": "2026-01-16T00:00:00Z"}),
    Example("months of 30 days, February", [recurring(timing="arrears", unit_amount="30.00", proration="fixed_30")],
            [bill("03-01")], [("recurring", "base", 1500)], 1500,
            order={"started_at": "2026-02-01T00:00:00Z", "ends_at": "2026-02-16T00:00:00Z"}),
    Example("months of 30 days, the 31st is the 30th", [recurring(timing="arrears", unit_amount="30.00", proration="fixed_30")],
            [bill("02-01")], [("recurring", "base", 2900)], 2900, order={"ends_at": "2026-01-31T00:00:00Z"}),
    # 16 of 31 days; then the whole of February
    Example("a trial", [A_DAY], [bill("01-15"), bill("02-01")], [("recurring", "base", 1600), ("recurring", "base", 3100)],
            4700,
            order={"trial_end": "2026-01-16T00:00:00Z"}),
    Example("a trial of a whole period", [A_DAY], [bill("02-01")], [("recurring", "base", 3100)], 3100,
            order={"trial_end": "2026-02-01T00:00:00Z"}),
    Example("nothing used in a trial is owed", [metered()], [calls("100", "01-10"), calls("50", "01-20"), bill("02-01")],
            [("usage", "calls", 100)], 100, order={"trial_end": "2026-01-16T00:00:00Z"}),
    # 10 days before, 11 after
    Example("a pause", [recurring(**PAST)], [amend("01-11", paused=True), amend("01-21", paused=False), bill("02-01")],
            [("recurring", "base", 1000), ("recurring", "base", 1100)], 2100),
]  # fmt: skip

DISCOUNTS = [
    # 10.00 less 25 %, and 20 % tax on 7.50
    Example("a percentage before tax", [recurring(tax_rate="20")], [bill("01-01")], [("recurring", "base", 1000)], 900, tax=150,
            discount=250, coupons=[percent_coupon("25")]),
    # 5.00, then 0.50
    Example("percentages one after the other", [recurring()], [bill("01-01")], [("recurring", "base", 1000)], 450, discount=550,
            coupons=[percent_coupon("50"), percent_coupon("10")]),
    # 5.00 - 3.00 = 2.00; then half of 10.00 + 2.00
    Example("limited to a price before general", [recurring(), recurring("support", "5.00")], [bill("01-01")],
            [("recurring", "base", 1000), ("recurring", "support", 500)], 600, discount=900,
            coupons=[percent_coupon("50"), money_coupon("3.00", prices=["support"])]),
    Example("an amount carries its rest", [recurring()], [bill("01-01"), bill("02-01")], [("recurring", "base", 1000)], 500,
            discount=500, coupons=[money_coupon("15.00")]),
    Example("a recurring one does not", [recurring()], [bill("01-01"), bill("02-01")], [("recurring", "base", 1000)], 0,
            discount=1000, coupons=[money_coupon("15.00", duration="recurring", periods=2)]),
    Example("and is over after its periods", [recurring()], [bill("01-01"), bill("02-01"), bill("03-01")],
            [("recurring", "base", 1000)], 1000, coupons=[money_coupon("15.00", duration="recurring", periods=2)]),
    # 10.00 over 3.33, 3.33, 3.34: to the cent, and nothing is lost
    Example("an amount spread over lines", [recurring("a", "3.33"), recurring("b", "3.33"), recurring("c", "3.35")],
            [bill("01-01")],
            [("recurring", "a", 333), ("recurring", "b", 333), ("recurring", "c", 335)], 1, discount=1000,
            coupons=[money_coupon("10.00")]),
]  # fmt: skip

TAXES = [
    # 9.99 x 19 % = 1.8981; line by line it would be 3 x 0.63 = 1.89
    Example("rounded once per category", [recurring(key, "3.33", tax_rate="19") for key in "abc"], [bill("01-01")],
            [("recurring", key, 333) for key in "abc"], 999 + 190, tax=190),
    # 10.00 x 20 % + 10.00 x 5.5 %
    Example("two rates", [recurring(tax_rate="20"), recurring("book", tax_rate="5.5", tax_category="AA")], [bill("01-01")],
            [("recurring", "base", 1000), ("recurring", "book", 1000)], 2255, tax=255),
    # 0.50 x 1 % = 0.005
    Example("half a cent goes up", [recurring(unit_amount="0.50", tax_rate="1")], [bill("01-01")], [("recurring", "base",
            50)], 51,
            tax=1),
    # (42.00 - 21.00) x 20 %
    Example("of a change, on the difference", [recurring(unit_amount="31.00", tax_rate="20")],
            [bill("01-01"), amend("01-11", quantities={"base": 2}), bill("01-11")],
            [("credit", "base", -2100), ("recurring", "base", 4200)], 2520, tax=420),
]  # fmt: skip

CURRENCIES = [
    # 3 x 333.5 = 1000.5
    Example("yen have no decimals", [metered(unit_amount="333.5")], [calls("3"), bill("02-01")], [("usage", "calls", 1001)],
            1001,
            plan={"currency": "JPY"}),
    Example("dinars have three", [metered(unit_amount="0.0005")], [calls("3"), bill("02-01")], [("usage", "calls", 2)], 2,
            plan={"currency": "BHD"}),
    Example("euros have two", [metered(unit_amount="0.005")], [calls("1"), bill("02-01")], [("usage", "calls", 1)], 1),
    # 100.5 x 19 % of whole yen: 101 x 0.19 = 19.19
    Example("tax in yen", [recurring(unit_amount="100.5", tax_rate="19")], [bill("01-01")], [("recurring", "base", 101)],
            120, tax=19,
            plan={"currency": "JPY"}),
]  # fmt: skip

PAYING = [
    # 500 x 0.01 of 12.00
    Example("credits after tax", [recurring(tax_rate="20")], [bill("01-01")], [("recurring", "base", 1000)], 1200, tax=200,
            due=700,
            credits=(500, "0.01")),
    # 171 x 0.07 = 11.97
    Example("whole credits only", [recurring(tax_rate="20")], [bill("01-01")], [("recurring", "base", 1000)], 1200, tax=200,
            due=3,
            credits=(1000, "0.07")),
    Example("enough of them", [recurring(tax_rate="20")], [bill("01-01"), bill("02-01")], [("recurring", "base", 1000)],
            1200, tax=200,
            due=0, credits=(5000, "0.01")),
    # 21.00 given back for January, set against February
    Example("a credit note first", [A_DAY], [bill("01-01"), amend("01-11", paused=True), bill("01-11"), amend("02-01",
            paused=False),
            bill("02-01")], [("recurring", "base", 3100)], 3100, due=0, credits=(1000, "1")),
    Example("a credit note alone", [A_DAY], [bill("01-01"), amend("01-11", paused=True), bill("01-11"), amend("02-01",
            paused=False),
            bill("02-01")], [("recurring", "base", 3100)], 3100, due=1000),
    Example("nothing below zero", [A_DAY], [bill("01-01"), amend("01-11", ends_at="2026-01-11T00:00:00Z"), bill("01-11")],
            [("credit", "base", -2100), ("carried", None, 2100)], 0),
]  # fmt: skip

LATE = [
    Example("a difference", [metered()], [calls("100"), bill("02-01"), calls("50", "01-20"), bill("02-02")],
            [("late_usage", "calls", 100)], 100),
    # 15 x ... = 12.00 + 2.50, of which 12.00 were billed
    Example("in tiers, where the first part stopped", [tiered_price("graduated", TIERS)],
            [calls("10"), bill("02-01"), calls("5", "01-20"), bill("02-02")], [("late_usage", "calls", 250)], 250),
    # 11 x 0.50 = 5.50, of which 12.00 were billed
    Example("by volume, which may be less", [tiered_price("volume", TIERS)],
            [calls("10"), bill("02-01"), calls("1", "01-20"), bill("02-02")],
            [("late_usage", "calls", -650), ("carried", None, 650)], 0),
    Example("of the last two periods", [metered()],
            [bill("02-01"), bill("03-01"), bill("04-01"), calls("9", "01-05"), calls("10", "02-05"), calls("20", "03-05"),
            bill("04-02")],
            [("late_usage", "calls", 20), ("late_usage", "calls", 40)], 60),
]  # fmt: skip


def price_in_credits(per_unit: str, price: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A usage price whose units take `per_unit` credits each; 0.02 a call by default."""
    return (price or metered()) | {"credits": {"credit_type": "credits", "per_unit": per_unit}} | fields


USAGE_IN_CREDITS = [
    # 250 / 2.5 = 100 calls; 50 x 0.02.
    Example(
        "overage in money",
        [price_in_credits("2.5")],
        [calls("150"), bill("02-01")],
        [("usage", "calls", 100)],
        100,
        holds=250,
        left=0,
    ),
    # 7 x 2.5 = 17.5: 18 credits.
    Example(
        "covered in whole, rounded up",
        [price_in_credits("2.5")],
        [calls("7"), bill("02-01")],
        [("usage", "calls", 0)],
        0,
        holds=100,
        left=82,
    ),
    # 99 / 2.5 = 39.6: 39 calls for 97.5, so 98 credits; 11 x 0.02.
    Example(
        "whole units only",
        [price_in_credits("2.5")],
        [calls("50"), bill("02-01")],
        [("usage", "calls", 22)],
        22,
        holds=99,
        left=1,
    ),
    # 20 of 60 calls are free, 30 of the other 40 are covered; 10 x 0.02.
    Example(
        "free units first",
        [price_in_credits("1", free_units=20)],
        [calls("60"), bill("02-01")],
        [("usage", "calls", 20)],
        20,
        holds=30,
        left=0,
    ),
    # 10 x 1.00 + 2.00, then 0.50 each: the first 15 calls are covered, and the fee with the tier; 5 x 0.50.
    Example(
        "in tiers",
        [price_in_credits("1", tiered_price("graduated", TIERS))],
        [calls("20"), bill("02-01")],
        [("usage", "calls", 250)],
        250,
        holds=15,
        left=0,
    ),
    # 2300 calls are 3 packages; 90 credits cover 2 at 40; one at 5.00.
    Example(
        "packages",
        [price_in_credits("40", model="package", package_size=1000, unit_amount="5.00")],
        [calls("2300"), bill("02-01")],
        [("usage", "calls", 500)],
        500,
        holds=90,
        left=10,
    ),
    # 100 x 0.02 is covered to 40 x 0.02 = 0.80; 3.00 is the least.
    Example(
        "a minimum is of the money",
        [price_in_credits("1", minimum="3.00")],
        [calls("100"), bill("02-01")],
        [("usage", "calls", 80), ("minimum", "calls", 220)],
        300,
        holds=60,
        left=0,
    ),
    # Tax is on what is invoiced: 50 x 0.02 = 1.00, and 0.20.
    Example(
        "tax of the overage",
        [price_in_credits("2.5", tax_rate="20")],
        [calls("150"), bill("02-01")],
        [("usage", "calls", 100)],
        120,
        tax=20,
        holds=250,
        left=0,
    ),
    # January took all 40; late calls find nothing: 10 x 0.02.
    Example(
        "late usage without credits",
        [price_in_credits("1")],
        [calls("50"), bill("02-01"), calls("10", "01-20"), bill("02-10")],
        [("late_usage", "calls", 20)],
        20,
        holds=40,
        left=0,
    ),
    # 50 covered; late 10 covered as well.
    Example(
        "late usage with credits",
        [price_in_credits("1")],
        [calls("50"), bill("02-01"), calls("10", "01-20"), bill("02-10")],
        [("late_usage", "calls", 0)],
        0,
        holds=100,
        left=40,
    ),
    # January 100 of 100, February 20 of 50: 30 x 0.02.
    Example(
        "the oldest period first",
        [price_in_credits("1")],
        [calls("100"), calls("50", "02-05"), bill("03-01")],
        [("usage", "calls", 0), ("usage", "calls", 60)],
        60,
        holds=120,
        left=0,
    ),
    # 300 credits: 150 cover all calls, and 150 at 0.01 pay 1.50 of 10.00.
    Example(
        "usage first, then the invoice",
        [price_in_credits("1"), recurring(timing="arrears")],
        [calls("150"), bill("02-01")],
        [("usage", "calls", 0), ("recurring", "base", 1000)],
        1000,
        due=850,
        credits=(300, "0.01"),
        left=0,
    ),
]

EXAMPLES = (
    PERIODS + MODELS + AGGREGATIONS + LIMITS + PRORATION + DISCOUNTS + TAXES + CURRENCIES + PAYING + LATE + USAGE_IN_CREDITS
)


@pytest.fixture
def api() -> ApiClient:
    """A client that may do everything in billing."""
    _, secret = services.create_api_key(name=unique("key"), scopes=["billing:read", "billing:write"])
    return ApiClient(secret)


class Ordered:
    """An example as a new subscription, ordered over REST."""

    def __init__(self, api: ApiClient, example: Example) -> None:
        self.api, self.example = api, example
        self.ref, self.customer, self.plan = unique("SUB"), unique("CUST"), unique("plan")
        currency = example.plan.get("currency", "EUR")
        customer: dict[str, Any] = {"ref": self.customer, "name": "Ada", "currency": currency}
        if example.credits:
            holder, (count, unit_value) = unique("holder"), example.credits
            services.grant(holder_id=holder, amount=count, idempotency_key="first")
            customer |= {"holder_id": holder, "credits": {"credit_type": "credits", "unit_value": unit_value}}
        elif example.holds is not None:
            holder = unique("holder")
            services.grant(holder_id=holder, amount=example.holds, idempotency_key="first")
            customer |= {"holder_id": holder}
        self.holder = customer.get("holder_id")
        self._post("/v1/customers", customer)
        terms = {"currency": "EUR", "interval": {"unit": "month", "count": 1}} | example.plan
        self._post("/v1/plans", {"code": self.plan, "name": "Plan", "prices": example.prices} | terms)
        order = {"started_at": "2026-01-01T00:00:00Z"} | example.order
        self._post("/v1/subscriptions", {"ref": self.ref, "customer": self.customer, "plan": self.plan} | order)
        for coupon in example.coupons:
            code = unique("coupon")
            self._post("/v1/coupons", {"code": code} | coupon)
            self._post(f"/v1/customers/{self.customer}/coupons", {"coupon": code})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = self.api.post(path, body)
        assert response.status_code in (200, 201), response.content
        return response.json()

    def do(self, step: Step) -> None:
        """Something other than billing."""
        what, given = step
        if what == "amend":
            self._post(f"/v1/subscriptions/{self.ref}/amendments", given)
            return
        value, occurred_at, properties = given
        event = {"idempotency_key": unique("use"), "subscription": self.ref, "meter": "calls", "value": value}
        event |= {"occurred_at": occurred_at, "properties": properties}
        response = self._post("/v1/usage-events", {"events": [event]})
        assert [one["result"] for one in response["results"]] == ["accepted"]

    def bill_over_rest(self, as_of: str) -> list[dict[str, Any]]:
        """What `POST …/invoices` makes; the dry run before it has to show the same."""
        path = f"/v1/subscriptions/{self.ref}/invoices"
        dry = self._post(path, {"as_of": as_of, "dry_run": True})["invoices"]
        made: list[dict[str, Any]] = self._post(path, {"as_of": as_of})["invoices"]
        assert list(map(without_identity, dry)) == list(map(without_identity, made))
        return made

    def bill_by_command(self, as_of: str) -> list[dict[str, Any]]:
        """What the command makes; the summary of the dry run before it has to be the same."""
        known = self._invoices()
        dry, real = self._command(as_of, "--dry-run"), self._command(as_of)
        for figure in ("invoices", "lines", "money", "periods", "late_usage_minor", "credits_spent_on_usage"):
            assert dry[figure] == real[figure]
        return [one for one in self._invoices() if one not in known]

    def _command(self, as_of: str, *more: str) -> dict[str, Any]:
        out = StringIO()
        call_command(
            "generate_invoices", "--as-of", as_of, "--subscription", self.ref, "--format", "json", "--no-progress", *more,
            stdout=out, stderr=StringIO(),
        )  # fmt: skip
        summary: dict[str, Any] = json.loads(out.getvalue())
        return summary

    def _invoices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"/v1/invoices?subscription={self.ref}").json()["results"]
        return found


def without_identity(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what a dry run cannot have: its id, number and state."""
    lines = [line | {"rating": {k: v for k, v in line["rating"].items() if k != "credits"}} for line in document["lines"]]
    return {name: value for name, value in document.items() if name not in ("id", "number", "state")} | {"lines": lines}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
@pytest.mark.parametrize("way", ["rest", "command"])
def test_worked_example(api: ApiClient, example: Example, way: str) -> None:
    ordered = Ordered(api, example)
    made: list[dict[str, Any]] = []
    for step in example.steps:
        if step[0] == "bill":
            made = ordered.bill_over_rest(step[1]) if way == "rest" else ordered.bill_by_command(step[1])
        else:
            ordered.do(step)

    [invoice] = made
    lines = [(line["kind"], line["price_key"], line["amount_minor"]) for line in invoice["lines"]]
    assert sorted(lines, key=str) == sorted(example.lines, key=str)
    figures = (invoice["discount_minor"], invoice["tax_minor"], invoice["total_minor"], invoice["amount_due_minor"])
    due = example.total if example.due is None else example.due
    assert figures == (example.discount, example.tax, example.total, due)
    if example.left is not None:
        assert reads.balance(ordered.holder).available == example.left
    if example.starts is not None:
        assert [line["period"]["start"] for line in invoice["lines"]] == example.starts
