"""What entries move of the costs of lots, in worked examples; test_any_order.py compares random histories with a model."""

import pytest

from ledger.errors import Invalid
from ledger.rules.cost_shares import Cost, CostChange, LotCost, decode_changes, decode_costs, encode_costs
from ledger.rules.requests import (
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    RefundRequest,
    ReissueRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import RulesLedger
from tests.ledger.rules.credit_model import DAY_US


@pytest.fixture
def ledger() -> RulesLedger:
    """Lot 1: 3 credits for 1.00 EUR."""
    history = RulesLedger()
    sell(history, "1", 3, 100)
    return history


def sell(history, key, amount, minor, currency="EUR", **more):
    return execute(history, GrantRequest, key, amount=amount, paid_minor=minor, currency=currency, **more)


def costs(history, holder="ada"):
    return history.account(holder).costs


def test_the_shares_of_all_draws_add_up_and_the_last_takes_the_remainder(ledger):
    spends = [execute(ledger, SpendRequest, f"s{number}", amount=1) for number in range(3)]
    assert [spend.recognised for spend in spends] == [(Cost(33, "EUR"),), (Cost(33, "EUR"),), (Cost(34, "EUR"),)]
    assert [spend.costs for spend in spends] == [(LotCost(1, 67, "EUR", 100, 3),), (LotCost(1, 34, "EUR", 100, 3),), ()]


def test_a_refund_gives_back_the_share_of_its_spend_and_the_last_part_the_rest(ledger):
    spend = execute(ledger, SpendRequest, "s", amount=3)
    back = [execute(ledger, RefundRequest, f"r{number}", spend=spend.sequence, amount=1) for number in range(3)]
    assert [refund.recognised[0].minor for refund in back] == [-33, -33, -34]
    assert back[-1].costs == (LotCost(1, 100, "EUR", 100, 3),)


def test_a_hold_recognises_nothing_and_its_capture_its_share_of_the_whole_lot():
    history = RulesLedger()
    sell(history, "1", 1_000_000, 1_000)
    for number in range(20):
        hold = execute(history, HoldRequest, f"h{number}", amount=10_000)
        assert (hold.cost_changes, hold.recognised) == ((), ())
        execute(history, CaptureRequest, f"c{number}", hold=hold.sequence, amount=100)
    # 2,000 credits at a thousandth of a cent: each capture alone is worth a tenth of a cent.
    assert costs(history) == (LotCost(1, 998, "EUR", 1_000, 1_000_000),)


def test_expiry_is_breakage_and_a_revocation_takes_its_share(ledger):
    sell(ledger, "2", 10, 1_000, expires_at=rules_time(ledger, 1))
    execute(ledger, RevokeRequest, "v", grant=1, amount=1)
    ledger.now_us += 2 * DAY_US
    execute(ledger, SpendRequest, "s", amount=1)
    by_kind = {entry.kind: entry.cost_changes for entry in ledger.entries["ada"]}
    assert by_kind["revoke"] == (CostChange(1, -33, "EUR"),)
    assert by_kind["expire"] == (CostChange(2, -1_000, "EUR"),)
    assert by_kind["spend"] == (CostChange(1, -33, "EUR"),)


def rules_time(ledger, days):
    from ledger.rules.instants import from_us

    return from_us(ledger.now_us + days * DAY_US)


def test_a_transferred_part_carries_its_share_and_receipts_of_one_currency_share_a_lot(ledger):
    sell(ledger, "2", 3, 200, currency="JPY")
    for number in range(2):
        execute(ledger, TransferRequest, f"t{number}", to="bob", amount=1)
    execute(ledger, TransferRequest, "t2", to="bob", amount=2)
    assert costs(ledger) == (LotCost(2, 134, "JPY", 200, 3),)
    assert costs(ledger, "bob") == (LotCost(1, 100, "EUR", 100, 3), LotCost(4, 66, "JPY", 66, 1))
    assert len(ledger.account("bob").lots) == 2


def test_a_shared_lot_recognises_small_receipts_in_time():
    history = RulesLedger()
    sell(history, "1", 100_000, 1_000)
    for number in range(100):
        execute(history, TransferRequest, f"t{number}", to="bob", amount=10)
        execute(history, SpendRequest, f"s{number}", holder_id="bob", amount=9)
    # 100 receipts of a tenth of a cent; bob has a tenth of them left.
    assert 1_000 - costs(history)[0].left == 10
    assert costs(history, "bob")[0].left in (1, 2)


def test_a_repayment_of_the_overdraft_recognises_what_pays_for_it(ledger):
    execute(ledger, OverdraftRequest, "o", limit=10)
    spend = execute(ledger, SpendRequest, "s", amount=5)
    assert spend.recognised == (Cost(100, "EUR"),)
    sell(ledger, "2", 4, 1_000, currency="JPY")
    repayment = ledger.entries["ada"][-1]
    assert (repayment.kind, repayment.recognised) == ("adjust", (Cost(500, "JPY"),))
    refund = execute(ledger, RefundRequest, "r", spend=spend.sequence)
    assert refund.recognised == (Cost(-100, "EUR"), Cost(-500, "JPY"))


def test_other_terms_move_the_cost_and_promotional_credits_have_none(ledger):
    execute(ledger, GrantRequest, "2", amount=5, source="promotional")
    spend = execute(ledger, SpendRequest, "s", amount=6)
    assert (spend.recognised, len(spend.cost_changes)) == ((Cost(33, "EUR"),), 1)
    moved = execute(ledger, ReissueRequest, "n", lot=1, priority=5)
    assert moved.cost_changes == (CostChange(1, -67, "EUR"), CostChange(moved.sequence, 67, "EUR"))
    assert moved.recognised == ()


def test_an_account_without_sold_credits_stores_nothing_about_costs():
    history = RulesLedger()
    execute(history, GrantRequest, "1", amount=10)
    spend = execute(history, SpendRequest, "s", amount=1)
    assert (spend.sale, spend.costs, spend.cost_changes) == (None, (), ())


def test_the_stored_forms_are_read_back():
    stored = (LotCost(1, 67, "EUR", 100, 3), LotCost(4, 5, "JPY", 5, 9, 333_333))
    assert encode_costs(stored) == '[[1,67,"EUR",100,3],[4,5,"JPY",5,9,333333]]'
    assert decode_costs(encode_costs(stored)) == stored
    changes = (CostChange(1, -33, "EUR"),)
    assert decode_changes(encode_costs(changes)) == changes


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"paid_minor": 1}, "/currency"),
        ({"currency": "EUR"}, "/paid_minor"),
        ({"document": "INV-1"}, "/document"),
        ({"paid_minor": 1, "currency": "EUR", "source": "promotional"}, "/paid_minor"),
        ({"paid_minor": -1, "currency": "EUR"}, "/paid_minor"),
        ({"paid_minor": 1, "currency": "XYZ"}, "/currency"),
    ],
)
def test_a_sale_that_is_not_whole_is_refused(fields, pointer):
    with pytest.raises(Invalid) as refused:
        GrantRequest(holder_id="ada", idempotency_key="1", amount=1, **fields)
    assert refused.value.pointer == pointer


def test_a_price_without_its_currency_is_refused_in_words():
    with pytest.raises(Invalid) as refused:
        GrantRequest(holder_id="ada", idempotency_key="1", amount=1, paid_minor=1)
    detail = "give both paid_minor and currency, or neither"
    assert refused.value.facts == {"pointer": "/currency", "rule": "required", "detail": detail}


def test_a_sale_is_part_of_the_request_and_earlier_requests_keep_their_digests():
    plain = GrantRequest(holder_id="ada", idempotency_key="1", amount=1)
    sold = GrantRequest(holder_id="ada", idempotency_key="1", amount=1, paid_minor=0, currency="EUR")
    assert "currency" not in plain.content()
    assert plain.digest() != sold.digest()
