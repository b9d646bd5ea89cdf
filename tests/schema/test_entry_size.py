"""An entry with its share of the indexes stays small, measured with 40,000 entries in a new database."""

import pytest
from django.core.management import call_command

from ledger.database import schema_versions
from tests.benchmarks.entry_size import HOLDERS, measure
from tests.benchmarks.histories import Plan, load

ENTRIES = 40_000
MOST_BYTES = 500
"""For entries with three lots that expire, a reason of 16 characters, a reference of 20, and UUIDs as keys. See docs/adr/0011."""


@pytest.mark.slow
def test_an_entry_with_three_lots_takes_500_bytes_at_most(scratch_database, monkeypatch):
    monkeypatch.setattr(schema_versions, "LEDGER_ALIAS", scratch_database.alias)
    call_command("migrate", database=scratch_database.alias, verbosity=0)
    with scratch_database.cursor():
        connection = scratch_database.connection
    load(f"{connection.info.dsn} password={connection.info.password}", Plan(HOLDERS, ENTRIES))
    found = measure(connection)
    assert found.entries == ENTRIES
    assert found.open_lots > 2.8
    assert found.total <= MOST_BYTES, str(found)
