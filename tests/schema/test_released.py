"""The files of released migrations never change, and each later migration says what it does. ADR 0099."""

import hashlib
from pathlib import Path

import pytest
from django.apps import apps
from django.db.migrations.loader import MigrationLoader

from ledger.database.schema_changes import BuildIndex, ExecuteFile, LedgerMigration
from ledger.database.schema_versions import FIRST, own_digests
from ledger.version import VERSION, release_of
from tests.deployment.servers import ROOT

LISTING = Path(__file__).with_name("released.txt")
CLUSTER = "ledger/cluster"


def listed() -> dict[str, str]:
    """The digest of each released file, by its path."""
    rows = [line.split("  ") for line in LISTING.read_text().splitlines() if not line.startswith("#")]
    return {path: digest for digest, path in rows}


def present() -> dict[str, str]:
    """The same of the files that there are: the migrations of each application with a schema, their SQL, and the cluster's."""
    folders = [Path(apps.get_app_config(label).path) / "migrations" for label in own_digests()]
    files = [
        path for folder in folders for path in folder.iterdir() if path.suffix in {".py", ".sql"} and path.stem != "__init__"
    ]
    files += (ROOT / CLUSTER).glob("*.sql")
    return {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_no_released_file_has_changed_and_each_file_has_its_line() -> None:
    """A new migration gets its lines by `sha256sum FILE.py FILE.sql >> tests/schema/released.txt`; a line never changes."""
    differences = sorted({path for path, _ in present().items() ^ listed().items()})
    assert differences == []


def test_control_the_listing_has_each_application_and_the_file_that_makes_its_tables() -> None:
    folders = {path.rpartition("/")[0] for path in listed()} - {CLUSTER}
    assert len(folders) == len(own_digests()) >= 10
    for folder in folders:
        assert {f"{folder}/{FIRST}.py", f"{folder}/schema.sql"} <= listed().keys()


def numbered() -> list[LedgerMigration]:
    """The migrations after the first ones."""
    migrations = MigrationLoader(None).graph.nodes.values()
    every = [migration for migration in migrations if migration.app_label in own_digests()]
    assert all(isinstance(migration, LedgerMigration) for migration in every)
    return [migration for migration in every if migration.name != FIRST]


def test_a_migration_says_its_release_and_what_it_does_and_whom_it_keeps_waiting() -> None:
    for migration in numbered():
        said = vars(type(migration))
        assert {"release", "code_from", "effect", "lock"} <= said.keys(), migration
        assert release_of("0.2.0") <= release_of(migration.code_from) <= release_of(migration.release) <= release_of(VERSION)
        assert migration.effect.endswith("."), migration
        assert migration.lock.endswith("."), migration


def test_a_migration_executes_the_file_of_its_name_and_builds_indexes_beside_all_calls() -> None:
    for migration in numbered():
        executed = [each for each in migration.operations if isinstance(each, BuildIndex | ExecuteFile)]
        assert [each.path.stem for each in executed] == [migration.name], migration
        statement = executed[0].path.read_text()
        builds = isinstance(executed[0], BuildIndex)
        assert migration.atomic is not builds, migration
        assert ("CREATE INDEX CONCURRENTLY" in statement or "CREATE UNIQUE INDEX CONCURRENTLY" in statement) is builds, migration
        if not builds:
            assert "INDEX" not in statement, f"{migration} locks a table while it builds an index"


def test_migrations_are_numbered_without_gaps() -> None:
    for app, digests in own_digests().items():
        assert [int(name[:4]) for name in digests] == list(range(1, len(digests) + 1)), app


@pytest.mark.parametrize(
    "file",
    [
        "pyproject.toml", "clients/python/pyproject.toml", "clients/typescript/package.json", "docker-compose.yml",
        "deploy/citus/docker-compose.yml", "CHANGELOG.md", "docs/how-to/operations/monitoring.md",
    ],
)  # fmt: skip
def test_every_file_that_names_the_version_names_this_one(file: str) -> None:
    text = (ROOT / file).read_text()
    patterns = ('version = "{}"', '"version": "{}"', "image: credit-ledger:{}", "## {}", "Ledger {}")
    assert any(pattern.format(VERSION) in text for pattern in patterns)
