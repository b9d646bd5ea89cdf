"""The audit counts overage again from the entries: each change of it is found."""

import pytest

from ledger.rules.entries import Entry
from ledger.rules.requests import GrantRequest, HoldRequest, OverageRequest, RefundRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger
from tests.parts import spread

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")


def history() -> list[Entry]:
    """1 overage of 50, 2 grant of 10, 3 postpaid 20, 4 spend of 30, 5 refund of 5, 6 given back, 7 postpaid 5, 8 hold of 5."""
    ledger = RulesLedger()
    execute(ledger, OverageRequest, "1", limit=50)
    execute(ledger, GrantRequest, "2", amount=10)
    execute(ledger, SpendRequest, "3", amount=30)
    execute(ledger, RefundRequest, "4", spend=4, amount=5)
    execute(ledger, HoldRequest, "5", amount=5)
    return ledger.entries["ada"]


def overage(sequence: int, **values: int | None) -> Tampering:
    """A tampering that gives the overage of this entry and of all after it other values."""
    return lambda entries: [
        each._replace(overage=each.overage._replace(**values)) if each.overage and each.sequence >= sequence else each
        for each in entries
    ]


TAMPERINGS: dict[str, tuple[Tampering, set[int | None]]] = {
    "less is used": (overage(4, used=19), {4, 6, 7}),
    "nothing is used any more": (overage(8, used=0), {8}),
    "the limit is raised": (overage(4, limit=60), {4}),
    "the limit was lower": (overage(1, limit=19), {3, 7}),
    "a spend hides what was postpaid": (changed(4, postpaid=None), {4}),
    "a refund says more": (changed(5, postpaid=6), {5}),
    "a grant of a request is called postpaid": (changed(2, postpaid=10), {2, 3}),
    "it gets no end": (overage(8, ends_us=1), {8}),
    "the state is lost": (lambda entries: [each._replace(overage=None) if each.sequence == 8 else each for each in entries], {8}),
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
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_postpaid_fits_kind")
        store(empty_ledger, rechained(tamper(history())))
        assert laws_broken(empty_ledger) == {"overage": sequences}


def test_what_was_granted_and_not_taken_is_found(empty_ledger):
    with empty_ledger.transaction(force_rollback=True):
        store(empty_ledger, history()[:3])
        assert laws_broken(empty_ledger) == {"overage": {3}}
