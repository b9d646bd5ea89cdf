"""The limits by the services: a refused request leaves its refusal as an entry and nothing else."""

import pytest

from ledger import reads, services
from ledger.errors import LotLimit
from ledger.rules import MAX_AMOUNT, MAX_BALANCE

pytestmark = pytest.mark.django_db


def test_the_501st_open_lot_is_refused_and_only_the_refusal_is_written():
    for number in range(500):
        services.grant(holder_id="ada", amount=MAX_AMOUNT, idempotency_key=f"g{number}")
    with pytest.raises(LotLimit) as refused:
        services.grant(holder_id="ada", amount=1, idempotency_key="one more")
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    found = reads.balance("ada")
    # The largest possible balance.
    assert (found.sequence, found.balance) == (501, MAX_BALANCE)
    [refusal] = reads.refusals("ada")
    assert (refusal.idempotency_key, refusal.code, refusal.facts) == ("one more", "lot-limit", refused.value.facts)
