"""A void takes back all that is unspent, from every lot, by one entry."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import NothingToVoid
from ledger.rules.entries import Entry
from ledger.values import MAX_AMOUNT

pytestmark = pytest.mark.django_db


def void(key: str, **more: object) -> Entry:
    """Take back all unspent credits of ada."""
    return services.void(holder_id="ada", idempotency_key=key, actor="key:x", reason="closed", **more)  # type: ignore[misc]


def assert_clean() -> None:
    """Assert that the account breaks no law of the audit."""
    assert audit([connection.connection], holder_id="ada").findings == []


def test_it_takes_every_lot_in_burn_order_also_those_that_start_later_and_leaves_holds():
    later = timezone.now() + timedelta(days=1)
    services.grant(holder_id="ada", amount=10, priority=200, idempotency_key="1")
    services.grant(holder_id="ada", amount=20, effective_at=later, idempotency_key="2")
    services.grant(holder_id="ada", amount=5, source="promotional", idempotency_key="3")
    services.spend(holder_id="ada", amount=1, idempotency_key="4")
    services.hold(holder_id="ada", amount=3, idempotency_key="5")
    entry = void("void")
    assert (entry.kind, entry.amount, entry.balance, entry.held, entry.refers_to) == ("revoke", -31, 0, 3, None)
    assert entry.drawn == ((3, 1), (2, 20), (1, 10))
    assert void("void").replayed
    explained = reads.explanation("ada", "credits", entry.sequence)
    assert explained is not None
    assert explained["text"] == "The revocation took back 31 credits, all that was unspent."
    assert [lot["decision"] for lot in explained["lots"]] == ["revoked"] * 3
    # What a hold gives back is unspent again.
    services.release(holder_id="ada", hold=5, idempotency_key="6")
    assert void("again").amount == -3
    # A refund opens its lot again.
    services.refund(holder_id="ada", spend=4, idempotency_key="7")
    assert reads.balance("ada").balance == 1
    assert_clean()


def test_nothing_unspent_is_refused_and_recorded():
    services.grant(holder_id="ada", amount=10, idempotency_key="1")
    services.hold(holder_id="ada", amount=10, idempotency_key="2")
    with pytest.raises(NothingToVoid) as refused:
        void("void")
    assert refused.value.facts == {"held": 10}
    [recorded] = reads.refusals("ada")
    assert (recorded.code, recorded.operation) == ("nothing-to-void", "void")
    assert (reads.balance("ada").balance, reads.balance("ada").held) == (0, 10)
    with pytest.raises(NothingToVoid):
        services.void(holder_id="nobody", idempotency_key="void")
    assert_clean()


def test_a_debt_remains_and_a_dry_run_writes_nothing():
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="1")
    services.spend(holder_id="ada", amount=30, idempotency_key="2")
    later = timezone.now() + timedelta(days=1)
    services.grant(holder_id="ada", amount=20, effective_at=later, idempotency_key="3")
    assert void("dry", dry_run=True).balance == -30
    assert reads.balance("ada").sequence == 3
    assert void("void").balance == -30
    assert reads.balance("ada").owed == 30
    assert_clean()


def test_one_entry_takes_back_at_most_the_largest_amount():
    for number in range(3):
        services.grant(holder_id="ada", amount=MAX_AMOUNT - number, idempotency_key=f"g{number}")
    assert [void(f"v{number}").amount for number in range(3)] == [-MAX_AMOUNT, -MAX_AMOUNT, -(MAX_AMOUNT - 3)]
    assert reads.balance("ada").balance == 0
    assert_clean()
