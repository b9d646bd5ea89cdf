"""The conventions of billing by example, three and more of each, with their arithmetic; amounts are in minor units."""

from dataclasses import dataclass, field
from typing import Any

from tests.billing.factories import metered, recurring

Price = dict[str, Any]
Step = tuple[str, Any]
LineAmount = tuple[str, str | None, int]


@dataclass(frozen=True)
class Example:
    """What is ordered, what happens, and what the last run has to make: kind, price and amount of each line, and the rest.

    Args:
        due: what is left to pay; None: all of it.
        starts: the starts of the lines, in UTC to the minute.
        plan, order: what differs from a monthly plan in EUR, and from an order from 1 January on.
        credits: what the holder has for invoices, and what each is worth.
        holds: what the holder has for usage, and not for invoices.
        left: how many of the credits are left.
    """

    name: str
    prices: list[Price]
    steps: list[Step]
    lines: list[LineAmount]
    discount: int = 0
    tax: int = 0
    due: int | None = None
    starts: list[str] | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    coupons: list[dict[str, Any]] = field(default_factory=list)
    credits: tuple[int, str] | None = None
    holds: int | None = None
    left: int | None = None

    @property
    def total(self) -> int:
        """Lines, less discounts, with tax."""
        return sum(amount for *_, amount in self.lines) - self.discount + self.tax


# Steps -----------------------------------------------------------------------------------------------


def bill(as_of: str) -> Step:
    """Bill up to a day of 2026, or of another year."""
    return "bill", f"{as_of}T00:00:00Z" if len(as_of) == 10 else f"2026-{as_of}T00:00:00Z"


def so_far(as_of: str) -> Step:
    """Bill up to a day of 2026, with the usage of running periods."""
    return "bill so far", f"2026-{as_of}T00:00:00Z"


def calls(value: str, day: str = "01-05", **properties: str) -> Step:
    """That many calls on a day of 2026."""
    return "use", (value, f"2026-{day}T12:00:00Z", properties)


def correct(number: int, value: str | None) -> Step:
    """Another value for an event by its number, from 0 on; None cancels it. Corrections count on."""
    return "correct", (number, value)


def amend(day: str, **wish: Any) -> Step:
    """A change from a day of 2026 on."""
    return "amend", {"effective_at": f"2026-{day}T00:00:00Z", **wish}


# Lines -----------------------------------------------------------------------------------------------


def fees(*amounts: int, key: str = "base") -> list[LineAmount]:
    """Lines of a recurring price."""
    return [("recurring", key, amount) for amount in amounts]


def usage(*amounts: int, kind: str = "usage") -> list[LineAmount]:
    """Lines of calls."""
    return [(kind, "calls", amount) for amount in amounts]


def late(*amounts: int) -> list[LineAmount]:
    """Lines of late calls."""
    return usage(*amounts, kind="late_usage")


def back(*amounts: int) -> list[LineAmount]:
    """Lines that give back a part of the recurring price."""
    return [("credit", "base", -amount) for amount in amounts]


# Prices, orders and coupons --------------------------------------------------------------------------

TIERS = [
    {"up_to": 10, "unit_amount": "1.00", "flat_amount": "2.00"},
    {"up_to": 100, "unit_amount": "0.50"},
    {"up_to": None, "unit_amount": "0.10", "flat_amount": "1.00"},
]
BLOCKS = [
    {"up_to": 1000, "unit_amount": "0.01"},
    {"up_to": None, "unit_amount": "5.00", "package_size": 1000},
]
GIGABYTES = {"divide_by": "1000000000", "rounding": "up"}
EIGHTHS = {"multiply_by": "1.25", "rounding": "half_up", "decimals": 1}
BOUNDED = {"fixed_amount": "0.10", "event_minimum": "0.50", "event_maximum": "5.00"}
RATES = [{"up_to": 1000, "rate": "1"}, {"up_to": None, "rate": "0.5", "flat_amount": "2.00"}]


def tiered(model: str, tiers: list[dict[str, Any]] = TIERS) -> Price:
    """A usage price in tiers."""
    return _without_unit_amount(metered(model=model, tiers=tiers))


def percentage(rate: str, **fields: Any) -> Price:
    """A usage price that is a percentage of the value."""
    return _without_unit_amount(metered(model="percentage", rate=rate, **fields))


def _without_unit_amount(price: Price) -> Price:
    """The price without the amount that `metered` gives it."""
    return {name: value for name, value in price.items() if name != "unit_amount"}


def packages(unit_amount: str = "5.00", **fields: Any) -> Price:
    """A usage price in packages."""
    return metered(model="package", unit_amount=unit_amount, **fields)


def aggregated(aggregation: str, **fields: Any) -> Price:
    """A usage price of 1.00 for each unit of an aggregate."""
    return metered(unit_amount="1.00", aggregation=aggregation, **fields)


def in_arrears(unit_amount: str = "31.00", **fields: Any) -> Price:
    """A recurring price at the end of the period; by default 1.00 for each day of January."""
    return recurring(unit_amount=unit_amount, timing="arrears", **fields)


def in_credits(per_unit: str, price: Price | None = None, **fields: Any) -> Price:
    """A usage price whose units take `per_unit` credits each; 0.02 a call by default."""
    return (price or metered()) | {"credits": {"credit_type": "credits", "per_unit": per_unit}} | fields


def ordered(started_at: str, **fields: Any) -> dict[str, Any]:
    """An order from another day of 2026 on."""
    return {"started_at": f"2026-{started_at}T00:00:00Z"} | fields


def interval(unit: str) -> dict[str, Any]:
    """A plan with another interval."""
    return {"interval": {"unit": unit, "count": 1}}


def percent(value: str) -> dict[str, Any]:
    """A percentage coupon, for ever."""
    return {"kind": "percentage", "value": value, "duration": "forever"}


def money(value: str, **limits: Any) -> dict[str, Any]:
    """A coupon of an amount, used once."""
    return {"kind": "amount", "value": value, "currency": "EUR", "duration": "once"} | limits


DAILY = recurring(unit_amount="31.00")
"""A recurring price of 1.00 for each day of January."""
UNTIL_NOON = {"ends_at": "2026-01-11T12:00:00Z"}
JANUARY_ENDED = [bill("02-01")]
STUB = ordered("01-16", anchor_at="2026-01-01T00:00:00Z")
BERLIN = {"time_zone": "Europe/Berlin"}
TWO_SEATS = amend("01-11", quantities={"base": 2})


# Examples --------------------------------------------------------------------------------------------


def january(name: str, price: Price, uses: list[Step], amount: int) -> Example:
    """An example of a usage price, billed for January."""
    return Example(name, [price], [*uses, bill("02-01")], usage(amount))


