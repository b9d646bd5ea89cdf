"""Digests of the tables, functions, triggers … that `prepare_database` left, for `doctor` to compare with the current ones.

One digest for each kind of object, in a row of Django's table of migrations, beside those of `ledger.database.schema_versions`:
the application's role cannot write it. Partitions come and go, and are left out. ADR 0058.
"""

from typing import Final

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

APP: Final = "ledger_project"
RECORD: Final = "catalogue"
RECORDED: Final = "SELECT name FROM django_migrations WHERE app = %s AND name LIKE %s || ' %%' ORDER BY id DESC"

# Texts of the catalogue differ between major versions of PostgreSQL; the digests of one version are not compared with another's.
# Constraints that only say NOT NULL (kind n) are in the catalogue from PostgreSQL 18 on, and in the columns before too.
TODAY: Final = r"""
WITH ours AS (
    SELECT oid, relname, relkind
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname ~ '^(ledger|billing)_' AND NOT relispartition
        AND relname !~ '_[0-9]{6,}$'
), parts (kind, content) AS (
    SELECT 'tables', concat_ws(' ', relname, relkind)
    FROM ours
    WHERE relkind IN ('r', 'p', 'S')
    UNION ALL
    SELECT 'columns', concat_ws(' ', o.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
        a.attgenerated, a.attcollation, pg_get_expr(d.adbin, d.adrelid))
    FROM ours o
    JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = o.oid AND d.adnum = a.attnum
    WHERE o.relkind IN ('r', 'p')
    UNION ALL
    SELECT 'constraints', concat_ws(' ', o.relname, c.conname, c.convalidated, pg_get_constraintdef(c.oid))
    FROM ours o
    JOIN pg_constraint c ON c.conrelid = o.oid
    WHERE c.contype NOT IN ('n', 't')
    UNION ALL
    SELECT 'indexes', pg_get_indexdef(oid)
    FROM ours
    WHERE relkind IN ('i', 'I')
    UNION ALL
    SELECT 'triggers', concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled)
    FROM ours o
    JOIN pg_trigger t ON t.tgrelid = o.oid AND NOT t.tgisinternal AND t.tgname NOT LIKE 'truncate\_trigger\_%'
    UNION ALL
    SELECT 'views', concat_ws(' ', relname, pg_get_viewdef(oid))
    FROM ours
    WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT 'functions', pg_get_functiondef(oid)
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND prokind = 'f' AND proname ~ '^(ledger_|billing_|refuse_change$)'
)
SELECT current_setting('server_version_num')::int / 10000, kind, left(md5(string_agg(md5(content), '' ORDER BY md5(content))), 12)
FROM parts
GROUP BY kind
ORDER BY kind
"""


def record_catalogue(connection: BaseDatabaseWrapper) -> None:
    """Record the current digests in place of the earlier ones."""
    recorder = MigrationRecorder(connection)
    name = " ".join([RECORD, *_today(connection)])
    with transaction.atomic(using=connection.alias):
        recorder.migration_qs.filter(app=APP, name__startswith=f"{RECORD} ").delete()
        recorder.record_applied(APP, name)


def changed_since_prepared(connection: BaseDatabaseWrapper) -> list[str] | None:
    """Return the kinds of objects that have changed since; None without a record, or with one of another PostgreSQL version."""
    with connection.cursor() as cursor:
        cursor.execute(RECORDED, [APP, RECORD])
        row = cursor.fetchone()
    recorded = row[0].split()[1:] if row else []
    today = _today(connection)
    if recorded[:1] != today[:1]:
        return None
    return sorted({each.split("=")[0] for each in {*recorded} ^ {*today}})


def _today(connection: BaseDatabaseWrapper) -> list[str]:
    """`postgresql=18`, then a digest for each kind of object: `columns=0a1b…`."""
    with connection.cursor() as cursor:
        cursor.execute(TODAY)
        rows = cursor.fetchall()
    return [f"postgresql={rows[0][0]}", *(f"{kind}={digest}" for _, kind, digest in rows)]
