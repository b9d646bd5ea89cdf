"""Records which files made an application's tables, with the tables, and compares the records at the start. ADR 0058, 0099.

A record is a row of Django's table of migrations beside the row of its migration: `schema 0001_initial version=0.2.0
code_from=0.2.0 sha256=…`. So it is written by the transaction of the migration, is on every node of a cluster, and comes along
with a backup. It says which release the migration came with, and from which release on code can use what it leaves: code that
does not have the file of the migration reads there whether it may go on.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.errors import UnsafeDatabase
from ledger.version import VERSION, release_of

LEDGER_ALIAS = DEFAULT_DB_ALIAS
"""The database of `settings.DATABASES` that the ledger is in."""
SCHEMA_FILE: Final = "schema.sql"
FIRST: Final = "0001_initial"
"""The migration that executes SCHEMA_FILE."""
NUMBERED: Final = re.compile(r"[0-9]{4}_\w+")
"""The name of a migration."""
READABLE: Final = """
SELECT has_table_privilege(oid, 'SELECT')
FROM pg_class
WHERE oid = to_regclass('django_migrations')
"""
APPLIED: Final = "SELECT app, name FROM django_migrations WHERE app = ANY(%s) ORDER BY id"
MAKE_AGAIN: Final = (
    "run the version that made it, or prepare a new database; databases are upgraded from release 0.2.0 on "
    "(docs/how-to/operations/upgrade.md)"
)
UPGRADE_FIRST: Final = (
    "run `manage.py prepare_database` of this version as the owner, in a project that embeds the ledger `manage.py migrate` "
    "(docs/how-to/operations/upgrade.md)"
)


# The record ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """Which release a migration came with, from which release on code can use what it leaves, and the digest of its files."""

    migration: str
    version: str
    code_from: str
    digest: str

    def __str__(self) -> str:
        return f"schema {self.migration} version={self.version} code_from={self.code_from} sha256={self.digest}"


RECORD: Final = re.compile(r"schema (\w+) version=([0-9.]+) code_from=([0-9.]+) sha256=([0-9a-f]{64})")


def find_record(name: str) -> Record | None:
    """Return the record that this row of Django's table of migrations is, if it is one."""
    match = RECORD.fullmatch(name)
    return match and Record(*match.groups())


def digest_of(folder: Path, migration: str) -> str:
    """Return the SHA-256 of the files of a migration, without empty lines and lines of comment.

    Its files are `<name>.py`, `<name>.sql` and, of the first one, schema.sql.
    """
    digest = hashlib.sha256()
    for path in files_of(folder, migration):
        lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        kept = [line for line in lines if line and not line.startswith(("#", "--"))]
        digest.update("\n".join([path.name, *kept, ""]).encode())
    return digest.hexdigest()


def files_of(folder: Path, migration: str) -> list[Path]:
    """Return the files of a migration that exist, in the order of their names."""
    names = [f"{migration}.py", f"{migration}.sql", *([SCHEMA_FILE] if migration == FIRST else [])]
    return [path for path in map(folder.joinpath, names) if path.exists()]


@cache
def own_digests() -> dict[str, dict[str, str]]:
    """Return the digest of each migration of this version, by the label of each application that makes its tables by SQL."""
    folders = {config.label: Path(config.path) / "migrations" for config in apps.get_app_configs()}
    return {
        label: {path.stem: digest_of(folder, path.stem) for path in sorted(folder.glob("[0-9]*.py"))}
        for label, folder in folders.items()
        if (folder / SCHEMA_FILE).exists()
    }


