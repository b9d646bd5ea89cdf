"""The database refuses every change of a written entry, for every role, and the entry stays as it was."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg import Connection

from ledger import services
from ledger.errors import InsufficientCredits

IS_APPEND_ONLY = "LG001"  # the SQLSTATE that the trigger `append_only` raises
INSUFFICIENT_PRIVILEGE = "42501"

ROLES = {"application": INSUFFICIENT_PRIVILEGE, "owner": IS_APPEND_ONLY, "superuser": IS_APPEND_ONLY}

COPY_OF_ENTRY = "INSERT INTO ledger_entry SELECT * FROM ledger_entry WHERE holder_id = %(holder)s"

STATEMENTS = {
    "update of an entry": "UPDATE ledger_entry SET amount = amount + 1 WHERE holder_id = %(holder)s",
    "update of no entry": "UPDATE ledger_entry SET amount = 0 WHERE false",
    "update to the same": "UPDATE ledger_entry SET reason = reason",
    "delete of an entry": "DELETE FROM ledger_entry WHERE holder_id = %(holder)s",
    "delete of no entry": "DELETE FROM ledger_entry WHERE false",
    "truncate of entries": "TRUNCATE ledger_entry",
    "truncate of entries, cascading": "TRUNCATE ledger_entry CASCADE",
    "upsert of an entry": f"{COPY_OF_ENTRY} ON CONFLICT (holder_id, credit_type, sequence) DO UPDATE SET amount = 1",
    "merge that updates an entry": """
        MERGE INTO ledger_entry e USING (SELECT %(holder)s AS holder) s ON e.holder_id = s.holder
        WHEN MATCHED THEN UPDATE SET amount = 1""",
    "merge that deletes an entry": """
        MERGE INTO ledger_entry e USING (SELECT %(holder)s AS holder) s ON e.holder_id = s.holder WHEN MATCHED THEN DELETE""",
    "update in a WITH": "WITH u AS (UPDATE ledger_entry SET amount = 1 RETURNING 1) SELECT count(*) FROM u",
    "update of a refusal": "UPDATE ledger_entry SET refusal = '{}' WHERE holder_id = %(holder)s AND kind = 'refusal'",
    "delete of a refusal": "DELETE FROM ledger_entry WHERE holder_id = %(holder)s AND kind = 'refusal'",
    "update through a view": "UPDATE ledger_entry_listing SET amount = 1 WHERE holder_id = %(holder)s",
}

# These never reach a shard, where the trigger is: a cluster refuses them itself, or knows that they change no row.
NOT_ON_A_SHARD = {
    "update of no entry",
    "delete of no entry",
    "merge that updates an entry",
    "merge that deletes an entry",
    "update through a view",
}
CHANGES = [
    pytest.param(change, marks=pytest.mark.one_node("a cluster sends it to no shard") if change in NOT_ON_A_SHARD else [])
    for change in STATEMENTS
]

Connect = Callable[..., Connection[Any]]


@pytest.fixture
def holder(committed_db, new_holder) -> str:
    """A holder with an entry and a refusal."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder, amount=11, idempotency_key="s")
    return holder


def hashes_of_entries(connection: Connection[Any], holder: str) -> list[tuple[Any, ...]]:
    """Return a hash of each of the holder's rows, over all columns."""
    return connection.execute(
        "SELECT md5(e::text) FROM ledger_entry e WHERE holder_id = %s ORDER BY sequence", [holder]
    ).fetchall()


@pytest.mark.products(most=14)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("change", CHANGES)
def test_no_role_can_change_a_written_entry(holder, raw_connection: Connect, role, change):
    connection = raw_connection(role)
    before = hashes_of_entries(connection, holder)
    assert len(before) == 2
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(STATEMENTS[change], {"holder": holder})
    assert refused.value.sqlstate == ROLES[role]
    connection.rollback()
    assert hashes_of_entries(connection, holder) == before


@pytest.mark.parametrize("change", CHANGES)
def test_no_session_can_change_an_entry_as_a_replica_which_disables_ordinary_triggers(holder, raw_connection: Connect, change):
    connection = raw_connection("superuser")
    before = hashes_of_entries(connection, holder)
    connection.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(STATEMENTS[change], {"holder": holder})
    assert refused.value.sqlstate == IS_APPEND_ONLY
    connection.rollback()
    assert hashes_of_entries(connection, holder) == before


@pytest.mark.parametrize("role", ["application", "owner"])
def test_only_a_superuser_can_set_session_replication_role(raw_connection: Connect, role):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw_connection(role).execute("SET session_replication_role = replica")


