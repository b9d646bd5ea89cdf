"""The rules by example: exact lots and exact numbers. A ledger here is only the rules with a clock, see `RulesLedger`."""

import pytest

from ledger.errors import InsufficientCredits, Invalid, LotLimit, RefundExceedsSpend, RevocationExceedsGrant
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.lots import MAX_OPEN_LOTS, SINCE_ITS_GRANT, Lot
from ledger.rules.requests import (
    MAX_BALANCE,
    ExtendRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
)
from ledger.values import MAX_AMOUNT
from tests.ledger.random_histories import HOUR_US, NEW_LOT_DAYS, START_US, RulesLedger
from tests.ledger.rules.credit_model import DAY_US

HOLDER = "ada"


def execute(ledger: RulesLedger, kind: type[Request], **what) -> Entry:
    """Let the rules execute a request of ada under a new key; return the entry with the key."""
    key = f"key-{len(ledger.in_order)}-{kind.__name__}"
    entries = ledger.execute(kind(holder_id=HOLDER, idempotency_key=key, **what))
    return next(entry for entry in entries if entry.idempotency_key == key)


def grant(ledger: RulesLedger, amount: int, *, expires_in_us: int | None = None, effective_in_us: int = 0, **what) -> Entry:
    """Grant credits to ada; the lot's sequence is that of the entry. Times count from the ledger's clock."""
    what |= {"effective_at": from_us(ledger.now_us + effective_in_us)}
    if expires_in_us is not None:
        what |= {"expires_at": from_us(ledger.now_us + expires_in_us)}
    return execute(ledger, GrantRequest, amount=amount, **what)


def spend(ledger: RulesLedger, amount: int) -> Entry:
    """Spend credits of ada under a new key; return the entry."""
    return execute(ledger, SpendRequest, amount=amount)


# Burn order ---------------------------------------------------------------------------------------------


def test_credits_burn_by_priority_then_soonest_expiry_then_promotional_then_oldest():
    ledger = RulesLedger()
    grant(ledger, 1)  # 1: paid, never expires
    grant(ledger, 1, source="promotional")  # 2: promotional, never expires
    grant(ledger, 1, expires_in_us=2 * DAY_US)  # 3: paid, expires later
    grant(ledger, 1, expires_in_us=2 * DAY_US, source="promotional")  # 4: as 3, but promotional
    grant(ledger, 1, expires_in_us=DAY_US)  # 5: expires sooner
    grant(ledger, 1, expires_in_us=DAY_US)  # 6: as 5, but younger
    grant(ledger, 1, priority=99)  # 7: never expires, but goes first
    grant(ledger, 1, priority=101, expires_in_us=HOUR_US)  # 8: goes last, and soon
    assert [spend(ledger, 1).drawn for _ in range(8)] == [((number, 1),) for number in (7, 5, 6, 4, 3, 2, 1, 8)]


def test_a_spend_from_several_lots_lists_what_it_took_from_each():
    ledger = RulesLedger()
    grant(ledger, 30)
    grant(ledger, 20, source="promotional")
    entry = spend(ledger, 35)
    assert entry.drawn == ((2, 20), (1, 15))
    assert entry.lots == (Lot(1, 15, SINCE_ITS_GRANT),)
    assert (entry.amount, entry.balance) == (-35, 15)


def test_a_lot_that_is_not_effective_yet_is_in_the_balance_and_cannot_be_spent():
    ledger = RulesLedger()
    grant(ledger, 30, effective_in_us=HOUR_US)
    account = ledger.account(HOLDER)
    assert (account.balance, account.available) == (30, 0)
    with pytest.raises(InsufficientCredits) as refused:
        spend(ledger, 1)
    assert (refused.value.facts["available"], refused.value.facts["not_yet_effective"]) == (0, 30)
    ledger.now_us += HOUR_US
    assert spend(ledger, 30).balance == 0


