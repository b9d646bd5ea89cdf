"""A database with a history that a superuser may change in every way; each change is undone."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from billing.orders import plans
from ledger_project.serving.bootstrap import provision
from tests.conftest import _conninfo, _switch_database
from tests.tampering.history import make_history

NAME = "_tampered"


@pytest.fixture(scope="package")
def tampered_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Lead Django's connection, as a superuser, to a database of its own with a history."""
    rolled_back = connection.settings_dict["NAME"]
    with django_db_blocker.unblock():
        superuser = psycopg.conninfo.conninfo_to_dict(_conninfo("superuser"))
        before = dict(connection.settings_dict)
        connection.close()
        with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
            names = sql.Identifier(rolled_back + NAME), sql.Identifier(rolled_back)
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(names[0]))
            owner.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        _switch_database(rolled_back + NAME)
        provision(connection)
        make_history()
        connection.close()
        connection.settings_dict.update(USER=superuser["user"], PASSWORD=superuser["password"])
        yield
        _switch_database(rolled_back)
        connection.settings_dict.update(before)
        with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(rolled_back + NAME)))
        plans.terms_of.cache_clear()
        plans.price_of.cache_clear()
        plans.list_price_of.cache_clear()
