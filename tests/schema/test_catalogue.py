"""What the database's catalogue says about the ledger's tables."""

import pytest
from django.core.management import call_command
from django.db import connection

pytestmark = pytest.mark.django_db

BY_HOLDER = ("ledger_entry",)
"""Tables that can be distributed by holder."""


def rows(query: str, *parameters: object) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()


def ledgers_tables() -> set[str]:
    return {name for (name,) in rows("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^ledger_'")}


def test_these_are_the_ledgers_tables():
    assert ledgers_tables() == {"ledger_entry", "ledger_api_key", "ledger_rate", "ledger_batch"}


def test_every_unique_index_of_a_table_by_holder_contains_the_holder():
    found = rows(
        """
        SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text,
            (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = i.indexrelid)
        FROM pg_index i
        WHERE i.indisunique AND i.indrelid = ANY(%s::regclass[])
        ORDER BY 2
        """,
        list(BY_HOLDER),
    )
    assert found == [
        ("ledger_entry", "ledger_entry_key", ["holder_id", "ledger_key_hash"]),
        ("ledger_entry", "ledger_entry_pkey", ["holder_id", "credit_type", "sequence"]),
    ]


def test_every_index_that_serves_one_account_begins_with_its_holder():
    found = rows(
        """
        SELECT i.indexrelid::regclass::text
        FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1
        WHERE i.indrelid = ANY(%s::regclass[]) AND a.attname <> 'holder_id'
        ORDER BY 1
        """,
        list(BY_HOLDER),
    )
    # Over all holders: the newest first, and by reference, for operators.
    assert found == [("ledger_entry_recorded_at",), ("ledger_entry_reference",), ("ledger_entry_refused_at",)]


def test_no_foreign_key_points_to_or_from_a_table_of_the_ledger():
    assert (
        rows(
            """
            SELECT conrelid::regclass::text, conname, confrelid::regclass::text
            FROM pg_constraint
            WHERE contype = 'f' AND (conrelid = ANY(%s::regclass[]) OR confrelid = ANY(%s::regclass[]))
            """,
            *[sorted(ledgers_tables())] * 2,
        )
        == []
    )


def test_no_sequence_identity_or_default_makes_a_value_of_a_ledger_row():
    found = rows(
        """
        SELECT attrelid::regclass::text, attname
        FROM pg_attribute
        WHERE attrelid = ANY(%s::regclass[]) AND attnum > 0 AND (attidentity <> '' OR atthasdef OR attgenerated <> '')
        """,
        list(BY_HOLDER),
    )
    assert found == []
    owned = rows(
        """
        SELECT s.relname
        FROM pg_class s
        JOIN pg_depend d ON d.objid = s.oid AND d.refobjid = ANY(%s::regclass[])
        WHERE s.relkind = 'S'
        """,
        sorted(ledgers_tables() - {"ledger_api_key"}),
    )
    assert owned == []


def test_amounts_are_whole_numbers():
    found = rows(
        """
        SELECT attname, format_type(atttypid, atttypmod)
        FROM pg_attribute
        WHERE attrelid = 'ledger_entry'::regclass
            AND attname IN ('sequence', 'amount', 'balance', 'held', 'refers_to', 'refunded_total', 'overdraft')
        """
    )
    assert len(found) == 7
    assert {kind for _, kind in found} == {"bigint"}
    inexact = "SELECT attname FROM pg_attribute WHERE attrelid = ANY(%s::regclass[]) AND atttypid IN (700, 701, 1700, 790)"
    assert rows(inexact, sorted(ledgers_tables())) == []


def test_every_trigger_on_an_append_only_table_fires_always_and_for_every_statement():
    found = rows(
        """
        SELECT tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid)
        FROM pg_trigger
        WHERE NOT tgisinternal AND tgname IN ('append_only', 'follows')
        """
    )
    assert {table for table, name, _, _ in found if name == "append_only"} >= {*BY_HOLDER, "ledger_rate", "ledger_batch"}
    assert [(table, name) for table, name, enabled, _ in found if enabled != "A"] == []
    for table, name, _, definition in found:
        assert "FOR EACH STATEMENT" in definition
        if name == "append_only":
            assert f"BEFORE DELETE OR UPDATE OR TRUNCATE ON public.{table} " in definition
            assert definition.endswith("EXECUTE FUNCTION refuse_change()")
    assert [table for table, name, _, _ in found if name == "follows"] == ["ledger_entry"]


def test_the_ledgers_checks_are_these_and_all_are_enforced():
    found = rows(
        """
        SELECT conname, convalidated AND conenforced
        FROM pg_constraint
        WHERE conrelid = 'ledger_entry'::regclass AND contype = 'c'
        ORDER BY conname
        """
    )
    assert found == [
        (f"ledger_entry_{name}", True)
        for name in (
            "amounts_in_limits", "digest_is_sha256", "first_starts_at_0", "held_by_holds", "key_has_its_request",
            "never_overspent", "numbered_from_1", "overdraft_positive", "refers_to_an_earlier", "refusal_says_why",
            "sign_fits_kind", "texts_in_limits",
        )
    ]  # fmt: skip


def test_the_functions_that_lock_and_read_take_a_snapshot_per_statement():
    """STABLE would read with a snapshot from before the lock: see tests/concurrency/test_locks_and_reads.py."""
    found = dict(
        rows("SELECT proname, provolatile FROM pg_proc WHERE proname ~ '^ledger_' AND pronamespace = 'public'::regnamespace")
    )
    assert found == {
        "ledger_open": "v",
        "ledger_open_many": "v",
        "ledger_entry_follows": "v",
        "ledger_entry_digest": "s",
        "ledger_key_hash": "i",
        "ledger_slot": "i",
        "ledger_sequence_at": "s",
        "ledger_movements": "s",
    }


def test_texts_that_are_keys_sort_by_bytes():
    found = rows(
        """
        SELECT attrelid::regclass::text || '.' || attname
        FROM pg_attribute
        WHERE attrelid = ANY(%s::regclass[])
            AND attname IN ('holder_id', 'credit_type', 'idempotency_key', 'kind')
            AND attcollation <> (SELECT oid FROM pg_collation WHERE collname = 'C' AND collnamespace = 'pg_catalog'::regnamespace)
        """,
        list(BY_HOLDER),
    )
    assert found == []


def test_every_column_of_an_entry_says_what_it_is():
    uncommented = rows(
        """
        SELECT attname
        FROM pg_attribute
        WHERE attrelid = 'ledger_entry'::regclass AND attnum > 0 AND NOT attisdropped
            AND col_description(attrelid, attnum) IS NULL
        """
    )
    assert uncommented == []


def test_no_migration_is_missing():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