PERIODS = [
    # Clamped to the last of a short month, and back to the 31st after it.
    Example("31st in a common year", [recurring()], [bill("03-31")], fees(1000, 1000, 1000),
            order=ordered("01-31"), starts=["2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00"]),
    Example("31st in a leap year", [recurring()], [bill("2024-03-01")], fees(1000, 1000),
            order={"started_at": "2024-01-31T00:00:00Z"}, starts=["2024-01-31T00:00", "2024-02-29T00:00"]),
    # 02:30 in Berlin: +01:00 until 29 March, when it does not exist and is 03:30 +02:00; then 02:30 +02:00.
    Example("a local time that does not exist", [recurring()], [bill("05-01")], fees(1000, 1000, 1000, 1000),
            order=BERLIN | {"started_at": "2026-01-29T01:30:00Z"},
            starts=["2026-01-29T01:30", "2026-02-28T01:30", "2026-03-29T01:30", "2026-04-29T00:30"]),
    # 02:30 in Berlin exists twice on 25 October: the first, at +02:00.
    Example("a local time that exists twice", [recurring()], [bill("10-31")], fees(1000, 1000),
            order=BERLIN | {"started_at": "2026-09-25T00:30:00Z"}, starts=["2026-09-25T00:30", "2026-10-25T00:30"]),
    # 16 to 31 January are 16 of 31 days.
    Example("a stub before the anchor", [DAILY], [bill("01-16")], fees(1600),
            order=ordered("01-16", anchor_at="2026-02-01T00:00:00Z")),
    Example("a stub after the anchor", [recurring(unit_amount="28.00")], [bill("02-08")], fees(2100),
            order=ordered("02-08", anchor_at="2026-01-01T00:00:00Z")),
    Example("a quarter has three months", [in_arrears("90.00")], [bill("04-01")], fees(9000), plan=interval("quarter")),
    Example("weeks", [recurring(unit_amount="7.00")], [bill("01-15")], fees(700, 700, 700), plan=interval("week"),
            starts=["2026-01-01T00:00", "2026-01-08T00:00", "2026-01-15T00:00"]),
    Example("half a year", [recurring()], [bill("07-01")], fees(1000, 1000), plan=interval("half_year")),
    # In advance 3, at the end of the period 2.
    Example("catching up in advance and in arrears", [recurring(), recurring("past", "5.00", timing="arrears")],
            [bill("03-01")], [*fees(1000, 1000, 1000), *fees(500, 500, key="past")]),
]  # fmt: skip

PAYMENTS = [calls("10"), calls("100", "01-06"), calls("400", "01-07")]
MODELS = [
    Example("flat, times the quantity", [recurring(unit_amount="9.99")], [bill("01-01")], fees(2997),
            order={"quantities": {"base": 3}}),
    Example("flat, half a unit", [recurring(unit_amount="9.99")], [bill("01-01")], fees(500),
            order={"quantities": {"base": "0.5"}}),
    january("flat, for any use", metered(model="flat", unit_amount="5.00"), [calls("7")], 500),
    # (120 - 20) x 0.05
    january("unit, beyond what is free", metered(unit_amount="0.05", free_units=20), [calls("120")], 500),
    january("unit, all of it free", metered(unit_amount="0.05", free_units=20), [calls("10")], 0),
    # 7 x 0.3333 = 2.3331
    january("unit, rounded once", metered(unit_amount="0.3333"), [calls("3"), calls("4")], 233),
    # 10 x 1.00 + 2.00
    january("graduated, the end of a tier", tiered("graduated"), [calls("10")], 1200),
    # 12.00 + 1 x 0.50
    january("graduated, into the second tier", tiered("graduated"), [calls("11")], 1250),
    # 12.00 + 90 x 0.50 + 50 x 0.10 + 1.00
    january("graduated, into the last", tiered("graduated"), [calls("150")], 6300),
    # 10 x 1.00 + 2.00
    january("volume, the end of a tier", tiered("volume"), [calls("10")], 1200),
    january("volume, cheaper for one more", tiered("volume"), [calls("11")], 550),
    # 150 x 0.10 + 1.00
    january("volume, the last tier", tiered("volume"), [calls("150")], 1600),
    january("volume, nothing used", tiered("volume"), [], 200),
    january("package, all free", packages(package_size=100, free_units=50), [calls("50")], 0),
    january("package, begun", packages(package_size=100, free_units=50), [calls("51")], 500),
    # 101 units in packages of 100
    january("package, two", packages(package_size=100, free_units=50), [calls("151")], 1000),
    # 2,000,000,001 bytes are 3 started GB
    january("started gigabytes of bytes", metered(unit_amount="0.10", conversion=GIGABYTES), [calls("2000000000"), calls("1")],
            30),
    # 12.6 hundreds, of which 12 are whole
    january("whole hundreds", metered(unit_amount="1.00", conversion={"divide_by": "100", "rounding": "down"}), [calls("1260")],
            1200),
    # 7 x 1.25 = 8.75, rounded to 8.8; 8.8 - 2 free
    january("converted to one decimal", metered(unit_amount="1.00", free_units=2, conversion=EIGHTHS), [calls("7")], 680),
    # 10 thirds: 3.333... x 1.00
    january("not rounded", metered(unit_amount="1.00", conversion={"divide_by": "3"}), [calls("10")], 333),
    # 10 x 1.00 + 2.00 of 10 kilobytes, 1 x 0.50
    january("converted before tiers", tiered("graduated") | {"conversion": {"divide_by": "1000"}}, [calls("11000")], 1250),
    # 1000 x 0.01, and 2 started packages of the other 1001
    january("packages in a tier", tiered("graduated", BLOCKS), [calls("2001")], 2000),
    january("packages in a tier, exactly one", tiered("graduated", BLOCKS), [calls("2000")], 1500),
    # All 2001 units are 3 packages
    january("packages of all units", tiered("volume", BLOCKS), [calls("2001")], 1500),
    january("graduated, nothing used, with its flat fee", tiered("graduated") | {"flat_fee_at_zero": True}, [], 200),
    # 12.00 + 1 x 0.50, as without it
    january("graduated, the flat fee once", tiered("graduated") | {"flat_fee_at_zero": True}, [calls("11")], 1250),
    january("graduated percentage, nothing used", tiered("graduated_percentage", RATES[::-1][:1]) | {"flat_fee_at_zero": True},
            [], 200),
    # 0.50 instead of 0.30, 2.10, and 5.00 instead of 8.10
    january("percentage between bounds per event", percentage("2", **BOUNDED), PAYMENTS, 760),
    # 100.00 of the second are free, so it pays nothing; the third pays 300.00: 5.00 instead of 6.10
    january("percentage with bounds, an amount free", percentage("2", free_amount="210", **BOUNDED), PAYMENTS, 500),
    # The first two are free; the third costs 5.00
    january("percentage with bounds, events free", percentage("2", free_events=2, **BOUNDED), PAYMENTS, 500),
    # 150 x 2.9 % = 4.35, and 2 x 0.30
    january("percentage and a fee", percentage("2.9", fixed_amount="0.30"), [calls("100"), calls("50", "01-06")], 495),
    # The first is free: 50 x 2.9 % = 1.45, and 0.30
    january("percentage, one event free", percentage("2.9", fixed_amount="0.30", free_events=1),
            [calls("100"), calls("50", "01-06")], 175),
    # 30 beyond 120: 0.87, and 0.30 for the event that went beyond
    january("percentage, an amount free", percentage("2.9", fixed_amount="0.30", free_amount="120"),
            [calls("100"), calls("50", "01-06")], 117),
    january("graduated percentage, the first tier", tiered("graduated_percentage", RATES), [calls("800")], 800),
    january("graduated percentage, its end", tiered("graduated_percentage", RATES), [calls("1000")], 1000),
    # 10.00 + 2.00 + 500 x 0.5 %
    january("graduated percentage, the second tier", tiered("graduated_percentage", RATES), [calls("1500")], 1450),
]  # fmt: skip

