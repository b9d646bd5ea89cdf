"""A migrated database has exactly what the models and the SQL files of the application declare."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Model

from ledger.database import schema_versions
from tests.schema.catalogue import schema

# Each application, with the applications whose functions its schema.sql calls.
APPS = {
    "ledger": [],
    "ledger_keys": ["ledger"],
    "ledger_signals": ["ledger"],
    "ledger_staff": ["ledger"],
    "ledger_totals": ["ledger"],
    "ledger_shadow": ["ledger"],
    "billing": ["ledger"],
    "billing_dunning": ["ledger", "billing"],
    "billing_payments": ["ledger", "billing"],
    "billing_statements_in": ["ledger", "billing"],
}

# Those of which the file makes tables or views.
BY_FILE = {"ledger", "ledger_keys", "ledger_signals", "ledger_shadow", "ledger_staff", "ledger_totals", "billing"}

# Name, type, and whether the column may be null: null for a view, of whose columns the server does not know it.
COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, NULL), CASE c.relkind WHEN 'v' THEN NULL ELSE NOT a.attnotnull END
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE c.oid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""

# One change of each kind that a person could make in a database, or forget in the models or in schema.sql.
DIFFERENCES = {
    "ledger": [
        "ALTER TABLE ledger_batch ADD COLUMN extra integer",
        "ALTER TABLE ledger_staff_event ALTER COLUMN details TYPE varchar(1010)",
        "ALTER TABLE ledger_entry ALTER COLUMN reason DROP NOT NULL",
        "ALTER TABLE ledger_entry ALTER COLUMN reason SET DEFAULT ''",
        "ALTER TABLE ledger_credit_type RENAME COLUMN unit TO suffix",
        "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_never_overspent",
        "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_pkey",
        "ALTER TABLE ledger_entry RESET (fillfactor)",
        "DROP INDEX ledger_entry_kind",
        "CREATE INDEX ledger_entry_actor ON ledger_entry (actor)",
        "DROP TRIGGER follows ON ledger_entry",
        "ALTER TABLE ledger_entry ENABLE TRIGGER follows",
        "CREATE OR REPLACE FUNCTION ledger_entry_follows() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "ALTER FUNCTION ledger_open STABLE",
        "DROP FUNCTION ledger_sequence_at",
        "DROP VIEW ledger_drawn",
        "COMMENT ON COLUMN ledger_entry.lots IS 'something else'",
        "CREATE FUNCTION ledger_forgotten() RETURNS int LANGUAGE sql RETURN 1",
    ],
    "ledger_keys": [
        "ALTER TABLE ledger_api_key ADD COLUMN extra integer",
        "ALTER TABLE ledger_api_key ALTER COLUMN created_by TYPE varchar(210)",
        "ALTER TABLE ledger_api_key RENAME COLUMN prefix TO beginning",
        "ALTER TABLE ledger_key_request DROP CONSTRAINT ledger_key_request_digest_is_sha256",
        "DROP TRIGGER append_only ON ledger_key_request",
    ],
    "ledger_staff": [
        "ALTER TABLE ledger_operator ADD COLUMN extra integer",
        "ALTER TABLE ledger_operator_stake DROP CONSTRAINT ledger_operator_stake_amount",
        "DROP INDEX ledger_approval_requested_at",
        "DROP TRIGGER append_only ON ledger_approval_decision",
    ],
    "ledger_totals": [
        "ALTER TABLE ledger_daily_total ADD COLUMN extra integer",
        "ALTER TABLE ledger_month_close DROP CONSTRAINT ledger_month_close_first_day",
        "DROP INDEX ledger_expiring_total_nothing",
        "DROP TRIGGER closed ON ledger_daily_total",
    ],
    "ledger_shadow": [
        "ALTER TABLE ledger_observation ADD COLUMN extra integer",
        "ALTER TABLE ledger_observation DROP CONSTRAINT ledger_observation_says_how_both_differ",
        "DROP INDEX ledger_observation_first",
        "DROP TRIGGER registered ON ledger_promotion",
    ],
    "ledger_signals": [
        "ALTER TABLE ledger_webhook ADD COLUMN extra integer",
        "ALTER TABLE ledger_webhook DROP CONSTRAINT ledger_webhook_disabled_says_why",
        "DROP INDEX ledger_signal_to_spread",
        "DROP TRIGGER registered ON ledger_alert",
        "CREATE OR REPLACE FUNCTION ledger_signal_is_wanted(wanted text) RETURNS boolean LANGUAGE sql RETURN false",
        "COMMENT ON COLUMN ledger_delivery.state IS 'something else'",
    ],
    "billing": [
        "ALTER TABLE billing_claim ADD COLUMN extra integer",
        "ALTER TABLE billing_claim ALTER COLUMN amount_minor TYPE integer",
        "ALTER TABLE billing_claim ALTER COLUMN amount_minor DROP NOT NULL",
        "ALTER TABLE billing_claim ALTER COLUMN amount_minor SET DEFAULT 0",
        "ALTER TABLE billing_claim DROP CONSTRAINT billing_claim_no_overlap",
        "ALTER TABLE billing_usageevent ALTER COLUMN properties DROP NOT NULL",
        "DROP INDEX billing_claim_held",
        "DROP TRIGGER frozen ON billing_line",
        "ALTER TABLE billing_line ENABLE TRIGGER frozen",
        "CREATE OR REPLACE FUNCTION billing_freeze_part() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "COMMENT ON COLUMN billing_claim.snapshot IS 'something else'",
        "CREATE TABLE billing_forgotten (id integer)",
    ],
    "billing_dunning": [
        "ALTER TABLE billing_mail ADD COLUMN extra integer",
        "ALTER TABLE billing_reminder DROP CONSTRAINT billing_reminder_once",
        "DROP INDEX billing_mail_due",
        "DROP TRIGGER append_only ON billing_reminder",
        "CREATE OR REPLACE FUNCTION billing_queue_mail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    ],
    "billing_payments": [
        "ALTER TABLE billing_pack ADD COLUMN extra integer",
        "ALTER TABLE billing_purchase DROP CONSTRAINT billing_purchase_payment",
        "DROP INDEX billing_paymentintent_due",
        "DROP TRIGGER frozen ON billing_pack",
        "ALTER TABLE billing_purchasegrant ENABLE TRIGGER append_only",
        "CREATE OR REPLACE FUNCTION billing_tell_top_up() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    ],
    "billing_statements_in": [
        "ALTER TABLE billing_bankreceipt ADD COLUMN extra integer",
        "ALTER TABLE billing_bankreceipt DROP CONSTRAINT billing_bankreceipt_state",
        "DROP INDEX billing_bankreceipt_left",
        "DROP TRIGGER registered ON billing_bankreceipt",
    ],
}


@pytest.fixture(params=APPS)
def app(request: pytest.FixtureRequest) -> str:
    """The label of an app: the test runs for ledger and for billing."""
    return str(request.param)


@pytest.fixture
def make_database(new_database: Callable[[], BaseDatabaseWrapper], app: str) -> Callable[[], BaseDatabaseWrapper]:
    """Makes databases in which only the applications that `app` needs are migrated."""

    def make() -> BaseDatabaseWrapper:
        database = new_database()
        migrate(database, *APPS[app])
        return database

    return make


@pytest.fixture
def migrated(make_database: Callable[[], BaseDatabaseWrapper], app: str) -> BaseDatabaseWrapper:
    """A database with the application's migrations."""
    database = make_database()
    migrate(database, app)
    return database


