"""A lot that could be spent from the first bears no effective time in the state; pages and responses show it all the same."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from ledger.rules import GrantRequest, SpendRequest
from ledger.rules.instants import to_text, to_us

pytestmark = pytest.mark.django_db


@pytest.fixture
def grants():
    """A lot that counts from its grant on, one from a month before, one from tomorrow on."""
    first = services.grant(holder_id="ada", amount=10, idempotency_key="1")
    earlier = first.recorded_at - timedelta(days=30)
    later = first.recorded_at + timedelta(days=1)
    return [
        first,
        services.grant(holder_id="ada", amount=20, idempotency_key="2", effective_at=earlier),
        services.grant(holder_id="ada", amount=30, idempotency_key="3", effective_at=later),
    ]


def times(lots):
    """The effective time of each lot, by the grant that brought it."""
    return {lot.grant: lot.effective_us for lot in lots}


def as_granted(grants):
    """The effective times as the grants have them, by grant."""
    return {each.sequence: each.effective_us for each in grants}


def test_the_state_has_an_effective_time_only_of_the_lot_that_is_not_effective_yet(grants):
    stored = Entry.objects.get(holder_id="ada", sequence=3).lots
    no_time, tomorrow_us = 0, grants[2].effective_us
    found = [(grant, amount, effective_us) for grant, amount, effective_us, *_ in stored]
    assert found == [(1, 10, no_time), (2, 20, no_time), (3, 30, tomorrow_us)]


def test_balances_show_effective_times_in_one_query_however_many_lots_there_are(grants):
    with CaptureQueriesContext(connection) as queries:
        assert times(reads.balance("ada").lots) == as_granted(grants)
    assert len(queries) == 1
    assert [times(balance.lots) for balance in reads.holders(prefix="ada")] == [as_granted(grants)]
    now = grants[2].recorded_at
    assert times(reads.balance("ada", at=now).lots) == as_granted(grants)
    by_effective = reads.balance_by_effective_time("ada", at=grants[0].recorded_at - timedelta(days=1))
    assert times(by_effective.lots) == as_granted(grants[1:2])


def test_explanations_show_effective_times(grants):
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    explanation = reads.explanation("ada", "credits", 4)
    for state in (explanation["before"], explanation["after"]):
        assert {lot["grant"]: lot["effective_at"] for lot in state["lots"]} == {
            each.sequence: to_text(each.effective_us) for each in grants
        }


def test_refusals_tell_the_effective_time_also_of_lots_that_the_same_batch_brought(grants):
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=500, idempotency_key="s")
    expected = {each.sequence: to_text(each.effective_us) for each in grants}
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


def test_what_a_transfer_brings_counts_from_its_arrival_on(grants):
    services.transfer(holder_id="ada", to="bob", amount=25, idempotency_key="t")
    lots = reads.balance("bob").lots
    arrived = {each.sequence: to_us(each.recorded_at) for each in Entry.objects.filter(holder_id="bob")}
    assert times(lots) == arrived
    assert len(lots) == 2


def test_a_hold_a_release_and_a_refund_leave_the_effective_times_as_they_were(grants):
    held = services.hold(holder_id="ada", amount=30, idempotency_key="h")
    services.release(holder_id="ada", hold=held.sequence, idempotency_key="r")
    spent = services.spend(holder_id="ada", amount=30, idempotency_key="s")
    services.refund(holder_id="ada", spend=spent.sequence, idempotency_key="f")
    assert times(reads.balance("ada").lots) == as_granted(grants)
