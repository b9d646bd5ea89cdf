"""What the migrations of the ledger consist of. The law of a migration: ADR 0099.

The first migration of an application executes schema.sql. A later one executes the file of its own name, and says in words what
it does and whom it keeps waiting: `manage.py check`, `migrate` and `doctor` say it before it is applied.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from django.apps import apps
from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration, RunSQL
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from psycopg import sql

from ledger import conf
from ledger.database import schema_versions
from ledger.database.schema_versions import Record, digest_of
from ledger.errors import UnsafeDatabase

WAITS: Final = {"lock_timeout": "2s", "statement_timeout": "0"}
"""Behind a migration that waits for a table, all calls that use it wait too; what it then does may take its time."""
WAITS_OF_BUILD: Final = {"lock_timeout": "0", "statement_timeout": "0"}
"""An index is built beside all calls: it waits for older transactions, and nobody waits for it."""
IS_INVALID: Final = "SELECT NOT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"


class LedgerMigration(Migration):
    """A migration of the ledger's database only: others, which may be of any kind, note it as applied and stay as they are.

    It goes forwards only, waits at most 2 s for a table, and its last step is the record of its files.
    """

    release: ClassVar[str] = "0.2.0"
    """The release that it came with."""
    code_from: ClassVar[str] = "0.2.0"
    """The first release whose code can use what the migration leaves."""
    effect: ClassVar[str] = ""
    """What it does and what for: a sentence."""
    lock: ClassVar[str] = ""
    """What it locks, for how long, and whether calls go on: a sentence."""

    def apply(self, project_state: ProjectState, schema_editor: Any, collect_sql: bool = False) -> ProjectState:
        """As Django's, with WAITS, and record the files."""
        connection = schema_editor.connection
        if connection.alias != schema_versions.LEDGER_ALIAS:
            return self.mutate_state(project_state, preserve=False)
        if collect_sql:
            return super().apply(project_state, schema_editor, collect_sql)
        self._ensure_it_fits(connection)
        with waits_set(connection, WAITS):
            state = super().apply(project_state, schema_editor, collect_sql)
        recorder, record = MigrationRecorder(connection), str(self.record())
        # A migration that is not atomic may have been interrupted after this.
        if not recorder.migration_qs.filter(app=self.app_label, name=record).exists():
            recorder.record_applied(self.app_label, record)
        return state

    def _ensure_it_fits(self, connection: BaseDatabaseWrapper) -> None:
        """Return if this version can upgrade the database, or raise CommandError and change nothing."""
        if self.name != schema_versions.FIRST:
            try:
                schema_versions.verify_schema(connection, allow_pending=True)
            except UnsafeDatabase as error:
                raise CommandError(f"{self.app_label}.{self.name} is not applied. {error}.") from error

    def record(self) -> Record:
        """Return the record of its files."""
        folder = Path(apps.get_app_config(self.app_label).path) / "migrations"
        return Record(self.name, self.release, self.code_from, digest_of(folder, self.name))

    def unapply(self, project_state: ProjectState, schema_editor: Any, collect_sql: bool = False) -> ProjectState:
        """Refuse it, and change nothing."""
        if schema_editor.connection.alias != schema_versions.LEDGER_ALIAS:
            return project_state
        raise self.no_way_back()

    def no_way_back(self) -> CommandError:
        """Return the error that refuses to undo it."""
        return CommandError(
            f"{self.app_label}.{self.name} of release {self.release} is not undone: the ledger's schema goes forwards only. "
            f"Code of {self.code_from} and later works with it as it is; to have the schema of before, restore a backup "
            "(docs/how-to/operations/upgrade.md)."
        )

    def describe(self) -> str:
        """Return in sentences what will happen: the effect, the lock, and which servers may go on."""
        name = f"{self.app_label}.{self.name} ({self.release})"
        if self.name == schema_versions.FIRST:
            return f"{name} makes the tables of {self.app_label}; nobody waits."
        return f"{name}: {self.effect} {self.lock} Servers of {self.code_from} and later go on."


