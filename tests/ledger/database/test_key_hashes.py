"""Idempotency keys are looked up by 8 bytes of their SHA-256. Two keys with the same 8 bytes are never confused."""

import pytest
from django.db import connection

from ledger import reads, services
from ledger.errors import IdempotencyKeyReused, InsufficientCredits
from ledger.journal import key_hash
from ledger.models import Entry
from ledger.rules.requests import SpendRequest
from ledger.staff.entry_search import search

pytestmark = pytest.mark.django_db

ONE, OTHER = "ad9c22dac5fa3bb4", "fd58ba3ca2b6fe39"
"""Two keys with the same hash, found by trying 6.3 · 10^9 keys."""

KEYS = {
    "order-7781": "ae0b11d61425f2b1",
    ONE: "301d84c2f6ef840f",
    OTHER: "301d84c2f6ef840f",
    "\\x00": "619a4dec6900da1f",
    "\\": "a9253dc8529dd214",
    "a\\b\\\\c d'%s": "bdcba480165bee0c",
}


@pytest.fixture
def ada():
    """The holder ada has 100 credits."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g")


def entry_count() -> int:
    """How many entries there are."""
    return Entry.objects.count()


@pytest.mark.parametrize("key", KEYS)
def test_the_server_and_the_rules_compute_the_same_hash_of_a_key(key):
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_key_hash(%s)", [key])
        [(found,)] = cursor.fetchall()
    assert (bytes(found).hex(), key_hash(key).hex()) == (KEYS[key], KEYS[key])


def test_a_key_with_the_hash_of_another_key_is_refused_and_nothing_is_written(ada):
    spent = services.spend(holder_id="ada", amount=30, idempotency_key=ONE)
    before = entry_count()
    for amount in (30, 31, 1_000):
        with pytest.raises(IdempotencyKeyReused) as refused:
            services.spend(holder_id="ada", amount=amount, idempotency_key=OTHER)
        assert refused.value.facts == {"idempotency_key": OTHER}
    assert entry_count() == before
    again = services.spend(holder_id="ada", amount=30, idempotency_key=ONE)
    assert (again.replayed, again.sequence) == (True, spent.sequence)


def test_keys_of_different_holders_do_not_collide(ada):
    services.grant(holder_id="bob", amount=10, idempotency_key=ONE)
    assert services.spend(holder_id="ada", amount=30, idempotency_key=OTHER).balance == 70


def test_a_key_with_the_hash_of_a_refusals_key_is_refused_and_the_refusal_is_replayed(ada):
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=500, idempotency_key=OTHER)
    before = entry_count()
    with pytest.raises(IdempotencyKeyReused):
        services.spend(holder_id="ada", amount=30, idempotency_key=ONE)
    with pytest.raises(InsufficientCredits) as again:
        services.spend(holder_id="ada", amount=500, idempotency_key=OTHER)
    assert again.value.replayed
    assert entry_count() == before


@pytest.mark.parametrize("stored_before", [True, False])
def test_a_batch_refuses_the_second_of_two_colliding_keys(ada, stored_before):
    if stored_before:
        services.spend(holder_id="ada", amount=5, idempotency_key=ONE)
    requests = [SpendRequest(holder_id="ada", idempotency_key=key, amount=5) for key in (ONE, OTHER, "another")]
    outcomes = services.batch(requests, mode="each", idempotency_key="b").outcomes
    assert [each.error and each.error.code for each in outcomes] == [None, "idempotency-key-reused", None]
    assert reads.balance("ada").balance == 90


def test_a_batch_refuses_a_key_with_the_hash_of_a_refusals_key(ada):
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=500, idempotency_key=OTHER)
    requests = [SpendRequest(holder_id="ada", idempotency_key=key, amount=amount) for key, amount in ((OTHER, 500), (ONE, 30))]
    outcomes = services.batch(requests, mode="each", idempotency_key="b").outcomes
    assert [each.error and each.error.code for each in outcomes] == ["insufficient-credits", "idempotency-key-reused"]
    assert outcomes[0].error.replayed


def test_the_search_by_key_finds_only_the_entry_with_the_same_text(ada):
    services.spend(holder_id="ada", amount=30, idempotency_key=ONE)
    services.grant(holder_id="bob", amount=10, idempotency_key=OTHER)
    assert [(row.holder_id, row.idempotency_key) for row in search(ONE, {}, "").rows] == [("ada", ONE)]
    assert [(row.holder_id, row.idempotency_key) for row in search(OTHER, {}, "").rows] == [("bob", OTHER)]
    assert search("\\", {}, "").rows == []
