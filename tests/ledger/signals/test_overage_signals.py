"""What a grant on overage is a cause of: the first use of a period, 80 % of the limit, the limit."""

from ledger.rules.requests import GrantRequest, OverageRequest, SpendRequest
from ledger.signals.types import OVERAGE_LIMIT_REACHED, OVERAGE_NEAR_LIMIT, OVERAGE_STARTED, types_of
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import DAY_US, RulesLedger

STARTED, NEAR, REACHED = (each.name for each in (OVERAGE_STARTED, OVERAGE_NEAR_LIMIT, OVERAGE_LIMIT_REACHED))


def signals(ledger: RulesLedger, amount: int) -> list[str]:
    """The signals about overage that a spend causes."""
    before = len(ledger.in_order)
    execute(ledger, SpendRequest, f"s{before}", amount=amount)
    return [name for entry in ledger.in_order[before:] for name in types_of(entry) if name.startswith("overage.")]


def test_each_is_sent_when_it_is_reached_and_once_a_period():
    ledger = RulesLedger()
    execute(ledger, OverageRequest, "o", limit=10, interval="day")
    assert [signals(ledger, amount) for amount in (1, 6, 1, 1, 1)] == [[STARTED], [], [NEAR], [], [REACHED]]
    ledger.now_us += DAY_US
    assert signals(ledger, 10) == [STARTED, NEAR, REACHED]


def test_without_a_limit_only_the_first_use_is_told():
    ledger = RulesLedger()
    execute(ledger, OverageRequest, "o", interval="day")
    execute(ledger, GrantRequest, "g", amount=5)
    assert [signals(ledger, amount) for amount in (5, 100, 100)] == [[], [STARTED], []]