# The time of expiry ---------------------------------------------------------------------------------------


def test_a_lot_can_be_spent_until_the_microsecond_before_its_expiry():
    ledger = RulesLedger()
    grant(ledger, 30, expires_in_us=HOUR_US)
    ledger.now_us += HOUR_US - 1
    assert spend(ledger, 10).balance == 20
    ledger.now_us += 1
    account = ledger.account(HOLDER)
    assert (account.balance, account.available) == (20, 0)
    with pytest.raises(InsufficientCredits) as refused:
        spend(ledger, 1)
    assert (refused.value.facts["balance"], refused.value.facts["expired"]) == (20, 20)
    assert [each.kind for each in ledger.in_order] == ["grant", "spend", "refusal"]


def test_the_next_request_books_the_expired_lot_before_its_own_entry():
    ledger = RulesLedger()
    grant(ledger, 30, expires_in_us=HOUR_US)
    ledger.now_us += 2 * HOUR_US
    entry = grant(ledger, 5)
    assert [(each.kind, each.amount, each.balance) for each in ledger.in_order] == [
        ("grant", 30, 30),
        ("expire", -30, 0),
        ("grant", 5, 5),
    ]
    assert ledger.in_order[1].effective_us == START_US + HOUR_US
    assert ledger.in_order[1].recorded_us == entry.recorded_us == START_US + 2 * HOUR_US


def test_a_grant_that_expires_at_once_or_before_it_is_effective_is_invalid():
    ledger = RulesLedger()
    for wrong, rule in (({"expires_in_us": 0}, "past"), ({"expires_in_us": HOUR_US, "effective_in_us": HOUR_US}, "order")):
        with pytest.raises(Invalid) as invalid:
            grant(ledger, 30, **wrong)
        assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) in {("/expires_at", rule), ("/expires_at", "order")}
    assert ledger.in_order == []


# Refunds --------------------------------------------------------------------------------------------------


def test_a_refund_goes_to_the_lot_drawn_last_first_and_never_exceeds_the_spend():
    ledger = RulesLedger()
    grant(ledger, 10, expires_in_us=DAY_US)
    grant(ledger, 10)
    spend(ledger, 15)
    assert execute(ledger, RefundRequest, spend=3, amount=7).drawn == ((2, 5), (1, 2))
    second = execute(ledger, RefundRequest, spend=3, amount=7)
    assert (second.drawn, second.refunded_total, second.refers_to) == (((1, 7),), 14, 3)
    with pytest.raises(RefundExceedsSpend) as refused:
        execute(ledger, RefundRequest, spend=3, amount=2)
    assert refused.value.facts == {"sequence": 3, "refundable": 1, "requested": 2}
    assert execute(ledger, RefundRequest, spend=3).amount == 1
    assert ledger.account(HOLDER).balance == 20


def test_credits_refunded_to_an_expired_lot_form_a_new_lot_that_expires_after_two_days():
    ledger = RulesLedger("new-lot")
    grant(ledger, 10, expires_in_us=DAY_US, priority=7, source="promotional")
    spend(ledger, 6)
    ledger.now_us += 2 * DAY_US
    entry = execute(ledger, RefundRequest, spend=2)
    until_us = ledger.now_us + NEW_LOT_DAYS * DAY_US
    assert entry.lots == (Lot(4, 6, SINCE_ITS_GRANT, until_us, 7, "promotional"),)
    assert (entry.drawn, entry.refers_to) == (((4, 6),), 2)
    assert [each.kind for each in ledger.in_order] == ["grant", "spend", "expire", "refund"]
    ledger.now_us = until_us
    assert ledger.account(HOLDER).available == 0


