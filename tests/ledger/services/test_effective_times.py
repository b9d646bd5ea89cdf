"""A lot that could be spent from the first bears no effective time in the state; pages and responses show it all the same."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from ledger.rules.instants import to_text, to_us
from ledger.rules.requests import GrantRequest, SpendRequest

pytestmark = pytest.mark.django_db


@pytest.fixture
def three_grants():
    """A lot that counts from its grant on, one from a month before, one from tomorrow on."""
    first = services.grant(holder_id="ada", amount=10, idempotency_key="1")
    earlier = first.recorded_at - timedelta(days=30)
    later = first.recorded_at + timedelta(days=1)
    return [
        first,
        services.grant(holder_id="ada", amount=20, idempotency_key="2", effective_at=earlier),
        services.grant(holder_id="ada", amount=30, idempotency_key="3", effective_at=later),
    ]


def effective_times(lots):
    """The effective time of each lot, by the grant that brought it."""
    return {lot.grant: lot.effective_us for lot in lots}


def granted_times(three_grants):
    """The effective times as the grants have them, by grant."""
    return {each.sequence: each.effective_us for each in three_grants}


def test_the_state_has_an_effective_time_only_of_the_lot_that_is_not_effective_yet(three_grants):
    stored = Entry.objects.get(holder_id="ada", sequence=3).lots
    no_time, tomorrow_us = 0, three_grants[2].effective_us
    found = [(grant, amount, effective_us) for grant, amount, effective_us, *_ in stored]
    assert found == [(1, 10, no_time), (2, 20, no_time), (3, 30, tomorrow_us)]


def test_balances_show_effective_times_in_one_query_however_many_lots_there_are(three_grants):
    with CaptureQueriesContext(connection) as queries:
        assert effective_times(reads.balance("ada").lots) == granted_times(three_grants)
    assert len(queries) == 1
    assert [effective_times(balance.lots) for balance in reads.holders(prefix="ada")] == [granted_times(three_grants)]
    now = three_grants[2].recorded_at
    assert effective_times(reads.balance("ada", at=now).lots) == granted_times(three_grants)
    by_effective = reads.balance_by_effective_time("ada", at=three_grants[0].recorded_at - timedelta(days=1))
    assert effective_times(by_effective.lots) == granted_times(three_grants[1:2])


def test_explanations_show_effective_times(three_grants):
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    explanation = reads.explanation("ada", "credits", 4)
    for state in (explanation["before"], explanation["after"]):
        assert {lot["grant"]: lot["effective_at"] for lot in state["lots"]} == {
            each.sequence: to_text(each.effective_us) for each in three_grants
        }


def test_refusals_tell_the_effective_time_also_of_lots_that_the_same_batch_brought(three_grants):
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=500, idempotency_key="s")
    expected = {each.sequence: to_text(each.effective_us) for each in three_grants}
    assert {lot["grant"]: lot["effective_at"] for lot in refused.value.facts["lots"]} == expected
    [refusal] = reads.refusals("ada")
    assert refusal.facts == refused.value.facts

    requests = [
        GrantRequest(holder_id="ada", idempotency_key="b1", amount=1),
        SpendRequest(holder_id="ada", idempotency_key="b2", amount=500),
    ]
    granted, refused_spend = services.batch(requests, mode="each", idempotency_key="b").outcomes
    expected[5] = to_text(granted.entry.effective_us)
    assert {lot["grant"]: lot["effective_at"] for lot in refused_spend.error.facts["lots"]} == expected


def test_what_a_transfer_brings_counts_from_its_arrival_on(three_grants):
    services.transfer(holder_id="ada", to="bob", amount=25, idempotency_key="t")
    lots = reads.balance("bob").lots
    arrived = {each.sequence: to_us(each.recorded_at) for each in Entry.objects.filter(holder_id="bob")}
    # Two receipts of equal terms: both are in the lot that the first one opened.
    assert len(arrived) == 2
    assert effective_times(lots) == {1: arrived[1]}
    assert [lot.remaining for lot in lots] == [25]


def test_a_hold_a_release_and_a_refund_leave_the_effective_times_as_they_were(three_grants):
    held = services.hold(holder_id="ada", amount=30, idempotency_key="h")
    services.release(holder_id="ada", hold=held.sequence, idempotency_key="r")
    spent = services.spend(holder_id="ada", amount=30, idempotency_key="s")
    services.refund(holder_id="ada", spend=spent.sequence, idempotency_key="f")
    assert effective_times(reads.balance("ada").lots) == granted_times(three_grants)