def migrate(database: BaseDatabaseWrapper, *labels: str) -> None:
    """Apply all migrations of these apps."""
    executor = MigrationExecutor(database)
    with mock.patch.object(schema_versions, "LEDGER_ALIAS", database.alias):
        executor.migrate([leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] in labels])


def schema_file_of(app: str) -> str:
    """The app's schema.sql."""
    return (Path(apps.get_app_config(app).path) / "migrations" / "schema.sql").read_text()


def later_files_of(app: str) -> list[str]:
    """The SQL files of the app's later migrations, in their order."""
    folder = Path(apps.get_app_config(app).path) / "migrations"
    return [path.read_text() for path in sorted(folder.glob("[0-9]*.sql"))]


def models_of(app: str) -> tuple[list[type[Model]], list[type[Model]]]:
    """Return the models whose tables Django creates, and the models whose tables or views schema.sql creates."""
    models = list(apps.get_app_config(app).get_models())
    by_file = [m for m in models if not m._meta.managed or f"CREATE TABLE {m._meta.db_table} " in schema_file_of(app)]
    return [m for m in models if m not in by_file], by_file


def declare(database: BaseDatabaseWrapper, app: str) -> None:
    """Make what the models and the SQL files of the application declare."""
    with database.schema_editor() as editor:
        for model in models_of(app)[0]:
            editor.create_model(model)
    with database.cursor() as cursor:
        # CREATE INDEX CONCURRENTLY stands alone.
        for text in (schema_file_of(app), *later_files_of(app)):
            cursor.execute(text)


@pytest.mark.slow
@pytest.mark.check
def test_a_migrated_database_equals_one_made_from_all_models_and_files(new_database: Callable[[], BaseDatabaseWrapper]) -> None:
    migrated, declared = new_database(), new_database()
    migrate(migrated, *APPS)
    for app in APPS:
        declare(declared, app)
    assert schema(migrated) == schema(declared)


@pytest.mark.slow
def test_with_those_that_it_needs_alone_an_application_equals_one_made_from_its_models_and_file(
    migrated: BaseDatabaseWrapper, make_database: Callable[[], BaseDatabaseWrapper], app: str
) -> None:
    declared = make_database()
    declare(declared, app)
    assert schema(migrated) == schema(declared)


@pytest.mark.slow
def test_control_the_comparison_notices_a_difference_of_every_kind(migrated: BaseDatabaseWrapper, app: str) -> None:
    before = schema(migrated)
    for statement in DIFFERENCES[app]:
        with transaction.atomic(using=migrated.alias), migrated.cursor() as cursor:
            cursor.execute(statement)
            assert schema(migrated) != before, statement
            transaction.set_rollback(True, using=migrated.alias)
    assert schema(migrated) == before


def test_models_have_the_columns_of_the_tables_and_views_that_the_file_creates(db: None, app: str) -> None:
    made_by_file = models_of(app)[1]
    assert made_by_file or app not in BY_FILE
    for model in made_by_file:
        with connection.cursor() as cursor:
            cursor.execute(COLUMNS, [model._meta.db_table])
            in_database = cursor.fetchall()
            in_model = []
            for field in model._meta.concrete_fields:
                if field.column:
                    cursor.execute("SELECT format_type(CAST(%s AS regtype), NULL)", [field.db_type(connection)])
                    (kind,) = cursor.fetchone()
                    in_model.append((field.column, kind, field.null))
        is_view = in_database[0][2] is None
        assert sorted((name, kind, None if is_view else null) for name, kind, null in in_model) == sorted(in_database), model