def test_an_expired_lot_stays_expired_after_a_refund_and_a_release_of_its_credits():
    ledger = RulesLedger("new-lot")
    grant(ledger, 10, expires_in_us=1_000_000)
    hold = execute(ledger, HoldRequest, amount=9)
    spend(ledger, 1)
    ledger.now_us += 2_000_000
    refund = execute(ledger, RefundRequest, spend=3)
    assert (refund.sequence, refund.drawn) == (4, ((4, 1),))
    execute(ledger, ReleaseRequest, hold=hold.sequence)
    assert [(each.kind, each.amount, each.drawn) for each in ledger.in_order[4:]] == [
        ("release", 9, ((1, 9),)),
        ("expire", -9, ((1, 9),)),
    ]
    account = ledger.account(HOLDER)
    assert (account.available, account.lots) == (1, refund.lots)


def test_a_refund_to_expired_lots_of_different_terms_makes_one_entry_and_one_lot_for_each():
    ledger = RulesLedger("new-lot")
    grant(ledger, 2, expires_in_us=DAY_US, source="promotional")
    grant(ledger, 3, expires_in_us=DAY_US, priority=101)
    grant(ledger, 4, expires_in_us=2 * DAY_US, priority=102)
    grant(ledger, 5, expires_in_us=DAY_US, priority=103)
    spend(ledger, 14)
    ledger.now_us += DAY_US
    last = execute(ledger, RefundRequest, spend=5)
    entries = [each for each in ledger.in_order if each.kind == "refund"]
    assert [(each.sequence, each.amount, each.drawn, each.refunded_total) for each in entries] == [
        (6, 9, ((3, 4), (6, 5)), 9),
        (7, 3, ((7, 3),), 12),
        (8, 2, ((8, 2),), 14),
    ]
    assert [each.idempotency_key for each in entries] == [None, None, last.idempotency_key]
    assert [each.refers_to for each in entries] == [5, 5, 5]
    until_us = ledger.now_us + NEW_LOT_DAYS * DAY_US
    assert last.lots == (
        Lot(8, 2, SINCE_ITS_GRANT, until_us, 100, "promotional"),
        Lot(7, 3, SINCE_ITS_GRANT, until_us, 101),
        Lot(3, 4, SINCE_ITS_GRANT, START_US + 2 * DAY_US, 102),
        Lot(6, 5, SINCE_ITS_GRANT, until_us, 103),
    )


def test_with_the_policy_gone_credits_refunded_to_an_expired_lot_expire_at_once():
    ledger = RulesLedger("gone")
    grant(ledger, 10, expires_in_us=DAY_US)
    spend(ledger, 6)
    ledger.now_us += 2 * DAY_US
    execute(ledger, RefundRequest, spend=2)
    assert [(each.kind, each.amount, each.balance) for each in ledger.in_order[2:]] == [
        ("expire", -4, 0),
        ("refund", 6, 6),
        ("expire", -6, 0),
    ]
    assert ledger.account(HOLDER).lots == ()


# Refunds of spends on an overdraft --------------------------------------------------------------------------


def ledger_with_overdraft(amount: int, *, policy: str = "new-lot") -> RulesLedger:
    """Return a ledger with an overdraft of 100 (entry 1) and a spend of `amount` on it (entry 2)."""
    ledger = RulesLedger(policy)
    execute(ledger, OverdraftRequest, limit=100)
    spend(ledger, amount)
    return ledger


def lots_of_refund(ledger: RulesLedger, spend: int, amount: int | None = None) -> tuple[tuple[int, int], ...]:
    """Refund a spend; return the lots that got credits back: (grant, amount)."""
    return execute(ledger, RefundRequest, spend=spend, amount=amount).drawn


def test_credits_that_repaid_a_debt_are_refunded_under_their_old_terms():
    ledger = ledger_with_overdraft(8)
    lot = grant(ledger, 8, source="promotional", expires_in_us=DAY_US, priority=7).lots[0]
    assert lots_of_refund(ledger, 2) == ((3, 8),)
    assert ledger.account(HOLDER).lots == (lot,)


