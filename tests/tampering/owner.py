"""Changes of billing's rows that no trigger sees, and the seller of the documents that are changed."""

from django.db import connection

SELLER = {"name": "Fern GmbH", "line1": "Lindenstr. 4", "city": "Berlin", "country": "DE", "iban": "DE02120300000000202051"}
TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'billing%%' AND relkind IN ('r', 'p')
"""


def as_owner(*statements: str, **named: int) -> None:
    """Change rows as the owner of the tables can, with triggers off; constraints still hold."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(TABLES)
        tables = [name for (name,) in cursor.fetchall()]
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in statements:
            cursor.execute(statement, named)
            assert cursor.rowcount, statement
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