THREE = [calls("3", "01-05", user="a"), calls("5", "01-10", user="b"), calls("2", "01-20", user="a")]
SINCE_DECEMBER = [("use", ("31", "2025-12-05T12:00:00Z", {}))]
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
    january("weighted sum of what held before", aggregated("weighted_sum"), SINCE_DECEMBER, 3100),
]

BUCKETS = [
    {"key": "eu", "filters": {"region": "eu"}, "unit_amount": "0.02"},
    {"key": "big", "filters": {"region": ["eu", "us"], "size": "xl"}, "unit_amount": "0.50"},
]
REGIONS = [calls("100", region="eu", size="xl"), calls("10", region="us", size="xl"), calls("7", region="us"), calls("1")]
BUCKETED = [
    # The first bucket that takes an event prices it: 100 x 0.02 + 10 x 0.50 + 8 x 1.00
    january("buckets and a default", metered(unit_amount="1.00", buckets=BUCKETS), REGIONS, 1500),
    january("a bucket alone", metered(unit_amount="1.00", buckets=BUCKETS), REGIONS[:1], 200),
    # Two started packages of 50 at 0.02, and one each of the others
    january("packages by bucket", packages("1.00", package_size=50, buckets=BUCKETS), REGIONS, 154),
    # 100.00 at 1 %, 18.00 at 2 %
    january("percentages by bucket", percentage("2", buckets=[{"key": "eu", "filters": {"region": "eu"}, "rate": "1"}]),
            REGIONS, 136),
    # 15.00, of 20.00 at least for all buckets together
    Example("one minimum over all buckets", [metered(unit_amount="1.00", buckets=BUCKETS, minimum="20")],
            [*REGIONS, bill("02-01")], [*usage(1500), ("minimum", "calls", 500)]),
    # The price's filters count first: without the event that has no region
    january("buckets of filtered events", metered(unit_amount="1.00", buckets=BUCKETS, filters={"region": ["eu", "us"]}),
            REGIONS, 1400),
    Example("late usage in a bucket", [metered(unit_amount="1.00", buckets=BUCKETS)],
            [*REGIONS, bill("02-01"), calls("50", "01-20", region="eu"), bill("02-02")], late(100)),
]  # fmt: skip

BY_REGION = ["region"]
GROUPED = [
    # eu 100, us 17, and the event without a region: each rounded by itself
    Example("a line for each group", [metered(unit_amount="0.005", group_by=BY_REGION)], [*REGIONS, bill("02-01")],
            usage(50, 9, 1)),
    Example("groups of two properties", [metered(unit_amount="1.00", group_by=["region", "size"])], [*REGIONS, bill("02-01")],
            usage(10000, 1000, 700, 100)),
    # Ten free in each group
    Example("free units of each group", [metered(unit_amount="1.00", group_by=BY_REGION, free_units=10)],
            [*REGIONS, bill("02-01")], usage(9000, 700, 0)),
    # 2.00 + 10 x 1.00 + 90 x 0.50; 2.00 + 10 x 1.00 + 7 x 0.50; 2.00 + 1.00
    Example("tiers of each group", [tiered("graduated") | {"group_by": BY_REGION}], [*REGIONS, bill("02-01")],
            usage(5700, 1550, 300)),
    Example("volumes of each group", [tiered("volume") | {"group_by": BY_REGION}], [*REGIONS, bill("02-01")],
            usage(5000, 850, 300)),
    # Two, one and one started packages of 50
    Example("packages of each group", [packages("5.00", package_size=50, group_by=BY_REGION)], [*REGIONS, bill("02-01")],
            usage(1000, 500, 500)),
    # One free event in each group: 0, 7.00 at 2 %, 0
    Example("percentages of each group", [percentage("2", free_events=1, group_by=BY_REGION)], [*REGIONS, bill("02-01")],
            usage(0, 14, 0)),
    Example("buckets in groups", [metered(unit_amount="1.00", buckets=BUCKETS, group_by=BY_REGION)], [*REGIONS, bill("02-01")],
            usage(200, 1200, 100)),
    Example("groups of filtered events", [metered(unit_amount="1.00", group_by=BY_REGION, filters={"size": "xl"})],
            [*REGIONS, bill("02-01")], usage(10000, 1000)),
    # 118.00, of 120.00 at least for all groups together; of 50.00 at most, 68.00 is taken off over the lines
    Example("one minimum over all groups", [metered(unit_amount="1.00", group_by=BY_REGION, minimum="120")],
            [*REGIONS, bill("02-01")], [*usage(10000, 1700, 100), ("minimum", "calls", 200)]),
    Example("one maximum over all groups", [metered(unit_amount="1.00", group_by=BY_REGION, maximum="50")],
            [*REGIONS, bill("02-01")], usage(10000, 1700, 100), discount=6800),
    Example("a minimum without a group", [metered(unit_amount="1.00", group_by=BY_REGION, minimum="3")], [bill("02-01")],
            [*usage(0), ("minimum", "calls", 300)]),
    Example("late usage in a group, and in a new one", [metered(unit_amount="1.00", group_by=BY_REGION)],
            [*REGIONS, bill("02-01"), calls("5", "01-20", region="eu"), calls("3", "01-20", region="ap"), bill("02-02")],
            late(500, 300)),
    Example("a group that is cancelled", [metered(unit_amount="1.00", group_by=BY_REGION)],
            [*REGIONS, bill("02-01"), correct(3, None), bill("02-02")], [*late(-100), ("carried", None, 100)]),
    # 100 of eu become 40 of us
    Example("an event that moves to another group", [metered(unit_amount="1.00", group_by=BY_REGION)],
            [*REGIONS, bill("02-01"), correct(0, "40"), bill("02-02")],
            [*late(-10000, 4000), ("carried", None, 6000)]),
    # The minimum of 120.00 had added 2.00; 5.00 more is 123.00
    Example("late usage above the minimum of all groups", [metered(unit_amount="1.00", group_by=BY_REGION, minimum="120")],
            [*REGIONS, bill("02-01"), calls("5", "01-20", region="ap"), bill("02-02")],
            [*late(500), ("minimum", "calls", -200)]),
    # 118.00 was 50.00; 90.00 less is 28.00
    Example("late usage under the maximum of all groups", [metered(unit_amount="1.00", group_by=BY_REGION, maximum="50")],
            [*REGIONS, bill("02-01"), correct(0, "10"), bill("02-02")],
            [*late(-10000, 1000), ("maximum", "calls", 6800), ("carried", None, 2200)]),
    Example("groups of a running period", [metered(unit_amount="1.00", group_by=BY_REGION)],
            [calls("2", "01-02", region="eu"), so_far("01-10"), calls("3", "01-20", region="eu"),
             calls("4", "01-21", region="us"), bill("02-01")], usage(300, 400)),
    Example("groups as recorded", [metered(unit_amount="1.00", group_by=BY_REGION, timing="advance")],
            [calls("2", "01-02", region="eu"), bill("01-10"), calls("3", "01-20", region="us"), bill("01-25")], usage(300)),
    # Half off each line, and a quarter of a cent rounds on each
    Example("a coupon on groups", [metered(unit_amount="1.00", group_by=BY_REGION)], [*REGIONS, bill("02-01")],
            usage(10000, 1700, 100), discount=5900, coupons=[percent("50")]),
    # Usage up to the 15th at 1.00, later at 2.00
    Example("groups and a change of prices", [metered(unit_amount="1.00", group_by=BY_REGION)],
            [calls("5", "01-05", region="eu"), calls("7", "01-20", region="eu"), calls("1", "01-21", region="us"),
             amend("01-15", price_override={"prices": {"calls": {"unit_amount": "2.00"}}}), bill("02-01")],
            usage(500, 1400, 200)),
]  # fmt: skip

