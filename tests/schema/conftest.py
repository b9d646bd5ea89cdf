"""New databases that are dropped after the test."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection, sql


@pytest.fixture
def new_database(
    raw_connection: Callable[..., Connection[Any]], django_db_blocker: Any
) -> Iterator[Callable[[], BaseDatabaseWrapper]]:
    """Makes new, empty databases, and returns a Django connection of the owner to each; they are dropped at the end."""
    owner = raw_connection("owner", autocommit=True)
    # To make or drop a database, the server writes all its buffers to the disk.
    owner.execute("SET statement_timeout = 0")
    with django_db_blocker.unblock(), ExitStack() as databases:
        yield lambda: databases.enter_context(_new_database(owner))


@pytest.fixture
def scratch_database(new_database: Callable[[], BaseDatabaseWrapper]) -> BaseDatabaseWrapper:
    """A Django connection of the owner to a new and empty database, which is dropped at the end."""
    return new_database()


@contextmanager
def _new_database(owner: Connection[Any]) -> Iterator[BaseDatabaseWrapper]:
    """Make an empty database; return its name and a Django connection of the owner."""
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    owner.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    scratch = connections["default"].copy(alias=name)
    scratch.settings_dict["NAME"] = name
    connections.databases[name] = scratch.settings_dict
    connections[name] = scratch
    try:
        yield scratch
    finally:
        scratch.close()
        del connections[name]
        del connections.databases[name]
        # Without FORCE the server itself ends a running autovacuum. With FORCE the owner would have to end it, and may not.
        owner.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
