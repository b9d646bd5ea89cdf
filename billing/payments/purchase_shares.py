"""How much of a purchase a return of money covers. Pure."""

from dataclasses import dataclass
from fractions import Fraction

from billing.rating.money import round_half_up


@dataclass(frozen=True, slots=True)
class CreditShares:
    """Purchased and promotional credits."""

    credits: int
    bonus: int

    def __add__(self, other: "CreditShares") -> "CreditShares":
        return CreditShares(self.credits + other.credits, self.bonus + other.bonus)

    def __sub__(self, other: "CreditShares") -> "CreditShares":
        return CreditShares(self.credits - other.credits, self.bonus - other.bonus)

    def __neg__(self) -> "CreditShares":
        return CreditShares(-self.credits, -self.bonus)


NOTHING = CreditShares(0, 0)


def share_of(bought: CreditShares, *, paid_minor: int, returned_minor: int, covered: CreditShares) -> CreditShares:
    """Return the credits that a return covers, beyond those that earlier returns cover.

    In proportion to all returned money, rounded down; a return of the rest covers all that is left, so that no credit is lost.

    Args:
        bought: the credits of the purchase.
        returned_minor: all money that was returned, this return included.
        covered: the credits that the returns before it cover.
    """
    part = min(returned_minor, paid_minor)
    target = CreditShares(bought.credits * part // paid_minor, bought.bonus * part // paid_minor)
    more = target - covered
    return CreditShares(max(0, more.credits), max(0, more.bonus))


def claim_of(amount_minor: int, share: CreditShares, taken: CreditShares) -> int:
    """Return the part of the returned money whose credits were gone already, in minor units. Promotional credits cost nothing."""
    if not share.credits:
        return 0
    return round_half_up(Fraction(amount_minor * (share.credits - taken.credits), share.credits))
