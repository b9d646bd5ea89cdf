"""The rules by example: exact lots, exact numbers."""

import pytest

from ledger import rules
from ledger.errors import InsufficientCredits, Invalid, LotLimit, RefundExceedsSpend, RevocationExceedsGrant
from ledger.rules import MAX_AMOUNT, MAX_BALANCE, MAX_OPEN_LOTS, Entry, Lot
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT
from tests.ledger.credit_model import DAY_US
from tests.ledger.walks import HOUR_US, NEW_LOT_DAYS, START_US, RulesLedger

HOLDER = "ada"


def ask(ledger: RulesLedger, kind: type[rules.Request], **what) -> Entry:
    key = f"key-{len(ledger.in_order)}-{kind.__name__}"
    entries = ledger.answer(kind(holder_id=HOLDER, idempotency_key=key, **what))
    return next(entry for entry in entries if entry.idempotency_key == key)


def grant(ledger: RulesLedger, amount: int, *, expires_in_us: int | None = None, effective_in_us: int = 0, **what) -> Entry:
    what |= {"effective_at": from_us(ledger.now_us + effective_in_us)}
    if expires_in_us is not None:
        what |= {"expires_at": from_us(ledger.now_us + expires_in_us)}
    return ask(ledger, rules.GrantRequest, amount=amount, **what)


def spend(ledger: RulesLedger, amount: int) -> Entry:
    return ask(ledger, rules.SpendRequest, amount=amount)


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


def test_a_spend_over_several_lots_says_how_much_it_took_from_which():
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


# The instant of expiry ------------------------------------------------------------------------------------


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


def test_the_next_writer_books_what_has_expired_before_his_own():
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


def test_a_grant_that_would_have_expired_is_invalid():
    ledger = RulesLedger()
    for wrong, rule in (({"expires_in_us": 0}, "past"), ({"expires_in_us": HOUR_US, "effective_in_us": HOUR_US}, "order")):
        with pytest.raises(Invalid) as invalid:
            grant(ledger, 30, **wrong)
        assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) in {("/expires_at", rule), ("/expires_at", "order")}
    assert ledger.in_order == []


# Refunds --------------------------------------------------------------------------------------------------


def test_refunds_go_back_last_drawn_first_and_never_beyond_the_spend():
    ledger = RulesLedger()
    grant(ledger, 10, expires_in_us=DAY_US)
    grant(ledger, 10)
    spend(ledger, 15)
    assert ask(ledger, rules.RefundRequest, spend=3, amount=7).drawn == ((2, 5), (1, 2))
    second = ask(ledger, rules.RefundRequest, spend=3, amount=7)
    assert (second.drawn, second.refunded_total, second.refers_to) == (((1, 7),), 14, 3)
    with pytest.raises(RefundExceedsSpend) as refused:
        ask(ledger, rules.RefundRequest, spend=3, amount=2)
    assert refused.value.facts == {"sequence": 3, "refundable": 1, "requested": 2}
    assert ask(ledger, rules.RefundRequest, spend=3).amount == 1
    assert ledger.account(HOLDER).balance == 20


def test_credits_of_a_lot_that_has_expired_form_a_lot_of_their_own_for_some_days():
    ledger = RulesLedger("new-lot")
    grant(ledger, 10, expires_in_us=DAY_US, priority=7, source="promotional")
    spend(ledger, 6)
    ledger.now_us += 2 * DAY_US
    entry = ask(ledger, rules.RefundRequest, spend=2)
    until_us = ledger.now_us + NEW_LOT_DAYS * DAY_US
    assert entry.lots == (Lot(4, 6, SINCE_ITS_GRANT, until_us, 7, "promotional"),)
    assert (entry.drawn, entry.refers_to) == (((4, 6),), 2)
    assert [each.kind for each in ledger.in_order] == ["grant", "spend", "expire", "refund"]
    ledger.now_us = until_us
    assert ledger.account(HOLDER).available == 0


def test_an_expired_lot_stays_expired_whatever_is_refunded_or_released_of_it():
    ledger = RulesLedger("new-lot")
    grant(ledger, 10, expires_in_us=1_000_000)
    hold = ask(ledger, rules.HoldRequest, amount=9)
    spend(ledger, 1)
    ledger.now_us += 2_000_000
    refund = ask(ledger, rules.RefundRequest, spend=3)
    assert (refund.sequence, refund.drawn) == (4, ((4, 1),))
    ask(ledger, rules.ReleaseRequest, hold=hold.sequence)
    assert [(each.kind, each.amount, each.drawn) for each in ledger.in_order[4:]] == [
        ("release", 9, ((1, 9),)),
        ("expire", -9, ((1, 9),)),
    ]
    account = ledger.account(HOLDER)
    assert (account.available, account.lots) == (1, refund.lots)


