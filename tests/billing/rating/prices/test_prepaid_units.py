"""Which units credits cover: free ones never, whole ones, none twice, and never for more credits than there are."""

from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.prices.prepaid_units import (
    NOTHING_COVERED,
    Coverage,
    CreditSpend,
    afford,
    covered_of,
    covered_snapshot,
    credits_for,
    cut,
    extend,
    joined,
    quote_covered,
    units_at,
    units_of,
)
from billing.rating.prices.price import Price
from billing.rating.prices.pricing import quote, rate, rate_uncovered
from tests.billing.rating.builders import PROPERTY, usage_price

PLENTY = 10**12


def of_units(per_unit: str = "2.5", **given: Any) -> Price:
    """0.02 per unit, or that many credits."""
    return usage_price("unit", unit_amount="0.02", credits={"per_unit": per_unit}, **given)


def in_tiers(per_unit: str = "1", **given: Any) -> Price:
    """Two tiers, the first up to 100 units, or that many credits per unit."""
    tiers = [{"up_to": 100, "unit_amount": "0.10", "flat_amount": "1.00"}, {"up_to": None, "unit_amount": "0.05"}]
    return usage_price("graduated", **({"tiers": tiers, "credits": {"per_unit": per_unit}} | given))


def in_packages(per_unit: str = "40", **given: Any) -> Price:
    """5.00 for ten units, or that many credits."""
    return usage_price("package", unit_amount="5.00", package_size=10, credits={"per_unit": per_unit}, **given)


def covered_of_first(price: Price, total: Any, available: int) -> Coverage:
    """What credits cover of the first `total` units of a period."""
    return extend(price, NOTHING_COVERED, billed=Fraction(0), total=Fraction(total), available=available)


# Worked examples -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "available", "units", "taken"),
    [
        ("100", 250, "100", 250),
        ("100", 249, "99", 248),  # 99 x 2.5 = 247.5
        ("100", 2, "0", 0),
        ("100", 0, "0", 0),
        ("3", 100, "3", 8),  # 7.5, rounded up
        ("3.2", 8, "3.2", 8),  # all of it: 3.2 x 2.5 = 8
        ("3.4", 8, "3", 8),  # 8.5 would be 9: whole units then
        ("0", 10, "0", 0),
        ("-5", 10, "0", 0),
    ],
)
def test_all_units_or_whole_ones_are_covered_and_credits_are_rounded_up(total, available, units, taken):
    coverage = covered_of_first(of_units(), total, available)
    assert (units_of(of_units(), coverage), coverage.credits) == (Fraction(units), taken)


def test_a_unit_may_take_a_fraction_of_a_credit():
    # 1 credit for 1000 units: 1 covers 1000, and of 1500 two are needed.
    price = of_units("0.001")
    assert covered_of_first(price, 1500, 1) == Coverage(((Fraction(0), Fraction(1000)),), 1)
    assert covered_of_first(price, 1500, 2) == Coverage(((Fraction(0), Fraction(1500)),), 2)


def test_credits_are_rounded_once_for_a_period_in_however_many_parts():
    # At 2.5 credits a unit, one unit costs 3. The second makes 5 in all, so 2 more. The third makes 7.5, so 8 in all, 3 more.
    price, coverage, spent = of_units(), NOTHING_COVERED, []
    for used in (1, 2, 3):
        following = extend(price, coverage, billed=Fraction(used - 1), total=Fraction(used), available=PLENTY)
        spent.append(following.credits - coverage.credits)
        coverage = following
    assert spent == [3, 2, 3]
    assert coverage == covered_of_first(price, 3, PLENTY)


def test_what_was_invoiced_is_not_covered_later():
    price = of_units("1")
    coverage = covered_of_first(price, 100, 40)
    assert coverage.stretches == ((0, 40),)
    coverage = extend(price, coverage, billed=Fraction(100), total=Fraction(130), available=1000)
    assert coverage == Coverage(((Fraction(0), Fraction(40)), (Fraction(100), Fraction(130))), 70)
    assert rate_uncovered(price, 130, coverage.stretches, "EUR").amount_minor == 120


