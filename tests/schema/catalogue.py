"""The schema of a database as rows that can be compared: what `pg_dump --schema-only` would show."""

from django.db.backends.base.base import BaseDatabaseWrapper

# One row per object, in an order that does not depend on when it was created. Columns keep the order of their table.
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
    """Return the schema of a database, without the tables of Django's own applications."""
    with database.cursor() as cursor:
        cursor.execute(SCHEMA)
        return [row for row in cursor.fetchall() if not row[1].lstrip("_").startswith(("django_", "auth_"))]
