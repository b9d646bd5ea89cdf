"""The audit adds up again what accounts used, from their entries alone."""

import pytest
from psycopg import Connection

from ledger import rules
from ledger.rules import Entry
from ledger.rules.instants import from_us
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken
from tests.ledger.random_histories import HOUR_US, START_US, RulesLedger
from tests.ledger.rules.credit_model import DAY_US


def history() -> list[Entry]:
    """More than 256 entries of ada on three days: spends with labels and by a rate, refunds, holds with captures."""
    ledger = RulesLedger()
    execute(ledger, rules.GrantRequest, "g", amount=100_000)
    for number in range(90):
        ledger.now_us += HOUR_US * 3 // 4
        member = f"m{number % 7}"
        spend = execute(ledger, rules.SpendRequest, f"s{number}", amount=20, metadata={"model": "large", "member": member})
        until = from_us(START_US + 20 * DAY_US)
        labels = {"model": "large", "member": member}
        hold = execute(ledger, rules.HoldRequest, f"h{number}", amount=9, expires_at=until, metadata=labels)
        if number % 3 == 0:
            execute(ledger, rules.RefundRequest, f"r{number}", spend=spend.sequence, amount=5)
        execute(ledger, rules.CaptureRequest, f"c{number}", hold=hold.sequence, amount=8, metadata={"model": "small"})
    return ledger.in_order


TAMPERINGS = [
    "UPDATE ledger_usage SET amount = amount + 1 WHERE value = 'm1'",
    "UPDATE ledger_usage SET quarter_amounts[1] = quarter_amounts[1] + 1, amount = amount + 1 WHERE value = 'm1'",
    "UPDATE ledger_usage SET quarter_postpaid[1] = 1, postpaid = postpaid + 1 WHERE dimension = ''",
    "UPDATE ledger_usage SET quarter_entries[1] = quarter_entries[1] + 1, entries = entries + 1 WHERE dimension = ''",
    "UPDATE ledger_usage SET quarters[1] = quarters[1] + 1 WHERE value = 'small'",
    "UPDATE ledger_usage SET value = 'm8' WHERE value = 'm1'",
    "UPDATE ledger_usage SET dimension = 'label:team' WHERE dimension = 'label:member'",
    "UPDATE ledger_usage SET day = day - 10 WHERE value = 'large'",
    "DELETE FROM ledger_usage WHERE value = 'm1'",
    "DELETE FROM ledger_usage",
    "INSERT INTO ledger_usage VALUES ('ada', 'credits', 1, '2026-01-01', 3, 0, 'label:member', 'cy', '{5}', '{3}', '{0}', '{1}')",
    "INSERT INTO ledger_usage VALUES ('bob', 'credits', 1, '2026-01-01', 3, 0, '', '', '{5}', '{3}', '{0}', '{1}')",
]


@pytest.mark.products(most=3)
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_sum_that_the_entries_do_not_add_up_to_is_found(empty_ledger: Connection, tampering: str) -> None:
    store(empty_ledger, history())
    assert laws_broken(empty_ledger) == {}
    assert empty_ledger.execute(tampering).rowcount > 0
    assert laws_broken(empty_ledger).keys() == {"usage"}


def test_entries_whose_sums_were_never_made_are_found(empty_ledger: Connection) -> None:
    empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER summed")
    store(empty_ledger, history())
    assert laws_broken(empty_ledger).keys() == {"usage"}
