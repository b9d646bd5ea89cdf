"""What tokens cost."""

import pytest

from credit_ledger.tokens import TokenPrice


@pytest.mark.parametrize(
    ("prompt", "completion", "cost"),
    [(0, 0, 0), (1, 0, 1), (1000, 0, 3), (1001, 0, 4), (1000, 1000, 15), (100, 10, 1), (333, 1, 2), (10**12, 10**12, 15 * 10**9)],
)
def test_a_call_is_rounded_up_once(prompt: int, completion: int, cost: int) -> None:
    assert TokenPrice(prompt=3, completion=12).credits(prompt, completion) == cost


def test_at_least_one_credit_is_held() -> None:
    assert TokenPrice(prompt=0, completion=1).estimate(10, 0) == 1
    assert TokenPrice(prompt=0, completion=0).estimate(10, 10) == 0
    assert TokenPrice(prompt=3, completion=12).estimate(1000, 1000) == 15


@pytest.mark.parametrize("prices", [(-1, 0), (0, -1)])
def test_no_price_is_negative(prices: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        TokenPrice(*prices)
