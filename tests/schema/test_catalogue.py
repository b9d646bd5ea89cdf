"""The catalogue holds what the design says, and nothing else."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

pytestmark = pytest.mark.django_db

DISTRIBUTED = ("ledger_entry", "ledger_refusal")
"""The tables that can be distributed by holder."""


def fetch(sql: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def test_every_unique_index_of_the_ledger_begins_with_the_holder() -> None:
    found = fetch(
        """
        SELECT i.indexrelid::regclass::text, a.attname
        FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indisunique AND i.indrelid::regclass::text = ANY(%s)
        ORDER BY 1
        """,
        list(DISTRIBUTED),
    )
    assert found == [
        ("ledger_entry_key", "holder_id"),
        ("ledger_entry_pkey", "holder_id"),
        ("ledger_refusal_pkey", "holder_id"),
    ]


def test_no_foreign_key_points_to_or_from_the_ledger() -> None:
    found = fetch(
        """
        SELECT conname
        FROM pg_constraint
        WHERE contype = 'f' AND (conrelid::regclass::text LIKE 'ledger%%' OR confrelid::regclass::text LIKE 'ledger%%')
        """
    )
    assert found == []


def test_no_number_of_the_ledger_comes_from_a_sequence() -> None:
    found = fetch(
        """
        SELECT table_name, column_name
        FROM information_schema.columns
        WHERE table_name = ANY(%s) AND (is_identity = 'YES' OR column_default LIKE 'nextval%%')
        """,
        list(DISTRIBUTED),
    )
    assert found == []


def test_no_foreign_key_points_at_what_orders_and_amendments_lock() -> None:
    found = fetch(
        """
        SELECT conname, confrelid::regclass::text
        FROM pg_constraint
        WHERE contype = 'f' AND confrelid::regclass::text ~ '^billing_(subscription|customer|plan|price|item)'
        """
    )
    assert found == []


def test_the_triggers_that_guard_history_fire_always() -> None:
    found = fetch(
        """
        SELECT tgrelid::regclass::text, tgname, tgenabled::text, (tgtype & 1) = 0 AS per_statement
        FROM pg_trigger
        WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'ledger%%'
        ORDER BY 1, 2
        """
    )
    assert found == [
        ("ledger_batch", "append_only", "A", True),
        ("ledger_entry", "append_only", "A", True),
        ("ledger_entry", "follows", "A", True),
        ("ledger_rate", "append_only", "A", True),
        ("ledger_refusal", "append_only", "A", True),
    ]
    everywhere = fetch("SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'A'")
    assert everywhere == []


def test_the_function_that_locks_and_reads_takes_a_snapshot_for_each() -> None:
    """STABLE or IMMUTABLE, it would read with the snapshot of the statement that called it: older than the lock."""
    assert fetch("SELECT provolatile::text FROM pg_proc WHERE proname = 'ledger_open'") == [("v",)]


def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