SEATS = [{"up_to": 10, "unit_amount": "31.00"}, {"up_to": None, "unit_amount": "15.50", "flat_amount": "6.20"}]
BY_DAY = metered(unit_amount="31.00", aggregation="daily_level")
KEPT = [
    # 31.00 a seat and month, so 1.00 a day: 5 seats from the 11th on, 21 days
    january("levels by the day", BY_DAY, [calls("5", "01-11")], 10500),
    # 5 for 10 days, 8 for 21: the day of a change has the new level
    january("a level that grows", BY_DAY, [calls("5", "01-01"), calls("8", "01-11")],
            21800),
    # The last level of a day counts: 3
    january("two levels on a day", BY_DAY, [calls("9", "01-31"), calls("3", "01-31")],
            300),
    # Ten days of 10 x 31.00, 21 days of 310.00 + 10 x 15.50 + 6.20: (3100 + 21 x 471.20) / 31
    january("levels through tiers", tiered("graduated", SEATS) | {"aggregation": "daily_level"},
            [calls("10", "01-01"), calls("20", "01-11")], 41920),
    # Ten days of 10 x 31.00, 21 days of 20 x 15.50 + 6.20: (3100 + 21 x 316.20) / 31
    january("levels by volume", tiered("volume", SEATS) | {"aggregation": "daily_level"},
            [calls("10", "01-01"), calls("20", "01-11")], 31420),
    # 3 of 5 seats are not free, for 21 days
    january("levels beyond what is free", BY_DAY | {"free_units": 2}, [calls("5", "01-11")],
            6300),
    january("a level of last year", BY_DAY, SINCE_DECEMBER, 96100),
    Example("a level is kept in the next period", [BY_DAY],
            [calls("2", "01-11"), bill("02-01"), bill("03-01")], usage(6200)),
    # 16 of 31 days
    Example("levels in a stub", [BY_DAY], [calls("2", "01-02"), bill("02-01")],
            usage(3200), order=STUB),
    # 2 from the 11th on, and late 1 more from the 21st on: 11 days in January, and the whole of February
    Example("a level that is reported late", [BY_DAY],
            [calls("2", "01-11"), bill("02-01"), bill("03-01"), calls("3", "01-21"), bill("03-02")], late(1100, 3100)),
    # 10 days before the pause, 11 after it
    Example("a level in a pause", [BY_DAY],
            [calls("1", "01-01"), amend("01-11", paused=True), amend("01-21", paused=False), bill("02-01")], usage(1000, 1100)),
]  # fmt: skip

LIMITS = [
    Example("a price's minimum", [metered(minimum="5.00")], [calls("100"), bill("02-01")],
            [*usage(200), ("minimum", "calls", 300)]),
    Example("a price's maximum", [metered(maximum="5.00")], [calls("1000"), bill("02-01")], usage(2000), discount=1500),
    # 16 of 31 days: 16.00
    Example("the minimum of a stub", [metered(minimum="31.00")], [bill("02-01")], [*usage(0), ("minimum", "calls", 1600)],
            order=STUB),
    # 10.00 in advance for January, 2.00 used: 13.00 are missing
    Example("a plan's minimum", [recurring(), metered()], [bill("01-01"), calls("100"), bill("02-01")],
            [*fees(1000), *usage(200), ("minimum", None, 1300)], plan={"minimum": "25.00"}),
    Example("a plan's maximum", [recurring(), metered()], [bill("01-01"), calls("1000"), bill("02-01")],
            [*fees(1000), *usage(2000), ("maximum", None, -1500)], plan={"maximum": "15.00"}),
    # 2.00 less 50 % is 1.00: 4.00 are missing
    Example("a minimum after discounts", [metered(minimum="5.00")], [calls("100"), bill("02-01")],
            [*usage(200), ("minimum", "calls", 400)], discount=100, coupons=[percent("50")]),
]  # fmt: skip

PRORATION = [
    # 21 days at 1 given back, 21 at 2 charged
    Example("a change of quantity", [DAILY], [bill("01-01"), TWO_SEATS, bill("01-11")], [*back(2100), *fees(4200)]),
    Example("a change planned ahead", [in_arrears()], [TWO_SEATS, bill("02-01")], fees(1000, 4200)),
    # Half price: 10.50 of the 21.00 that are not used was paid
    Example("a credit less its line's discount", [DAILY], [bill("01-01"), TWO_SEATS, bill("01-11")],
            [*back(1050), *fees(4200)], discount=2100, coupons=[percent("50")]),
    # 11 of 31 days of January at 1 given back, at 2 charged; the same for all of February
    Example("a back-dated change", [DAILY], [bill("02-01"), amend("01-21", quantities={"base": 2}), bill("02-02")],
            [*back(1100, 3100), *fees(2200, 6200)]),
    Example("days until the end", [in_arrears()], JANUARY_ENDED, fees(1000), order=UNTIL_NOON),
    Example("the last day as well", [in_arrears(bill_last_day=True)], JANUARY_ENDED, fees(1100), order=UNTIL_NOON),
    # 10.5 of 31 days
    Example("by the second", [in_arrears(proration="second")], JANUARY_ENDED, fees(1050), order=UNTIL_NOON),
    # Berlin's March has 743 hours: 31.00 x 252 / 743 of the hours until the 11th at noon
    Example("by the second in a month with a short day", [in_arrears(proration="second")], [bill("04-02")], fees(1051),
            order=BERLIN | {"started_at": "2026-02-28T23:00:00Z", "ends_at": "2026-03-11T11:00:00Z"}),
    Example("by the second, half of February", [in_arrears(proration="second")], [bill("03-01")], fees(1550),
            order=ordered("02-01", ends_at="2026-02-15T00:00:00Z")),
    Example("whole, whatever is used", [in_arrears(proration="none")], JANUARY_ENDED, fees(3100), order=UNTIL_NOON),
    Example("whole, a stub", [DAILY | {"proration": "none"}], [bill("01-16")], fees(3100), order=STUB),
    Example("whole, a change counts from the next period", [DAILY | {"proration": "none"}],
            [bill("01-01"), TWO_SEATS, bill("02-01")], fees(6200)),
    # 15 of 30
    Example("months of 30 days, January", [in_arrears("30.00", proration="fixed_30")], JANUARY_ENDED, fees(1500),
            order={"ends_at": "2026-01-16T00:00:00Z"}),
    Example("months of 30 days, February", [in_arrears("30.00", proration="fixed_30")], [bill("03-01")], fees(1500),
            order=ordered("02-01", ends_at="2026-02-16T00:00:00Z")),
    Example("months of 30 days, the 31st is the 30th", [in_arrears("30.00", proration="fixed_30")], JANUARY_ENDED,
            fees(2900), order={"ends_at": "2026-01-31T00:00:00Z"}),
    # 16 of 31 days; then the whole of February
    Example("a trial", [DAILY], [bill("01-15"), bill("02-01")], fees(1600, 3100),
            order={"trial_ends_at": "2026-01-16T00:00:00Z"}),
    Example("a trial of a whole period", [DAILY], JANUARY_ENDED, fees(3100), order={"trial_ends_at": "2026-02-01T00:00:00Z"}),
    Example("nothing used in a trial is owed", [metered()], [calls("100", "01-10"), calls("50", "01-20"), bill("02-01")],
            usage(100), order={"trial_ends_at": "2026-01-16T00:00:00Z"}),
    # 10 days before, 11 after
    Example("a pause", [in_arrears()], [amend("01-11", paused=True), amend("01-21", paused=False), bill("02-01")],
            fees(1000, 1100)),
]  # fmt: skip