def test_a_refund_first_cancels_the_unpaid_debt_which_gives_no_credits_back():
    ledger = ledger_with_overdraft(8)
    grant(ledger, 3, source="promotional")
    assert (lots_of_refund(ledger, 2, 4), ledger.account(HOLDER).owed) == ((), 1)
    assert (lots_of_refund(ledger, 2, 2), ledger.account(HOLDER).owed) == (((3, 1),), 0)
    assert lots_of_refund(ledger, 2) == ((3, 2),)


def test_the_oldest_debt_is_repaid_first_and_each_refund_returns_what_repaid_its_debt():
    ledger = ledger_with_overdraft(4)
    spend(ledger, 4)
    grant(ledger, 4, source="promotional")
    grant(ledger, 4, priority=7)
    assert lots_of_refund(ledger, 3) == ((6, 4),)
    assert lots_of_refund(ledger, 2) == ((4, 4),)
    assert {lot.grant: (lot.remaining, lot.priority, lot.source) for lot in ledger.account(HOLDER).lots} == {
        4: (4, 100, "promotional"),
        6: (4, 7, "purchased"),
    }


def test_of_several_grants_that_repaid_a_debt_the_last_gets_its_credits_back_first():
    ledger = ledger_with_overdraft(8)
    for amount in (3, 4, 5):
        grant(ledger, amount)
    assert [lots_of_refund(ledger, 2, amount) for amount in (2, 3, 3)] == [((7, 1), (5, 1)), ((5, 3),), ((3, 3),)]


def test_after_a_refund_of_the_older_debt_a_grant_repays_the_younger_debt_earlier():
    ledger = ledger_with_overdraft(4)
    spend(ledger, 4)
    assert lots_of_refund(ledger, 2, 3) == ()
    grant(ledger, 3, source="promotional")
    grant(ledger, 9)
    assert lots_of_refund(ledger, 3) == ((7, 2), (5, 2))
    assert lots_of_refund(ledger, 2) == ((5, 1),)


def test_refunded_credits_repay_another_debt_and_its_refund_returns_them_to_their_lot():
    ledger = ledger_with_overdraft(4)
    grant(ledger, 4, source="promotional")
    spend(ledger, 4)
    assert lots_of_refund(ledger, 2) == ((3, 4),)
    assert [(each.kind, each.drawn) for each in ledger.in_order[-1:]] == [("adjust", ((3, 4),))]
    assert lots_of_refund(ledger, 5) == ((3, 4),)
    assert [(lot.grant, lot.remaining, lot.source) for lot in ledger.account(HOLDER).lots] == [(3, 4, "promotional")]


@pytest.mark.parametrize(("policy", "lots"), [("new-lot", [(6, 4, "promotional")]), ("gone", [])])
def test_a_lot_that_expired_after_repaying_a_debt_stays_expired_after_the_refund(policy, lots):
    ledger = ledger_with_overdraft(4, policy=policy)
    grant(ledger, 5, source="promotional", expires_in_us=DAY_US)
    # The 4 that repaid the debt come back when their lot has expired: under the policy, as a new lot or not at all.
    ledger.now_us += DAY_US
    lots_of_refund(ledger, 2)
    assert [(lot.grant, lot.remaining, lot.source) for lot in ledger.account(HOLDER).lots] == lots


def test_credits_that_repaid_a_debt_can_be_revoked_once_they_are_refunded():
    ledger = ledger_with_overdraft(4)
    grant(ledger, 5, source="promotional")
    execute(ledger, RevokeRequest, grant=3)
    with pytest.raises(RevocationExceedsGrant):
        execute(ledger, RevokeRequest, grant=3)
    lots_of_refund(ledger, 2)
    assert execute(ledger, RevokeRequest, grant=3).drawn == ((3, 4),)


