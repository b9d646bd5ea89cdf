"""The audit counts claims again from the entries: each change of them is found."""

import pytest
from psycopg import Error

from ledger.rules.claims import LotClaim
from ledger.rules.entries import Entry
from ledger.rules.requests import ClaimRequest, EndClaimRequest, GrantRequest, RefundRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger
from tests.parts import spread

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")


def history() -> list[Entry]:
    """1 grant, 2 spend, 3 and 4 claims, 5 refund, 6 and 7 take 70 and 10 back, 8 withdraws the second claim, 9 grant."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=90)
    execute(ledger, SpendRequest, "2", amount=90)
    execute(ledger, ClaimRequest, "3", lots=[1], amount=70)
    execute(ledger, ClaimRequest, "4", lots=[9, 1], amount=20)
    execute(ledger, RefundRequest, "5", spend=2, amount=80)
    execute(ledger, EndClaimRequest, "6", claim=4)
    execute(ledger, GrantRequest, "7", amount=5)
    return ledger.entries["ada"]


FIRST, SECOND = LotClaim(3, 70, (1,)), LotClaim(4, 20, (9, 1))
TAMPERINGS: dict[str, tuple[Tampering, set[int | None]]] = {
    "a claim is larger than was asked": (changed(3, claims=(FIRST._replace(amount=71),)), {3, 4}),
    "it is on another lot": (changed(3, claims=(FIRST._replace(lots=(2,)),)), {3, 4}),
    "it is forgotten": (changed(4, claims=(SECOND,)), {4, 5}),
    "a refund ends it": (changed(5, claims=(SECOND,)), {5, 6}),
    "less is settled than was taken back": (changed(6, claims=(FIRST, SECOND)), {6, 7}),
    "another claim is settled": (changed(6, claims=(FIRST._replace(amount=20),)), {6, 7}),
    "more is withdrawn than was left": (changed(8, counterpart={"claim": "withdrawn", "amount": 9, "setting": 4}), {8}),
    "it stays after it was withdrawn": (changed(8, claims=(SECOND,)), {8, 9}),
    "one appears": (changed(9, claims=(FIRST,)), {9}),
}


def test_what_the_rules_made_breaks_no_law(empty_ledger):
    store(empty_ledger, history())
    assert laws_broken(empty_ledger) == {}
    assert laws_broken(empty_ledger, slice_entries=2) == {}


@pytest.mark.parametrize("name", spread(TAMPERINGS, test=[*TAMPERINGS][:2], check=TAMPERINGS))
def test_each_change_is_found(empty_ledger, name):
    tamper, sequences = TAMPERINGS[name]
    with empty_ledger.transaction(force_rollback=True):
        empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        store(empty_ledger, rechained(tamper(history())))
        assert laws_broken(empty_ledger) == {"claims": sequences}


def test_what_came_back_and_was_not_taken_back_is_found(empty_ledger):
    with empty_ledger.transaction(force_rollback=True):
        store(empty_ledger, history()[:5])
        assert laws_broken(empty_ledger) == {"claims": {5}}


@pytest.mark.parametrize("name", ["a refund ends it", "another claim is settled", "one appears"])
def test_the_database_refuses_it_too(empty_ledger, name):
    empty_ledger.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    with pytest.raises(Error) as refused:
        store(empty_ledger, rechained(TAMPERINGS[name][0](history())))
    assert refused.value.sqlstate == "LG002"
