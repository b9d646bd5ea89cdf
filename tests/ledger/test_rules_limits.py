"""The limits again, through the services: what is refused leaves the refusal on record and nothing else."""

import pytest
from django.db import connection

from ledger import selectors, services
from ledger.entry_rows import COLUMNS
from ledger.errors import BalanceLimit, LotLimit
from ledger.rules import MAX_BALANCE, Account, Lot
from ledger.rules.instants import to_us
from tests.benchmarks.histories import row

pytestmark = pytest.mark.django_db


def test_the_501st_open_lot_is_refused_and_only_the_refusal_is_written():
    for number in range(500):
        services.grant(holder_id="ada", amount=1, idempotency_key=f"g{number}")
    with pytest.raises(LotLimit) as refused:
        services.grant(holder_id="ada", amount=1, idempotency_key="one more")
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    assert selectors.balance("ada").sequence == 500
    [refusal] = selectors.refusals("ada")
    assert (refusal.idempotency_key, refusal.code, refusal.facts) == ("one more", "lot-limit", refused.value.facts)


def test_the_balance_reaches_the_largest_bigint_and_what_would_pass_it_is_refused():
    """By grants of 2^53-1 that would take a thousand entries; here one entry stands for them."""
    now_us = to_us(selectors.balance("ada").as_of)
    almost = MAX_BALANCE - 7
    first = Account("ada", "credits", now_us).next_entry("grant", almost, lots=(Lot(1, almost, now_us),))
    with connection.cursor() as cursor:
        places = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
        cursor.execute(f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({places})", row(first))
    with pytest.raises(BalanceLimit) as refused:
        services.grant(holder_id="ada", amount=8, idempotency_key="too much")
    assert refused.value.facts == {"balance": almost, "requested": 8, "limit": 2**63 - 1}
    assert selectors.balance("ada").sequence == 1
    assert [refusal.code for refusal in selectors.refusals("ada")] == ["balance-limit"]
    assert services.grant(holder_id="ada", amount=7, idempotency_key="exactly").balance == 2**63 - 1