def test_a_repayment_booked_late_counts_from_when_the_lot_became_effective():
    ledger = ledger_with_overdraft(8)
    grant(ledger, 5, effective_in_us=HOUR_US, expires_in_us=2 * HOUR_US)
    ledger.now_us += 5 * HOUR_US
    assert ledger.account(HOLDER).available == 97
    spend(ledger, 1)
    repayment = ledger.in_order[3]
    assert (repayment.kind, repayment.drawn, repayment.effective_us) == ("adjust", ((3, 5),), START_US + HOUR_US)
    assert repayment.recorded_us == ledger.now_us
    assert [each.kind for each in ledger.in_order[4:]] == ["spend"]


# Revocations ----------------------------------------------------------------------------------------------


def test_a_grant_can_be_revoked_in_parts_up_to_its_unspent_rest():
    ledger = RulesLedger()
    grant(ledger, 10)
    spend(ledger, 3)
    assert execute(ledger, RevokeRequest, grant=1, amount=2).balance == 5
    with pytest.raises(RevocationExceedsGrant) as refused:
        execute(ledger, RevokeRequest, grant=1, amount=6)
    assert refused.value.facts == {"sequence": 1, "revocable": 5, "requested": 6}
    entry = execute(ledger, RevokeRequest, grant=1)
    assert (entry.amount, entry.balance, entry.drawn, entry.refers_to, entry.lots) == (-5, 0, ((1, 5),), 1, ())


def test_the_part_of_a_grant_that_repaid_a_debt_cannot_be_revoked():
    ledger = RulesLedger()
    execute(ledger, OverdraftRequest, limit=20)
    spend(ledger, 15)
    grant(ledger, 40, effective_in_us=HOUR_US)
    ledger.now_us += HOUR_US
    with pytest.raises(RevocationExceedsGrant) as refused:
        execute(ledger, RevokeRequest, grant=3, amount=40)
    assert refused.value.facts == {"sequence": 3, "revocable": 25, "requested": 40}
    assert execute(ledger, RevokeRequest, grant=3).balance == 0
    assert [each.kind for each in ledger.in_order[3:]] == ["refusal", "adjust", "revoke"]


# Limits ---------------------------------------------------------------------------------------------------


def test_an_account_may_have_500_open_lots_and_the_501st_grant_is_refused():
    ledger = RulesLedger()
    for _ in range(MAX_OPEN_LOTS):
        grant(ledger, 1)
    assert len(ledger.account(HOLDER).lots) == MAX_OPEN_LOTS == 500
    with pytest.raises(LotLimit) as refused:
        grant(ledger, 1)
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    assert len(ledger.in_order) == 500, "a limit that passes is not recorded"
    spend(ledger, 1)
    assert grant(ledger, 1).sequence == 502


def test_the_largest_balance_of_own_lots_is_500_of_the_largest_amount():
    ledger = RulesLedger()
    for _ in range(MAX_OPEN_LOTS):
        grant(ledger, MAX_AMOUNT)
    assert ledger.account(HOLDER).balance == 500 * (2**53 - 1)
    assert MAX_BALANCE == 600 * (2**53 - 1) < 2**63 - 1
    with pytest.raises(LotLimit):
        grant(ledger, 1)


@pytest.mark.parametrize("operation", ["hold", "extend"])
def test_a_hold_may_last_31_days_and_not_a_microsecond_longer(operation):
    ledger = RulesLedger()
    grant(ledger, 30)
    if operation == "hold":
        kind, what = HoldRequest, {"amount": 10}
    else:
        kind, what = ExtendRequest, {"hold": execute(ledger, HoldRequest, amount=10).sequence}
    latest_us = START_US + 31 * DAY_US
    written = list(ledger.in_order)
    with pytest.raises(Invalid) as invalid:
        execute(ledger, kind, expires_at=from_us(latest_us + 1), **what)
    assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) == ("/expires_at", "range")
    assert ledger.in_order == written
    assert execute(ledger, kind, expires_at=from_us(latest_us), **what).hold.expires_us == latest_us
