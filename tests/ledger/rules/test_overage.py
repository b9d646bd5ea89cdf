"""Overage by examples: what a spend takes first, what comes back, where a period ends. `test_any_order` has random histories."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ledger.errors import InsufficientCredits, Invalid, OverageNotFound, OverageTaken, Refused
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, from_us, to_text, to_us
from ledger.rules.lots import postpaid
from ledger.rules.overage import Overage, decode_overage, encode_overage
from ledger.rules.requests import (
    CaptureRequest,
    EndOverageRequest,
    GrantRequest,
    HoldRequest,
    OverageRequest,
    OverdraftRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import RulesLedger

JANUARY = to_us(datetime(2025, 1, 1, tzinfo=UTC))
FEBRUARY = to_us(datetime(2025, 2, 1, tzinfo=UTC))
FIRST = from_us(JANUARY)


@pytest.fixture
def ledger() -> RulesLedger:
    """1 overage of 500 a month, 2 grant of 200."""
    ledger = RulesLedger()
    execute(ledger, OverageRequest, "1", limit=500, anchor_at=FIRST, reference="SUB-1")
    execute(ledger, GrantRequest, "2", amount=200)
    return ledger


def spend(ledger: RulesLedger, amount: int, **more: Any) -> Entry:
    return execute(ledger, SpendRequest, f"s{len(ledger.in_order)}", amount=amount, **more)


def refused(ledger: RulesLedger, kind: type[Request], error: type[Refused], **fields: Any) -> dict[str, Any]:
    """The facts of a refusal, which moved nothing."""
    before = ledger.account("ada")
    with pytest.raises(error) as caught:
        ledger.execute(kind(holder_id="ada", idempotency_key=f"r{len(ledger.in_order)}", **fields))
    after = ledger.account("ada")
    assert (after.lots, after.holds, after.overage) == (before.lots, before.holds, before.overage)
    return caught.value.facts


def used(ledger: RulesLedger) -> int:
    overage = ledger.account("ada").present_overage
    assert overage is not None
    return overage.used


def test_a_spend_takes_the_lots_first_and_the_rest_on_overage(ledger):
    entry = spend(ledger, 300)
    grant = ledger.entries["ada"][2]
    assert (grant.kind, grant.amount, grant.postpaid, grant.idempotency_key, grant.actor) == ("grant", 100, 100, None, "ledger")
    assert (entry.sequence, entry.amount, entry.drawn, entry.postpaid) == (4, -300, ((2, 200), (3, 100)), 100)
    assert (entry.balance, entry.lots, used(ledger)) == (0, (), 100)
    assert [each.kind for each in ledger.entries["ada"]] == ["adjust", "grant", "grant", "spend"]


def test_a_spend_within_the_lots_uses_no_overage(ledger):
    assert spend(ledger, 200).postpaid is None
    assert used(ledger) == 0


def test_beyond_the_cap_the_refusal_says_what_is_used_and_until_when(ledger):
    spend(ledger, 300)
    facts = refused(ledger, SpendRequest, InsufficientCredits, amount=401)
    assert facts["overage"] == {"limit": 500, "used": 100, "until": to_text(FEBRUARY)}
    assert (facts["available"], facts["shortfall"], facts["earliest_sufficient_at"]) == (400, 1, to_text(FEBRUARY))
    assert spend(ledger, 400).postpaid == 400
    assert refused(ledger, SpendRequest, InsufficientCredits, amount=501)["earliest_sufficient_at"] is None


def test_a_partial_spend_takes_the_rest_of_the_cap(ledger):
    entry = spend(ledger, 1_000, partial=True)
    assert (entry.amount, entry.requested, entry.postpaid) == (-700, 1_000, 500)


def test_a_later_grant_repays_nothing(ledger):
    spend(ledger, 300)
    entry = execute(ledger, GrantRequest, "later", amount=50)
    assert (entry.balance, used(ledger)) == (50, 100)


def test_a_refund_gives_overage_back_while_its_period_is_open(ledger):
    spent = spend(ledger, 300)
    refund = execute(ledger, RefundRequest, "back", spend=spent.sequence, amount=150)
    assert (refund.amount, refund.drawn, refund.postpaid) == (150, ((3, 100), (2, 50)), 100)
    given_back = ledger.entries["ada"][-1]
    assert (given_back.kind, given_back.refers_to, given_back.amount, given_back.postpaid) == ("revoke", 3, -100, 100)
    assert (ledger.account("ada").available, used(ledger)) == (50, 0)
    assert spend(ledger, 550).postpaid == 500


def test_a_refund_after_the_period_gives_no_credits_and_leaves_the_next_period_alone(ledger):
    spent = spend(ledger, 300)
    ledger.now_us = FEBRUARY
    spend(ledger, 40)
    execute(ledger, RefundRequest, "back", spend=spent.sequence, amount=100)
    assert (ledger.account("ada").available, used(ledger)) == (0, 40)
    assert ledger.entries["ada"][-1].refers_to == 3


def test_the_next_period_begins_at_its_microsecond(ledger):
    spend(ledger, 700)
    ledger.now_us = FEBRUARY - 1
    refused(ledger, SpendRequest, InsufficientCredits, amount=1)
    ledger.now_us = FEBRUARY
    entry = spend(ledger, 1)
    assert entry.overage is not None
    assert (entry.postpaid, entry.overage.used, from_us(entry.overage.until_us)) == (1, 1, datetime(2025, 3, 1, tzinfo=UTC))


def test_a_hold_uses_overage_and_its_release_gives_it_back(ledger):
    held = execute(ledger, HoldRequest, "hold", amount=250)
    assert (held.postpaid, held.held, used(ledger)) == (50, 250, 50)
    release = execute(ledger, ReleaseRequest, "release", hold=held.sequence)
    assert (release.postpaid, ledger.account("ada").available, used(ledger)) == (50, 200, 0)


def test_a_hold_that_expires_gives_overage_back_without_a_job(ledger):
    execute(ledger, HoldRequest, "hold", amount=700, expires_at=from_us(JANUARY + DAY_US))
    facts = refused(ledger, SpendRequest, InsufficientCredits, amount=300)
    assert facts["earliest_sufficient_at"] == to_text(JANUARY + DAY_US)
    ledger.now_us = JANUARY + DAY_US
    account = ledger.account("ada")
    assert (account.available, account.overage_left) == (200, 500)
    assert spend(ledger, 700).postpaid == 500


def test_a_capture_in_the_next_period_belongs_to_the_period_of_its_hold(ledger):
    ledger.now_us = FEBRUARY - DAY_US
    held = execute(ledger, HoldRequest, "hold", amount=250, expires_at=from_us(FEBRUARY + DAY_US))
    ledger.now_us = FEBRUARY
    capture = execute(ledger, CaptureRequest, "capture", hold=held.sequence, amount=220)
    assert (capture.postpaid, used(ledger)) == (20, 0)
    assert ledger.account("ada").available == 0


def test_a_capture_beyond_its_hold_uses_overage(ledger):
    held = execute(ledger, HoldRequest, "hold", amount=200)
    capture = execute(ledger, CaptureRequest, "c", hold=held.sequence, amount=260, over_capture="if_available")
    assert (capture.amount, capture.postpaid, used(ledger)) == (-60, 60, 60)
    refused(ledger, CaptureRequest, Refused, hold=held.sequence, amount=1)


def test_transfers_and_what_pays_invoices_use_no_overage(ledger):
    facts = refused(ledger, TransferRequest, InsufficientCredits, to="bob", amount=201)
    assert "overage" not in facts
    assert "earliest_sufficient_at" in facts
    refused(ledger, SpendRequest, InsufficientCredits, amount=201, actor="billing")


def test_overage_is_used_before_an_overdraft_and_left_alone_by_its_repayment(ledger):
    execute(ledger, OverdraftRequest, "overdraft", limit=100)
    entry = spend(ledger, 760)
    assert (entry.postpaid, entry.balance) == (500, -60)
    execute(ledger, GrantRequest, "later", amount=100)
    account = ledger.account("ada")
    assert (account.balance, account.owed, used(ledger)) == (40, 0, 500)


def test_a_postpaid_grant_cannot_be_revoked_voided_or_given_other_terms(ledger):
    spent = spend(ledger, 300)
    refused(ledger, RevokeRequest, Refused, grant=3)
    refused(ledger, ReissueRequest, Refused, lot=3, priority=1)
    execute(ledger, RefundRequest, "back", spend=spent.sequence)
    assert postpaid(ledger.account("ada").lots) == 0
    assert execute(ledger, VoidRequest, "void").amount == -200


def test_other_terms_of_the_same_period_go_on_counting_and_all_others_begin_again(ledger):
    spend(ledger, 300)
    execute(ledger, OverageRequest, "higher", limit=900, reference="SUB-1")
    assert (used(ledger), ledger.account("ada").overage_left) == (100, 800)
    execute(ledger, OverageRequest, "lower", limit=50, reference="SUB-1")
    assert ledger.account("ada").overage_left == 0
    execute(ledger, OverageRequest, "yearly", limit=50, interval="year", reference="SUB-1")
    assert used(ledger) == 0


def test_one_overage_at_a_time(ledger):
    facts = refused(ledger, OverageRequest, OverageTaken, limit=1, reference="SUB-2")
    assert facts == {"reference": "SUB-1"}
    refused(ledger, EndOverageRequest, OverageTaken, reference="SUB-2")
    execute(ledger, EndOverageRequest, "end", reference="SUB-1")
    refused(ledger, EndOverageRequest, OverageNotFound, reference="SUB-1")
    refused(ledger, SpendRequest, InsufficientCredits, amount=201)
    execute(ledger, OverageRequest, "other", limit=1, reference="SUB-2")
    assert spend(ledger, 201).postpaid == 1


def test_it_ends_at_its_instant(ledger):
    execute(ledger, OverageRequest, "ends", limit=500, ends_at=from_us(JANUARY + DAY_US), reference="SUB-1")
    facts = refused(ledger, SpendRequest, InsufficientCredits, amount=701)
    assert facts["overage"]["until"] == to_text(JANUARY + DAY_US)
    ledger.now_us = JANUARY + DAY_US
    assert ledger.account("ada").present_overage is None
    refused(ledger, SpendRequest, InsufficientCredits, amount=201)
    with pytest.raises(Invalid, match="past"):
        execute(ledger, OverageRequest, "past", limit=1, ends_at=FIRST)


def test_without_a_limit_any_amount_can_be_used(ledger):
    execute(ledger, OverageRequest, "none", reference="SUB-1")
    assert spend(ledger, 10**12).postpaid == 10**12 - 200


@pytest.mark.parametrize("limit", [None, 0, 500])
def test_its_stored_form_is_read_back(limit):
    overage = Overage(limit, 3, 2, FEBRUARY, 1, "half_year", 2, JANUARY, "Europe/Berlin", None, "SUB-1 ✓")
    assert decode_overage(encode_overage(overage)) == overage
