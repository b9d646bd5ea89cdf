"""Credits for some things only: the audit and the database find what takes them for others, or changes what they are for."""

import pytest
from psycopg import Error

from ledger.rules.entries import Entry
from ledger.rules.holds import Hold
from ledger.rules.lots import SINCE_ITS_GRANT, Lot
from ledger.rules.purposes import purpose_of
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, RefundRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import START_US, RulesLedger
from tests.parts import spread

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")

ADA = {"member": "ada"}
FOR_ADA = purpose_of({"labels": {"member": ["ada", "bob"]}})
FOR_CHAT = purpose_of({"rates": ["chat"]})


def history() -> list[Entry]:
    """1 grant for all, 2 for ada, 3 for chat; 4 spend by ada, 5 spend by nobody, 6 hold by ada, 7 capture beyond it, 8 refund."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=50, priority=200)
    execute(ledger, GrantRequest, "2", amount=30, applies_to={"labels": {"member": ["bob", "ada", "bob"]}})
    execute(ledger, GrantRequest, "3", amount=20, applies_to={"rates": ["chat"]})
    execute(ledger, SpendRequest, "4", amount=5, metadata=ADA)
    execute(ledger, SpendRequest, "5", amount=5)
    execute(ledger, HoldRequest, "6", amount=10, metadata=ADA)
    execute(ledger, CaptureRequest, "7", hold=6, amount=12, over_capture="if_available")
    execute(ledger, RefundRequest, "8", spend=7, amount=3)
    return ledger.entries["ada"]


def lot(number: int, remaining: int) -> Lot:
    """A lot of the history."""
    priority, purpose = {1: (200, None), 2: (100, FOR_ADA), 3: (100, FOR_CHAT)}[number]
    return Lot(number, remaining, SINCE_ITS_GRANT, priority=priority, applies_to=purpose)


HELD = (Hold(6, START_US + 3_600_000_000, (lot(3, 10),)),)
TAMPERINGS: dict[str, tuple[Tampering, dict[str, set[int | None]]]] = {
    "a spend by ada takes credits for chat": (
        changed(4, drawn=((3, 5),), lots=(lot(2, 30), lot(3, 15), lot(1, 50))),
        {"purpose": {4}, "burn-order": {4}, "lots": {5}},
    ),
    "a spend by nobody takes credits for ada": (
        changed(5, drawn=((2, 5),), lots=(lot(2, 20), lot(3, 20), lot(1, 50))),
        {"purpose": {5}, "burn-order": {5}, "lots": {6}},
    ),
    "a spend by ada was one by cy": (changed(4, metadata={"member": "cy"}), {"purpose": {4}, "burn-order": {4}}),
    "a hold by ada sets credits for chat aside": (
        changed(6, drawn=((3, 10),), lots=(lot(2, 25), lot(3, 10), lot(1, 45)), holds=HELD),
        {"purpose": {6}, "burn-order": {6, 7}},
    ),
    "a capture takes credits for chat": (
        changed(7, drawn=((2, 10), (3, 2)), lots=(lot(2, 15), lot(3, 18), lot(1, 45))),
        {"purpose": {7}, "burn-order": {7}, "lots": {8}, "refunds": {8}},
    ),
    "a lot is for other members than it was": (
        changed(5, lots=(lot(2, 25)._replace(applies_to=purpose_of({"labels": {"member": ["ada"]}})), lot(3, 20), lot(1, 45))),
        {"terms": {5, 6}, "holds": {6}},
    ),
    "a lot becomes one for everything": (
        changed(5, lots=(lot(2, 25)._replace(applies_to=None), lot(3, 20), lot(1, 45))),
        {"terms": {5, 6}, "holds": {6}},
    ),
}


def test_what_the_rules_made_breaks_no_law(empty_ledger):
    entries = history()
    assert [entry.drawn for entry in entries[3:]] == [((2, 5),), ((1, 5),), ((2, 10),), ((2, 12),), ((2, 3),)]
    empty_ledger.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == {}
    assert laws_broken(empty_ledger, slice_entries=2) == {}


@pytest.mark.parametrize("name", spread(TAMPERINGS, test=[*TAMPERINGS][:2], check=TAMPERINGS))
def test_each_change_is_found(empty_ledger, name):
    tamper, broken = TAMPERINGS[name]
    with empty_ledger.transaction(force_rollback=True):
        empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        store(empty_ledger, rechained(tamper(history())))
        assert laws_broken(empty_ledger) == broken


@pytest.mark.parametrize("name", [name for name, (_, broken) in TAMPERINGS.items() if "purpose" in broken])
def test_the_database_refuses_what_takes_credits_for_other_things(empty_ledger, name):
    empty_ledger.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    with pytest.raises(Error) as refused:
        store(empty_ledger, rechained(TAMPERINGS[name][0](history())))
    assert refused.value.sqlstate == "LG002"


def test_lots_have_one_form(empty_ledger):
    with empty_ledger.transaction(force_rollback=True):
        store(empty_ledger, history())
        empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER ALL")
        empty_ledger.execute(
            """UPDATE ledger_entry SET lots = replace(lots::text, '"labels"', '"label"')::json WHERE sequence = 5"""
        )
        assert 5 in laws_broken(empty_ledger)["form"]