def test_a_refund_to_expired_lots_of_different_terms_opens_a_lot_by_an_entry_for_each():
    ledger = RulesLedger("new-lot")
    grant(ledger, 2, expires_in_us=DAY_US, source="promotional")
    grant(ledger, 3, expires_in_us=DAY_US, priority=101)
    grant(ledger, 4, expires_in_us=2 * DAY_US, priority=102)
    grant(ledger, 5, expires_in_us=DAY_US, priority=103)
    spend(ledger, 14)
    ledger.now_us += DAY_US
    last = ask(ledger, rules.RefundRequest, spend=5)
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


def test_or_they_come_back_and_are_gone_at_once():
    ledger = RulesLedger("gone")
    grant(ledger, 10, expires_in_us=DAY_US)
    spend(ledger, 6)
    ledger.now_us += 2 * DAY_US
    ask(ledger, rules.RefundRequest, spend=2)
    assert [(each.kind, each.amount, each.balance) for each in ledger.in_order[2:]] == [
        ("expire", -4, 0),
        ("refund", 6, 6),
        ("expire", -6, 0),
    ]
    assert ledger.account(HOLDER).lots == ()


# Refunds of what was taken on an overdraft ------------------------------------------------------------------


def overdrawn(amount: int, *, policy: str = "new-lot") -> RulesLedger:
    """An overdraft of 100, and a spend of `amount` on it, which is entry 2."""
    ledger = RulesLedger(policy)
    ask(ledger, rules.OverdraftRequest, limit=100)
    spend(ledger, amount)
    return ledger


def given_back(ledger: RulesLedger, spend: int, amount: int | None = None) -> tuple[tuple[int, int], ...]:
    return ask(ledger, rules.RefundRequest, spend=spend, amount=amount).drawn


def test_what_repaid_a_debt_goes_back_under_the_terms_that_it_came_with():
    ledger = overdrawn(8)
    lot = grant(ledger, 8, source="promotional", expires_in_us=DAY_US, priority=7).lots[0]
    assert given_back(ledger, 2) == ((3, 8),)
    assert ledger.account(HOLDER).lots == (lot,)


def test_what_is_still_owed_is_owed_no_more_and_gives_nothing_back():
    ledger = overdrawn(8)
    grant(ledger, 3, source="promotional")
    assert (given_back(ledger, 2, 4), ledger.account(HOLDER).owed) == ((), 1)
    assert (given_back(ledger, 2, 2), ledger.account(HOLDER).owed) == (((3, 1),), 0)
    assert given_back(ledger, 2) == ((3, 2),)


def test_the_oldest_debt_is_repaid_first_and_each_gets_back_what_repaid_it():
    ledger = overdrawn(4)
    spend(ledger, 4)
    grant(ledger, 4, source="promotional")
    grant(ledger, 4, priority=7)
    assert given_back(ledger, 3) == ((6, 4),)
    assert given_back(ledger, 2) == ((4, 4),)
    assert {lot.grant: (lot.remaining, lot.priority, lot.source) for lot in ledger.account(HOLDER).lots} == {
        4: (4, 100, "promotional"),
        6: (4, 7, "purchased"),
    }


def test_of_several_grants_that_repaid_the_last_gets_its_part_back_first():
    ledger = overdrawn(8)
    for amount in (3, 4, 5):
        grant(ledger, amount)
    assert [given_back(ledger, 2, amount) for amount in (2, 3, 3)] == [((7, 1), (5, 1)), ((5, 3),), ((3, 3),)]


def test_a_refund_of_an_older_debt_brings_the_younger_one_forward():
    ledger = overdrawn(4)
    spend(ledger, 4)
    assert given_back(ledger, 2, 3) == ()
    grant(ledger, 3, source="promotional")
    grant(ledger, 9)
    assert given_back(ledger, 3) == ((7, 2), (5, 2))
    assert given_back(ledger, 2) == ((5, 1),)


def test_what_goes_back_to_a_lot_repays_another_debt_and_is_found_again_by_its_refund():
    ledger = overdrawn(4)
    grant(ledger, 4, source="promotional")
    spend(ledger, 4)
    assert given_back(ledger, 2) == ((3, 4),)
    assert [(each.kind, each.drawn) for each in ledger.in_order[-1:]] == [("adjust", ((3, 4),))]
    assert given_back(ledger, 5) == ((3, 4),)
    assert [(lot.grant, lot.remaining, lot.source) for lot in ledger.account(HOLDER).lots] == [(3, 4, "promotional")]


@pytest.mark.parametrize(("policy", "lots"), [("new-lot", [(6, 4, "promotional")]), ("gone", [])])
def test_a_lot_that_has_expired_since_it_repaid_stays_expired(policy, lots):
    ledger = overdrawn(4, policy=policy)
    grant(ledger, 5, source="promotional", expires_in_us=DAY_US)
    ledger.now_us += DAY_US
    given_back(ledger, 2)
    assert [(lot.grant, lot.remaining, lot.source) for lot in ledger.account(HOLDER).lots] == lots


