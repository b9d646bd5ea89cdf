"""What credits can pay for: the purpose of a lot, its stored form, and the rules that pass over what does not apply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InsufficientCredits, Invalid
from ledger.rules.decisions import credit_rules, hold_rules
from ledger.rules.instants import from_us
from ledger.rules.lots import Lot, decode, encode
from ledger.rules.purposes import Purpose, Use, purpose_of
from ledger.rules.requests import (
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    OverageRequest,
    OverdraftRequest,
    RefundRequest,
    ReissueRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import HOUR_US, RulesLedger

names = st.text(st.characters(blacklist_characters='"\\[]{}', blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8)
rates = st.lists(st.sampled_from(("chat", "image", "gpt-4o.output")), max_size=3)
labels = st.dictionaries(names, st.lists(names, min_size=1, max_size=3), max_size=1)
CHAT = {"rates": ["chat"]}
ADA = {"labels": {"member": ["ada"]}}


@given(rates=rates, labels=labels, received=st.booleans())
def test_a_lot_is_the_same_after_it_was_stored(rates, labels, received):
    lots = (Lot(1, 5, 0, applies_to=purpose_of({"rates": rates, "labels": labels}), received=received), Lot(2, 7, 0))
    assert decode(encode(lots)) == lots


@given(rates=rates, labels=labels, rate=st.none() | st.sampled_from(("chat", "image")), metadata=st.dictionaries(names, names))
def test_a_purpose_covers_a_use_that_has_one_of_each(rates, labels, rate, metadata):
    purpose = Purpose(tuple(sorted(set(rates))), tuple((name, tuple(sorted(set(each)))) for name, each in labels.items()))
    is_covered = (not rates or rate in rates) and all(metadata.get(name) in each for name, each in labels.items())
    assert purpose.covers(Use(rate, metadata)) is is_covered
    assert not purpose.covers(None)


def test_a_purpose_is_the_same_however_its_names_are_ordered_and_repeated():
    one = purpose_of({"labels": {"member": ["bob", "ada", "bob"]}, "rates": ["image", "chat"]})
    assert one == purpose_of({"rates": ["chat", "image"], "labels": {"member": ["ada", "bob"]}})
    assert purpose_of(None) is purpose_of({}) is None
    requests = [
        GrantRequest(holder_id="ada", idempotency_key="k", amount=1, applies_to={"rates": each})
        for each in (["image", "chat"], ["chat", "image", "chat"])
    ]
    assert requests[0].digest() == requests[1].digest()


@pytest.mark.parametrize(("value", "is_covered"), [("ada", True), ("Ada", False), (None, False), (["ada"], False), (7, False)])
def test_a_label_covers_its_very_value(value, is_covered):
    assert Purpose(labels=(("member", ("ada",)),)).covers(Use(None, {"member": value})) is is_covered


def ledger_with(*grants: dict) -> RulesLedger:
    """A ledger in which ada has these lots, numbered from 1."""
    ledger = RulesLedger()
    for number, each in enumerate(grants, 1):
        execute(ledger, GrantRequest, f"grant-{number}", **each)
    return ledger


def test_a_spend_draws_in_burn_order_from_what_applies_to_it():
    ledger = ledger_with({"amount": 5, "applies_to": CHAT}, {"amount": 5, "priority": 10}, {"amount": 5, "applies_to": ADA})
    spent = execute(ledger, SpendRequest, "s", amount=9, metadata={"member": "ada"})
    assert spent.drawn == ((2, 5), (3, 4))
    assert [(lot.grant, lot.remaining) for lot in spent.lots] == [(1, 5), (3, 1)]


def test_a_refusal_says_what_there_is_for_other_things():
    ledger = ledger_with({"amount": 5, "applies_to": CHAT}, {"amount": 7, "applies_to": CHAT}, {"amount": 3, "applies_to": ADA})
    with pytest.raises(InsufficientCredits) as refused:
        execute(ledger, SpendRequest, "s", amount=4, metadata={"member": "ada"})
    facts = refused.value.facts
    assert (facts["available"], facts["shortfall"], facts["balance"]) == (3, 1, 15)
    assert facts["for_other_things"] == [{"applies_to": CHAT, "available": 12}]
    assert facts["earliest_sufficient_at"] is None
    assert [each.get("applies_to") for each in facts["lots"]] == [CHAT, CHAT, ADA]


def test_a_debt_is_not_repaid_from_credits_for_some_things():
    ledger = ledger_with()
    execute(ledger, OverdraftRequest, "o", limit=10)
    execute(ledger, SpendRequest, "s", amount=4)
    execute(ledger, GrantRequest, "g", amount=6, applies_to=ADA)
    account = ledger.account("ada")
    assert (account.owed, account.available, account.available_for(Use(None, {"member": "ada"}))) == (4, 6, 12)
    spent = execute(ledger, SpendRequest, "t", amount=12, metadata={"member": "ada"})
    assert (spent.drawn, spent.balance, ledger.account("ada").owed) == (((3, 6),), -10, 10)


def test_a_transfer_leaves_them_with_their_holder():
    ledger = ledger_with({"amount": 5, "applies_to": ADA}, {"amount": 2})
    with pytest.raises(InsufficientCredits):
        execute(ledger, TransferRequest, "t", to="bob", amount=3, metadata={"member": "ada"})
    assert execute(ledger, TransferRequest, "u", to="bob", amount=2).drawn == ((2, 2),)


def test_overage_is_used_for_what_the_lots_that_apply_lack():
    ledger = ledger_with({"amount": 5, "applies_to": CHAT})
    execute(ledger, OverageRequest, "o", limit=10)
    spent = execute(ledger, SpendRequest, "s", amount=4)
    assert (spent.drawn, spent.postpaid) == (((3, 4),), 4)


def test_a_capture_takes_what_its_hold_could_take():
    ledger = ledger_with({"amount": 5, "applies_to": CHAT}, {"amount": 9, "applies_to": ADA})
    held = execute(ledger, HoldRequest, "h", amount=4, metadata={"member": "ada"})
    with pytest.raises(InsufficientCredits):
        execute(ledger, CaptureRequest, "c", hold=held.sequence, amount=10, over_capture="if_available")
    taken = execute(ledger, CaptureRequest, "d", hold=held.sequence, amount=9, over_capture="if_available")
    assert taken.drawn == ((2, 9),)


def test_a_capture_by_a_rate_that_the_held_credits_do_not_pay_for_is_refused():
    ledger = ledger_with({"amount": 5, "applies_to": CHAT})
    account = ledger.account("ada")
    request = HoldRequest(holder_id="ada", idempotency_key="h", rate="chat", quantity=3)
    rating = {"rate": "chat", "version": 1, "quantity": 3}
    (hold,) = hold_rules.hold(account, request, amount=3, rating=rating)
    capture = CaptureRequest(holder_id="ada", idempotency_key="c", hold=hold.sequence, rate="image", quantity=1)
    with pytest.raises(Invalid) as refused:
        hold_rules.capture(
            account.after(hold), capture, amount=1, rating={**rating, "rate": "image"}, hold_entry=hold, last_closing=None
        )
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/rate", "restricted")
    entries = hold_rules.capture(account.after(hold), capture, amount=1, rating=None, hold_entry=hold, last_closing=None)
    assert entries[-1].drawn == ((1, 1),)


def test_what_comes_back_to_an_expired_lot_keeps_what_it_is_for():
    ledger = ledger_with({"amount": 5, "applies_to": ADA})
    lot = execute(ledger, ReissueRequest, "r", lot=1, priority=10).lots[0]
    assert (lot.grant, lot.applies_to) == (2, purpose_of(ADA))
    execute(ledger, GrantRequest, "g", amount=3, expires_at=from_us(ledger.now_us + HOUR_US), applies_to=CHAT)
    spent = credit_rules.spend(
        ledger.account("ada"),
        SpendRequest(holder_id="ada", idempotency_key="s", rate="chat", quantity=1),
        amount=2,
        rating={"rate": "chat", "version": 1, "quantity": 1},
    )
    ledger._keep(spent)
    ledger.now_us += 2 * HOUR_US
    back = execute(ledger, RefundRequest, "b", spend=spent[-1].sequence)
    (opened,) = [lot for lot in back.lots if lot.grant == back.sequence]
    assert (opened.remaining, opened.applies_to) == (2, purpose_of(CHAT))
