"""A row that a caller names: found, or a NotFound that repeats the name; and rows by words of their names."""

from typing import Any, TypeVar

from django.db.models import CharField, Lookup, QuerySet

from billing.errors import NotFound

Row = TypeVar("Row")


@CharField.register_lookup
class Named(Lookup):
    """Each typed word begins a word of the name, without regard to case, accents and punctuation: `name__named="muller"`.

    billing/migrations/schema.sql says what is folded. It adds the words and an index to each table that is searched in this way.
    """

    lookup_name = "named"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        """As Django's lookups."""
        typed, values = self.process_rhs(compiler, connection)
        return f"{connection.ops.quote_name(self.lhs.alias)}.name_words @@ billing_name_query({typed})", tuple(values)


def first_of(rows: "QuerySet[Any, Row]", resource: str, ref: str | int) -> Row:
    """Return the first of the rows that a ref names.

    Args:
        resource: what the ref names, such as "invoice".

    Raises:
        NotFound: there is no row.
    """
    row = rows.first()
    if row is None:
        raise NotFound(resource=resource, ref=ref)
    return row
