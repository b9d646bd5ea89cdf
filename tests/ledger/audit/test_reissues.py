"""The audit finds new terms that are not of one whole lot, or that change more than expiry and priority."""

import pytest

from ledger.rules.lots import Lot
from ledger.rules.requests import GrantRequest, ReissueRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")

OTHER = Lot(2, 5, 0)


@pytest.fixture
def history() -> RulesLedger:
    """1 grant of 10, 2 grant of 5, 3 lot 1 gets priority 200."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=10)
    execute(ledger, GrantRequest, "2", amount=5)
    execute(ledger, ReissueRequest, "3", lot=1, priority=200)
    return ledger


def test_other_terms_break_no_law(empty_ledger, history):
    store(empty_ledger, history.in_order)
    assert laws_broken(empty_ledger) == {}


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("values", "laws"),
    [
        ({"lots": (OTHER, Lot(3, 10, 0, None, 200, "promotional"))}, {"terms"}),
        ({"lots": (OTHER, Lot(3, 10, 0, None, 200, received=True))}, {"terms"}),
        ({"lots": (OTHER, Lot(3, 10, 0))}, {"terms"}),
        ({"lots": (Lot(1, 4, 0), OTHER, Lot(3, 6, 0, None, 200)), "drawn": ((1, 6),)}, {"drawn"}),
        ({"refers_to": 2}, {"drawn"}),
        ({"refers_to": None}, {"drawn", "refers-to", "terms"}),
        ({"drawn": ()}, {"drawn", "lots"}),
    ],
    ids=["another source", "received", "the same terms", "a part", "another lot", "no lot", "from nothing"],
)
def test_wrong_terms_are_found(empty_ledger, history, values, laws):
    entries = history.entries["ada"]
    store(empty_ledger, rechained([*entries[:2], entries[2]._replace(**values)]))
    found = laws_broken(empty_ledger)
    assert (found.keys(), set().union(*found.values())) == (laws, {3})
