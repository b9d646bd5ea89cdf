"""The bounds of the numbers that rating takes."""

from decimal import Decimal

import pytest

from billing.rating.limits import MAX_QUANTITY, check_quantity
from ledger.errors import Invalid


@pytest.mark.parametrize("quantity", [Decimal("-0.01"), MAX_QUANTITY + Decimal("0.01")])
def test_a_quantity_beyond_its_bounds_is_refused_by_its_field(quantity: Decimal) -> None:
    with pytest.raises(Invalid) as refused:
        check_quantity("/quantities/base", quantity)
    detail = f"must be 0 to {MAX_QUANTITY}"
    assert refused.value.facts == {"pointer": "/quantities/base", "rule": "out-of-range", "detail": detail}


@pytest.mark.parametrize("quantity", [Decimal(0), Decimal(MAX_QUANTITY)])
def test_a_quantity_at_its_bounds_is_taken(quantity: Decimal) -> None:
    check_quantity("/quantities/base", quantity)
