"""The application's role may do with each table what ledger_project/database/rights.py says, and nothing else."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg import errors, sql

from ledger_project.database.rights import FUNCTIONS, RIGHTS, SEQUENCES
from ledger_project.serving.bootstrap import provision

pytestmark = pytest.mark.usefixtures("committed_db")

Session = psycopg.Connection[Any]
RawConnection = Callable[..., Session]

TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
PARTITIONS = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relispartition AND relkind = 'r'"
VIEWS = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('v', 'm')"
SEQUENCES_THERE = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'"
COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN")
ON_TABLE = "SELECT privilege FROM unnest(%s::text[]) AS privilege WHERE has_table_privilege(%s, %s, privilege)"
ON_COLUMNS = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND has_column_privilege(%s, attrelid, attnum, %s)
"""


def names_in(session: Session, query: str, *parameters: Any) -> set[str]:
    """The first column of a query."""
    return {name for (name,) in session.execute(query, parameters)}


def declared_columns(table: str) -> set[str]:
    """The columns that may be updated where not all of them may."""
    return {
        column
        for right in RIGHTS[table]
        if right.startswith("UPDATE (")
        for column in right.removeprefix("UPDATE (").removesuffix(")").split(", ")
    }


def test_every_table_has_its_rights_declared(raw_connection: RawConnection) -> None:
    assert names_in(raw_connection(), TABLES) == RIGHTS.keys()


@pytest.mark.products(most=20)
@pytest.mark.parametrize("table", RIGHTS)
def test_the_catalogue_has_the_rights_that_are_declared(raw_connection: RawConnection, table: str) -> None:
    owner, role = raw_connection(), settings.LEDGER_APP_ROLE
    on_table = {right for right in RIGHTS[table] if not right.startswith("UPDATE (")}
    assert names_in(owner, ON_TABLE, list(PRIVILEGES), role, table) == on_table
    everything = names_in(owner, COLUMNS, table)
    updated = everything if "UPDATE" in on_table else declared_columns(table)
    assert names_in(owner, ON_COLUMNS, table, role, "UPDATE") == updated
    assert names_in(owner, ON_COLUMNS, table, role, "INSERT") == (everything if "INSERT" in on_table else set())


REGISTERED = """
    SELECT attname FROM pg_trigger JOIN pg_attribute ON attrelid = tgrelid AND attnum = ANY(tgattr::smallint[])
    WHERE tgrelid = %s::regclass AND tgname = 'registered'
"""
UNREGISTERED = {
    # When a key was used last is no part of what it may do.
    "ledger_api_key": {"last_used_at"},
    # Only drafts change so, until they have a number; then the chain of documents covers them.
    "billing_invoice": {
        "series", "series_value", "number", "issue_date", "due_date", "credits_applied_minor", "rounding_minor", "seller_id",
        "credit_units", "note", "finalized_at", "consolidates_on", "stays_draft",
    },
    "billing_creditnote": {
        "series", "series_value", "number", "issue_date", "seller_id", "credits_returned", "credits_returned_minor",
        "refund_sequence",
    },
}  # fmt: skip
"""What may be updated and is not registered again."""


@pytest.mark.parametrize("table", sorted(table for table in RIGHTS if declared_columns(table)))
def test_what_may_be_updated_of_a_registered_row_is_registered(raw_connection: RawConnection, table: str) -> None:
    registered = names_in(raw_connection(), REGISTERED, table)
    if registered:
        assert declared_columns(table) - registered == UNREGISTERED.get(table, set())
        assert registered <= declared_columns(table)


@pytest.fixture
def application(raw_connection: RawConnection) -> Session:
    """A connection under the role that production uses."""
    return raw_connection("application", autocommit=True)


GENERATED = {"name_words"}
"""Columns that only the server fills."""


def changes(table: str, columns: set[str]) -> Iterator[tuple[str, sql.Composed]]:
    """Statements that touch no row, each with the right that it needs."""
    name = sql.Identifier(table)
    for column in sorted(columns):
        yield f"UPDATE {column}", sql.SQL("UPDATE {0} SET {1} = DEFAULT WHERE false").format(name, sql.Identifier(column))
    given = sql.SQL(", ").join(map(sql.Identifier, sorted(columns - GENERATED)))
    yield "INSERT", sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {0} WHERE false").format(name, given)
    yield "DELETE", sql.SQL("DELETE FROM {} WHERE false").format(name)
    yield "TRUNCATE", sql.SQL("TRUNCATE {} CASCADE").format(name)
    yield "DROP", sql.SQL("DROP TABLE {}").format(name)
    yield "ALTER", sql.SQL("ALTER TABLE {} DISABLE TRIGGER ALL").format(name)


