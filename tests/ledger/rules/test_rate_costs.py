"""The cost of quantities: exact over all components, rounded up once."""

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import Invalid
from ledger.rules.rates import RatePrice, as_text, cost_of, quantities_of_all, quantity_words
from ledger.values import MAX_AMOUNT, Quantity

NAMES = st.sampled_from(["input", "cached", "output", "reasoning", "image", "search"])
AMOUNTS = st.integers(0, 20) | st.integers(0, MAX_AMOUNT)
PRICES = st.dictionaries(NAMES, st.builds(RatePrice, AMOUNTS, AMOUNTS.filter(bool)), min_size=1)
QUANTITIES = st.integers(0, MAX_AMOUNT) | st.decimals(0, MAX_AMOUNT - 1, places=12) | st.decimals(0, 3, places=12)


@given(prices=PRICES, data=st.data())
def test_the_cost_is_the_ceiling_of_the_exact_sum(prices, data):
    quantities = data.draw(st.dictionaries(st.sampled_from(sorted(prices)), QUANTITIES))
    exact = sum((Fraction(quantity) * prices[name].price / prices[name].per for name, quantity in quantities.items()), Fraction())
    assert cost_of(prices, quantities) == ceil(exact)


@given(prices=PRICES, data=st.data())
def test_quantities_are_kept_whole_and_read_back(prices, data):
    quantities = data.draw(st.dictionaries(st.sampled_from(sorted(prices)), QUANTITIES))
    kept = quantities_of_all(prices, quantities)
    assert list(kept) == list(prices)
    read = {name: Quantity().read(text) for name, text in kept.items()}
    assert read == {name: Decimal(quantities.get(name, 0)) for name in prices}
    assert cost_of(prices, read) == cost_of(prices, quantities)


def test_components_are_rounded_together_and_not_each():
    prices = {name: RatePrice(1, 3) for name in ("input", "output", "cached")}
    assert cost_of(prices, dict.fromkeys(prices, 1)) == 1
    assert cost_of(prices, {"input": Decimal("3.000000000001")}) == 2
    assert cost_of(prices, {"input": 0, "output": 0}) == 0
    assert cost_of(prices, {}) == 0


def test_a_component_that_the_rate_does_not_have_is_invalid():
    with pytest.raises(Invalid) as refused:
        quantities_of_all({"input": RatePrice(1, 1), "output": RatePrice(2, 1)}, {"inptu": 5})
    assert refused.value.facts == {
        "pointer": "/quantities/inptu",
        "rule": "unknown-component",
        "detail": "The rate has no such component; it has input, output.",
    }


@pytest.mark.parametrize(
    ("quantity", "text"),
    [(0, "0"), (100, "100"), (Decimal("1.50"), "1.5"), (Decimal("1E+2"), "100"), (Decimal("0.000000000001"), "0.000000000001")],
)
def test_a_quantity_is_kept_in_plain_digits(quantity, text):
    assert as_text(quantity) == text


def test_quantities_in_words_leave_out_what_was_not_used():
    assert quantity_words({"quantity": 1250}) == "1,250"
    assert quantity_words({"quantities": {"cached": "0", "input": "1200", "output": "350.5"}}) == "1,200 input, 350.5 output"
    assert quantity_words({"quantities": {"input": "0"}}) == "0"
