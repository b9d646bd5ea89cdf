"""The audit finds moves of a test clock that were changed, and what was decided at another time than the clock's."""

from datetime import UTC, datetime, timedelta

import pytest

from ledger.rules.decisions import credit_rules
from ledger.rules.entries import Entry
from ledger.rules.instants import to_us
from ledger.rules.requests import ClockRequest, GrantRequest, HoldRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")

START = datetime(2040, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class ClockedLedger(RulesLedger):
    """A ledger of the rules alone whose holder has a test clock."""

    def _decide(self, account, request):
        if isinstance(request, ClockRequest):
            moves = sum(entry.clock_us is not None for entry in self.entries.get(account.holder_id, []))
            return credit_rules.set_clock(account, request, moves=moves)
        return super()._decide(account, request)

    def account(self, holder_id):
        account = super().account(holder_id)
        shown = [entry.clock_us for entry in self.entries.get(holder_id, []) if entry.clock_us is not None]
        return account._replace(now_us=shown[-1], server_us=self.now_us) if shown else account


def clocked() -> list[Entry]:
    """1 grant, 2 move of the clock, 3 grant that expires a day later, 4 spend of it, 5 hold, 6 move beyond, 7 release and
    8 expiry at their times, 9 spend."""
    ledger = ClockedLedger()
    for kind, fields in (
        (GrantRequest, {"amount": 100}),
        (ClockRequest, {"now": START}),
        (GrantRequest, {"amount": 10, "expires_at": START + DAY}),
        (SpendRequest, {"amount": 4}),
        (HoldRequest, {"amount": 1}),
        (ClockRequest, {"now": START + 2 * DAY}),
        (SpendRequest, {"amount": 7}),
    ):
        ledger.now_us += 1_000_000
        execute(ledger, kind, f"{kind.__name__}-{ledger.now_us}", **fields)
    return ledger.entries["ada"]


@pytest.fixture(autouse=True)
def _ten_years_are_enough(monkeypatch):
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_CLOCK_MOVE_US", to_us(START))


def test_what_follows_a_clock_breaks_no_law(empty_ledger):
    entries = clocked()
    assert [entry.kind for entry in entries] == [
        "grant", "adjust", "grant", "spend", "hold", "adjust", "release", "expire", "spend",
    ]  # fmt: skip
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == {}


def with_values(number: int, **values) -> list[Entry]:
    """The history, in which the entry of that number has other values and the chain is whole."""
    return rechained([entry._replace(**values) if entry.sequence == number else entry for entry in clocked()])


@pytest.mark.parametrize(
    ("number", "values", "found"),
    [
        (2, {"counterpart": {"clock": "2040-03-02T00:00:00.000000Z", "tick": 1}}, {"time": {4, 5, 6}}),
        (6, {"counterpart": {"clock": "2040-02-01T00:00:00.000000Z", "tick": 2}}, {"clocks": {6}, "time": {8, 9}}),
        (6, {"counterpart": {"clock": "2040-03-03T00:00:00.000000Z", "tick": 3}}, {"clocks": {6}}),
        (6, {"drawn": ((1, 1),)}, {"clocks": {6}}),
        (4, {"effective_us": 0}, {"time": {4}}),
        (9, {"effective_us": to_us(START + DAY)}, {"time": {9}}),
    ],
    ids=["a later first move", "a move back", "a gap", "a move that draws", "a spend at another time", "a spend before the move"],
)
def test_a_changed_clock_is_found(empty_ledger, number, values, found):
    store(empty_ledger, with_values(number, **values))
    broken = laws_broken(empty_ledger)
    assert {law: broken.get(law, set()) & numbers for law, numbers in found.items()} == found


def test_a_spend_at_the_servers_time_in_spite_of_the_clock_is_found(empty_ledger):
    spend = clocked()[3]
    store(empty_ledger, with_values(4, effective_us=spend.recorded_us))
    assert laws_broken(empty_ledger)["time"] == {4}
