"""What is left of a lot gets other terms: the lot closes, and a new one opens, by one entry."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import EntryNotFound, Invalid, LotClosed
from ledger.rules.entries import Entry

pytestmark = pytest.mark.django_db

NOW = timezone.now().replace(microsecond=0)
SOON, LATER = NOW + timedelta(days=3), NOW + timedelta(days=300)


@pytest.fixture(autouse=True)
def _lots() -> None:
    """Lot 1: 100 that expire soon, promotional, priority 50. Lot 2: 10 that never expire."""
    services.grant(holder_id="ada", amount=100, source="promotional", expires_at=SOON, priority=50, idempotency_key="1")
    services.grant(holder_id="ada", amount=10, idempotency_key="2")


def reissue(key: str, **fields: object) -> Entry:
    """Give lot 1 other terms."""
    return services.reissue(**{"holder_id": "ada", "lot": 1, "idempotency_key": key, "actor": "key:x", **fields})  # type: ignore[misc]


def lots() -> list[tuple[object, ...]]:
    """The open lots: number, credits, expiry, priority, source."""
    return [(lot.grant, lot.remaining, lot.expires_at, lot.priority, lot.source) for lot in reads.balance("ada").lots]


def assert_clean() -> None:
    """Assert that nobody breaks a law of the audit."""
    for holder in ("ada", "bob"):
        assert audit([connection.connection], holder_id=holder).findings == []


def test_a_new_lot_has_the_credits_and_the_source_and_other_terms():
    services.spend(holder_id="ada", amount=30, idempotency_key="s")
    entry = reissue("r", expires_at=LATER)
    assert (entry.kind, entry.amount, entry.balance, entry.refers_to, entry.drawn) == ("reissue", 0, 80, 1, ((1, 70),))
    assert lots() == [(4, 70, LATER, 50, "promotional"), (2, 10, None, 100, "purchased")]
    assert reissue("r", expires_at=LATER).replayed
    # The same again, and again: each closes the lot before it.
    assert reissue("p", lot=4, priority=200).refers_to == 4
    assert lots() == [(2, 10, None, 100, "purchased"), (5, 70, LATER, 200, "promotional")]
    reissue("n", lot=5, never_expires=True, priority=0)
    assert lots()[0] == (6, 70, None, 0, "promotional")
    explained = reads.explanation("ada", "credits", entry.sequence)
    assert explained is not None
    assert explained["text"] == "The 70 credits left in lot 1 form a new lot with other terms."
    assert [(lot["grant"], lot["decision"]) for lot in explained["lots"]] == [(1, "reissued"), (4, "opened")]
    assert explained["refers_to"]["text"] == "The grant's lot has 0 of 100 credits left."
    assert_clean()


def test_held_and_refunded_credits_keep_the_terms_that_they_had():
    services.hold(holder_id="ada", amount=5, idempotency_key="h")
    services.spend(holder_id="ada", amount=7, idempotency_key="s")
    assert reissue("r", never_expires=True).drawn == ((1, 88),)
    services.release(holder_id="ada", hold=3, idempotency_key="rel")
    services.refund(holder_id="ada", spend=4, idempotency_key="ref")
    assert lots()[0] == (1, 12, SOON, 50, "promotional")
    assert_clean()


def test_the_new_lot_is_revoked_like_a_grant_and_received_credits_become_own_ones():
    reissue("r", priority=1)
    assert services.revoke(holder_id="ada", grant=3, amount=40, idempotency_key="v").refers_to == 3
    services.transfer(holder_id="ada", to="bob", amount=20, idempotency_key="t")
    other = services.reissue(holder_id="bob", lot=1, priority=7, idempotency_key="r")
    assert [lot.received for lot in other.lots] == [False]
    services.transfer(holder_id="ada", to="bob", amount=20, idempotency_key="t2")
    assert [lot.grant for lot in reads.balance("bob").lots] == [3, 2]
    assert_clean()


def test_a_lot_that_starts_later_keeps_its_start():
    start = NOW + timedelta(days=30)
    services.grant(holder_id="ada", amount=1, effective_at=start, idempotency_key="3")
    with pytest.raises(Invalid) as invalid:
        reissue("early", lot=3, expires_at=SOON)
    assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) == ("/expires_at", "order")
    entry = reissue("r", lot=3, expires_at=LATER)
    assert [lot.effective_at for lot in entry.lots if lot.grant == entry.sequence] == [start]
    assert_clean()


@pytest.mark.parametrize(
    ("fields", "pointer", "rule"),
    [
        ({}, "/expires_at", "required"),
        ({"expires_at": LATER, "never_expires": True}, "/never_expires", "not-both"),
        ({"expires_at": NOW - timedelta(days=1)}, "/expires_at", "past"),
        ({"expires_at": SOON, "priority": 50}, "/expires_at", "same"),
        ({"priority": -1}, "/priority", "too-small"),
    ],
)
def test_wrong_terms_are_invalid_and_nothing_is_written(fields, pointer, rule):
    with pytest.raises(Invalid) as invalid:
        reissue("r", **fields)
    assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) == (pointer, rule)
    assert reads.balance("ada").sequence == 2


def test_a_lot_that_is_not_open_is_refused_and_recorded():
    reissue("r", priority=1)
    before = lots()
    for lot, error in ((1, LotClosed), (99, EntryNotFound)):
        with pytest.raises(error):
            reissue(f"closed {lot}", lot=lot, priority=2)
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    with pytest.raises(LotClosed) as refused:
        reissue("a spend", lot=6, priority=2)
    assert refused.value.facts == {"sequence": 6}
    assert [each.code for each in reads.refusals("ada")] == ["lot-closed", "entry-not-found", "lot-closed"]
    assert [lot[0] for lot in lots()] == [lot[0] for lot in before]
    assert reissue("dry", lot=3, priority=2, dry_run=True).kind == "reissue"
    assert_clean()
