"""A copy of the whole database by logical replication, or from a dump of its data alone, has every row, and passes the audit."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ledger_project.serving.postgres.server import Server
from tests.deployment.servers import manage, run_program, started

pytestmark = pytest.mark.slow

# Entries, an invoice that is paid, and one that is credited.
WRITES = """
from ledger import services
from billing.documents import credit_notes
from billing.documents.invoice_payments import record_payment
from billing.models import Invoice
services.grant(holder_id="ada", amount=100, idempotency_key="{key}-1", actor="test")
services.spend(holder_id="ada", amount=30, idempotency_key="{key}-2", actor="test")
first, second = Invoice.objects.filter(state="open").order_by("id")[:2]
record_payment(invoice=first.pk, payment="{key}", amount_minor=first.amount_due_minor)
credit_notes.issue(invoice_id=second.pk, reason="All", actor="test", idempotency_key="{key}")
"""
TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
"""
CONTENTS = "SELECT md5(string_agg(line, E'\\n' ORDER BY line)), count(*) FROM (SELECT t::text AS line FROM {} AS t) AS lines"
OWN_PATHS = """
    SELECT format('ALTER FUNCTION %s RESET search_path', oid::regprocedure)
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')
        AND prokind = 'f'
"""
SET_SEQUENCES = """
    SELECT format('SELECT setval(%L, %s);', format('%I.%I', schemaname, sequencename), last_value)
    FROM pg_sequences WHERE last_value IS NOT NULL
"""
SEQUENCES = "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1"
CLEAN = "Clean: no violations found."


@dataclass
class Database:
    """A database of a server."""

    server: Server
    name: str

    def url(self, role: str = "superuser") -> str:
        """The URL of the role."""
        return str(getattr(self.server, f"{role}_url")).rsplit("/", 1)[0] + f"/{self.name}"

    def execute(self, *statements: str) -> None:
        """Execute them, each in its own transaction."""
        with psycopg.connect(self.url(), autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def rows(self, query: str) -> list[Any]:
        """The rows of a query."""
        with psycopg.connect(self.url()) as session:
            return session.execute(query).fetchall()

    def manage(self, *arguments: str) -> str:
        """What a command prints that uses this database."""
        urls = {"DATABASE_URL": self.url("application"), "LEDGER_OWNER_DATABASE_URL": self.url("owner")}
        return manage(self.server, *arguments, **urls)

    def contents(self) -> dict[str, Any]:
        """A digest and the number of the rows of each table."""
        with psycopg.connect(self.url()) as session:
            session.execute("SET timezone = 'UTC'")
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            tables = [name for (name,) in session.execute(TABLES)]
            return {
                name: session.execute(sql.SQL(CONTENTS).format(sql.Identifier(name))).fetchone() for name in tables
            }  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Iterator[Database]:
    """A database with entries, subscriptions, invoices, one of them paid, and a credit note."""
    with started(wal_level="logical") as server:
        database = Database(server, "ledger")
        for arguments in (("prepare_database",), ("demo",), ("generate_invoices",), ("update_totals",)):
            assert database.manage(*arguments)
        database.manage("shell", "-c", WRITES.format(key="first"))
        yield database


def wait_until(is_so: Callable[[], Any], timeout_s: float = 60) -> None:
    """Return when it is so, or fail: a subscriber says nothing when it has caught up."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def empty_copy(source: Database) -> Iterator[Database]:
    """For the block, a database has the source's schema, and no rows."""
    copy = Database(source.server, f"copy_{uuid.uuid4().hex[:8]}")
    source.execute(f"CREATE DATABASE {copy.name} OWNER ledger_owner")
    try:
        load(copy, run_program(source.server, "pg_dump", "--schema-only", source.url()))
        yield copy
    finally:
        source.execute(f"DROP DATABASE {copy.name} WITH (FORCE)")


def load(copy: Database, dump: str, **environment: str) -> None:
    """Execute a dump in the copy, all of it or nothing."""
    options = ("-q", "-v", "ON_ERROR_STOP=1", "--single-transaction")
    run_program(copy.server, "psql", *options, copy.url(), given=dump, **environment)


@contextmanager
def subscribed(copy: Database, source: Database) -> Iterator[None]:
    """For the block, the copy follows the source by logical replication."""
    name = copy.name
    source.execute(
        f"CREATE PUBLICATION {name} FOR ALL TABLES", f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"
    )
    copy.execute(
        f"CREATE SUBSCRIPTION {name} CONNECTION '{source.url()}' PUBLICATION {name}"
        f" WITH (create_slot = false, slot_name = '{name}')"
    )
    try:
        yield
    finally:
        # With its slot, because that is in the same server.
        copy.execute(
            f"ALTER SUBSCRIPTION {name} DISABLE", f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)", f"DROP SUBSCRIPTION {name}"
        )
        wait_until(lambda: source.rows(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{name}' AND NOT active"))
        source.execute(f"SELECT pg_drop_replication_slot('{name}')", f"DROP PUBLICATION {name}")


def test_logical_replication_delivers_every_row_and_the_copy_passes_the_audit(source: Database) -> None:
    with empty_copy(source) as copy, subscribed(copy, source):
        wait_until(lambda: copy.rows("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == [(True,)])
        assert copy.contents() == source.contents()
        assert {state for (state,) in copy.rows("SELECT DISTINCT state FROM billing_invoice")} >= {"open", "paid"}
        # Afterwards rows come one by one.
        before = copy.rows("SELECT count(*) FROM billing_creditnote")
        source.manage("shell", "-c", WRITES.format(key=copy.name))
        wait_until(lambda: copy.contents() == source.contents())
        copy.execute(*(statement for (statement,) in source.rows(SET_SEQUENCES)))
        assert copy.rows(SEQUENCES) == source.rows(SEQUENCES)
        assert CLEAN in copy.manage("audit_ledger")
        assert copy.rows("SELECT count(*) FROM billing_creditnote") > before > [(0,)]


def restore(source: Database, copy: Database) -> None:
    """Load the rows of the source as docs/how-to/operations/backup.md says."""
    dump = run_program(source.server, "pg_dump", "--data-only", source.url())
    load(copy, dump, PGOPTIONS="-c session_replication_role=replica")


def test_a_dump_of_the_data_alone_is_restored_and_the_copy_passes_the_audit(source: Database) -> None:
    with empty_copy(source) as copy:
        restore(source, copy)
        assert copy.contents() == source.contents()
        assert CLEAN in copy.manage("audit_ledger")


def test_control_without_a_search_path_of_its_own_a_function_finds_no_table(source: Database) -> None:
    with empty_copy(source) as copy:
        copy.execute(*(statement for (statement,) in copy.rows(OWN_PATHS)))
        with pytest.raises(AssertionError, match="does not exist"):
            restore(source, copy)
        assert copy.rows("SELECT count(*) FROM ledger_entry") == [(0,)]
