"""Rules that the ledger's tables keep, read from the database's catalogue."""

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from ledger.database import schema_versions

pytestmark = pytest.mark.django_db

BY_HOLDER = ("ledger_entry", "ledger_recurring_grant", "ledger_budget_counter", "ledger_usage")
"""The tables that can be distributed by holder."""
OF_SIGNALS = {
    "ledger_webhook", "ledger_webhook_change", "ledger_webhook_pace", "ledger_webhook_turn", "ledger_signal",
    "ledger_signal_feed",
    "ledger_signal_position", "ledger_delivery", "ledger_delivery_stream", "ledger_delivery_attempt",
    "ledger_alert", "ledger_alert_state", "ledger_alert_look", "ledger_budget_report",
}  # fmt: skip
"""The tables of signals on their way; the coordinator of a cluster has them."""
OF_SHADOW = {"ledger_observation", "ledger_promotion"}
"""The tables of what another system decided; the coordinator of a cluster has them too."""
SUMS = {"ledger_daily_total", "ledger_expiring_total", "ledger_month_close"}
"""What all accounts add up to."""


def rows(query: str, *parameters: object) -> list[tuple]:
    """All rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()


def ledger_tables() -> set[str]:
    """The names of the ledger's tables."""
    return {name for (name,) in rows("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^ledger_'")}


def test_the_ledger_has_these_tables():
    counted = SUMS | {"ledger_total_state"}
    people = {"ledger_api_key", "ledger_key_request", "ledger_staff_event", "ledger_operator"}
    people |= {"ledger_approval", "ledger_approval_decision", "ledger_operator_stake"}
    assert (
        ledger_tables()
        == {*BY_HOLDER, "ledger_credit_type", "ledger_rate", "ledger_batch", "ledger_register"}
        | people
        | counted
        | OF_SIGNALS
        | OF_SHADOW
    )


def test_every_unique_index_of_a_distributed_table_contains_the_holder():
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
    key = ["holder_id", "credit_type", "setting", "start_us", "subject"]
    assert found == [
        ("ledger_budget_counter", "ledger_budget_counter_pkey", key),
        ("ledger_entry", "ledger_entry_freeze", ["holder_id", "int4"]),
        # The one exception: a cluster has another index of this name, which is not unique (docs/explanation/ledger.md).
        ("ledger_entry", "ledger_entry_imported", ["ledger_key_hash"]),
        ("ledger_entry", "ledger_entry_key", ["holder_id", "ledger_key_hash"]),
        ("ledger_entry", "ledger_entry_pkey", ["holder_id", "credit_type", "sequence"]),
        ("ledger_entry", "ledger_entry_tick", ["holder_id", "int4"]),
        ("ledger_recurring_grant", "ledger_recurring_grant_pkey", ["holder_id", "credit_type", "name"]),
        ("ledger_usage", "ledger_usage_pkey", ["holder_id", "credit_type", "dimension", "day", "value"]),
    ]


def test_every_index_begins_with_the_holder_except_those_for_operators_and_what_is_due():
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
    # Over all holders: entries that changed a cost, imported rows by their ids, newest entries, entries by reference, newest
    # refusals, refusals by request, grants that start, and recurring grants that are due.
    assert found == [
        ("ledger_entry_cost",),
        ("ledger_entry_imported",),
        ("ledger_entry_recorded_at",),
        ("ledger_entry_reference",),
        ("ledger_entry_refused_at",),
        ("ledger_entry_refused_request",),
        ("ledger_entry_scheduled",),
        ("ledger_recurring_grant_due",),
    ]


def test_no_foreign_key_points_to_or_from_a_table_of_the_ledger():
    assert (
        rows(
            """
            SELECT conrelid::regclass::text, conname, confrelid::regclass::text
            FROM pg_constraint
            WHERE contype = 'f' AND (conrelid = ANY(%s::regclass[]) OR confrelid = ANY(%s::regclass[]))
            """,
            *[sorted(ledger_tables())] * 2,
        )
        == []
    )


def test_no_database_sequence_identity_or_default_fills_a_column_of_an_entry():
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
        sorted(ledger_tables() - {"ledger_api_key", "ledger_staff_event", "ledger_approval", *OF_SIGNALS, *OF_SHADOW}),
    )
    assert owned == []


def test_amounts_are_bigints_and_no_column_is_inexact():
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
    assert rows(inexact, sorted(ledger_tables() - SUMS - {"ledger_usage"})) == []
    # Sums over all accounts, and over all entries of one, outgrow a bigint. They are whole, and nothing is decided by them.
    scales = inexact.replace("attname", "DISTINCT format_type(atttypid, atttypmod)", 1)
    assert rows(scales, sorted(SUMS | {"ledger_usage"})) == [("numeric(38,0)",)]


