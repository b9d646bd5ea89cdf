"""A price is read strictly, and whatever is wrong with it is named by tier or field."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.aggregation import Aggregation
from billing.rating.periods import Timing
from billing.rating.prices.models import PercentagePrice
from billing.rating.prices.price import PriceKind, Proration
from billing.rating.prices.reading import PriceInvalid, parse_price, parse_prices, price_dict
from billing.rating.prices.tiers import Tier
from tests.billing.rating.builders import PROPERTY

BUCKET = {"key": "eu", "filters": {"region": "eu"}, "unit_amount": "2"}
DAILY = {"unit_amount": "1", "aggregation": "daily_level"}
UNIT = {"key": "api", "kind": "usage", "model": "unit", "meter": "calls", "aggregation": "sum", "unit_amount": "0.02"}
SEAT = {"key": "seat", "kind": "recurring", "model": "flat", "unit_amount": "49"}


def graduated(*tiers: Any) -> dict[str, Any]:
    """A usage price in these tiers, as input."""
    return {"key": "api", "kind": "usage", "model": "graduated", "meter": "calls", "aggregation": "sum", "tiers": list(tiers)}


def faults(data: Any) -> list[tuple[str, str]]:
    """Where the price is wrong, and by which rule; it must be refused."""
    with pytest.raises(PriceInvalid) as caught:
        parse_price(data)
    assert all(error.detail for error in caught.value.errors)
    return [(error.pointer, error.code) for error in caught.value.errors]


# What is right ---------------------------------------------------------------------------------------


def test_every_field_is_read() -> None:
    price = parse_price({
        "key": "api", "kind": "usage", "timing": "arrears", "model": "percentage", "rate": "2.9", "fixed_amount": "0.30",
        "free_events": 3, "free_amount": "100", "minimum": "5", "maximum": "500.50", "meter": "payments", "aggregation": "sum",
        "property": "amount", "filters": {"region": ["eu", "us"], "card": "visa"}, "proration": "fixed_30",
        "bill_last_day": True, "tax_category": "S", "tax_rate": "19",
    })  # fmt: skip
    assert price == PercentagePrice(
        key="api", kind=PriceKind.USAGE, timing=Timing.ARREARS, rate=Decimal("2.9"),
        fixed_amount=Decimal("0.30"), free_events=3, free_amount=Decimal(100), minimum=Decimal(5), maximum=Decimal("500.5"),
        meter="payments", aggregation=Aggregation.SUM, property="amount", filters=(("card", ("visa",)), ("region", ("eu", "us"))),
        proration=Proration.FIXED_30, bill_last_day=True, tax_category="S", tax_rate=Decimal(19),
    )  # fmt: skip


def test_what_is_absent_or_null_has_its_default() -> None:
    price = parse_price(SEAT | {"timing": None, "minimum": None, "meter": None})
    assert (price.timing, price.proration, price.bill_last_day, price.tax_rate) == (
        Timing.ADVANCE,
        Proration.DAY,
        False,
        Decimal(0),
    )
    assert (price.minimum, price.meter) == (None, None)
    assert parse_price(UNIT).timing == Timing.ARREARS


def test_quantities_may_be_numbers_or_decimal_strings() -> None:
    tiers = [{"up_to": up_to, "unit_amount": "1"} for up_to in (10, "20.5", 30.5, Decimal("40.25"), None)]
    price = parse_price(graduated(*tiers))
    assert [tier.up_to for tier in price.tiers] == [10, Decimal("20.5"), Decimal("30.5"), Decimal("40.25"), None]


def test_a_tier_may_have_a_flat_fee_only() -> None:
    price = parse_price(graduated({"up_to": None, "flat_amount": "5"}))
    assert price.tiers == (Tier(unit_amount=Decimal(0), flat_amount=Decimal(5)),)


def test_the_longest_decimals_and_largest_numbers_are_read() -> None:
    twelve_digits_and_twelve_decimals = "999999999999.999999999999"
    price = parse_price(SEAT | {"unit_amount": twelve_digits_and_twelve_decimals})
    assert str(price.unit_amount) == twelve_digits_and_twelve_decimals
    largest_quantity, largest_amount = 10**18, 10**12
    tiers = graduated({"up_to": largest_quantity, "unit_amount": str(largest_amount)}, {"up_to": None, "unit_amount": "0"})
    assert parse_price(tiers).tiers[0] == Tier(up_to=Decimal(largest_quantity), unit_amount=Decimal(largest_amount))
    assert parse_price(SEAT | {"unit_amount": "00.5000000000000000"}).unit_amount == Decimal("0.5")


@pytest.mark.parametrize("data", [
    UNIT, SEAT,
    graduated({"up_to": 10, "unit_amount": "1"}, {"up_to": None, "unit_amount": "0.5", "flat_amount": "3"}),
    UNIT | {"filters": {"region": ["eu"]}, "property": "size", "aggregation": "max", "tax_rate": "7.7", "free_units": 12.5},
    {"key": "p", "kind": "usage", "model": "graduated_percentage", "meter": "m", "aggregation": "sum",
     "tiers": [{"up_to": 1000, "rate": "2"}, {"up_to": None, "rate": "1", "flat_amount": "1"}]},
])  # fmt: skip
def test_a_price_survives_being_stored(data: dict[str, Any]) -> None:
    price = parse_price(data)
    stored = json.loads(json.dumps(price_dict(price)))
    assert parse_price(stored) == price
    assert {name: value for name, value in data.items() if name not in ("tiers", "free_units")}.items() <= stored.items()


# Tiers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([10, 20], [("/price/tiers/1/up_to", "no-last-tier")]),
        ([10], [("/price/tiers/0/up_to", "no-last-tier")]),
        ([20, 10, None], [("/price/tiers/1/up_to", "tier-overlap")]),
        ([10, 10, None], [("/price/tiers/1/up_to", "tier-overlap")]),
        ([None, 10, None], [("/price/tiers/0/up_to", "tier-overlap")]),
        ([None, None], [("/price/tiers/0/up_to", "tier-overlap")]),
        ([0, None], [("/price/tiers/0/up_to", "tier-empty")]),
        ([30, 20, 10], [
            ("/price/tiers/1/up_to", "tier-overlap"),
            ("/price/tiers/2/up_to", "no-last-tier"),
            ("/price/tiers/2/up_to", "tier-overlap"),
        ]),
        ([-1, None], [("/price/tiers/0/up_to", "negative")]),
        (["x", None], [("/price/tiers/0/up_to", "format")]),
        ([True, None], [("/price/tiers/0/up_to", "type")]),
        ([1e400, None], [("/price/tiers/0/up_to", "format")]),
    ],
)  # fmt: skip
def test_tiers_have_no_gap_no_overlap_and_a_last_one(ends: list[Any], expected: list[tuple[str, str]]) -> None:
    assert faults(graduated(*({"up_to": end, "unit_amount": "1"} for end in ends))) == expected


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ({"up_to": None}, [("/price/tiers/0/unit_amount", "required")]),
        ({"up_to": None, "rate": "1"}, [("/price/tiers/0/rate", "not-used"), ("/price/tiers/0/unit_amount", "required")]),
        ({"up_to": None, "unit_amount": "-1"}, [("/price/tiers/0/unit_amount", "negative")]),
        ({"up_to": None, "unit_amount": 1}, [("/price/tiers/0/unit_amount", "type")]),
        ({"up_to": None, "unit_amount": "1", "flat_amount": "-0.01"}, [("/price/tiers/0/flat_amount", "negative")]),
        ({"up_to": None, "unit_amount": "1", "from": 0}, [("/price/tiers/0/from", "unknown-field")]),
        ("all", [("/price/tiers/0", "type")]),
    ],
)
def test_a_faulty_tier_is_named(tier: Any, expected: list[tuple[str, str]]) -> None:
    assert faults(graduated(tier)) == expected


@pytest.mark.parametrize(
    ("tiers", "code"),
    [({}, "type"), ("x", "type"), (3, "type"), ([], "too-few"), ([{"up_to": None, "unit_amount": "1"}] * 101, "too-many")],
)
def test_tiers_are_a_list_of_some(tiers: Any, code: str) -> None:
    assert faults(graduated() | {"tiers": tiers}) == [("/price/tiers", code)]


# Fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"unit_amount": "-0.01"}, ("unit_amount", "negative")),
        ({"unit_amount": None}, ("unit_amount", "required")),
        ({"unit_amount": 1}, ("unit_amount", "type")),
        ({"unit_amount": 0.1}, ("unit_amount", "type")),
        ({"unit_amount": "1e3"}, ("unit_amount", "format")),
        ({"unit_amount": "NaN"}, ("unit_amount", "format")),
        ({"unit_amount": "Infinity"}, ("unit_amount", "format")),
        ({"unit_amount": " 1"}, ("unit_amount", "format")),
        ({"unit_amount": "1\n"}, ("unit_amount", "format")),
        ({"unit_amount": "1_000"}, ("unit_amount", "format")),
        ({"unit_amount": "١"}, ("unit_amount", "format")),
        ({"unit_amount": "9" * 5000}, ("unit_amount", "format")),
        ({"unit_amount": "0.0000000000001"}, ("unit_amount", "too-many-decimals")),
        ({"unit_amount": "1" + "0" * 26}, ("unit_amount", "too-large")),
        ({"free_units": 10**60}, ("free_units", "too-large")),
        ({"free_units": True}, ("free_units", "type")),
        ({"meter": None}, ("meter", "required")),
        ({"aggregation": None}, ("aggregation", "meter-without-aggregation")),
        ({"aggregation": "median"}, ("aggregation", "choice")),
        ({"aggregation": "count", "property": "size"}, ("property", "not-used")),
        ({"property": ""}, ("property", "format")),
        ({"property": "a\0"}, ("property", "format")),
        ({"filters": ["eu"]}, ("filters", "type")),
        ({"filters": {"region": []}}, ("filters", "format")),
        ({"filters": {"region": [1]}}, ("filters", "format")),
        ({"timing": "advance", "aggregation": "last"}, ("timing", "not-as-recorded")),
        ({"timing": "advance", "aggregation": "daily_level"}, ("timing", "not-as-recorded")),
        ({"timing": "advance", "credits": {"per_unit": "1"}}, ("credits", "not-as-recorded")),
        ({"timing": "later"}, ("timing", "choice")),
        ({"timing": 3}, ("timing", "choice")),
        ({"proration": "hour"}, ("proration", "choice")),
        ({"bill_last_day": "yes"}, ("bill_last_day", "type")),
        ({"minimum": "10", "maximum": "9.99"}, ("maximum", "below-minimum")),
        ({"tax_rate": "-1"}, ("tax_rate", "negative")),
        ({"tax_rate": "100.1"}, ("tax_rate", "too-large")),
        ({"tax_category": "Z", "tax_rate": "19"}, ("tax_rate", "rate-not-for-category")),
        ({"tax_category": "a b"}, ("tax_category", "format")),
        ({"key": None}, ("key", "required")),
        ({"key": "a b"}, ("key", "format")),
        ({"key": 7}, ("key", "format")),
        ({"kind": None}, ("kind", "required")),
        ({"kind": "once"}, ("kind", "choice")),
        ({"model": "tiered"}, ("model", "choice")),
        ({"currency": "EUR"}, ("currency", "unknown-field")),
        ({"a/b~c": 1}, ("a~1b~0c", "unknown-field")),
        ({"tiers": []}, ("tiers", "not-used")),
        ({"package_size": 10}, ("package_size", "not-used")),
        ({"rate": "1"}, ("rate", "not-used")),
        ({"fixed_amount": "1"}, ("fixed_amount", "not-used")),
        ({"free_events": 1}, ("free_events", "not-used")),
        ({"free_amount": "1"}, ("free_amount", "not-used")),
        ({"event_minimum": "1"}, ("event_minimum", "not-used")),
        ({"flat_fee_at_zero": True}, ("flat_fee_at_zero", "not-used")),
        ({"conversion": 1000}, ("conversion", "type")),
        ({"conversion": {}}, ("conversion/divide_by", "one-of")),
        ({"conversion": {"divide_by": "2", "multiply_by": "2"}}, ("conversion/divide_by", "one-of")),
        ({"conversion": {"divide_by": "0"}}, ("conversion/divide_by", "not-positive")),
        ({"conversion": {"divide_by": "1e3"}}, ("conversion/divide_by", "format")),
        ({"conversion": {"divide_by": "2", "rounding": "even"}}, ("conversion/rounding", "choice")),
        ({"conversion": {"divide_by": "2", "decimals": 2}}, ("conversion/decimals", "not-used")),
        ({"conversion": {"divide_by": "2", "rounding": "up", "decimals": 13}}, ("conversion/decimals", "format")),
        ({"conversion": {"divide_by": "2", "factor": "2"}}, ("conversion/factor", "unknown-field")),
    ],
)  # fmt: skip
def test_a_fault_names_its_field_and_rule(change: dict[str, Any], expected: tuple[str, str]) -> None:
    assert faults(UNIT | change) == [(f"/price/{expected[0]}", expected[1])]


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("flat", {"unit_amount": "1", "free_units": 1}, ("free_units", "not-used")),
        ("flat", {}, ("unit_amount", "required")),
        ("graduated", {}, ("tiers", "required")),
        ("volume", {}, ("tiers", "required")),
        ("graduated", {"tiers": [{"up_to": None, "unit_amount": "1"}], "unit_amount": "1"}, ("unit_amount", "not-used")),
        ("graduated", {"tiers": [{"up_to": None, "unit_amount": "1"}], "free_units": 1}, ("free_units", "not-used")),
        ("package", {"unit_amount": "1"}, ("package_size", "required")),
        ("package", {"unit_amount": "1", "package_size": 0}, ("package_size", "not-positive")),
        ("package", {"unit_amount": "1", "package_size": "0.000000000001"}, ("package_size", "too-small")),
        ("package", {"unit_amount": "1", "package_size": "0.000999"}, ("package_size", "too-small")),
        ("percentage", {}, ("rate", "required")),
        ("percentage", {"rate": "1", "unit_amount": "1"}, ("unit_amount", "not-used")),
        ("percentage", {"rate": "1", "free_events": 1.5}, ("free_events", "format")),
        ("percentage", {"rate": "1", "aggregation": "max"}, ("aggregation", "aggregation-not-for-model")),
        ("graduated_percentage", {}, ("tiers", "required")),
        ("flat", {"unit_amount": "1", "conversion": {"divide_by": "2"}}, ("conversion", "not-used")),
        ("flat", {"unit_amount": "1", "buckets": [BUCKET]}, ("buckets", "not-used")),
        ("unit", {"unit_amount": "1", "buckets": []}, ("buckets", "too-few")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET, BUCKET]}, ("buckets/1/key", "duplicate")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET | {"filters": {}}]}, ("buckets/0/filters", "required")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET | {"filters": {"a": 1}}]}, ("buckets/0/filters", "format")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET | {"unit_amount": None}]}, ("buckets/0/unit_amount", "required")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET | {"rate": "1"}]}, ("buckets/0/rate", "unknown-field")),
        ("unit", {"unit_amount": "1", "buckets": [7]}, ("buckets/0", "type")),
        ("unit", {"unit_amount": "1", "buckets": [BUCKET], "free_units": 2}, ("free_units", "not-with-buckets")),
        (
            "unit",
            {"unit_amount": "1", "buckets": [BUCKET], "credits": {"per_unit": "1"}},
            ("credits", "not-with-buckets"),
        ),
        ("volume", {"tiers": [{"unit_amount": "1"}], "flat_fee_at_zero": True}, ("flat_fee_at_zero", "not-used")),
        ("graduated", {"tiers": [{"unit_amount": "1"}], "flat_fee_at_zero": 1}, ("flat_fee_at_zero", "type")),
        ("graduated", {"tiers": [{"unit_amount": "1", "package_size": "0"}]}, ("tiers/0/package_size", "not-positive")),
        ("graduated_percentage", {"tiers": [{"rate": "1", "package_size": "2"}]}, ("tiers/0/package_size", "not-used")),
        (
            "graduated",
            {"tiers": [{"unit_amount": "1", "package_size": "2"}], "credits": {"per_unit": "1"}},
            ("credits", "credits-not-for-packages"),
        ),
        ("unit", DAILY | {"bill_last_day": True}, ("bill_last_day", "not-with-daily-level")),
        ("unit", DAILY | {"proration": "second"}, ("proration", "not-with-daily-level")),
        ("unit", DAILY | {"credits": {"per_unit": "1"}}, ("credits", "not-with-daily-level")),
        ("unit", DAILY | {"conversion": {"divide_by": "2"}}, ("conversion", "not-with-daily-level")),
        ("flat", {"unit_amount": "1", "group_by": ["region"]}, ("group_by", "not-used")),
        ("unit", {"unit_amount": "1", "group_by": "region"}, ("group_by", "type")),
        ("unit", {"unit_amount": "1", "group_by": []}, ("group_by", "too-few")),
        ("unit", {"unit_amount": "1", "group_by": ["a", "b", "c", "d", "e", "f"]}, ("group_by", "too-many")),
        ("unit", {"unit_amount": "1", "group_by": ["a", 1]}, ("group_by", "format")),
        ("unit", {"unit_amount": "1", "group_by": ["x" * 65]}, ("group_by", "format")),
        ("unit", {"unit_amount": "1", "group_by": ["region", "region"]}, ("group_by", "duplicate")),
        ("unit", DAILY | {"group_by": ["region"]}, ("group_by", "not-with-levels")),
        ("unit", {"unit_amount": "1", "aggregation": "weighted_sum", "group_by": ["region"]}, ("group_by", "not-with-levels")),
        ("unit", {"unit_amount": "1", "group_by": ["region"], "credits": {"per_unit": "1"}}, ("credits", "not-with-groups")),
        (
            "graduated",
            {"tiers": [{"unit_amount": "1"}], "group_by": ["region"], "flat_fee_at_zero": True},
            ("flat_fee_at_zero", "not-with-groups"),
        ),
        ("percentage", {"rate": "1", "event_minimum": "2", "event_maximum": "1"}, ("event_maximum", "below-minimum")),
        ("percentage", {"rate": "1", "conversion": {"divide_by": "2"}}, ("conversion", "not-used")),
    ],
)
def test_only_what_the_model_uses_may_be_given(model: str, given: dict[str, Any], expected: tuple[str, str]) -> None:
    base = {"key": "api", "kind": "usage", "model": model, "meter": "calls", "aggregation": "sum"}
    assert faults(base | given) == [(f"/price/{expected[0]}", expected[1])]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"meter": "calls"}, ("meter", "not-used")),
        ({"aggregation": "sum"}, ("aggregation", "not-used")),
        ({"filters": {"a": "b"}}, ("filters", "not-used")),
        ({"property": "p"}, ("property", "not-used")),
        ({"model": "unit", "conversion": {"divide_by": "2"}}, ("conversion", "not-used")),
        ({"model": "unit", "buckets": [BUCKET]}, ("buckets", "not-used")),
        ({"model": "unit", "group_by": ["region"]}, ("group_by", "not-used")),
        ({"model": "percentage", "unit_amount": None, "rate": "1"}, ("model", "model-needs-usage")),
    ],
)
def test_a_recurring_price_measures_nothing(change: dict[str, Any], expected: tuple[str, str]) -> None:
    assert faults(SEAT | change) == [(f"/price/{expected[0]}", expected[1])]


def test_all_faults_are_named_at_once() -> None:
    assert faults(UNIT | {"unit_amount": "-1", "aggregation": None, "colour": "red", "tax_rate": "x"}) == [
        ("/price/colour", "unknown-field"),
        ("/price/tax_rate", "format"),
        ("/price/unit_amount", "negative"),
        ("/price/aggregation", "meter-without-aggregation"),
    ]


# Lists --------------------------------------------------------------------------------


def test_the_faults_of_several_prices_say_which() -> None:
    with pytest.raises(PriceInvalid) as caught:
        parse_prices([SEAT, UNIT | {"unit_amount": "-1"}, SEAT, 5])
    assert [(error.pointer, error.code) for error in caught.value.errors] == [
        ("/prices/1/unit_amount", "negative"),
        ("/prices/3", "type"),
        ("/prices/2/key", "duplicate"),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [([], "too-few"), ([SEAT] * 101, "too-many"), ({}, "not-a-list"), ("x", "not-a-list"), (None, "null")],
)
def test_a_plan_has_some_prices(data: Any, code: str) -> None:
    with pytest.raises(PriceInvalid) as caught:
        parse_prices(data)
    assert [(error.pointer, error.code) for error in caught.value.errors] == [("/prices", code)]


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1", "-1", "flat", "usage"])
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@PROPERTY
@given(
    st.dictionaries(
        st.sampled_from(sorted(price_dict(parse_price(UNIT)) | {"tiers": 0, "filters": 0, "free_events": 0})), anything
    )
)
def test_no_input_does_anything_but_make_a_price_or_say_why_not(change: dict[str, Any]) -> None:
    try:
        price = parse_price(UNIT | change)
    except PriceInvalid as refused:
        named = [error.pointer for error in refused.errors]
    else:
        assert parse_price(price_dict(price)) == price
        return
    assert named
    assert all(pointer.startswith("/price") for pointer in named)


# Credits ---------------------------------------------------------------------------------------------

METERED = {"key": "calls", "kind": "usage", "model": "unit", "unit_amount": "0.02", "meter": "calls", "aggregation": "sum"}


def test_a_usage_price_may_take_credits():
    price = parse_price(METERED | {"credits": {"credit_type": "sms", "per_unit": "2.50"}})
    assert (price.credits.credit_type, price.credits.per_unit) == ("sms", Decimal("2.50"))
    assert price_dict(price)["credits"] == {"credit_type": "sms", "per_unit": "2.5"}
    assert parse_price(price_dict(price)) == price
    assert parse_price(METERED | {"credits": {"credit_type": None, "per_unit": "1"}}).credits.credit_type == "credits"
    assert parse_price(METERED | {"credits": None}).credits is None


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ("2.5", "/price/credits", "type"),
        ([], "/price/credits", "type"),
        ({}, "/price/credits/per_unit", "required"),
        ({"per_unit": 2.5}, "/price/credits/per_unit", "type"),
        ({"per_unit": "0"}, "/price/credits/per_unit", "not-positive"),
        ({"per_unit": "-1"}, "/price/credits/per_unit", "negative"),
        ({"per_unit": "NaN"}, "/price/credits/per_unit", "format"),
        ({"per_unit": "0.0000000000001"}, "/price/credits/per_unit", "too-many-decimals"),
        ({"per_unit": "1", "credit_type": "No Type"}, "/price/credits/credit_type", "format"),
        ({"per_unit": "1", "credit_type": 5}, "/price/credits/credit_type", "format"),
        ({"per_unit": "1", "unit": 5}, "/price/credits/unit", "unknown-field"),
    ],
)
def test_bad_credits_are_refused_by_field_and_rule(given, pointer, code):
    with pytest.raises(PriceInvalid) as refused:
        parse_price(METERED | {"credits": given})
    assert [(error.pointer, error.code) for error in refused.value.errors] == [(pointer, code)]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "flat"},
        {"model": "volume", "unit_amount": None, "tiers": [{"up_to": None, "unit_amount": "1"}]},
        {"model": "percentage", "unit_amount": None, "rate": "2"},
        {"model": "graduated_percentage", "unit_amount": None, "tiers": [{"up_to": None, "rate": "1"}]},
    ],
)
def test_models_without_a_price_per_unit_take_no_credits(changes):
    with pytest.raises(PriceInvalid) as refused:
        parse_price(METERED | {"credits": {"per_unit": "1"}} | changes)
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("/price/credits", "credits-not-for-model")]


def test_recurring_prices_take_no_credits():
    with pytest.raises(PriceInvalid) as refused:
        parse_price({"key": "base", "kind": "recurring", "model": "flat", "unit_amount": "1", "credits": {"per_unit": "1"}})
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("/price/credits", "not-used")]