def test_what_repaid_a_debt_can_be_revoked_when_it_has_come_back():
    ledger = overdrawn(4)
    grant(ledger, 5, source="promotional")
    ask(ledger, rules.RevokeRequest, grant=3)
    with pytest.raises(RevocationExceedsGrant):
        ask(ledger, rules.RevokeRequest, grant=3)
    given_back(ledger, 2)
    assert ask(ledger, rules.RevokeRequest, grant=3).drawn == ((3, 4),)


def test_a_debt_is_repaid_at_the_instant_at_which_it_could_be_whenever_that_is_booked():
    ledger = overdrawn(8)
    grant(ledger, 5, effective_in_us=HOUR_US, expires_in_us=2 * HOUR_US)
    ledger.now_us += 5 * HOUR_US
    assert ledger.account(HOLDER).available == 97
    spend(ledger, 1)
    repayment = ledger.in_order[3]
    assert (repayment.kind, repayment.drawn, repayment.effective_us) == ("adjust", ((3, 5),), START_US + HOUR_US)
    assert repayment.recorded_us == ledger.now_us
    assert [each.kind for each in ledger.in_order[4:]] == ["spend"]


# Revocations ----------------------------------------------------------------------------------------------


def test_the_unspent_rest_of_a_grant_can_be_revoked_in_parts_and_no_more():
    ledger = RulesLedger()
    grant(ledger, 10)
    spend(ledger, 3)
    assert ask(ledger, rules.RevokeRequest, grant=1, amount=2).balance == 5
    with pytest.raises(RevocationExceedsGrant) as refused:
        ask(ledger, rules.RevokeRequest, grant=1, amount=6)
    assert refused.value.facts == {"sequence": 1, "revocable": 5, "requested": 6}
    entry = ask(ledger, rules.RevokeRequest, grant=1)
    assert (entry.amount, entry.balance, entry.drawn, entry.refers_to, entry.lots) == (-5, 0, ((1, 5),), 1, ())


def test_what_a_debt_has_used_of_a_grant_cannot_be_revoked():
    ledger = RulesLedger()
    ask(ledger, rules.OverdraftRequest, limit=20)
    spend(ledger, 15)
    grant(ledger, 40, effective_in_us=HOUR_US)
    ledger.now_us += HOUR_US
    with pytest.raises(RevocationExceedsGrant) as refused:
        ask(ledger, rules.RevokeRequest, grant=3, amount=40)
    assert refused.value.facts == {"sequence": 3, "revocable": 25, "requested": 40}
    assert ask(ledger, rules.RevokeRequest, grant=3).balance == 0
    assert [each.kind for each in ledger.in_order[3:]] == ["refusal", "adjust", "revoke"]


# Limits ---------------------------------------------------------------------------------------------------


def test_500_lots_may_be_open_and_a_501st_grant_is_refused():
    ledger = RulesLedger()
    for _ in range(MAX_OPEN_LOTS):
        grant(ledger, 1)
    assert len(ledger.account(HOLDER).lots) == MAX_OPEN_LOTS == 500
    with pytest.raises(LotLimit) as refused:
        grant(ledger, 1)
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    assert [each.kind for each in ledger.in_order[500:]] == ["refusal"]
    spend(ledger, 1)
    assert grant(ledger, 1).sequence == 503


def test_no_account_can_pass_the_largest_balance_since_its_lots_cannot():
    ledger = RulesLedger()
    for _ in range(MAX_OPEN_LOTS):
        grant(ledger, MAX_AMOUNT)
    assert ledger.account(HOLDER).balance == MAX_BALANCE == 500 * (2**53 - 1) < 2**63 - 1
    with pytest.raises(LotLimit):
        grant(ledger, 1)


@pytest.mark.parametrize("operation", ["hold", "extend"])
def test_a_hold_may_last_31_days_and_not_a_microsecond_longer(operation):
    ledger = RulesLedger()
    grant(ledger, 30)
    if operation == "hold":
        kind, what = rules.HoldRequest, {"amount": 10}
    else:
        kind, what = rules.ExtendRequest, {"hold": ask(ledger, rules.HoldRequest, amount=10).sequence}
    latest_us = START_US + 31 * DAY_US
    written = list(ledger.in_order)
    with pytest.raises(Invalid) as invalid:
        ask(ledger, kind, expires_at=from_us(latest_us + 1), **what)
    assert (invalid.value.facts["pointer"], invalid.value.facts["rule"]) == ("/expires_at", "range")
    assert ledger.in_order == written
    assert ask(ledger, kind, expires_at=from_us(latest_us), **what).hold.expires_us == latest_us
