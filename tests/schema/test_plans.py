"""An operation reads as few entries of a holder with many as of one with few, also if its plan is of a time when all had few."""

from collections.abc import Sequence

import pytest
from django.db import connection

from ledger import services
from ledger.rules.requests import GrantRequest, SpendRequest

pytestmark = [pytest.mark.django_db, pytest.mark.one_node("on a cluster the nodes of the shards count what is read")]

SPENDS = 100


def entries_read() -> int:
    """How many entries this transaction has read so far, by scans of the table or of an index."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'ledger_entry'")
        (count,) = cursor.fetchone()
    return int(count)


def grant_one_each(holders: int) -> None:
    """Give credits to this number of new holders, as an import does."""
    grants = [GrantRequest(holder_id=f"h{n}", amount=1_000_000, idempotency_key="import", actor="x") for n in range(holders)]
    services.batch(grants, mode="each", idempotency_key="import")


def spend(key: str) -> Sequence[services.OperationOutcome]:
    """Spend SPENDS times from one holder, in one batch."""
    spends = [SpendRequest(holder_id="h1", amount=1, idempotency_key=f"{key}-{n}", actor="x") for n in range(SPENDS)]
    return services.batch(spends, mode="each", idempotency_key=key).outcomes


def analyze() -> None:
    """Collect statistics: the session makes all its plans again."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_entry")


@pytest.mark.parametrize("holders", [3, 60, 1_000])
def test_a_spend_of_a_holder_with_many_entries_reads_as_few_as_one_of_a_holder_with_one(holders: int) -> None:
    grant_one_each(holders)
    analyze()
    spend("first")
    before = entries_read()
    spend("second")
    second = entries_read() - before
    # None of the last spends is the 256th entry, which sums up the others: 601 … 701.
    for number in range(4):
        spend(f"more-{number}")
    before = entries_read()
    outcomes = spend("last")
    assert entries_read() - before == second
    # Its last entry once, and for the trigger the entry before each new one.
    assert second <= 2 * SPENDS
    assert [outcome.entry.sequence for outcome in outcomes if outcome.entry][-1] == 1 + 7 * SPENDS


def test_a_repeated_request_finds_its_entry_without_reading_the_others() -> None:
    grant_one_each(1_000)
    analyze()
    for number in range(5):
        spend(f"{number}")
    before = entries_read()
    repeated = services.spend(holder_id="h1", amount=1, idempotency_key="3-50", actor="x")
    assert repeated.replayed
    assert entries_read() - before <= 5


def test_statistics_of_a_few_rows_are_not_collected_by_the_server() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT unnest(reloptions) FROM pg_class WHERE relname = 'ledger_entry'")
        assert ("autovacuum_analyze_threshold=1000",) in cursor.fetchall()
