"""Records a digest of the files that made an application's tables, with the tables, and compares it at the start. ADR 0058.

The record is a row of Django's table of migrations, `schema <digest>` beside `0001_initial`. So it is written by the transaction
that makes the tables, is on every node of a cluster, and comes along with a backup.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from ledger.errors import UnsafeDatabase

LEDGER_ALIAS = DEFAULT_DB_ALIAS
"""The database of `settings.DATABASES` that the ledger is in."""
SCHEMA_FILE: Final = "schema.sql"
RECORD: Final = "schema "
READABLE: Final = """
SELECT has_table_privilege(oid, 'SELECT')
FROM pg_class
WHERE oid = to_regclass('django_migrations')
"""
APPLIED: Final = "SELECT app, name FROM django_migrations WHERE app = ANY(%s) ORDER BY id"
WHAT_TO_DO: Final = (
    "before release 1.0 there are no migrations between versions: run the version that made it, or prepare a new database "
    "(docs/how-to/operations/upgrade.md)"
)


class LedgerMigration(Migration):
    """A migration of the ledger's database only: others, which may be of any kind, record it and stay as they are."""

    def apply(self, project_state: ProjectState, schema_editor: Any, collect_sql: bool = False) -> ProjectState:
        """As Django's."""
        if schema_editor.connection.alias == LEDGER_ALIAS:
            return super().apply(project_state, schema_editor, collect_sql)
        return self.mutate_state(project_state, preserve=False)

    def unapply(self, project_state: ProjectState, schema_editor: Any, collect_sql: bool = False) -> ProjectState:
        """As Django's."""
        if schema_editor.connection.alias == LEDGER_ALIAS:
            return super().unapply(project_state, schema_editor, collect_sql)
        return project_state


class RecordSchema(Operation):
    """The last operation of the migration that makes an application's tables: records the digest of the files that made them."""

    reduces_to_sql = False

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change no model."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState) -> None:
        """Insert the record."""
        MigrationRecorder(schema_editor.connection).record_applied(app_label, RECORD + _digests()[app_label])

    def describe(self) -> str:
        return "Record which files made the tables"


_fitting: set[str] = set()
"""The aliases of the databases whose tables fit this process, or that it works with all the same."""


def ensure_schema(connection: BaseDatabaseWrapper) -> None:
    """Return if the files of this version made the tables, or raise UnsafeDatabase: what each call of the ledger asks first.

    It asks the database until the tables fit, so that a process goes on after the database was prepared.
    """
    if connection.alias not in _fitting:
        verify_schema(connection)
        _fitting.add(connection.alias)


def leave_unensured(alias: str) -> None:
    """Let this process call the ledger in the database of that alias whichever files made its tables."""
    _fitting.add(alias)


def verify_schema(connection: BaseDatabaseWrapper) -> None:
    """Return, or raise UnsafeDatabase if the files of another version made the tables of the database.

    A database without these tables passes, and so does one in which the role may not read the record: neither is prepared yet.
    """
    digests = _digests()
    with connection.cursor() as cursor:
        cursor.execute(READABLE)
        if cursor.fetchone() != (True,):
            return
        cursor.execute(APPLIED, [list(digests)])
        names: dict[str, list[str]] = {}
        for app, name in cursor.fetchall():
            names.setdefault(app, []).append(name)
    other = [app for app, applied in names.items() if RECORD + digests[app] not in applied]
    if other:
        raise UnsafeDatabase(what=f"another version made the schema of {', '.join(sorted(other))}", why=WHAT_TO_DO)


@cache
def _digests() -> dict[str, str]:
    """The digest of the files of each application that makes its tables by a file of SQL."""
    folders = {config.label: Path(config.path) / "migrations" for config in apps.get_app_configs()}
    return {label: digest_of(folder) for label, folder in folders.items() if (folder / SCHEMA_FILE).exists()}


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of the migrations and the SQL in a folder, without empty lines and lines of comment."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".py", ".sql"}:
            lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
            kept = [line for line in lines if line and not line.startswith(("#", "--"))]
            digest.update("\n".join([path.name, *kept, ""]).encode())
    return digest.hexdigest()


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
