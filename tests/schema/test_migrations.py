"""Migrations go up, down and up again, one by one, and leave the same schema each time."""

from collections.abc import Iterator

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

OURS = ("ledger", "billing")

# What pg_dump --schema-only would tell, one line per thing, in an order that does not depend on when it was made.
SCHEMA = """
WITH ours AS (
    SELECT oid, relname, relkind, reloptions
    FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
)
SELECT 'relation', o.relname::text, o.relkind::text, COALESCE(array_to_string(o.reloptions, ','), '')
FROM ours o
UNION ALL
SELECT 'column',
    o.relname || '.' || lpad(row_number() OVER (PARTITION BY o.oid ORDER BY a.attnum)::text, 3, '0') || ' ' || a.attname,
    format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attidentity::text || a.attgenerated::text,
    COALESCE(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || a.attcollation::regcollation::text
FROM ours o
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = o.oid AND d.adnum = a.attnum
UNION ALL
SELECT 'constraint', o.relname || ' ' || c.conname, pg_get_constraintdef(c.oid), c.convalidated::text
FROM ours o JOIN pg_constraint c ON c.conrelid = o.oid
UNION ALL
SELECT 'index', o.relname, pg_get_indexdef(o.oid), ''
FROM ours o WHERE o.relkind IN ('i', 'I')
UNION ALL
SELECT 'trigger', o.relname || ' ' || t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text
FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid), ''
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prokind IN ('f', 'p')
UNION ALL
SELECT 'view', o.relname, pg_get_viewdef(o.oid), ''
FROM ours o WHERE o.relkind IN ('v', 'm')
UNION ALL
SELECT 'comment', o.relname || ' ' || COALESCE(a.attname, ''), d.description, ''
FROM ours o
JOIN pg_description d ON d.objoid = o.oid AND d.classoid = 'pg_class'::regclass
LEFT JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = d.objsubid
UNION ALL
SELECT 'type', t.typname, t.typtype::text, ''
FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace
ORDER BY 1, 2, 3
"""


def schema(database: BaseDatabaseWrapper) -> list[tuple[str, ...]]:
    """All that is there but the tables of Django's own applications, which come as others need them."""
    with database.cursor() as cursor:
        cursor.execute(SCHEMA)
        return [row for row in cursor.fetchall() if not row[1].lstrip("_").startswith(("django_", "auth_"))]


def steps(database: BaseDatabaseWrapper) -> Iterator[tuple[str, str]]:
    """Our migrations in the order in which they are applied."""
    executor = MigrationExecutor(database)
    for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        if migration.app_label in OURS:
            yield migration.app_label, migration.name


def migrate(database: BaseDatabaseWrapper, *targets: tuple[str, str | None]) -> None:
    # Anew each time: it remembers what is applied.
    MigrationExecutor(database).migrate(list(targets))


def test_every_migration_can_be_taken_back_and_applied_again(scratch_database):
    plan = list(steps(scratch_database))
    assert {app for app, _ in plan} == set(OURS)
    found: list[list[tuple[str, ...]]] = []
    for step in plan:
        found.append(schema(scratch_database))
        migrate(scratch_database, step)
    whole = schema(scratch_database)
    assert found[0] == []

    for index in reversed(range(len(plan))):
        app, name = plan[index]
        earlier = [other for other in plan[:index] if other[0] == app]
        migrate(scratch_database, earlier[-1] if earlier else (app, None))
        assert schema(scratch_database) == found[index], f"{app} {name} does not leave the schema that it found"

    for step in plan:
        migrate(scratch_database, step)
    assert schema(scratch_database) == whole