@pytest.mark.products(most=20)
@pytest.mark.parametrize("table", RIGHTS)
def test_the_role_is_refused_what_is_not_declared(raw_connection: RawConnection, application: Session, table: str) -> None:
    columns = names_in(raw_connection(), COLUMNS, table)
    updated = columns if "UPDATE" in RIGHTS[table] else declared_columns(table)
    allowed = {f"UPDATE {column}" for column in updated} | set(RIGHTS[table])
    refused = set()
    for right, statement in changes(table, columns):
        try:
            application.execute(statement)
        except errors.InsufficientPrivilege:
            refused.add(right)
    assert refused == {right for right, _ in changes(table, columns)} - allowed


def test_a_partition_is_reached_through_its_table_only(raw_connection: RawConnection, application: Session) -> None:
    partitions = names_in(raw_connection(), PARTITIONS)
    assert "billing_usageevent_default" in partitions
    for partition in partitions:
        assert names_in(application, ON_TABLE, list(PRIVILEGES), settings.LEDGER_APP_ROLE, partition) == set()
    assert application.execute("SELECT count(*) >= 0 FROM billing_usageevent").fetchone() == (True,)


def test_a_view_is_read_and_nothing_else(raw_connection: RawConnection) -> None:
    owner = raw_connection()
    views = names_in(owner, VIEWS)
    assert "ledger_account" in views
    for view in views:
        assert names_in(owner, ON_TABLE, list(PRIVILEGES), settings.LEDGER_APP_ROLE, view) == {"SELECT"}, view


def test_no_sequence_is_set_and_only_those_declared_are_drawn_from(raw_connection: RawConnection, application: Session) -> None:
    there = names_in(raw_connection(), SEQUENCES_THERE)
    assert there > set(SEQUENCES)
    drawn = set()
    for sequence in there:
        try:
            application.execute("SELECT nextval(%s)", [sequence])
            drawn.add(sequence)
        except errors.InsufficientPrivilege:
            pass
        with pytest.raises(errors.InsufficientPrivilege):
            application.execute("SELECT setval(%s, 1)", [sequence])
    assert drawn == set(SEQUENCES)


def test_rights_given_by_hand_and_on_undeclared_tables_are_taken_back(raw_connection: RawConnection) -> None:
    owner, role = raw_connection(autocommit=True), sql.Identifier(settings.LEDGER_APP_ROLE)
    owner.execute("CREATE TABLE undeclared (id integer)")
    try:
        owner.execute(sql.SQL("GRANT ALL ON undeclared, billing_claim TO {}").format(role))
        owner.execute(sql.SQL("GRANT UPDATE (amount_minor) ON billing_claim TO {}").format(role))
        provision(connection)
        assert names_in(owner, ON_TABLE, list(PRIVILEGES), settings.LEDGER_APP_ROLE, "undeclared") == set()
        assert names_in(owner, ON_TABLE, list(PRIVILEGES), settings.LEDGER_APP_ROLE, "billing_claim") == {"SELECT", "INSERT"}
        found = names_in(owner, ON_COLUMNS, "billing_claim", settings.LEDGER_APP_ROLE, "UPDATE")
        assert found == {"released_at", "released_by", "snapshot", "measure_again", "invoice_id", "line_position", "made_by"}
    finally:
        owner.execute("DROP TABLE undeclared")


DEFINERS = """
    SELECT p.oid::regprocedure::text FROM pg_proc AS p
    WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef
"""
OF_TRIGGERS = ("ledger_register_row()", "ledger_count_entry()", "ledger_sum_usage()")
MAY_CALL = "SELECT has_function_privilege(%s, %s, 'EXECUTE'), has_function_privilege('public', %s, 'EXECUTE')"


def test_functions_with_their_owners_rights_are_for_the_application_only(raw_connection: RawConnection) -> None:
    owner = raw_connection()
    assert names_in(owner, DEFINERS) == {*FUNCTIONS, *OF_TRIGGERS}
    # A role that may make a trigger of one could have anything registered or counted, with a temporary table of another's name.
    for function in OF_TRIGGERS:
        assert owner.execute(MAY_CALL, [settings.LEDGER_APP_ROLE, function, function]).fetchone() == (False, False)
    for function in FUNCTIONS:
        assert owner.execute(MAY_CALL, [settings.LEDGER_APP_ROLE, function, function]).fetchone() == (True, False)


REGISTERED_AGAIN = """
    SELECT changed.attname
    FROM pg_trigger AS registered JOIN pg_attribute AS changed ON changed.attrelid = registered.tgrelid
    WHERE registered.tgname = 'registered' AND tgrelid = %s::regclass AND changed.attnum = ANY(registered.tgattr::int2[])
"""


@pytest.mark.parametrize("table", ["billing_claim", "billing_couponuse", "billing_itemversion", "billing_suspendedbilling"])
def test_what_may_be_changed_in_a_registered_row_is_registered_again(raw_connection: RawConnection, table: str) -> None:
    """Otherwise the audit takes a change of the application for tampering."""
    assert names_in(raw_connection(), REGISTERED_AGAIN, table) >= declared_columns(table) > set()
