"""Servers of PostgreSQL for other programs' databases, PgBouncer before them, and copies by logical replication."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ledger_project.serving.postgres.server import Server
from tests.deployment.servers import environment_of, run_program, started_pgbouncer, started_version
from tests.deployment.traffic import wait_until

ONLY_FROM_17 = "SET transaction_timeout = 0;"
SET_SEQUENCES = """
    SELECT format('SELECT setval(%L, %s);', format('%I.%I', schemaname, sequencename), last_value)
    FROM pg_sequences WHERE last_value IS NOT NULL
"""
IS_COMPLETE = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
HAS_CAUGHT_UP = "SELECT bool_and(confirmed_flush_lsn = pg_current_wal_lsn()) FROM pg_replication_slots"


@dataclass(frozen=True)
class Database:
    """A database of a server, as its superuser reaches it."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        """The superuser's."""
        return self.server.superuser_url.rsplit("/", 1)[0] + f"/{self.name}"

    def execute(self, *statements: str) -> None:
        """Execute them, each in its own transaction."""
        with psycopg.connect(self.url, autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def rows(self, query: str) -> list[Any]:
        """The rows of a query."""
        with psycopg.connect(self.url) as session:
            return session.execute(query).fetchall()


@contextmanager
def project_database(version: int, **options: str) -> Iterator[Database]:
    """Gives an empty database of a new server, of a role `plain` that owns it and has no further rights."""
    with started_version(version, **options) as server:
        at_server = Database(server, conninfo_to_dict(server.superuser_url)["dbname"])
        at_server.execute("CREATE ROLE plain LOGIN CREATEDB PASSWORD 'plain'", "CREATE DATABASE plain OWNER plain")
        yield Database(server, "plain")


@contextmanager
def django_settings(database: Database, *, pooler: str = "") -> Iterator[dict[str, Any]]:
    """Gives what Django's DATABASES says of a project's database, which is reached directly or through a pooler.

    Args:
        pooler: "" for none, "PgBouncer", or "PgBouncer that keeps prepared statements".
    """
    at = conninfo_to_dict(database.url)
    said: dict[str, Any] = {"NAME": database.name, "USER": "plain", "PASSWORD": "plain", "HOST": at["host"], "PORT": at["port"]}
    with ExitStack() as stack:
        if pooler:
            named = {"port": str(at["port"]), "dbname": database.name, "user": "plain", "password": "plain"}
            port = stack.enter_context(started_pgbouncer(**named, prepared="keeps" in pooler))
            said |= {"HOST": "127.0.0.1", "PORT": port, "DISABLE_SERVER_SIDE_CURSORS": True}
        yield said


@contextmanager
def service_environment(server: Server, *, pooler: str = "") -> Iterator[dict[str, str]]:
    """Gives the environment of a ledger on this server, which is reached directly or through a pooler, as `django_settings`."""
    environment = environment_of(server)
    with ExitStack() as stack:
        if pooler:
            at = {name: str(value) for name, value in conninfo_to_dict(server.application_url).items() if name != "host"}
            port = stack.enter_context(started_pgbouncer(**at, prepared="keeps" in pooler))
            environment |= {
                "DATABASE_URL": f"postgresql://{at['user']}:{at['password']}@127.0.0.1:{port}/{at['dbname']}",
                "DATABASE_BEHIND_PGBOUNCER": "true",
                "LEDGER_PREPARE_STATEMENTS": str("keeps" in pooler).lower(),
            }
        yield environment


@contextmanager
def following_copy(source: Database, copy: Database) -> Iterator[None]:
    """Let an empty database follow the source, as docs/how-to/operations/backup.md says; it is complete, and at the end equal.

    By the end of the block nobody may write to the source any more. The sequences are carried over then.
    """
    # Some packages of PostgreSQL have no clients.
    of_18 = Server(source.server.data_dir)
    clients = source.server if (source.server.binaries / "pg_dump").exists() else of_18
    schema = run_program(clients, "pg_dump", "--schema-only", source.url).replace(ONLY_FROM_17, "")
    run_program(of_18, "psql", "-q", "-v", "ON_ERROR_STOP=1", copy.url, given=schema)
    source.execute("CREATE PUBLICATION move FOR ALL TABLES")
    copy.execute(f"CREATE SUBSCRIPTION move CONNECTION '{source.url}' PUBLICATION move")
    wait_until(lambda: copy.rows(IS_COMPLETE) == [(True,)])
    yield
    wait_until(lambda: source.rows(HAS_CAUGHT_UP) == [(True,)])
    copy.execute("DROP SUBSCRIPTION move", *(statement for (statement,) in source.rows(SET_SEQUENCES)))
