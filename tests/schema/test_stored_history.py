"""Entries as an earlier release stored them: migrated, audited, gone on with, and migrated back as they were.

entries_of_0004.copy holds entries of every kind, of three accounts, as COPY wrote them at migration 0004.
"""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from ledger import rules
from ledger.audit import audit
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.rules import KINDS, Account, Entry
from ledger.rules.instants import DAY_US
from tests.benchmarks.histories import store

STORED = (Path(__file__).parent / "entries_of_0004.copy").read_bytes()
COLUMNS_OF_0004 = """holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, holds, overdraft, closes,
settled, idempotency_key, request_digest, effective_at, recorded_at, actor, reason, reference, metadata, counterpart, rating,
previous_digest, digest"""
HOLDERS = ("ada", "bob", "cy")


def migrate(database: BaseDatabaseWrapper, name: str | None = None) -> None:
    executor = MigrationExecutor(database)
    targets = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] == "ledger"] if name is None else [("ledger", name)]
    executor.migrate(targets)


def copied(session: psycopg.Connection[Any]) -> bytes:
    query = f"COPY (SELECT {COLUMNS_OF_0004} FROM ledger_entry ORDER BY recorded_at, holder_id, sequence) TO STDOUT"
    with session.cursor().copy(query) as copy:
        return b"".join(bytes(block) for block in copy)


def last_entry(session: psycopg.Connection[Any], holder_id: str) -> Entry:
    row = session.execute(
        f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s ORDER BY sequence DESC LIMIT 1", [holder_id]
    ).fetchone()
    assert row is not None
    return entry_from_row(row)


@pytest.fixture
def migrated(scratch_database: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """The stored history, in the schema of today."""
    migrate(scratch_database, "0004_operators_pages")
    with scratch_database.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        with cursor.copy(f"COPY ledger_entry ({COLUMNS_OF_0004}) FROM STDIN") as copy:
            copy.write(STORED)
    migrate(scratch_database)
    return scratch_database


def test_the_stored_history_has_entries_of_every_kind(migrated):
    with migrated.cursor() as cursor:
        cursor.execute("SELECT kind, count(*) FROM ledger_entry GROUP BY kind")
        found = dict(cursor.fetchall())
    assert set(found) == set(KINDS)
    assert sum(found.values()) == STORED.count(b"\n")


def test_it_breaks_no_law_and_goes_on_without_breaking_one(migrated):
    session = migrated.connection
    session.execute("BEGIN")
    report = audit([session])
    assert report.findings == []
    assert report.entries == STORED.count(b"\n")
    for holder_id in HOLDERS:
        last = last_entry(session, holder_id)
        account = Account(holder_id, last.credit_type, last.recorded_us).after(last)
        entries: list[Entry] = []
        # What is open, and what is held, is in the earlier form still; it expires, comes back, and is spent.
        for number, days in enumerate((0, 1, 2, 40)):
            account = account._replace(now_us=account.now_us + days * DAY_US)
            common = {"holder_id": holder_id, "idempotency_key": f"new {number}", "actor": "key:test"}
            made = rules.grant(account, rules.GrantRequest(**common, amount=10))
            account = account.after_all(made)
            common["idempotency_key"] += " spend"
            made += rules.spend(account, rules.SpendRequest(**common, amount=min(7, account.available)))
            account = account.after_all(made)
            entries += made
        store(session, entries)
    assert audit([session]).findings == []


def test_migrated_back_it_is_what_it_was(migrated):
    session = migrated.connection
    migrate(migrated, "0004_operators_pages")
    session.execute("SET timezone = 'UTC'")
    assert sorted(copied(session).splitlines()) == sorted(STORED.splitlines())
    migrate(migrated)
    session.execute("BEGIN")
    assert audit([session]).findings == []
