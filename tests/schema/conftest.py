"""A scratch database of its own, for migrations and for sizes."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection, sql


@pytest.fixture
def scratch_database(raw_connection: Callable[..., Connection[Any]], django_db_blocker: Any) -> Iterator[BaseDatabaseWrapper]:
    """A Django connection of the owner to a new and empty database, which is dropped at the end."""
    name = sql.Identifier(f"scratch_{uuid.uuid4().hex[:12]}")
    owner = raw_connection("owner", autocommit=True)
    owner.execute(sql.SQL("CREATE DATABASE {}").format(name))
    scratch = connections["default"].copy(alias="scratch")
    scratch.settings_dict["NAME"] = name._obj[0]
    connections.databases["scratch"] = scratch.settings_dict
    connections["scratch"] = scratch
    with django_db_blocker.unblock():
        try:
            yield scratch
        finally:
            scratch.close()
            del connections["scratch"]
            del connections.databases["scratch"]
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