TWO_MONTHS = [bill("01-01"), bill("02-01")]
DISCOUNTS = [
    # 10.00 less 25 %, and 20 % tax on 7.50
    Example("a percentage before tax", [recurring(tax_rate="20")], [bill("01-01")], fees(1000), discount=250, tax=150,
            coupons=[percent("25")]),
    # 5.00, then 0.50
    Example("percentages one after the other", [recurring()], [bill("01-01")], fees(1000), discount=550,
            coupons=[percent("50"), percent("10")]),
    # 5.00 - 3.00 = 2.00; then half of 10.00 + 2.00
    Example("limited to a price before general", [recurring(), recurring("support", "5.00")], [bill("01-01")],
            [*fees(1000), *fees(500, key="support")], discount=900,
            coupons=[percent("50"), money("3.00", prices=["support"])]),
    Example("an amount carries its rest", [recurring()], TWO_MONTHS, fees(1000), discount=500, coupons=[money("15.00")]),
    Example("a recurring one does not", [recurring()], TWO_MONTHS, fees(1000), discount=1000,
            coupons=[money("15.00", duration="recurring", periods=2)]),
    Example("and is over after its periods", [recurring()], [*TWO_MONTHS, bill("03-01")], fees(1000),
            coupons=[money("15.00", duration="recurring", periods=2)]),
    # 10.00 over 3.33, 3.33, 3.34: to the cent, and nothing is lost
    Example("an amount spread over lines", [recurring("a", "3.33"), recurring("b", "3.33"), recurring("c", "3.35")],
            [bill("01-01")], [*fees(333, key="a"), *fees(333, key="b"), *fees(335, key="c")], discount=1000,
            coupons=[money("10.00")]),
]  # fmt: skip

TAXES = [
    # 9.99 x 19 % = 1.8981; line by line it would be 3 x 0.63 = 1.89
    Example("rounded once per category", [recurring(key, "3.33", tax_rate="19") for key in "abc"], [bill("01-01")],
            [("recurring", key, 333) for key in "abc"], tax=190),
    # 10.00 x 20 % + 10.00 x 5.5 %
    Example("two rates", [recurring(tax_rate="20"), recurring("book", tax_rate="5.5", tax_category="AA")], [bill("01-01")],
            [*fees(1000), *fees(1000, key="book")], tax=255),
    # 0.50 x 1 % = 0.005
    Example("half a cent goes up", [recurring(unit_amount="0.50", tax_rate="1")], [bill("01-01")], fees(50), tax=1),
    # (42.00 - 21.00) x 20 %
    Example("of a change, on the difference", [DAILY | {"tax_rate": "20"}], [bill("01-01"), TWO_SEATS, bill("01-11")],
            [*back(2100), *fees(4200)], tax=420),
]  # fmt: skip

CURRENCIES = [
    # 3 x 333.5 = 1000.5
    Example("yen have no decimals", [metered(unit_amount="333.5")], [calls("3"), bill("02-01")], usage(1001),
            plan={"currency": "JPY"}),
    Example("dinars have three", [metered(unit_amount="0.0005")], [calls("3"), bill("02-01")], usage(2),
            plan={"currency": "BHD"}),
    Example("euros have two", [metered(unit_amount="0.005")], [calls("1"), bill("02-01")], usage(1)),
    # 100.5 x 19 % of whole yen: 101 x 0.19 = 19.19
    Example("tax in yen", [recurring(unit_amount="100.5", tax_rate="19")], [bill("01-01")], fees(101), tax=19,
            plan={"currency": "JPY"}),
]  # fmt: skip

PAUSED = [bill("01-01"), amend("01-11", paused=True), bill("01-11"), amend("02-01", paused=False), bill("02-01")]
PAYING = [
    # 500 x 0.01 of 12.00
    Example("credits after tax", [recurring(tax_rate="20")], [bill("01-01")], fees(1000), tax=200, due=700,
            credits=(500, "0.01")),
    # 171 x 0.07 = 11.97
    Example("whole credits only", [recurring(tax_rate="20")], [bill("01-01")], fees(1000), tax=200, due=3,
            credits=(1000, "0.07")),
    Example("enough of them", [recurring(tax_rate="20")], TWO_MONTHS, fees(1000), tax=200, due=0, credits=(5000, "0.01")),
    # 21.00 given back for January, set against February
    Example("a credit note first", [DAILY], PAUSED, fees(3100), due=0, credits=(1000, "1")),
    Example("a credit note alone", [DAILY], PAUSED, fees(3100), due=1000),
    Example("nothing below zero", [DAILY], [bill("01-01"), amend("01-11", ends_at="2026-01-11T00:00:00Z"), bill("01-11")],
            [*back(2100), ("carried", None, 2100)]),
]  # fmt: skip

LATE = [
    Example("a difference", [metered()], [calls("100"), bill("02-01"), calls("50", "01-20"), bill("02-02")], late(100)),
    # 15 calls cost 12.00 + 5 x 0.50, of which 12.00 were billed
    Example("in tiers, where the first part stopped", [tiered("graduated")],
            [calls("10"), bill("02-01"), calls("5", "01-20"), bill("02-02")], late(250)),
    # 11 calls cost 11 x 0.50 = 5.50, of which 12.00 were billed
    Example("by volume, which may be less", [tiered("volume")],
            [calls("10"), bill("02-01"), calls("1", "01-20"), bill("02-02")], [*late(-650), ("carried", None, 650)]),
    # 3 started GB, and still 3 with 900,000,000 more; 4 with another 200,000,000
    Example("converted as a whole", [metered(unit_amount="0.10", conversion=GIGABYTES)],
            [calls("2000000001"), bill("02-01"), calls("900000000", "01-20"), bill("02-02"), calls("200000000", "01-21"),
             bill("02-03")], late(10)),
    # 5.00 instead of 8.10 for the third, of which nothing was billed; the minimum of the first is billed
    Example("with bounds per event", [percentage("2", **BOUNDED)],
            [calls("10"), bill("02-01"), calls("400", "01-07"), bill("02-02")], late(500)),
    Example("of all periods", [metered()],
            [bill("02-01"), bill("03-01"), bill("04-01"), calls("9"), calls("10", "02-05"), calls("20", "03-05"), bill("04-02")],
            late(18, 20, 40)),
]  # fmt: skip

