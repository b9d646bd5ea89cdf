"""The share of a purchase that a return covers, and the claim for what is gone."""

import random

import pytest

from billing.payments.purchase_shares import NOTHING, CreditShares, claim_of, share_of


@pytest.mark.parametrize(
    ("returned_minor", "covered", "expected"),
    [
        (2000, NOTHING, CreditShares(1000, 100)),
        (1, NOTHING, CreditShares(0, 0)),
        (2, NOTHING, CreditShares(1, 0)),
        (500, NOTHING, CreditShares(250, 25)),
        (1999, NOTHING, CreditShares(999, 99)),
        (2000, CreditShares(999, 99), CreditShares(1, 1)),
        (3000, NOTHING, CreditShares(1000, 100)),
        (500, CreditShares(251, 25), CreditShares(0, 0)),
    ],
)
def test_a_return_covers_credits_in_proportion_and_the_last_one_the_rest(
    returned_minor: int, covered: CreditShares, expected: CreditShares
) -> None:
    assert share_of(CreditShares(1000, 100), paid_minor=2000, returned_minor=returned_minor, covered=covered) == expected


def test_returns_of_all_the_money_cover_all_credits_however_they_are_split() -> None:
    chance = random.Random(27)
    for _ in range(2000):
        bought, paid = CreditShares(chance.randint(1, 10**6), chance.randint(0, 10**4)), chance.randint(1, 10**5)
        returned, covered = 0, NOTHING
        while returned < paid:
            returned = min(paid, returned + chance.randint(1, paid))
            share = share_of(bought, paid_minor=paid, returned_minor=returned, covered=covered)
            assert share.credits >= 0 <= share.bonus
            covered += share
        assert covered == bought


@pytest.mark.parametrize(
    ("share", "taken", "claim_minor"),
    [
        (CreditShares(250, 25), CreditShares(250, 0), 0),
        (CreditShares(250, 25), CreditShares(0, 25), 500),
        (CreditShares(250, 0), CreditShares(100, 0), 300),
        (CreditShares(3, 0), CreditShares(2, 0), 167),
        (CreditShares(0, 25), CreditShares(0, 0), 0),
    ],
)
def test_the_claim_is_the_money_for_purchased_credits_that_are_gone(
    share: CreditShares, taken: CreditShares, claim_minor: int
) -> None:
    assert claim_of(500, share, taken) == claim_minor