def test_every_trigger_of_an_append_only_table_is_enabled_always_and_fires_per_statement():
    found = rows(
        """
        SELECT tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid)
        FROM pg_trigger
        WHERE NOT tgisinternal AND tgname IN ('append_only', 'follows')
        """
    )
    of_ledger = {table for table, name, _, _ in found if name == "append_only" and table.startswith("ledger_")}
    assert of_ledger == {
        "ledger_alert", "ledger_approval", "ledger_approval_decision", "ledger_batch", "ledger_entry", "ledger_key_request",
        "ledger_month_close", "ledger_observation", "ledger_operator_stake", "ledger_promotion", "ledger_rate",
        "ledger_staff_event", "ledger_webhook_change",
    }  # fmt: skip
    assert [(table, name) for table, name, enabled, _ in found if enabled != "A"] == []
    for table, name, _, definition in found:
        assert "FOR EACH STATEMENT" in definition
        if name == "append_only":
            assert f"BEFORE DELETE OR UPDATE OR TRUNCATE ON public.{table} " in definition
            assert definition.endswith("EXECUTE FUNCTION refuse_change()")
    assert [table for table, name, _, _ in found if name == "follows"] == ["ledger_entry"]


def test_the_table_of_entries_has_these_checks_and_all_are_enforced():
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
            "amounts_in_limits", "at_most_as_requested", "cost_fits_kind", "counts_fit_kind", "digest_is_sha256",
            "first_starts_at_0", "held_by_holds",
            "key_has_its_request", "never_overspent", "numbered_from_1", "overage_in_limits",
            "overdraft_positive", "postpaid_fits_kind",
            "refers_to_an_earlier",
            "refusal_says_why", "sale_of_a_grant", "sign_fits_kind", "texts_in_limits",
        )
    ]  # fmt: skip


@pytest.mark.one_node("a cluster has other functions, see distributed.sql")
def test_the_functions_that_lock_and_read_take_a_snapshot_per_statement():
    """VOLATILE ("v") takes one. STABLE ("s") would read with a snapshot that is older than the lock."""
    found = dict(
        rows("SELECT proname, provolatile FROM pg_proc WHERE proname ~ '^ledger_' AND pronamespace = 'public'::regnamespace")
    )
    assert found == {
        "ledger_lock": "v",
        "ledger_open": "v",
        "ledger_entry_follows": "v",
        "ledger_applies": "i",
        "ledger_lots_apply": "i",
        "ledger_count_entry": "v",
        "ledger_budget_counters": "s",
        "ledger_budget_in_force": "i",
        "ledger_sum_usage": "v",
        "ledger_usage_of": "s",
        "ledger_refuse_closed_day": "v",
        "ledger_register_row": "v",
        "ledger_row_form": "i",
        "ledger_have_registered": "v",
        "ledger_entry_digest": "s",
        "ledger_key_hash": "i",
        "ledger_slot": "i",
        "ledger_costs_follow": "i",
        "ledger_overage_follows": "i",
        "ledger_claims_follow": "i",
        "ledger_clock": "s",
        "ledger_recorded_by": "s",
        "ledger_sequence_at": "s",
        "ledger_use_changed_since": "s",
        "ledger_movements": "s",
        "ledger_recorded": "s",
        "ledger_referenced": "s",
        "ledger_signal_is_wanted": "s",
        "ledger_state_parts": "s",
        "ledger_shown_units": "s",
    }


def test_texts_in_keys_sort_by_bytes():
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


def test_every_column_of_an_entry_has_a_comment():
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


def test_every_function_finds_its_tables_whatever_the_search_path_of_the_session_is():
    """Apply workers, restores and VACUUM have an empty one. A body with a parse tree was bound when it was created."""
    unbound = rows(
        """
        SELECT oid::regprocedure::text
        FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND prosqlbody IS NULL
            AND NOT COALESCE('search_path=public, pg_temp' = ANY (proconfig), false)
        """
    )
    assert unbound == []


@pytest.mark.slow
def test_the_schema_can_be_another_than_public(scratch_database: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema_versions, "LEDGER_ALIAS", scratch_database.alias)
    with scratch_database.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "credits here"')
        cursor.execute('SET search_path = "credits here"')
    executor = MigrationExecutor(scratch_database)
    executor.migrate(executor.loader.graph.leaf_nodes())
    with scratch_database.cursor() as cursor:
        cursor.execute("RESET search_path")
        paths = "SELECT DISTINCT setting FROM pg_proc, unnest(proconfig) AS setting WHERE setting LIKE 'search_path=%'"
        cursor.execute(paths)
        assert cursor.fetchall() == [('search_path="credits here", pg_temp',)]
        cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        assert cursor.fetchone() == (0,)