USED_TWICE = [calls("100"), calls("50", "01-06")]
CORRECTIONS = [
    # 60 + 50 at 0.02
    january("a correction before the bill", metered(), [*USED_TWICE, correct(0, "60")], 220),
    january("a cancellation before the bill", metered(), [*USED_TWICE, correct(0, None)], 100),
    # 60, then 70, then nothing: 50 at 0.02
    january("a correction that is corrected and cancelled", metered(),
            [*USED_TWICE, correct(0, "60"), correct(2, "70"), correct(3, None)], 100),
    # Two events, not three
    january("a correction is no event more", aggregated("count"), [*USED_TWICE, correct(0, "60")], 200),
    january("the highest was wrong", aggregated("max"), [*USED_TWICE, correct(0, None)], 5000),
    # 3.00 were billed, 1.00 counts
    Example("a cancellation after the bill", [metered()], [*USED_TWICE, bill("02-01"), correct(0, None), bill("02-02")],
            [*late(-200), ("carried", None, 200)]),
    # 3.00 were billed, 4.00 count
    Example("a correction after the bill", [metered()], [*USED_TWICE, bill("02-01"), correct(0, "150"), bill("02-02")],
            late(100)),
    # 12.00 for 10 calls; 5 calls are 7.00
    Example("a correction in tiers", [tiered("graduated")], [calls("10"), bill("02-01"), correct(0, "5"), bill("02-02")],
            [*late(-500), ("carried", None, 500)]),
]  # fmt: skip

LATE_CALLS = [calls("50"), bill("02-01"), calls("10", "01-20"), bill("02-10")]
USAGE_IN_CREDITS = [
    # 250 / 2.5 = 100 calls; 50 x 0.02.
    Example("overage in money", [in_credits("2.5")], [calls("150"), bill("02-01")], usage(100), holds=250, left=0),
    # 7 x 2.5 = 17.5: 18 credits.
    Example("covered in whole, rounded up", [in_credits("2.5")], [calls("7"), bill("02-01")], usage(0), holds=100, left=82),
    # 99 / 2.5 = 39.6: 39 calls for 97.5, so 98 credits; 11 x 0.02.
    Example("whole units only", [in_credits("2.5")], [calls("50"), bill("02-01")], usage(22), holds=99, left=1),
    # 20 of 60 calls are free, 30 of the other 40 are covered; 10 x 0.02.
    Example("free units first", [in_credits("1", free_units=20)], [calls("60"), bill("02-01")], usage(20), holds=30, left=0),
    # 10 x 1.00 + 2.00, then 0.50 each: the first 15 calls are covered, and the fee with the tier; 5 x 0.50.
    Example("in tiers", [in_credits("1", tiered("graduated"))], [calls("20"), bill("02-01")], usage(250), holds=15, left=0),
    # 2300 calls are 3 packages; 90 credits cover 2 at 40; one at 5.00.
    Example("packages", [in_credits("40", packages(package_size=1000))], [calls("2300"), bill("02-01")], usage(500),
            holds=90, left=10),
    # 100 x 0.02 is covered to 40 x 0.02 = 0.80; 3.00 is the least.
    Example("a minimum is of the money", [in_credits("1", minimum="3.00")], [calls("100"), bill("02-01")],
            [*usage(80), ("minimum", "calls", 220)], holds=60, left=0),
    # Tax is on what is invoiced: 50 x 0.02 = 1.00, and 0.20.
    Example("tax of the overage", [in_credits("2.5", tax_rate="20")], [calls("150"), bill("02-01")], usage(100), tax=20,
            holds=250, left=0),
    # January took all 40; late calls find nothing: 10 x 0.02.
    Example("late usage without credits", [in_credits("1")], LATE_CALLS, late(20), holds=40, left=0),
    # 50 covered; late 10 covered as well.
    Example("late usage with credits", [in_credits("1")], LATE_CALLS, late(0), holds=100, left=40),
    # January 100 of 100, February 20 of 50: 30 x 0.02.
    Example("the oldest period first", [in_credits("1")], [calls("100"), calls("50", "02-05"), bill("03-01")], usage(0, 60),
            holds=120, left=0),
    # 300 credits: 150 cover all calls, and 150 at 0.01 pay 1.50 of 10.00.
    Example("usage first, then the invoice", [in_credits("1"), in_arrears("10.00")], [calls("150"), bill("02-01")],
            [*usage(0), *fees(1000)], due=850, credits=(300, "0.01"), left=0),
]  # fmt: skip

NEGOTIATED = [
    # 31.00 less 10 % is 27.90.
    Example("a percentage off", [recurring(unit_amount="31.00")], [bill("01-01")], fees(2790),
            order={"price_override": {"percent_off": "10"}}),
    # 25.00 instead of 31.00 from the order on, and 100 calls at 0.02 less 50 %.
    Example("a named price, and a percentage off the others", [in_arrears(), metered()], [calls("100"), bill("02-01")],
            [*fees(2500), *usage(100)],
            order={"price_override": {"prices": {"base": {"unit_amount": "25.00"}}, "percent_off": "50"}}),
    # From the 11th: 21 of 31 days are given back at 31.00 and charged at 24.80, which is 80 %.
    Example("from a day within a period on", [recurring(unit_amount="31.00")],
            [bill("01-01"), amend("01-11", price_override={"percent_off": "20"}), bill("01-11")],
            [*back(2100), *fees(1680), ("carried", None, 420)]),
    # Withdrawn on the 11th: 10 x 0.80 for the days before, 21 x 1.00 after.
    Example("until it is withdrawn", [in_arrears()],
            [amend("01-11", price_override=None), bill("02-01")], fees(800, 2100),
            order={"price_override": {"percent_off": "20"}}),
    # 10 x 0.80 + 5 x 0.40; the fees for entering a tier are lowered too: 1.60.
    Example("a percentage off tiers", [tiered("graduated")], [calls("15"), bill("02-01")], usage(1160),
            order={"price_override": {"percent_off": "20"}}),
    # 31.00 less 10 % is 27.90, less the coupon's 10 % of that.
    Example("and a coupon", [recurring(unit_amount="31.00")], [bill("01-01")], fees(2790), discount=279,
            order={"price_override": {"percent_off": "10"}}, coupons=[{"kind": "percentage", "value": "10", "duration": "once"}]),
]  # fmt: skip