def test_leading_tiers_without_an_amount_are_free():
    tiers = [{"up_to": 50, "unit_amount": "0"}, {"up_to": None, "unit_amount": "0.10"}]
    assert covered_of_first(in_tiers(tiers=tiers), 80, 10).stretches == ((50, 60),)
    assert covered_of_first(in_tiers(tiers=[{"up_to": None, "unit_amount": "0"}]), 80, 10) == NOTHING_COVERED


def test_a_tiers_flat_fee_is_covered_with_the_units_that_enter_it():
    price = in_tiers()
    # 150: 100 x 0.10 + 1.00 + 50 x 0.05. Covered 120: 30 x 0.05. Covered 1: the fee of the first tier is covered with it.
    assert rate_uncovered(price, 150, covered_of_first(price, 150, 120).stretches, "EUR").exact == Fraction("1.5")
    assert rate_uncovered(price, 150, covered_of_first(price, 150, 1).stretches, "EUR").exact == Fraction("12.4")


def test_more_units_of_a_covered_package_take_no_credits():
    price = in_packages()
    coverage = covered_of_first(price, 15, 80)
    assert (coverage.stretches, coverage.credits) == (((0, 15),), 80)
    coverage = extend(price, coverage, billed=Fraction(15), total=Fraction(19), available=0)
    assert rate_uncovered(price, 19, coverage.stretches, "EUR").exact == 0
    coverage = extend(price, coverage, billed=Fraction(19), total=Fraction(21), available=39)
    assert rate_uncovered(price, 21, coverage.stretches, "EUR").exact == 5


def test_what_shrinks_gives_back_the_last_units_first():
    price = of_units("1")
    coverage = extend(price, covered_of_first(price, 100, 40), billed=Fraction(100), total=Fraction(130), available=1000)
    assert cut(price, coverage, Fraction(110)) == Coverage(((Fraction(0), Fraction(40)), (Fraction(100), Fraction(110))), 50)
    assert cut(price, coverage, Fraction(30)) == Coverage(((Fraction(0), Fraction(30)),), 30)
    assert cut(price, coverage, Fraction(0)) == NOTHING_COVERED
    assert cut(price, coverage, Fraction(500)) == coverage


def test_what_fewer_credits_afford_are_the_lowest_units():
    price = of_units("1")
    coverage = extend(price, covered_of_first(price, 100, 40), billed=Fraction(100), total=Fraction(130), available=1000)
    assert afford(price, coverage, 70) == coverage
    assert afford(price, coverage, 45).stretches == ((0, 40), (100, 105))
    assert afford(price, coverage, 3).stretches == ((0, 3),)
    assert afford(price, coverage, 0) == NOTHING_COVERED


def test_parts_that_become_one_keep_as_many_units():
    price = of_units("2.5")
    whole = joined(price, [covered_of_first(price, 3, PLENTY), NOTHING_COVERED, covered_of_first(price, 1, PLENTY)], Fraction(10))
    # 8 and 3 credits were spent; 4 units take 10.
    assert whole == Coverage(((Fraction(0), Fraction(4)),), 10)
    assert joined(price, [NOTHING_COVERED], Fraction(10)) == NOTHING_COVERED


def test_a_quote_splits_usage_into_units_paid_in_credits_and_money_for_the_rest():
    rating, coverage = quote_covered(of_units(), 150, "EUR", billed=0, available=250)
    assert (rating.amount_minor, units_of(of_units(), coverage), coverage.credits) == (100, 100, 250)
    rating, coverage = quote_covered(of_units(), 150, "EUR", billed=120, available=25)
    assert (rating.amount_minor, coverage.stretches) == (40, ((120, 130),))


def test_a_claim_stores_coverage_exactly():
    coverage = Coverage(((Fraction(1, 3), Fraction(7)),), 12)
    spends = (CreditSpend("h-1", "credits", 4, 5), CreditSpend("h-1", "credits", 9, 7))
    assert covered_of(covered_snapshot(coverage, spends)) == (coverage, spends)


