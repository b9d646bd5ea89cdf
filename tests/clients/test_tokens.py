"""Tokens as quantities of a rate."""

import pytest

from credit_ledger.tokens import Tokens

CALL = Tokens(prompt=1200, cached=300, cache_write=100, completion=400, reasoning=150)
ALL = ("input", "cached", "cache_write", "output", "reasoning")


@pytest.mark.parametrize(
    ("components", "quantities"),
    [
        (("input", "output"), {"input": 1200, "output": 400}),
        (("input", "cached", "output"), {"input": 900, "cached": 300, "output": 400}),
        (("input", "output", "reasoning"), {"input": 1200, "output": 250, "reasoning": 150}),
        (ALL, {"input": 800, "cached": 300, "cache_write": 100, "output": 250, "reasoning": 150}),
    ],
)
def test_each_token_is_counted_once_by_the_components_that_the_rate_has(
    components: tuple[str, ...], quantities: dict[str, int]
) -> None:
    assert CALL.quantities(components) == quantities
    assert sum(quantities.values()) == 1600


def test_what_was_not_used_is_0_and_nothing_is_below() -> None:
    assert Tokens(prompt=5, completion=0, cached=9).quantities(ALL) == {
        "input": 0, "output": 0, "cached": 9, "cache_write": 0, "reasoning": 0,
    }  # fmt: skip
