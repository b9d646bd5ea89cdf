"""Factories: history of new holders by the use-cases, inside a transaction that is rolled back."""

import pytest
from django.db import connection
from django.test import TestCase

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import InsufficientCredits
from ledger.keys.models import ApiKey
from ledger.models import Entry
from ledger.rest.kit.authentication import forget_keys
from ledger.testing import GrantFactory, HoldFactory, SpendFactory, api_key, holder_with_credits


def test_each_holder_is_new_and_has_credits(db: None) -> None:
    first, second = holder_with_credits(100), holder_with_credits(5, credit_type="sms")
    assert first != second
    assert (reads.balance(first).available, reads.balance(second, credit_type="sms").available) == (100, 5)


def test_factories_take_the_arguments_of_their_use_case(db: None) -> None:
    grant = GrantFactory.create(holder_id="ada", amount=20, reason="welcome")
    assert (grant.holder_id, grant.amount, grant.reason, grant.sequence) == ("ada", 20, "welcome", 1)
    spend = SpendFactory.create(holder_id="ada", amount=3)
    assert (spend.amount, spend.balance) == (-3, 17)
    hold = HoldFactory.create()
    assert (hold.kind, hold.held, hold.balance) == ("hold", 10, 90)
    assert [entry.kind for entry in GrantFactory.create_batch(2)] == ["grant", "grant"]
    assert audit([connection.connection]).findings == []


def test_a_refusal_is_a_refusal_and_leaves_only_its_record(db: None) -> None:
    holder = holder_with_credits(5)
    with pytest.raises(InsufficientCredits):
        SpendFactory.create(holder_id=holder, amount=6)
    kinds = Entry.objects.filter(holder_id=holder).order_by("sequence").values_list("kind", flat=True)
    assert list(kinds) == ["grant", "refusal"]


def test_an_entry_cannot_be_built_without_being_stored(db: None) -> None:
    with pytest.raises(NotImplementedError, match="call the factory"):
        GrantFactory.build()
    assert not Entry.objects.exists()


def test_a_keys_secret_is_that_of_a_stored_key(db: None) -> None:
    forget_keys()
    secret = api_key("ledger:spend", holder_id="ada")
    (key,) = ApiKey.objects.filter(holder_id="ada")
    assert (key.scopes, len(secret) > 20) == (["ledger:spend"], True)


class HoldersOfAClass(TestCase):
    """Django's own class, whose tests share what `setUpTestData` writes."""

    holder: str

    @classmethod
    def setUpTestData(cls) -> None:
        cls.holder = holder_with_credits(100)

    def test_a_spend_is_undone_after_the_test(self) -> None:
        assert services.spend(holder_id=self.holder, amount=60, idempotency_key="job").balance == 40

    def test_another_spend_finds_what_the_class_has(self) -> None:
        assert services.spend(holder_id=self.holder, amount=60, idempotency_key="job").balance == 40
