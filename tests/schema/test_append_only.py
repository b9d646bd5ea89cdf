"""What the database itself refuses, to every role and by every way of changing rows."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import services
from ledger.errors import InsufficientCredits

Connect = Callable[..., psycopg.Connection[Any]]

APPEND_ONLY_TABLES = ("ledger_entry", "ledger_refusal", "ledger_rate", "ledger_batch")
REFUSED = "LG001"
INSUFFICIENT_PRIVILEGE = "42501"

WAYS = {
    "update": "UPDATE ledger_entry SET amount = amount + 1 WHERE holder_id = %(holder)s",
    "update of nothing": "UPDATE ledger_entry SET amount = 1 WHERE false",
    "delete": "DELETE FROM ledger_entry WHERE holder_id = %(holder)s",
    "truncate": "TRUNCATE ledger_entry",
    "truncate cascade": "TRUNCATE ledger_entry CASCADE",
    "upsert": """
        INSERT INTO ledger_entry SELECT * FROM ledger_entry WHERE holder_id = %(holder)s AND sequence = 1
        ON CONFLICT (holder_id, credit_type, sequence) DO UPDATE SET amount = 1
    """,
    "merge": """
        MERGE INTO ledger_entry e USING (SELECT 1) AS one ON e.holder_id = %(holder)s WHEN MATCHED THEN DELETE
    """,
    "update of a refusal": "UPDATE ledger_refusal SET code = 'x' WHERE holder_id = %(holder)s",
    "delete of a refusal": "DELETE FROM ledger_refusal WHERE holder_id = %(holder)s",
    "truncate of refusals": "TRUNCATE ledger_refusal",
    "delete through a view": "DELETE FROM ledger_refusal_listing WHERE holder_id = %(holder)s",
}


@pytest.fixture
def holder(committed_db: None, new_holder: Callable[[], str]) -> str:
    """A holder with an entry and a refusal."""
    name = new_holder()
    services.grant(holder_id=name, amount=10, idempotency_key="grant")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=name, amount=11, idempotency_key="spend")
    return name


def rows(connection: psycopg.Connection[Any], holder: str) -> list[Any]:
    entries = connection.execute("SELECT e::text FROM ledger_entry e WHERE holder_id = %s", [holder]).fetchall()
    refusals = connection.execute("SELECT r::text FROM ledger_refusal r WHERE holder_id = %s", [holder]).fetchall()
    return entries + refusals


@pytest.mark.parametrize("replica", [False, True], ids=["origin", "replica"])
@pytest.mark.parametrize("role", ["owner", "superuser"])
@pytest.mark.parametrize("way", WAYS)
def test_rows_cannot_be_changed_by_who_owns_the_tables(
    raw_connection: Connect, holder: str, role: str, way: str, replica: bool
) -> None:
    connection = raw_connection(role, autocommit=True)
    before = rows(connection, holder)
    if replica and role == "superuser":
        connection.execute("SET session_replication_role = replica")
    elif replica:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(WAYS[way], {"holder": holder})
    assert refused.value.sqlstate == REFUSED
    assert len(before) == 2
    assert rows(connection, holder) == before


@pytest.mark.parametrize("way", WAYS)
def test_the_applications_role_may_not_even_try(app_role_connection: psycopg.Connection[Any], holder: str, way: str) -> None:
    before = rows(app_role_connection, holder)
    with pytest.raises(psycopg.Error) as refused:
        app_role_connection.execute(WAYS[way], {"holder": holder})
    assert refused.value.sqlstate == INSUFFICIENT_PRIVILEGE
    assert rows(app_role_connection, holder) == before


@pytest.mark.parametrize("statement", ["ALTER TABLE ledger_entry DISABLE TRIGGER append_only", "DROP TABLE ledger_entry"])
def test_the_applications_role_cannot_take_the_triggers_away(
    app_role_connection: psycopg.Connection[Any], statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app_role_connection.execute(statement)


def test_the_applications_role_has_select_and_insert_on_append_only_tables_and_nothing_else(
    committed_db: None, app_role_connection: psycopg.Connection[Any]
) -> None:
    found = app_role_connection.execute(
        """
        SELECT c.relname, array_agg(right_ ORDER BY right_) FILTER (WHERE has_table_privilege(c.oid, right_))
        FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid
        CROSS JOIN unnest(string_to_array('SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER MAINTAIN', ' ')) AS right_
        WHERE t.tgname = 'append_only'
        GROUP BY c.relname
        """
    ).fetchall()
    assert {name for name, _ in found} >= set(APPEND_ONLY_TABLES)
    assert dict(found) == {name: ["INSERT", "SELECT"] for name, _ in found}


def test_an_entry_that_does_not_follow_is_refused(raw_connection: Connect, holder: str) -> None:
    """By the trigger `follows`: gaps, other balances, broken chains, held credits and lots out of nowhere."""
    connection = raw_connection("owner", autocommit=True)
    columns = [
        row[0]
        for row in connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'ledger_entry'::regclass AND attnum > 0 ORDER BY attnum"
        )
    ]
    right = {
        "sequence": "sequence + 1",
        "kind": "'spend'",
        "amount": "-1",
        "balance": "balance - 1",
        "lots": "json_build_array(json_build_array(1, 9, 0))",
        "previous_digest": "digest",
        "idempotency_key": "NULL",
        "request_digest": "NULL",
        "recorded_at": "clock_timestamp()",
    }
    wrongs = {
        "gap": {"sequence": "sequence + 2"},
        "balance": {"balance": "balance", "lots": "lots"},
        "chain": {"previous_digest": "sha256('')"},
        "lots": {"lots": "lots"},
        "past": {"recorded_at": "recorded_at - interval '1 second'"},
        "overdraft": {"overdraft": "5"},
        "held": {"held": "1", "holds": "json_build_array(json_build_array(1, 0, json_build_array()))"},
    }

    def insert(changes: dict[str, str]) -> None:
        values = ", ".join({**right, **changes}.get(name, name) for name in columns)
        connection.execute(
            f"INSERT INTO ledger_entry ({', '.join(columns)}) SELECT {values} FROM ledger_entry WHERE holder_id = %s", [holder]
        )

    for name, changes in wrongs.items():
        with pytest.raises(psycopg.Error) as refused:
            insert(changes)
        assert (name, refused.value.sqlstate) == (name, "LG002")
    assert len(rows(connection, holder)) == 2
    insert({})
    assert len(rows(connection, holder)) == 3
