"""The wheel, environments with parts of what it can use, and projects on databases that nobody prepared."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from tests.conftest import _conninfo
from tests.embedding.installations import Project, build_wheel, linked_environment, start_project, unpack_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def python_with(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`python_with("admin")` is the Python of an environment with the wheel, what that extra requires, and `also`."""

    unpacked = unpack_wheel(wheel, tmp_path_factory.mktemp("unpacked"))

    @cache
    def make(*extras: str, also: tuple[str, ...] = ()) -> Path:
        return linked_environment(tmp_path_factory.mktemp("environment") / "venv", unpacked, *extras, also=also)

    return make


@pytest.fixture
def plain_database(django_db_setup: None) -> Iterator[dict[str, object]]:
    """An empty database of the server, of a role that owns it and nothing else: none of our roles, rights and settings."""
    with empty_database() as found:
        yield found


@contextmanager
def empty_database() -> Iterator[dict[str, object]]:
    """Gives what `plain_database` gives; for a fixture of another scope."""
    name = f"plain_{uuid.uuid4().hex[:12]}"
    identifier = sql.Identifier(name)
    with psycopg.connect(_conninfo("superuser", dbname="postgres"), autocommit=True) as superuser:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(identifier, sql.Literal(name)))
        superuser.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(identifier, identifier))
        at = connection.get_connection_params()
        yield {"NAME": name, "USER": name, "PASSWORD": name, "HOST": at.get("host", ""), "PORT": at.get("port", "")}
        superuser.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
        superuser.execute(sql.SQL("DROP ROLE {}").format(identifier))


@pytest.fixture
def new_project(python_with: Callable[..., Path], plain_database: dict[str, object], tmp_path: Path) -> Callable[..., Project]:
    """`new_project("unfold", "ledger", extras=["admin"])` starts a project with these applications, where only the extras are."""

    def make(*apps: str, extras: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Project:
        return start_project(python_with(*extras, also=also), tmp_path / "project", plain_database, apps)

    return make