# What always holds -----------------------------------------------------------------------------------

quantities = st.fractions(min_value=0, max_value=2000, max_denominator=8)
purses = st.integers(min_value=0, max_value=5000)
rates = st.sampled_from(["0.001", "0.3", "1", "2.5", "7"])
makers = st.sampled_from([of_units, in_tiers, in_packages])
frees = st.sampled_from([0, 7, 100])


def price_with(maker: Any, per_unit: str, free: int) -> Price:
    """A price of this kind, with that many credits per unit, and with free units where the kind has them."""
    price: Price = maker(per_unit) if maker is in_tiers else maker(per_unit, free_units=free)
    return price


@PROPERTY
@given(makers, rates, frees, quantities, purses)
def test_never_more_than_there_is_and_never_less_than_could_be(maker, per_unit, free, total, available):
    price = price_with(maker, per_unit, free)
    coverage = covered_of_first(price, total, available)
    units, owed = units_of(price, coverage), units_at(price, total)
    assert 0 <= coverage.credits <= available
    assert coverage.credits == credits_for(price, units)
    assert 0 <= units <= owed
    # One more whole unit would have been too many credits, or there is none.
    if units < owed:
        assert credits_for(price, min(units + 1, owed)) > available
    assert all(lower >= free or maker is in_tiers for lower, _ in coverage.stretches)


@PROPERTY
@given(makers, rates, frees, st.lists(quantities, min_size=1, max_size=5), st.lists(purses, min_size=5, max_size=5))
def test_parts_cover_nothing_twice_and_the_money_is_for_what_is_left(maker, per_unit, free, uses, available):
    price = price_with(maker, per_unit, free)
    coverage, billed, money, spent = NOTHING_COVERED, Fraction(0), Fraction(0), 0
    for more, purse in zip(uses, available, strict=False):
        following = extend(price, coverage, billed=billed, total=billed + more, available=purse)
        assert 0 <= following.credits - coverage.credits <= purse
        new_money = rate_uncovered(price, billed + more, following.stretches, "EUR").exact
        assert new_money >= money
        spent += following.credits - coverage.credits
        coverage, billed, money = following, billed + more, new_money
    stretches = coverage.stretches
    assert all(lower < upper for lower, upper in stretches)
    assert all(before[1] <= after[0] for before, after in pairwise(stretches))
    # Credits and money together are for every unit, once.
    covered_money = sum((quote(price, upper, "EUR", lower).exact for lower, upper in stretches), Fraction(0))
    assert money + covered_money == rate(price, billed, "EUR").exact
    assert spent == coverage.credits == ceil(Fraction(per_unit) * units_of(price, coverage))


@PROPERTY
@given(makers, rates, frees, st.lists(quantities, min_size=1, max_size=6))
def test_with_enough_credits_usage_in_parts_takes_as_many_credits_as_usage_at_once(maker, per_unit, free, uses):
    price = price_with(maker, per_unit, free)
    coverage, billed = NOTHING_COVERED, Fraction(0)
    for more in uses:
        coverage = extend(price, coverage, billed=billed, total=billed + more, available=PLENTY)
        billed += more
    whole = covered_of_first(price, billed, PLENTY)
    assert (units_of(price, coverage), coverage.credits) == (units_at(price, billed), whole.credits)
    assert rate_uncovered(price, billed, coverage.stretches, "EUR").exact == 0


@PROPERTY
@given(makers, rates, frees, quantities, purses, quantities, purses)
def test_shrinking_and_affording_leave_what_their_credits_cover(maker, per_unit, free, total, available, less, affordable):
    price = price_with(maker, per_unit, free)
    coverage = covered_of_first(price, total, available)
    for after in (cut(price, coverage, less), afford(price, coverage, affordable)):
        assert after.credits <= coverage.credits
        assert after.credits <= credits_for(price, units_of(price, after))
        assert units_of(price, after) <= units_of(price, coverage)
    assert afford(price, coverage, affordable).credits <= affordable
    assert all(upper <= less for _, upper in cut(price, coverage, less).stretches)