MOVED_DAYS = [
    # January is paid on the 1st; on the 15th it ends: 17 of 31 days back, and a full period to 15 February.
    Example("the running period ends at the new boundary", [recurring(unit_amount="31.00")],
            [bill("01-01"), amend("01-11", anchor_at="2026-01-15T00:00:00Z"), bill("01-15")], [*back(1700), *fees(3100)],
            starts=["2026-01-15T00:00", "2026-01-15T00:00"]),
    # From 1 to 15 February are 14 of 28 days.
    Example("after a whole period if the boundary lies beyond it", [recurring(unit_amount="28.00")],
            [bill("01-01"), amend("01-20", anchor_at="2026-01-15T00:00:00Z"), bill("02-01")], fees(1400)),
    # 14 of 31 days in arrears, and the calls of those days.
    Example("in arrears", [in_arrears(), metered()],
            [calls("100", "01-05"), calls("50", "01-20"), amend("01-11", anchor_at="2026-02-15T00:00:00Z"), bill("01-15")],
            [*fees(1400), *usage(200)]),
    # 10 February to 10 March is a full period.
    Example("the next periods follow the new day", [recurring(unit_amount="31.00")],
            [amend("01-02", anchor_at="2026-03-10T00:00:00Z"), bill("01-10"), bill("02-10")], fees(3100),
            starts=["2026-02-10T00:00"]),
]  # fmt: skip

ENDS_AND_PAUSES = [
    Example("unused time is credited", [recurring(unit_amount="31.00")],
            [bill("01-01"), amend("01-11", ends_at="2026-01-11T00:00:00Z"), bill("01-11")],
            [*back(2100), ("carried", None, 2100)]),
    # Nobody has paid the 31.00: it stays credit.
    Example("unused time that is not paid is not paid out", [recurring(unit_amount="31.00")],
            [bill("01-01"), amend("01-11", ends_at="2026-01-11T00:00:00Z", unused_time="refund"), bill("01-11")],
            [*back(2100), ("carried", None, 2100)]),
    # The 21 days after the end stay charged: only the day of usage is still due.
    Example("unused time stays charged", [recurring(unit_amount="31.00"), metered()],
            [bill("01-01"), calls("10"), amend("01-11", ends_at="2026-01-11T00:00:00Z", unused_time="skip"), bill("01-11")],
            usage(20)),
    # The first run comes after the end: January is charged as a run in time would have charged it.
    Example("unused time stays charged by a late run", [recurring(unit_amount="31.00")],
            [amend("01-05", ends_at="2026-01-11T00:00:00Z", unused_time="skip"), bill("02-01")], fees(3100)),
    # In arrears 10 of 31 days are used, whatever the end does.
    Example("in arrears nothing is unused", [in_arrears()],
            [amend("01-05", ends_at="2026-01-11T00:00:00Z", unused_time="skip"), bill("02-01")], fees(1000)),
    # The fee goes on; 10 calls before and 20 after the pause, not the 40 within.
    Example("fees go on in a pause", [in_arrears(), metered()],
            [calls("10"), calls("40", "01-15"), calls("20", "01-25"), amend("01-11", paused=True, charges_while_paused=True),
             amend("01-21", paused=False), bill("02-01")], [*fees(3100), *usage(20, 40)]),
    # 10 days, and 11 after the pause.
    Example("a pause charges nothing", [in_arrears()],
            [amend("01-11", paused=True), amend("01-21", paused=False), bill("02-01")], fees(1000, 1100)),
    # A trial to 1 February ends on 11 January: 21 of 31 days.
    Example("a trial that ends early", [recurring(unit_amount="31.00")],
            [bill("01-05"), amend("01-11", trial_ends_at="2026-01-11T00:00:00Z"), bill("01-11")], fees(2100),
            order={"trial_ends_at": "2027-02-01T00:00:00Z"}),
]  # fmt: skip

HELD_BACK = [
    Example("invoiced some days later", [recurring(unit_amount="31.00")], [bill("01-10"), bill("01-11")], fees(3100),
            order={"hold_days": 10}),
    # On 12 February, as of the 2nd: usage of January and the fee of February.
    Example("the lines are the same", [recurring(unit_amount="31.00"), metered()], [bill("01-12"), calls("10"), bill("02-12")],
            [*fees(3100), *usage(20)], starts=["2026-02-01T00:00", "2026-01-01T00:00"], order={"hold_days": 10}),
    Example("no longer held back", [recurring(unit_amount="31.00")], [bill("01-05"), amend("01-05", hold_days=0), bill("01-05")],
            fees(3100), order={"hold_days": 10}),
]  # fmt: skip

YEARLY: dict[str, Any] = {"interval": {"unit": "year", "count": 1}}
MONTHLY: dict[str, Any] = {"interval": {"unit": "month"}}
DIVIDED = [
    Example("usage of a month, in a yearly plan", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [bill("01-01"), calls("100"), bill("02-01")], usage(200), plan=YEARLY, starts=["2026-01-01T00:00"]),
    Example("a late run of a yearly plan", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [calls("100"), calls("50", "03-31"), bill("04-01")], [*fees(120_000), *usage(200, 100)], plan=YEARLY,
            starts=["2026-01-01T00:00", "2026-01-01T00:00", "2026-03-01T00:00"]),
    Example("the last month comes with the next half year", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [bill("06-01"), calls("50", "06-30"), bill("07-01")], [*fees(120_000), *usage(100)], plan=interval("half_year"),
            starts=["2026-07-01T00:00", "2026-06-01T00:00"]),
    Example("late usage of a month", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [calls("100"), bill("02-01"), calls("25", "01-31"), bill("02-10")], late(50), plan=YEARLY),
    Example("a minimum of each month", [recurring(unit_amount="1200.00"), metered(minimum="5.00", **MONTHLY)],
            [bill("01-01"), calls("100"), bill("02-01")], [*usage(200), ("minimum", "calls", 300)], plan=YEARLY),
    # 1,200.00 + 2.00, and 98.00 up to 1,300.00; the next fee is not of this half year.
    Example("a minimum of the whole", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [bill("01-01"), calls("100"), bill("02-01"), bill("06-01"), bill("07-01")],
            [*fees(120_000), ("minimum", None, 9_800)], plan=interval("half_year") | {"minimum": "1300.00"}),
    # The months alone: 2.00 and 3.00.
    Example("a minimum of the whole on months", [metered(**MONTHLY)],
            [calls("100"), bill("02-01"), calls("150", "05-20"), *(bill(f"{month:02}-01") for month in range(3, 8))],
            [("minimum", None, 9_500)], plan=interval("half_year") | {"minimum": "100.00"}),
    # 4.00 off January's 4.00, and the 1.00 that is left of 5.00 off February's.
    Example("a coupon counts years", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [bill("01-01"), calls("200"), bill("02-01"), calls("200", "02-05"), bill("03-01")], usage(400), discount=100,
            plan=YEARLY, coupons=[money("5.00", duration="recurring", periods=1, prices=["calls"])]),
    Example("and nothing off the third month", [recurring(unit_amount="1200.00"), metered(**MONTHLY)],
            [bill("01-01"), calls("200"), calls("200", "02-05"), calls("200", "03-05"), bill("03-01"), bill("04-01")],
            usage(400), plan=YEARLY, coupons=[money("5.00", duration="recurring", periods=1, prices=["calls"])]),
    # 69 of 365 days are used, and 50 calls in the stub of March.
    Example("a yearly fee ends within a month", [recurring(unit_amount="365.00"), metered(**MONTHLY)],
            [bill("01-01"), bill("03-01"), calls("50", "03-05"), amend("03-11", ends_at="2026-03-11T00:00:00Z"), bill("03-11")],
            [*back(29_600), *usage(100), ("carried", None, 29_500)], plan=YEARLY),
    # A seat of 31.00 a month: 21 of 31 days back; the yearly fee of the same plan stays.
    Example("a monthly fee changes in a yearly plan",
            [recurring(unit_amount="1200.00", key="year"), recurring(unit_amount="31.00", **MONTHLY)],
            [bill("01-01"), amend("01-11", quantities={"base": "2"}), bill("01-11")], [*back(2100), *fees(4200)], plan=YEARLY),
    # 300 of 1,000 credits pay for January's calls; the other 700 and the one bought for June's.
    Example("an allowance of the whole", [recurring(unit_amount="1200.00"), in_credits("1", **MONTHLY)],
            [bill("01-01"), calls("300"), bill("02-01"), calls("800", "06-05"), bill("07-01")],
            [*fees(120_000), *usage(198)], holds=1, left=1000,
            plan=interval("half_year") | {"allowance": {"credit_type": "credits", "amount": 1000}}),
]  # fmt: skip

