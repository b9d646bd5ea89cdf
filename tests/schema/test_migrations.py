"""Migrations go up, down and up again, and leave the same schema."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg import sql

from tests.conftest import database_url

SCRATCH = "ledger_migrations_scratch"

SNAPSHOT = """
SELECT
    'column',
    c.oid::regclass::text,
    a.attname,
    format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
    || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '') || COALESCE(' -- ' || col_description(c.oid, a.attnum), '')
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'p')
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) || ' ' || tgenabled::text
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, pg_get_function_identity_arguments(oid), pg_get_functiondef(oid)
FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
UNION ALL
SELECT 'view', viewname, '', definition FROM pg_views WHERE schemaname = 'public'
UNION ALL
SELECT 'table', relname, '', COALESCE(array_to_string(reloptions, ' '), '') || COALESCE(obj_description(oid), '')
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL
SELECT 'sequence', sequencename, '', data_type::text FROM pg_sequences WHERE schemaname = 'public'
ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def scratch(raw_connection: Callable[..., psycopg.Connection[Any]]) -> Iterator[str]:
    """The URL of an empty database, gone afterwards."""
    owner = raw_connection("owner", autocommit=True)
    name = sql.Identifier(f"{SCRATCH}_{os.getpid()}")
    owner.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
    owner.execute(sql.SQL("CREATE DATABASE {}").format(name))
    yield database_url("owner").rsplit("/", 1)[0] + f"/{SCRATCH}_{os.getpid()}"
    owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def migrate(url: str, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "DATABASE_URL": url, "SECRET_KEY": "only-for-tests"}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0", *arguments]
    subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True, timeout=120)


def snapshot(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(SNAPSHOT).fetchall()


def test_up_down_and_up_again_is_the_same_schema(scratch: str) -> None:
    migrate(scratch)
    first = snapshot(scratch)
    migrate(scratch, "billing", "zero")
    migrate(scratch, "ledger", "zero")
    left = {(kind, name) for kind, name, *_ in snapshot(scratch) if name.startswith(("ledger", "billing", "refuse"))}
    assert left == set()
    migrate(scratch)
    assert snapshot(scratch) == first
    assert len(first) > 200
