"""Claims by examples: what comes back to a claimed lot is taken back at once, first of all, and never spendable."""

from typing import Any

import pytest

from ledger.errors import InsufficientCredits, Invalid
from ledger.rules.claims import MAX_CLAIMS, LotClaim, decode_claims, encode_claims
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, from_us
from ledger.rules.requests import (
    CaptureRequest,
    ClaimRequest,
    EndClaimRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import HOUR_US, START_US, RulesLedger


@pytest.fixture
def ledger() -> RulesLedger:
    """1 grant of 500, sold for 10.00."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=500, paid_minor=1000, currency="USD")
    return ledger


def do(ledger: RulesLedger, kind: type[Request], **fields: Any) -> Entry:
    return execute(ledger, kind, f"k{len(ledger.in_order)}", **fields)


def dispute(ledger: RulesLedger, *lots: int, claim: int) -> Entry:
    """Take back what is left of the first lot, and claim credits that are gone."""
    account = ledger.account("ada")
    if (lot := account.lot(1)) is not None:
        do(ledger, RevokeRequest, grant=1, amount=lot.remaining)
    return do(ledger, ClaimRequest, lots=list(lots or (1,)), amount=claim)


def claimed(ledger: RulesLedger) -> list[int]:
    return [claim.amount for claim in ledger.account("ada").claims]


def last(ledger: RulesLedger, number: int) -> list[tuple[str, int]]:
    return [(entry.kind, entry.amount) for entry in ledger.entries["ada"][-number:]]


def test_a_refund_of_a_spend_settles_the_claim_with_its_cost(ledger):
    spent = do(ledger, SpendRequest, amount=450)
    taken = dispute(ledger, claim=450)
    assert (taken.kind, taken.amount, claimed(ledger)) == ("adjust", 0, [450])
    do(ledger, RefundRequest, spend=spent.sequence)
    settled = ledger.entries["ada"][-1]
    assert last(ledger, 2) == [("refund", 450), ("revoke", -450)]
    assert (settled.refers_to, settled.drawn, settled.actor, settled.reason) == (1, ((1, 450),), "ledger", "claim settled")
    assert (settled.idempotency_key, settled.postpaid, settled.costs, settled.claims) == (None, None, (), ())
    assert (ledger.account("ada").available, ledger.account("ada").lots) == (0, ())


def test_parts_come_back_until_nothing_is_claimed_and_the_rest_is_the_holders(ledger):
    spent = do(ledger, SpendRequest, amount=450)
    dispute(ledger, claim=100)
    do(ledger, RefundRequest, spend=spent.sequence, amount=30)
    assert (claimed(ledger), ledger.account("ada").available) == ([70], 0)
    do(ledger, RefundRequest, spend=spent.sequence)
    assert last(ledger, 2) == [("refund", 420), ("revoke", -70)]
    assert (claimed(ledger), ledger.account("ada").available) == ([], 350)


def test_other_lots_and_new_purchases_settle_nothing(ledger):
    do(ledger, SpendRequest, amount=500)
    dispute(ledger, claim=500)
    do(ledger, GrantRequest, amount=80)
    spent = do(ledger, SpendRequest, amount=20)
    do(ledger, RefundRequest, spend=spent.sequence)
    assert (claimed(ledger), ledger.account("ada").available) == ([500], 80)


def test_what_a_claim_takes_is_not_there_for_a_debt(ledger):
    spent = do(ledger, SpendRequest, amount=500)
    dispute(ledger, claim=400)
    do(ledger, OverdraftRequest, limit=50)
    do(ledger, SpendRequest, amount=30)
    do(ledger, RefundRequest, spend=spent.sequence)
    assert last(ledger, 3) == [("refund", 500), ("revoke", -400), ("adjust", 0)]
    assert (ledger.account("ada").owed, ledger.account("ada").available) == (0, 70 + 50)


@pytest.mark.parametrize(("captured", "back"), [(None, 200), (50, 150)])
def test_a_release_and_a_capture_for_less_settle_it(ledger, captured, back):
    hold = do(ledger, HoldRequest, amount=200)
    dispute(ledger, claim=200)
    if captured is None:
        do(ledger, ReleaseRequest, hold=hold.sequence)
    else:
        do(ledger, CaptureRequest, hold=hold.sequence, amount=captured)
    assert ("revoke", -back) in last(ledger, 2)
    assert (sum(claimed(ledger)), ledger.account("ada").available) == (200 - back, 0)


def test_a_hold_that_expires_settles_it_before_anything_is_booked(ledger):
    do(ledger, HoldRequest, amount=200, expires_at=from_us(START_US + HOUR_US))
    dispute(ledger, claim=120)
    ledger.now_us = START_US + 2 * HOUR_US
    assert ledger.account("ada").available == 80
    with pytest.raises(InsufficientCredits):
        do(ledger, SpendRequest, amount=81)
    do(ledger, SpendRequest, amount=80)
    assert last(ledger, 3) == [("release", 200), ("revoke", -120), ("spend", -80)]
    assert claimed(ledger) == []


def test_a_refusal_says_when_what_is_left_of_a_hold_will_be_enough(ledger):
    do(ledger, HoldRequest, amount=200, expires_at=from_us(START_US + HOUR_US))
    dispute(ledger, claim=120)
    with pytest.raises(InsufficientCredits) as never:
        do(ledger, SpendRequest, amount=81)
    with pytest.raises(InsufficientCredits) as later:
        do(ledger, SpendRequest, amount=80)
    assert never.value.facts["earliest_sufficient_at"] is None
    assert later.value.facts["earliest_sufficient_at"] is not None


def test_a_reversed_transfer_settles_it(ledger):
    sent = do(ledger, TransferRequest, to="bob", amount=200)
    dispute(ledger, claim=200)
    do(ledger, ReversalRequest, transfer=sent.sequence, to="bob")
    assert last(ledger, 2) == [("transfer_in", 200), ("revoke", -200)]
    assert (claimed(ledger), ledger.account("ada").available) == ([], 0)


def test_claimed_credits_of_an_expired_lot_open_no_other_lot():
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=500, expires_at=from_us(START_US + DAY_US), paid_minor=1001, currency="USD")
    spent = do(ledger, SpendRequest, amount=450)
    dispute(ledger, claim=300)
    ledger.now_us = START_US + 2 * DAY_US
    do(ledger, RefundRequest, spend=spent.sequence)
    assert last(ledger, 2) == [("refund", 450), ("revoke", -300)]
    [lot] = ledger.account("ada").lots
    assert (lot.remaining, lot.grant, claimed(ledger)) == (150, ledger.entries["ada"][-2].sequence, [])


def test_a_claim_follows_credits_that_got_other_terms(ledger):
    spent = do(ledger, SpendRequest, amount=100)
    other = do(ledger, ReissueRequest, lot=1, priority=5)
    later = do(ledger, SpendRequest, amount=400)
    dispute(ledger, 1, other.sequence, claim=450)
    do(ledger, RefundRequest, spend=later.sequence)
    do(ledger, RefundRequest, spend=spent.sequence)
    assert (claimed(ledger), ledger.account("ada").available) == ([], 50)


def test_two_claims_on_a_lot_are_settled_the_oldest_first(ledger):
    spent = do(ledger, SpendRequest, amount=500)
    dispute(ledger, claim=100)
    dispute(ledger, claim=200)
    do(ledger, RefundRequest, spend=spent.sequence, amount=150)
    assert last(ledger, 3) == [("refund", 150), ("revoke", -100), ("revoke", -50)]
    assert claimed(ledger) == [150]


def test_a_withdrawn_claim_takes_nothing_back_and_says_how_much_was_left(ledger):
    spent = do(ledger, SpendRequest, amount=450)
    claim = dispute(ledger, claim=450)
    do(ledger, RefundRequest, spend=spent.sequence, amount=50)
    ended = do(ledger, EndClaimRequest, claim=claim.sequence)
    assert ended.counterpart == {"claim": "withdrawn", "amount": 400, "setting": claim.sequence}
    do(ledger, RefundRequest, spend=spent.sequence)
    assert (claimed(ledger), ledger.account("ada").available) == ([], 400)


def test_a_claim_on_what_is_there_takes_it_at_once(ledger):
    do(ledger, ClaimRequest, lots=[1], amount=450)
    assert last(ledger, 2) == [("adjust", 0), ("revoke", -450)]
    assert (claimed(ledger), ledger.account("ada").available) == ([], 50)


def test_an_account_has_a_limit_of_claims(ledger):
    for _ in range(MAX_CLAIMS):
        do(ledger, ClaimRequest, lots=[7], amount=1)
    with pytest.raises(Invalid) as refused:
        do(ledger, ClaimRequest, lots=[7], amount=1)
    assert (refused.value.pointer, refused.value.rule, len(claimed(ledger))) == ("/lots", "too-many", MAX_CLAIMS)


def test_the_stored_form_is_read_back():
    claims = (LotClaim(5, 450, (2, 4)), LotClaim(9, 1, (2,)))
    assert encode_claims(claims) == "[[5,450,2,4],[9,1,2]]"
    assert decode_claims(encode_claims(claims)) == claims