# The comparison --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """How the tables of a database differ from those of this version's files; all empty if they do not.

    Attributes:
        others: the applications of which a migration was changed after it was applied, or applied without its record.
        newer: the records of migrations that this version does not have, by application.
        unrecorded: the applied migrations that this version does not have and that have no record, as `ledger.0007_more`.
        pending: the migrations of this version that the database lacks, as `ledger.0002_more`.
    """

    others: tuple[str, ...] = ()
    newer: tuple[tuple[str, Record], ...] = ()
    unrecorded: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        """The newest release that migrated the database, if that is one that this version does not know."""
        return max((record.version for _, record in self.newer), key=release_of, default=None)

    @property
    def needs_code_from(self) -> str | None:
        """The release from which on code can use what this version does not know of, if this version is older."""
        needed = [record.code_from for _, record in self.newer if release_of(record.code_from) > release_of(VERSION)]
        return max(needed, key=release_of, default=None)

    def refuse(self, *, allow_pending: bool = False) -> None:
        """Return if this version can use the database, or raise UnsafeDatabase with what to run."""
        if self.others:
            raise UnsafeDatabase(what=f"another version made the schema of {', '.join(self.others)}", why=MAKE_AGAIN)
        if self.unrecorded:
            raise UnsafeDatabase(what=f"{', '.join(self.unrecorded)} {_is_or_are(self.unrecorded)} unknown here", why=MAKE_AGAIN)
        if self.needs_code_from:
            raise UnsafeDatabase(
                what=f"release {self.version} migrated the database, and its tables need code of {self.needs_code_from} or later",
                why=f"this is {VERSION}: run {self.version}; there is no way back (docs/how-to/operations/upgrade.md)",
            )
        if self.pending and not allow_pending:
            raise UnsafeDatabase(what=f"the database lacks {', '.join(self.pending)} of release {VERSION}", why=UPGRADE_FIRST)


def _is_or_are(names: tuple[str, ...]) -> str:
    return "is" if len(names) == 1 else "are"


def compare_schema(connection: BaseDatabaseWrapper) -> Comparison:
    """Return how the tables of the database differ from those of this version's files.

    Nothing differs in a database without these tables, nor in one in which the role may not read the record: neither is
    prepared yet. An application without tables in the database may have been installed since, and is left to `migrate`.
    """
    own = own_digests()
    with connection.cursor() as cursor:
        cursor.execute(READABLE)
        if cursor.fetchone() != (True,):
            return Comparison()
        cursor.execute(APPLIED, [list(own)])
        rows: dict[str, list[str]] = {}
        for app, name in cursor.fetchall():
            rows.setdefault(app, []).append(name)
    differences = [_compare_application(app, own[app], rows[app]) for app in sorted(rows)]
    return Comparison(
        others=tuple(app for each in differences for app in each.others),
        newer=tuple(record for each in differences for record in each.newer),
        unrecorded=tuple(name for each in differences for name in each.unrecorded),
        pending=tuple(name for each in differences for name in each.pending),
    )


def _compare_application(app: str, digests: dict[str, str], rows: list[str]) -> Comparison:
    records = {record.migration: record for record in map(find_record, rows) if record}
    applied = {name for name in rows if NUMBERED.fullmatch(name)}
    unknown = sorted(applied - digests.keys())
    fits = bool(applied) and all(name in records and records[name].digest == digests[name] for name in applied & digests.keys())
    return Comparison(
        others=() if fits else (app,),
        newer=tuple((app, records[name]) for name in unknown if name in records),
        unrecorded=tuple(f"{app}.{name}" for name in unknown if name not in records),
        pending=tuple(f"{app}.{name}" for name in digests if name not in applied),
    )


def verify_schema(connection: BaseDatabaseWrapper, *, allow_pending: bool = False) -> None:
    """Return if this version can use the tables of the database, or raise UnsafeDatabase, which names what to run.

    A database of a later release passes if each of its migrations says that code of this version can use what it leaves.

    Args:
        connection: its database may also have none of these tables: then it is not prepared yet, and passes.
        allow_pending: also pass if the database lacks migrations of this version: for what is going to apply them.
    """
    compare_schema(connection).refuse(allow_pending=allow_pending)


_fitting: set[str] = set()
"""The aliases of the databases whose tables fit this process, or that it works with all the same."""


def ensure_schema(connection: BaseDatabaseWrapper) -> None:
    """Return if this version can use the tables, or raise UnsafeDatabase: what each call of the ledger asks first.

    It asks the database until the tables fit, so that a process goes on after the database was prepared.
    """
    if connection.alias not in _fitting:
        verify_schema(connection)
        _fitting.add(connection.alias)


def is_ensured(alias: str) -> bool:
    """Return whether calls to the database of that alias ask no more whether the tables fit."""
    return alias in _fitting


def leave_unensured(alias: str) -> None:
    """Let this process call the ledger in the database of that alias whichever files made its tables."""
    _fitting.add(alias)
