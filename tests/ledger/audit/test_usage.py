"""The audit adds up again what accounts used, from their entries alone."""

import pytest
from psycopg import Connection

from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, RefundRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import FREE, HOUR_US, START_US, RulesLedger
from tests.ledger.rules.credit_model import DAY_US


def history() -> list[Entry]:
    """More than 256 entries of ada on three days: spends with labels, some by a rate, refunds, holds with captures."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "g", amount=100_000)
    for number in range(90):
        ledger.now_us += HOUR_US * 3 // 4
        member = f"m{number % 7}"
        spend = execute(ledger, SpendRequest, f"s{number}", amount=20, metadata={"model": "large", "member": member})
        until = from_us(START_US + 20 * DAY_US)
        labels = {"model": "large", "member": member}
        hold = execute(ledger, HoldRequest, f"h{number}", amount=9, expires_at=until, metadata=labels)
        if number % 3 == 0:
            execute(ledger, RefundRequest, f"r{number}", spend=spend.sequence, amount=5)
        execute(ledger, CaptureRequest, f"c{number}", hold=hold.sequence, amount=8, metadata={"model": "small"})
        if number % 5 == 0:
            execute(ledger, SpendRequest, f"f{number}", rate=FREE, quantity=3, metadata={"member": member})
    rating = {"rate": FREE, "version": 1, "quantity": 3}
    return rechained(
        [each._replace(rating=rating) if (each.idempotency_key or "").startswith("f") else each for each in ledger.in_order]
    )


OF_LABEL = "'{5}', '{1}', '{3}', '{0}', '{1}', '{NULL}', '{3}', '{0}', '{1}'"
OF_ALL = "'{5}', '{0}', '{3}', '{0}', '{1}', '{}', '{}', '{}', '{}'"
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
    "UPDATE ledger_usage SET rate_amounts[1] = rate_amounts[1] + 1 WHERE value = 'm1'",
    "UPDATE ledger_usage SET rate_postpaid[1] = 1 WHERE value = 'm1'",
    "UPDATE ledger_usage SET rate_entries[1] = rate_entries[1] + 1 WHERE value = 'm1'",
    "UPDATE ledger_usage SET rates[1] = 'other' WHERE value = 'm1'",
    "UPDATE ledger_usage SET rates[1] = '' WHERE value = 'm1'",
    "UPDATE ledger_usage SET rates = array_fill(NULL::text, ARRAY[cardinality(rates)]) WHERE 'free' = ANY (rates)",
    "UPDATE ledger_usage SET quarter_rates[1] = 3 - quarter_rates[1] WHERE value = 'm1' AND cardinality(rates) = 2",
    """
    UPDATE ledger_usage SET rates = array_append(rates, 'other'), rate_amounts = rate_amounts || 0::numeric,
        rate_postpaid = rate_postpaid || 0::numeric, rate_entries = rate_entries || 1::bigint
    WHERE value = 'm1'
    """,
    f"INSERT INTO ledger_usage VALUES ('ada', 'credits', 1, '2026-01-01', 3, 0, 'label:member', 'cy', {OF_LABEL})",
    f"INSERT INTO ledger_usage VALUES ('bob', 'credits', 1, '2026-01-01', 3, 0, '', '', {OF_ALL})",
]


PUBLISHED = """
INSERT INTO ledger_rate (credit_type, code, version, price, per, published_at, published_by, published_because)
VALUES ('credits', 'free', 1, 0, 1, now(), 'test', '')
"""


@pytest.mark.products(most=3)
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_sum_that_the_entries_do_not_add_up_to_is_found(empty_ledger: Connection, tampering: str) -> None:
    empty_ledger.execute(PUBLISHED)
    store(empty_ledger, history())
    assert laws_broken(empty_ledger) == {}
    assert empty_ledger.execute(tampering).rowcount > 0
    assert laws_broken(empty_ledger).keys() == {"usage"}


def test_entries_whose_sums_were_never_made_are_found(empty_ledger: Connection) -> None:
    empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER summed")
    empty_ledger.execute(PUBLISHED)
    store(empty_ledger, history())
    assert laws_broken(empty_ledger).keys() == {"usage"}
