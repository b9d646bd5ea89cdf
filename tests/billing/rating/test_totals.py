"""From fees to the amount due, in one order: discounts, minimums, tax, credit notes, prepaid credits."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.totals import (
    CARRIED_REF,
    AppliedNote,
    CarriedCredit,
    CouponEffect,
    CouponTerms,
    CreditsUsed,
    Discount,
    Duration,
    FeeLine,
    Limit,
    MinimumFee,
    OpenCreditNote,
    Totals,
    apply_credit_notes,
    compute_totals,
    credits_for,
)
from tests.billing.rating.builders import PROPERTY

VAT = Decimal(19)


def fee_line(position: int, amount_minor: int, price_key: str = "", plan: str = "", rate: str = "19", **more: Any) -> FeeLine:
    """A recurring line with this net amount."""
    return FeeLine(position, amount_minor, "S", Decimal(rate), price_key, plan, **more)


def percent_coupon(code: str, value: str, **more: Any) -> CouponTerms:
    """A percentage coupon."""
    return CouponTerms(code, percent=Decimal(value), **more)


def amount_coupon(code: str, amount_minor: int, **more: Any) -> CouponTerms:
    """A coupon of an amount."""
    return CouponTerms(code, amount_minor=amount_minor, **more)


def only_prices(*keys: str) -> dict[str, frozenset[str]]:
    """The terms of a coupon that counts for these prices only."""
    return {"prices": frozenset(keys)}


def only_plans(*codes: str) -> dict[str, frozenset[str]]:
    """The terms of a coupon that counts for these plans only."""
    return {"plans": frozenset(codes)}


def minimum_of(minor: int, *positions: int, name: str = "min", **more: Any) -> Limit:
    """A minimum for the lines at these positions; for all where none are given."""
    return Limit(name, "S", VAT, minimum_minor=minor, positions=frozenset(positions) or None, **more)


def maximum_of(minor: int, *positions: int, name: str = "max", **more: Any) -> Limit:
    """A maximum for the lines at these positions; for all where none are given."""
    return Limit(name, "S", VAT, maximum_minor=minor, positions=frozenset(positions) or None, **more)


def discounts_of(totals: Totals) -> list[tuple[str, int, int]]:
    """Source, position and amount of each discount."""
    return [(d.source, d.position, d.amount_minor) for d in totals.discounts]


# The whole way ---------------------------------------------------------------------------------------


def test_an_invoice_goes_through_all_steps_in_order() -> None:
    totals = compute_totals(
        [fee_line(1, 10000, "seat", "pro"), fee_line(2, 5000, "api", "pro"), fee_line(3, 2000, "setup", rate="7")],
        coupons=[percent_coupon("TEN", "10"), amount_coupon("API5", 500, **only_prices("api"))],
        limits=[minimum_of(6000, 2)],
        credit_notes=[OpenCreditNote("CN-1", 1000), OpenCreditNote("CN-2", 500)],
        prepaid_minor=3000,
    )
    # API5: 5.00 off line 2, 45.00 left. TEN: 10 % of 100 + 45 + 20 = 16.50: 10.00, 4.50 and 2.00.
    assert totals.discounts == (
        Discount("API5", 2, 500),
        Discount("TEN", 1, 1000),
        Discount("TEN", 2, 450),
        Discount("TEN", 3, 200),
    )
    # Line 2 has 40.50 left: 19.50 are missing to its minimum of 60.00.
    assert totals.minimum_fees == (MinimumFee("min", 1950, "S", VAT),)
    # 7 % of 18.00 = 1.26; 19 % of 90.00 + 40.50 + 19.50 = 150.00 is 28.50.
    assert [(t.rate, t.base_minor, t.tax_minor) for t in totals.taxes] == [(Decimal(7), 1800, 126), (VAT, 15000, 2850)]
    assert (totals.subtotal_minor, totals.discount_minor, totals.tax_minor) == (18950, 2150, 2976)
    assert totals.total_minor == 18950 - 2150 + 2976 == 19776
    assert totals.credit_notes == (AppliedNote("CN-1", 1000), AppliedNote("CN-2", 500))
    assert (totals.prepaid_minor, totals.amount_due_minor) == (3000, 15276)


def test_prepaid_credits_pay_after_tax_and_do_not_lower_it() -> None:
    without, with_credits = compute_totals([fee_line(1, 10000)]), compute_totals([fee_line(1, 10000)], prepaid_minor=5000)
    assert without.taxes == with_credits.taxes
    assert (with_credits.tax_minor, with_credits.total_minor) == (1900, 11900)
    assert (with_credits.prepaid_minor, with_credits.amount_due_minor) == (5000, 6900)


def test_credit_notes_come_before_prepaid_credits() -> None:
    totals = compute_totals([fee_line(1, 10000)], credit_notes=[OpenCreditNote("CN-1", 11000)], prepaid_minor=5000)
    assert (totals.credit_notes_minor, totals.prepaid_minor, totals.amount_due_minor) == (11000, 900, 0)


def test_an_empty_invoice_is_nothing() -> None:
    totals = compute_totals([], coupons=[amount_coupon("A", 100)], prepaid_minor=50)
    assert (totals.total_minor, totals.amount_due_minor, totals.prepaid_minor, totals.taxes) == (0, 0, 0, ())


def test_two_lines_cannot_have_one_position() -> None:
    with pytest.raises(ValueError, match="same position"):
        compute_totals([fee_line(1, 1), fee_line(1, 2)])


# Coupons ---------------------------------------------------------------------------------------------


def test_coupons_for_a_metric_come_before_those_for_a_plan_before_general_ones() -> None:
    totals = compute_totals(
        [fee_line(1, 10000, "seat", "pro"), fee_line(2, 10000, "api", "pro"), fee_line(3, 10000, "api", "basic")],
        coupons=[
            percent_coupon("ALL", "50"),
            percent_coupon("PRO", "50", **only_plans("pro")),
            percent_coupon("API", "50", **only_prices("api")),
        ],
    )
    assert discounts_of(totals) == [
        ("API", 2, 5000), ("API", 3, 5000),  # half of 100 + 100
        ("PRO", 1, 5000), ("PRO", 2, 2500),  # half of the 100 + 50 that are left
        ("ALL", 1, 2500), ("ALL", 2, 1250), ("ALL", 3, 2500),  # half of 50 + 25 + 50
    ]  # fmt: skip


def test_percentages_apply_one_after_the_other() -> None:
    # 100 − 20 % = 80, − 10 % of that = 72; together it would be 70.
    totals = compute_totals([fee_line(1, 10000)], coupons=[percent_coupon("A", "20"), percent_coupon("B", "10")])
    assert discounts_of(totals) == [("A", 1, 2000), ("B", 1, 800)]


@pytest.mark.parametrize(
    ("coupons", "expected"),
    [
        # 10 off, then 10 % of the 90 left …
        ([amount_coupon("F", 1000), percent_coupon("P", "10")], [("F", 1, 1000), ("P", 1, 900)]),
        # … or 10 % first: the order given.
        ([percent_coupon("P", "10"), amount_coupon("F", 1000)], [("P", 1, 1000), ("F", 1, 1000)]),
        ([percent_coupon("P", "100"), amount_coupon("F", 1000)], [("P", 1, 10000)]),
    ],
)
def test_coupons_of_one_rank_apply_in_the_given_order(coupons: list[CouponTerms], expected: list[tuple[str, int, int]]) -> None:
    assert discounts_of(compute_totals([fee_line(1, 10000)], coupons=coupons)) == expected


@pytest.mark.parametrize(
    ("amounts", "coupon", "parts"),
    [
        ([1000, 1000, 1000], amount_coupon("C", 100), [34, 33, 33]),
        ([5000, 3000, 2000], amount_coupon("C", 999), [499, 300, 200]),  # 499.5, 299.7, 199.8: the two left over go to .8 and .7
        ([1, 1, 1], percent_coupon("C", "50"), [1, 1, 0]),  # 1.5 rounds to 2, once
        ([333, 333], percent_coupon("C", "0.1"), [1, 0]),  # 0.666
        ([1000, 500], amount_coupon("C", 5000), [1000, 500]),
    ],
)
def test_a_coupon_is_spread_over_what_is_left_and_adds_up(amounts: list[int], coupon: CouponTerms, parts: list[int]) -> None:
    totals = compute_totals([fee_line(position, amount) for position, amount in enumerate(amounts)], coupons=[coupon])
    assert [totals.discount_of(position) for position in range(len(amounts))] == parts


def test_a_coupon_takes_only_what_it_covers() -> None:
    lines = [
        fee_line(1, 1000, "seat", "pro"),
        fee_line(2, 1000, "api", "pro"),
        fee_line(3, 1000, "api", "basic"),
        fee_line(4, 1000, "api", "pro", discountable=False),
    ]
    both = amount_coupon("C", 9999, prices=frozenset({"api"}), plans=frozenset({"pro"}))
    assert discounts_of(compute_totals(lines, coupons=[both])) == [("C", 2, 1000)]


def test_credit_lines_are_not_discounted() -> None:
    assert discounts_of(compute_totals([fee_line(1, 10000), fee_line(2, -4000)], coupons=[percent_coupon("C", "10")])) == [
        ("C", 1, 1000)
    ]


@pytest.mark.parametrize(
    ("coupon", "fees", "use"),
    [
        # An amount used once carries its rest …
        (amount_coupon("C", 3000, duration=Duration.ONCE), [1000], CouponEffect("C", 1000, 2000, True, False)),
        (amount_coupon("C", 3000, duration=Duration.ONCE), [5000], CouponEffect("C", 3000, 0, True, True)),
        (amount_coupon("C", 3000, duration=Duration.ONCE), [3000], CouponEffect("C", 3000, 0, True, True)),
        (amount_coupon("C", 3000, duration=Duration.ONCE), [], CouponEffect("C", 0, 3000, False, False)),
        # … a recurring one does not …
        (amount_coupon("C", 3000, duration=Duration.RECURRING), [1000], CouponEffect("C", 1000, 0, True, False)),
        (amount_coupon("C", 3000, duration=Duration.RECURRING), [0], CouponEffect("C", 0, 0, False, False)),
        (amount_coupon("C", 3000, duration=Duration.FOREVER), [1000], CouponEffect("C", 1000, 0, True, False)),
        # … and a percentage has none.
        (percent_coupon("C", "50", duration=Duration.ONCE), [1000], CouponEffect("C", 500, 0, True, True)),
        (percent_coupon("C", "50", duration=Duration.ONCE), [], CouponEffect("C", 0, 0, False, False)),
    ],
)
def test_what_becomes_of_a_coupon(coupon: CouponTerms, fees: list[int], use: CouponEffect) -> None:
    totals = compute_totals([fee_line(position, amount) for position, amount in enumerate(fees)], coupons=[coupon])
    assert totals.coupons == (use,)


def test_a_one_time_coupon_is_used_up_over_several_invoices() -> None:
    left, invoices = 2500, []
    for _ in range(4):
        use = compute_totals([fee_line(1, 1000)], coupons=[amount_coupon("C", left, duration=Duration.ONCE)]).coupons[0]
        invoices.append(use.applied_minor)
        left = use.rest_minor
    assert invoices == [1000, 1000, 500, 0]


def test_the_same_coupon_twice_is_two_coupons() -> None:
    totals = compute_totals(
        [fee_line(1, 1000)],
        coupons=[amount_coupon("C", 300, duration=Duration.ONCE), amount_coupon("C", 900, duration=Duration.ONCE)],
    )
    assert [(use.applied_minor, use.rest_minor) for use in totals.coupons] == [(300, 0), (700, 200)]


@pytest.mark.parametrize(
    "given",
    [{}, {"amount_minor": 1, "percent": Decimal(1)}, {"amount_minor": -1}, {"percent": Decimal(101)}, {"percent": Decimal(-1)}],
)
def test_a_coupon_is_an_amount_or_a_percentage(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="coupon"):
        CouponTerms("C", **given)


# Minimums and maximums -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "limit", "minimum_fees"),
    [
        ([3000], minimum_of(5000, 0), [2000]),
        ([5000], minimum_of(5000, 0), []),
        ([5001], minimum_of(5000, 0), []),
        ([0], minimum_of(5000, 0), [5000]),
        ([3000, 1000], minimum_of(5000), [1000]),  # a subscription's counts all lines
        ([3000, 1000], minimum_of(5000, 0), [2000]),
    ],
)
def test_a_minimum_is_reached_by_a_minimum_fee_line(amounts: list[int], limit: Limit, minimum_fees: list[int]) -> None:
    totals = compute_totals([fee_line(position, amount) for position, amount in enumerate(amounts)], limits=[limit])
    assert [minimum_fee.amount_minor for minimum_fee in totals.minimum_fees] == minimum_fees
    assert totals.subtotal_minor == sum(amounts) + sum(minimum_fees)
    assert totals.tax_minor == (totals.subtotal_minor * 19 + 50) // 100


def test_minimums_come_after_discounts() -> None:
    # 60 − 50 % = 30: 20 are missing to 50, and no coupon touches them.
    totals = compute_totals([fee_line(1, 6000)], coupons=[percent_coupon("C", "50")], limits=[minimum_of(5000, 1)])
    assert (totals.discount_minor, totals.minimum_fees[0].amount_minor, totals.taxes[0].base_minor) == (3000, 2000, 5000)


def test_a_prices_minimum_fee_counts_towards_the_subscriptions_minimum() -> None:
    wide = minimum_of(10000, name="subscription", subscription_wide=True)
    totals = compute_totals([fee_line(1, 1000), fee_line(2, 2000)], limits=[wide, minimum_of(5000, 1, name="price")])
    # 50 for the price and 20 make 70: 30 are missing to 100.
    assert [(t.name, t.amount_minor) for t in totals.minimum_fees] == [("price", 4000), ("subscription", 3000)]


@pytest.mark.parametrize(
    ("amounts", "limit", "expected"),
    [
        ([15000], maximum_of(10000, 0), [("max", 0, 5000)]),
        ([10000], maximum_of(10000, 0), []),
        ([9000, 6000], maximum_of(10000), [("max", 0, 3000), ("max", 1, 2000)]),
        ([9000, 6000], maximum_of(0, 1), [("max", 1, 6000)]),
    ],
)
def test_a_maximum_is_kept_by_a_discount(amounts: list[int], limit: Limit, expected: list[tuple[str, int, int]]) -> None:
    totals = compute_totals([fee_line(position, amount) for position, amount in enumerate(amounts)], limits=[limit])
    assert discounts_of(totals) == expected
    assert totals.subtotal_minor - totals.discount_minor == sum(amounts) - sum(amount for _, _, amount in expected)


def test_a_maximum_is_of_what_coupons_left() -> None:
    # 10 % of 150 goes off, and 135 is cut to 100.
    totals = compute_totals([fee_line(1, 15000)], coupons=[percent_coupon("C", "10")], limits=[maximum_of(10000, 1)])
    assert discounts_of(totals) == [("C", 1, 1500), ("max", 1, 3500)]
    assert (totals.coupons_of(1), totals.discount_of(1)) == (1500, 5000)


def test_the_minimum_fee_is_taxed_as_its_limit_says() -> None:
    totals = compute_totals([fee_line(1, 1000)], limits=[Limit("min", "S", Decimal(7), minimum_minor=3000)])
    assert [(t.rate, t.base_minor, t.tax_minor) for t in totals.taxes] == [(Decimal(7), 2000, 140), (VAT, 1000, 190)]


# Nothing below zero ----------------------------------------------------------------------------------


def test_a_credit_smaller_than_the_fees_lowers_the_tax_base() -> None:
    # An upgrade on Jan 11: −67.74 + 135.48 = 67.74; 19 % are 12.8706.
    totals = compute_totals([fee_line(1, -6774), fee_line(2, 13548)])
    assert (totals.subtotal_minor, totals.tax_minor, totals.total_minor, totals.carried) == (6774, 1287, 8061, ())


def test_a_credit_larger_than_the_fees_is_carried_with_its_tax() -> None:
    # A downgrade: −67.74 + 33.87 = −33.87; 19 % are 6.4353.
    totals = compute_totals([fee_line(1, -6774), fee_line(2, 3387)])
    assert totals.carried == (CarriedCredit("S", VAT, 3387, 644),)
    assert (totals.subtotal_minor, totals.tax_minor, totals.total_minor) == (0, 0, 0)
    assert (totals.carried_left_minor, totals.amount_due_minor) == (4031, 0)


def test_what_is_carried_pays_for_other_tax_categories_first() -> None:
    totals = compute_totals(
        [fee_line(1, -10000, rate="19"), fee_line(2, 5000, rate="7")], credit_notes=[OpenCreditNote("CN-1", 9999)]
    )
    # 100 + 19 go back; 50 + 3.50 are owed.
    assert totals.carried[0].total_minor == 11900
    assert totals.total_minor == 5350
    assert totals.credit_notes == (AppliedNote(CARRIED_REF, 5350),)
    assert (totals.carried_left_minor, totals.amount_due_minor) == (11900 - 5350, 0)


def test_credit_notes_are_taken_in_order_as_far_as_needed() -> None:
    notes = [OpenCreditNote("A", 300), OpenCreditNote("B", 0), OpenCreditNote("C", 500), OpenCreditNote("D", 500)]
    assert apply_credit_notes(700, notes) == (AppliedNote("A", 300), AppliedNote("C", 400))
    assert apply_credit_notes(0, notes) == ()


# Prepaid credits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due", "available", "unit_value", "currency", "expected"),
    [
        (1050, 100, "1", "EUR", CreditsUsed(10, 1000)),  # whole credits: 0.50 stays to pay
        (1050, 7, "1", "EUR", CreditsUsed(7, 700)),
        (1050, 10**6, "0.01", "EUR", CreditsUsed(1050, 1050)),
        (100, 57, "0.001", "EUR", CreditsUsed(50, 5)),  # 57 are worth 5.7 cents: 5 of them cost 50
        (100, 9, "0.001", "EUR", CreditsUsed(0, 0)),  # not worth a cent
        (5, 10, "0.015", "EUR", CreditsUsed(3, 4)),  # 3 are 4.5 cents, and 4 would be 6
        (99, 100, "1", "EUR", CreditsUsed(0, 0)),
        (1050, 100, "3", "JPY", CreditsUsed(100, 300)),
        (1050, 10**6, "0.001", "KWD", CreditsUsed(1050, 1050)),
        (0, 100, "1", "EUR", CreditsUsed(0, 0)),
        (-5, 100, "1", "EUR", CreditsUsed(0, 0)),
        (1050, 0, "1", "EUR", CreditsUsed(0, 0)),
    ],
)
def test_credits_pay_in_whole_units_and_never_too_much(
    due: int, available: int, unit_value: str, currency: str, expected: CreditsUsed
) -> None:
    assert credits_for(due, available_units=available, unit_value=Decimal(unit_value), currency=currency) == expected


def test_credits_without_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="worth"):
        credits_for(100, available_units=1, unit_value=Decimal(0), currency="EUR")


@PROPERTY
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.decimals("0.000001", 1000, places=6))
def test_credits_are_worth_what_they_pay(due: int, available: int, unit_value: Decimal) -> None:
    used = credits_for(due, available_units=available, unit_value=unit_value, currency="EUR")
    assert 0 <= used.units <= available
    assert 0 <= used.amount_minor <= due
    assert used.amount_minor <= used.units * unit_value * 100
    assert used.units == 0 or used.amount_minor > (used.units - 1) * unit_value * 100


# Properties ------------------------------------------------------------------------------------------

lines = st.lists(
    st.tuples(
        st.integers(-50_000, 100_000),
        st.sampled_from(["seat", "api"]),
        st.sampled_from(["pro", "basic"]),
        st.sampled_from(["0", "7", "19"]),
    ),
    max_size=8,
).map(lambda items: [fee_line(i, amount, key, plan, rate) for i, (amount, key, plan, rate) in enumerate(items)])
coupons = st.lists(
    st.builds(
        CouponTerms,
        st.sampled_from("ABC"),
        st.sampled_from(list(Duration)),
        st.integers(0, 200_000),
        st.none(),
        st.sampled_from([frozenset(), frozenset({"api"})]),
        st.sampled_from([frozenset(), frozenset({"pro"})]),
    )
    | st.builds(percent_coupon, st.sampled_from("DEF"), st.decimals(0, 100, places=2).map(str)),
    max_size=4,
)
limits = st.lists(
    st.builds(minimum_of, st.integers(0, 80_000), st.integers(0, 7))
    | st.builds(maximum_of, st.integers(0, 80_000), st.integers(0, 7))
    | st.builds(minimum_of, st.integers(0, 80_000), subscription_wide=st.just(True)),
    max_size=3,
)
notes = st.lists(st.builds(OpenCreditNote, st.sampled_from("XYZ"), st.integers(0, 50_000)), max_size=3)


@PROPERTY
@given(lines, coupons, limits, notes, st.integers(0, 100_000))
def test_figures_add_up_and_nothing_is_below_zero(
    fees: list[FeeLine], held: list[CouponTerms], bounds: list[Limit], credit_notes: list[OpenCreditNote], prepaid: int
) -> None:
    totals = compute_totals(fees, coupons=held, limits=bounds, credit_notes=credit_notes, prepaid_minor=prepaid)
    assert totals.total_minor == totals.subtotal_minor - totals.discount_minor + totals.tax_minor
    assert totals.amount_due_minor == totals.total_minor - totals.credit_notes_minor - totals.prepaid_minor
    assert totals.subtotal_minor - totals.discount_minor == sum(t.base_minor for t in totals.taxes)
    assert all(t.base_minor >= 0 and t.tax_minor >= 0 for t in totals.taxes)
    assert min(totals.discount_minor, totals.tax_minor, totals.total_minor, totals.prepaid_minor, totals.amount_due_minor) >= 0
    assert all(d.amount_minor > 0 for d in totals.discounts)
    assert all(totals.discount_of(line.position) <= max(line.amount_minor, 0) for line in fees)
    assert sum(use.applied_minor for use in totals.coupons) <= totals.discount_minor
    for coupon, use in zip(held, totals.coupons, strict=True):
        if coupon.amount_minor is not None:
            assert use.applied_minor + use.rest_minor <= coupon.amount_minor
    assert 0 <= totals.carried_left_minor <= sum(c.total_minor for c in totals.carried)


@PROPERTY
@given(lines, coupons)
def test_no_money_is_lost_between_what_is_due_and_what_is_carried(fees: list[FeeLine], held: list[CouponTerms]) -> None:
    totals = compute_totals(fees, coupons=held)
    net = sum(line.amount_minor for line in fees) - totals.discount_minor
    tax = totals.tax_minor - sum(c.tax_minor for c in totals.carried)
    assert totals.amount_due_minor - totals.carried_left_minor == net + tax


@PROPERTY
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=10), st.integers(1, 500_000))
def test_a_coupon_used_once_gives_all_of_its_amount_in_the_end(fees: list[int], amount: int) -> None:
    left, applied = amount, 0
    for amount_minor in fees:
        use = compute_totals([fee_line(1, amount_minor)], coupons=[amount_coupon("C", left, duration=Duration.ONCE)]).coupons[0]
        applied, left = applied + use.applied_minor, use.rest_minor
    assert applied == min(amount, sum(fees))
    assert left == amount - applied
