"""Batches: many operations in one transaction."""

import hashlib
import random

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import reads, services
from ledger.errors import IdempotencyKeyReused, InsufficientCredits
from ledger.models import Batch, Entry
from ledger.rules.requests import GrantRequest, RefundRequest, SpendRequest, TransferRequest
from ledger.services import batches
from ledger.values import encode_json

pytestmark = pytest.mark.django_db


def four_operations(spend=30):
    """A grant, a spend, a refund and a transfer of ada, which depend on each other."""
    return [
        GrantRequest(holder_id="ada", idempotency_key="1", amount=100),
        SpendRequest(holder_id="ada", idempotency_key="2", amount=spend),
        RefundRequest(holder_id="ada", idempotency_key="3", spend=2, amount=5),
        TransferRequest(holder_id="ada", idempotency_key="4", to="bob", amount=10),
        SpendRequest(holder_id="bob", idempotency_key="5", amount=3),
    ]


def test_a_batchs_digest_is_over_its_mode_keys_and_requests_as_json():
    """A stored one must still be that of the batch when it is sent again, whatever made it."""
    keys = [chr(code) for code in range(ord(" "), ord("~") + 1)]
    requests = [SpendRequest(holder_id="ada", idempotency_key=key, amount=1) for key in keys]
    asked = [[each.idempotency_key, each.digest().hex()] for each in requests] + [["", "ab12"]]
    expected = hashlib.sha256(encode_json(["each", asked]).encode()).digest()[:16]
    assert batches._digest([*requests, services.RejectedOperation(content="ab12", result="{}")], "each") == expected


@pytest.mark.parametrize("mode", ["atomic", "each"])
def test_later_operations_see_what_earlier_ones_did(mode):
    answered = services.batch(four_operations(), mode=mode, idempotency_key="b")
    assert [outcome.entry.balance for outcome in answered.outcomes] == [100, 70, 75, 65, 7]
    assert not answered.replayed
    assert not answered.is_rejected
    again = services.batch(four_operations(), mode=mode, idempotency_key="b")
    assert again.replayed
    assert [outcome.entry._replace(replayed=False) for outcome in again.outcomes] == [each.entry for each in answered.outcomes]
    with pytest.raises(IdempotencyKeyReused):
        services.batch(four_operations(spend=31), mode=mode, idempotency_key="b")
    assert Entry.objects.filter(holder_id__in=["ada", "bob"]).count() == 6


def test_an_atomic_batch_is_rejected_whole():
    answered = services.batch(four_operations(spend=101), mode="atomic", idempotency_key="b")
    assert answered.is_rejected
    assert isinstance(answered.outcomes[1].error, InsufficientCredits)
    assert [outcome.entry for outcome in answered.outcomes] == [None] * 5
    assert Entry.objects.filter(holder_id="ada").count() == 0
    services.grant(holder_id="ada", amount=1000, idempotency_key="top-up")
    again = services.batch(four_operations(spend=101), mode="atomic", idempotency_key="b")
    assert (again.is_rejected, again.replayed) == (True, True)
    assert again.outcomes[1].error.facts == answered.outcomes[1].error.facts


def test_each_goes_on_after_a_refusal():
    answered = services.batch(four_operations(spend=101), mode="each", idempotency_key="b")
    assert [outcome.error.code if outcome.error else outcome.entry.sequence for outcome in answered.outcomes] == [
        1,
        "insufficient-credits",
        "not-refundable",
        4,
        2,
    ]
    assert Batch.objects.filter(idempotency_key="b").count() == 1


def test_an_operation_can_expect_the_account_as_it_was_seen():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    requests = [
        SpendRequest(holder_id="ada", idempotency_key=str(n), amount=1, expected_sequence=expected)
        for n, expected in enumerate([1, 1, 2])
    ]
    answered = services.batch(requests, mode="each", idempotency_key="b")
    assert [outcome.error.code if outcome.error else outcome.entry.sequence for outcome in answered.outcomes] == [
        2,
        "account-moved-on",
        3,
    ]
    assert reads.balance("ada").balance == 98


# Transfers are decided and stored as a set -----------------------------------------------------------


def a_days_operations(seed, names):
    """Grants, spends, holds and transfers between four holders, some of which are refused."""
    pick = random.Random(seed)
    operations = []
    for number in range(60):
        holder, to = pick.sample(names, 2)
        common = {"holder_id": holder, "idempotency_key": str(number), "amount": pick.randint(1, 40)}
        operations.append(
            pick.choice(
                [
                    GrantRequest(**common, priority=pick.choice([100, 7]), source=pick.choice(["purchased", "promotional"])),
                    SpendRequest(**common),
                    TransferRequest(**common, to=to),
                    TransferRequest(**common, to=to),
                ]
            )
        )
    return operations


def entries_by_holder(names):
    """All entries of each holder, without what differs from one run to another: names and instants."""
    numbered = {name: f"holder {number}" for number, name in enumerate(names)}
    return [
        [
            (
                *(entry.sequence, entry.kind, entry.amount, entry.balance, entry.drawn, entry.idempotency_key),
                [[lot[0], lot[1], *lot[3:]] for lot in entry.lots],
                entry.counterpart and {**entry.counterpart, "holder_id": numbered[entry.counterpart["holder_id"]]},
            )
            for entry in Entry.objects.filter(holder_id=name).order_by("sequence")
        ]
        for name in names
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_with_transfers_has_the_same_effect_as_its_operations_one_by_one(seed):
    together, alone = [f"a{number}" for number in range(4)], [f"b{number}" for number in range(4)]
    services.batch(a_days_operations(seed, together), mode="each", idempotency_key="b")
    for operation in a_days_operations(seed, alone):
        services.batch([operation], mode="each", idempotency_key=operation.idempotency_key)
    happened = entries_by_holder(together)
    assert happened == entries_by_holder(alone)
    assert {entry[1] for account in happened for entry in account} >= {"grant", "spend", "transfer_in", "transfer_out", "refusal"}


def test_a_batch_of_a_hundred_transfers_takes_as_many_statements_as_one_of_ten():
    holders = [f"team.{number}" for number in range(30)]
    services.batch(
        [GrantRequest(holder_id=each, idempotency_key="g", amount=100) for each in holders], mode="each", idempotency_key="g"
    )

    def transfers(count):
        requests = [
            TransferRequest(holder_id=holders[each % 10], to=holders[10 + each % 20], amount=1, idempotency_key=f"{count}/{each}")
            for each in range(count)
        ]
        with CaptureQueriesContext(connection) as sent:
            answered = services.batch(requests, mode="each", idempotency_key=f"of {count}")
        assert all(outcome.entry for outcome in answered.outcomes)
        return len(sent)

    assert transfers(10) == transfers(100)


def test_the_outcomes_of_a_batch_are_looked_through_once_and_not_for_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def is_rejected(self: batches.BatchResult) -> bool:
        looked.append(len(self.outcomes))
        return False

    monkeypatch.setattr(batches.BatchResult, "is_rejected", property(is_rejected))
    request = GrantRequest(holder_id="a", credit_type="credits", amount=1, idempotency_key="k")
    outcomes = (batches.OperationOutcome(entry=Entry()),) * 50
    assert len(list(batches._list_executed([request] * 50, batches.BatchResult(outcomes, "atomic", "r")))) == 50
    assert looked == [50]
