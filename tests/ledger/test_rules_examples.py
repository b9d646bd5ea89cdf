"""The rules by example: exact lots, exact numbers."""

import pytest

from ledger import rules
from ledger.errors import BalanceLimit, InsufficientCredits, Invalid, LotLimit, RefundExceedsSpend, RevocationExceedsGrant
from ledger.rules import MAX_BALANCE, MAX_OPEN_LOTS, Account, Entry, Lot
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT
from tests.ledger.credit_model import DAY_US
from tests.ledger.walks import HOUR_US, REOPEN_DAYS, START_US, RulesLedger

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
    assert len(ledger.in_order) == 2


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


def test_credits_of_a_lot_that_has_expired_come_back_as_a_lot_for_some_days():
    ledger = RulesLedger("new-lot")
    grant(ledger, 10, expires_in_us=DAY_US, priority=7, source="promotional")
    spend(ledger, 6)
    ledger.now_us += 2 * DAY_US
    entry = ask(ledger, rules.RefundRequest, spend=2)
    until_us = ledger.now_us + REOPEN_DAYS * DAY_US
    assert entry.lots == (Lot(1, 6, SINCE_ITS_GRANT, until_us, 7, "promotional"),)
    assert [each.kind for each in ledger.in_order] == ["grant", "spend", "expire", "refund"]
    ledger.now_us = until_us
    assert ledger.account(HOLDER).available == 0


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
    assert [each.kind for each in ledger.in_order[3:]] == ["adjust", "revoke"]


# Limits ---------------------------------------------------------------------------------------------------


def test_500_lots_may_be_open_and_a_501st_grant_is_refused():
    ledger = RulesLedger()
    for _ in range(MAX_OPEN_LOTS):
        grant(ledger, 1)
    assert len(ledger.account(HOLDER).lots) == MAX_OPEN_LOTS == 500
    with pytest.raises(LotLimit) as refused:
        grant(ledger, 1)
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    assert len(ledger.in_order) == 500
    spend(ledger, 1)
    assert grant(ledger, 1).sequence == 502


def test_a_balance_may_reach_the_largest_bigint_and_not_pass_it():
    lots = (Lot(1, MAX_BALANCE - 5, START_US),)
    account = Account(HOLDER, "credits", START_US, 1, MAX_BALANCE - 5, 0, lots)
    assert _granted(account, 5)[-1].balance == MAX_BALANCE == 2**63 - 1
    with pytest.raises(BalanceLimit) as refused:
        _granted(account, 6)
    assert refused.value.facts == {"balance": MAX_BALANCE - 5, "requested": 6, "limit": MAX_BALANCE}
    # What is held will come back, or may: it counts.
    with pytest.raises(BalanceLimit):
        _granted(account._replace(balance=MAX_BALANCE - 6, held=1, lots=(Lot(1, MAX_BALANCE - 6, START_US),)), 6)


def _granted(account: Account, amount: int) -> list[Entry]:
    return rules.grant(account, rules.GrantRequest(holder_id=HOLDER, idempotency_key="g", amount=amount))