def refuse_way_back(using: str, plan: Sequence[tuple[Migration, bool]]) -> None:
    """Return, or raise CommandError before `migrate` undoes anything, if its plan undoes a migration of the ledger's database."""
    for migration, is_backwards in plan:
        if is_backwards and isinstance(migration, LedgerMigration) and using == schema_versions.LEDGER_ALIAS:
            raise migration.no_way_back()


@contextmanager
def waits_set(connection: BaseDatabaseWrapper, waits: dict[str, str]) -> Iterator[None]:
    """Have these settings for the block: within a transaction until its end, and else until the end of the block.

    Outside of a transaction, a pooler in transaction mode would leave them to whichever client gets the session next, so there
    the database's own settings stay.
    """
    setting = "SELECT set_config(%s, %s, %s)"
    if connection.in_atomic_block:
        with connection.cursor() as cursor:
            for name, value in waits.items():
                cursor.execute(setting, [name, value, True])
        yield
        return
    if not conf.keeps_server_sessions() and goes_through_pooler(connection):
        yield
        return
    before = {}
    with connection.cursor() as cursor:
        for name, value in waits.items():
            cursor.execute("SELECT current_setting(%s)", [name])
            (before[name],) = cursor.fetchone()
            cursor.execute(setting, [name, value, False])
        try:
            yield
        finally:
            for name, value in before.items():
                cursor.execute(setting, [name, value, False])


def goes_through_pooler(connection: BaseDatabaseWrapper) -> bool:
    """Return whether somebody else than PostgreSQL answered when the connection was made: a pooler has sessions of its own."""
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return bool(cursor.fetchone() != (connection.connection.info.backend_pid,))


def describe_pending(connection: BaseDatabaseWrapper) -> list[str]:
    """Return in sentences what each migration that the database lacks will do, in the order in which they are applied.

    A migration of Django or of another application is only named.
    """
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [
        migration.describe() if isinstance(migration, LedgerMigration) else f"{migration.app_label}.{migration.name}"
        for migration, _ in plan
    ]


# Operations ------------------------------------------------------------------------------------------


class ExecuteFile(RunSQL):
    """Executes a file of SQL that stands beside the migration, in the migration's transaction; there is no way back."""

    def __init__(self, migration: str, state_operations: Sequence[Operation] | None = None) -> None:
        """Take the path of the migration, its `__file__`, and what the models have of the change."""
        self.path = Path(migration).with_suffix(".sql")
        super().__init__(self.path.read_text(encoding="utf-8"), state_operations=state_operations)

    def describe(self) -> str:
        return f"Execute {self.path.name}"


class BuildIndex(Operation):
    """Builds the index of the one statement in the migration's file, CREATE INDEX CONCURRENTLY, while all calls go on.

    The migration is `atomic = False`. It can be repeated: what an interrupted build left is dropped, and an index that is there
    stays.
    """

    reduces_to_sql = True
    reversible = False

    def __init__(self, migration: str, name: str) -> None:
        """Take the path of the migration, its `__file__`, and the name of the index."""
        self.path = Path(migration).with_suffix(".sql")
        self.name = name

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change no model: indexes are declared by SQL alone."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState) -> None:
        """Drop what an interrupted build left, and build the index if it is not there."""
        connection = schema_editor.connection
        build = self.path.read_text(encoding="utf-8")
        if schema_editor.collect_sql:
            schema_editor.execute(build, params=None)
            return
        with waits_set(connection, WAITS_OF_BUILD), connection.cursor() as cursor:
            cursor.execute(IS_INVALID, [self.name])
            found = cursor.fetchone()
            if found == (True,):
                cursor.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(self.name)))
            if found != (False,):
                cursor.execute(build)

    def describe(self) -> str:
        return f"Build the index {self.name}"


class CreateModels(Operation):
    """Adds models, in their order.

    For each model that is added alone, Django makes the classes of all related models again, so the time grows with the square of
    their number. Here they are made once, after the last model.
    """

    def __init__(self, models: Sequence[CreateModel]) -> None:
        self.models = models

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        if "apps" in state.__dict__:
            del state.apps
        for model in self.models:
            model.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState) -> None:
        for model in self.models:
            model.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f"Create {len(self.models)} models"