SEATS = metered(unit_amount="31.00", aggregation="daily_level")
RUNNING = [
    # 100 calls are 2.00 on the 10th; the other 50 come with the end.
    Example("the rest of a period", [metered()],
            [calls("100"), so_far("01-10"), calls("50", "01-20"), bill("02-01")], usage(100)),
    Example("usage so far", [metered()], [calls("100"), calls("50", "01-20"), so_far("01-10")], usage(200)),
    Example("a second time", [metered()],
            [calls("100"), so_far("01-10"), calls("50", "01-15"), so_far("01-20")], usage(100)),
    # 15 calls are 14.50; 25 are 10 + 2 + 7.50.
    Example("the rest in its tiers", [tiered("graduated")],
            [calls("15"), so_far("01-10"), calls("10", "01-20"), bill("02-01")], usage(500)),
    # 15 calls are 7.50; 101 at 0.10 are 11.10.
    Example("the rest of a volume", [tiered("volume")],
            [calls("15"), so_far("01-10"), calls("86", "01-20"), bill("02-01")], usage(360)),
    Example("no minimum before the end", [metered(minimum="5.00")], [calls("100"), so_far("01-10")], usage(200)),
    Example("the minimum once, at the end", [metered(minimum="5.00")],
            [calls("100"), so_far("01-10"), bill("02-01")], usage(300)),
    Example("the maximum over all parts", [metered(maximum="3.00")],
            [calls("100"), so_far("01-10"), calls("100", "01-20"), bill("02-01")], usage(100)),
    Example("a coupon on each part", [metered()],
            [calls("100"), so_far("01-10"), calls("50", "01-20"), bill("02-01")], usage(100), discount=50,
            coupons=[percent("50")]),
    Example("less than so far", [metered()], [calls("100"), so_far("01-10"), correct(0, "60"), bill("02-01")],
            [*usage(-80), ("carried", None, 80)]),
    # 10 days at 100.00 a month; then (10 x 310.00 + 21 x 620.00) / 31 = 520.00 less 100.00.
    Example("the days of a level so far", [SEATS], [calls("10", "01-01"), so_far("01-11")], usage(10_000)),
    Example("and the days after", [SEATS],
            [calls("10", "01-01"), so_far("01-11"), calls("20", "01-11"), bill("02-01")], usage(42_000)),
    # 9 of 31 days of the minimum: 9.00, of which 2.00 is billed.
    Example("an end where the usage so far ended", [metered(minimum="31.00")],
            [calls("100"), so_far("01-10"), amend("01-10", ends_at="2026-01-10T00:00:00Z"), bill("01-10")], usage(700)),
    Example("a threshold that is reached", [metered()], [calls("99"), bill("01-06"), calls("1", "01-07"), bill("01-10")],
            usage(200), plan={"usage_threshold": "2.00"}),
    # After the 2.00 of the 10th, 1.98 is below the threshold until the period ends.
    Example("a threshold counts what is not invoiced", [metered()],
            [calls("100"), bill("01-10"), calls("99", "01-15"), bill("01-20"), bill("02-01")], usage(198),
            plan={"usage_threshold": "2.00"}),
    Example("a threshold over two prices", [metered(), metered("sent", unit_amount="1.00", meter="calls")],
            [calls("3"), bill("01-10")], [*usage(6), ("usage", "sent", 300)], plan={"usage_threshold": "3.06"}),
    # Units that credits pay for wait for the end of the period.
    Example("usage in credits waits", [in_credits("1"), metered("sent", unit_amount="1.00", meter="calls")],
            [calls("3"), so_far("01-10")], [("usage", "sent", 300)], holds=10, left=10),
]  # fmt: skip

AS_RECORDED: dict[str, Any] = {"timing": "advance"}
RECORDED = [
    Example("usage as it is recorded", [metered(**AS_RECORDED)], [calls("100"), bill("01-06")], usage(200)),
    Example("each event once", [metered(**AS_RECORDED)],
            [calls("100"), bill("01-06"), bill("01-07"), calls("50", "01-07"), bill("01-08")], usage(100)),
    # The 8th to 12th call: 3 at 1.00 and 2 at 0.50. The fee of the first tier came with the first.
    Example("each event at its place in the tiers", [tiered("graduated") | AS_RECORDED],
            [calls("7"), bill("01-06"), calls("5", "01-07"), bill("01-08")], usage(400)),
    Example("the minimum is left for the end", [metered(minimum="5.00", **AS_RECORDED)],
            [calls("100"), bill("01-06"), bill("02-01")], usage(300)),
    Example("recorded late, for the period before", [metered(**AS_RECORDED)],
            [calls("100"), bill("01-06"), calls("25", "01-20"), bill("02-01"), calls("10", "01-31"), bill("02-03")], late(20)),
    Example("a month of a yearly plan as it is recorded", [recurring(unit_amount="1200.00"), metered(**AS_RECORDED, **MONTHLY)],
            [bill("01-01"), calls("100"), bill("01-06")], usage(200), plan=YEARLY),
    # 1.98 waits for the threshold; what is charged as it is recorded does not count for it.
    Example("beside a threshold", [metered(**AS_RECORDED), metered("sent", unit_amount="0.66", meter="calls")],
            [calls("3"), bill("01-06")], usage(6), plan={"usage_threshold": "2.00"}),
    Example("started packages as they are recorded", [packages(package_size=1000, **AS_RECORDED)],
            [calls("1"), bill("01-06"), calls("999", "01-07"), calls("1", "01-08"), bill("01-10")], usage(500)),
]  # fmt: skip

EXAMPLES = (
    PERIODS
    + MODELS
    + AGGREGATIONS
    + BUCKETED
    + GROUPED
    + KEPT
    + LIMITS
    + PRORATION
    + DISCOUNTS
    + TAXES
    + CURRENCIES
    + PAYING
    + LATE
    + CORRECTIONS
    + USAGE_IN_CREDITS
    + NEGOTIATED
    + MOVED_DAYS
    + ENDS_AND_PAUSES
    + HELD_BACK
    + DIVIDED
    + RUNNING
    + RECORDED
)