@pytest.mark.one_node("a cluster refuses the foreign key")
@pytest.mark.parametrize("change", ["DELETE FROM parent", "UPDATE parent SET holder_id = 'another'", "TRUNCATE parent CASCADE"])
def test_a_cascade_from_another_table_is_refused(holder, raw_connection: Connect, change):
    connection = raw_connection("superuser")
    before = hashes_of_entries(connection, holder)
    connection.execute('CREATE TABLE parent (holder_id text COLLATE "C" PRIMARY KEY)')
    connection.execute("INSERT INTO parent VALUES (%s)", [holder])
    connection.execute(
        "ALTER TABLE ledger_entry ADD FOREIGN KEY (holder_id) REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE NOT VALID"
    )
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(change)
    assert refused.value.sqlstate == IS_APPEND_ONLY
    connection.rollback()
    assert hashes_of_entries(connection, holder) == before


@pytest.mark.one_node("each shard has its own trigger")
def test_control_without_the_trigger_a_superuser_can_change_an_entry(holder, raw_connection: Connect):
    """The control: only the trigger refuses the changes above."""
    connection = raw_connection("superuser")
    connection.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
    changed = connection.execute("UPDATE ledger_entry SET reason = 'x' WHERE holder_id = %s", [holder])
    assert changed.rowcount == 2
    connection.rollback()


# The application's role -----------------------------------------------------------------------------------

APPEND_ONLY_TABLES = """
SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'append_only' ORDER BY 1
"""


def test_the_application_has_only_select_and_insert_on_append_only_tables(raw_connection: Connect):
    connection = raw_connection("owner")
    tables = [name for (name,) in connection.execute(APPEND_ONLY_TABLES)]
    assert {"ledger_entry", "ledger_rate", "ledger_batch"} <= set(tables)
    for table in tables:
        granted = connection.execute(
            "SELECT privilege_type, is_grantable FROM information_schema.table_privileges"
            " WHERE table_name = %s AND grantee = %s ORDER BY 1",
            [table, settings.LEDGER_APP_ROLE],
        ).fetchall()
        # A partition has no rights: rows are inserted through its parent table.
        assert granted == ([] if "_default" in table else [("INSERT", "NO"), ("SELECT", "NO")]), table
        for privilege in ("UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN"):
            row = connection.execute(
                "SELECT has_table_privilege(%s, %s, %s)", [settings.LEDGER_APP_ROLE, table, privilege]
            ).fetchone()
            assert row == (False,), (table, privilege)
        columns = connection.execute(
            "SELECT column_name FROM information_schema.column_privileges"
            " WHERE table_name = %s AND grantee = %s AND privilege_type NOT IN ('SELECT', 'INSERT')",
            [table, settings.LEDGER_APP_ROLE],
        ).fetchall()
        assert columns == [], table


def test_the_application_role_is_ordinary_owns_nothing_and_may_read_statistics(raw_connection: Connect):
    connection = raw_connection("owner")
    role = connection.execute(
        "SELECT oid, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls FROM pg_roles WHERE rolname = %s",
        [settings.LEDGER_APP_ROLE],
    ).fetchone()
    assert role is not None
    oid, is_special = role
    assert is_special is False
    assert connection.execute("SELECT relname FROM pg_class WHERE relowner = %s", [oid]).fetchall() == []
    # The admin page of locks shows the sessions of other roles.
    belongs_to = connection.execute("SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s", [oid]).fetchall()
    assert belongs_to == [("pg_read_all_stats",)]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE ledger_entry DISABLE TRIGGER ALL",
        "DROP TRIGGER append_only ON ledger_entry",
        "DROP TABLE ledger_entry",
        "DROP TABLE ledger_batch CASCADE",
        "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_pkey",
        "ALTER TABLE ledger_entry RENAME TO gone",
        "CREATE RULE silent AS ON INSERT TO ledger_entry DO INSTEAD NOTHING",
        "CREATE TRIGGER mine BEFORE INSERT ON ledger_entry FOR EACH ROW EXECUTE FUNCTION refuse_change()",
        "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TABLE mine (n int)",
        "SET ROLE ledger_owner",
        "GRANT UPDATE ON ledger_entry TO ledger_app",
        "VACUUM FULL ledger_entry",
    ],
)
def test_the_application_cannot_remove_the_protection(raw_connection: Connect, statement):
    connection = raw_connection("application", autocommit=True)
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.severity_nonlocalized or ""))
    protection = "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'ledger_entry'::regclass ORDER BY 1"
    before = connection.execute(protection).fetchall()
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)
        # GRANT and VACUUM without the privilege only warn and do nothing.
        assert notices == ["WARNING"]
    assert connection.execute(protection).fetchall() == before
    row = connection.execute("SELECT has_table_privilege('ledger_entry', 'UPDATE')").fetchone()
    assert row == (False,)


def test_the_application_role_has_all_rights_that_the_services_need(as_application, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    assert services.spend(holder_id=holder, amount=4, idempotency_key="s").balance == 6
    assert services.refund(holder_id=holder, spend=2, idempotency_key="r").balance == 10
