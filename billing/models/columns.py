"""The columns and checks that billing's tables share, and the search for rows by name.

Note [No foreign keys towards intent]
    A database foreign key from a claim or an invoice to a subscription takes FOR KEY SHARE on the parent row, and a deferred one
    makes COMMIT wait while another transaction holds that row FOR UPDATE. So every reference to a subscription, customer, plan,
    price, item or holder is `db_constraint=False`, and the audit looks for orphans.
"""

from typing import Any, TypeVar

from django.db import models
from django.db.models import CharField, Lookup, QuerySet

from billing.errors import NotFound
from billing.rating.limits import EARLIEST, LATEST

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 12}


def reference(to: str, **options: Any) -> Any:
    """Point at a row without a database constraint. See Note [No foreign keys towards intent]."""
    return models.ForeignKey(to, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **options)


def years(table: str, *columns: str) -> models.CheckConstraint:
    """These times lie in the years that billing supports; null passes."""
    within = models.Q()
    for column in columns:
        within &= models.Q((f"{column}__gte", EARLIEST), (f"{column}__lt", LATEST))
    return models.CheckConstraint(name=f"{table}_years", condition=within)


def digest_column(covers: str) -> Any:
    """A column that only the server writes, when the row is inserted."""
    return models.BinaryField(null=True, editable=False, db_comment=f"SHA-256 over {covers}: docs/explanation/billing.md")


Row = TypeVar("Row")


@CharField.register_lookup
class Named(Lookup):
    """Each typed word begins a word of the name, without regard to case, accents and punctuation: `name__named="muller"`.

    billing/migrations/schema.sql has the folding. It adds the words and an index to each table that can be searched in this way.
    """

    lookup_name = "named"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        """See Django's lookups."""
        typed, values = self.process_rhs(compiler, connection)
        return f"{connection.ops.quote_name(self.lhs.alias)}.name_words @@ billing_name_query({typed})", tuple(values)


def first_of(rows: "QuerySet[Any, Row]", resource: str, ref: str | int) -> Row:
    """Return the first of the rows that a ref names.

    Args:
        resource: the kind of row, such as "invoice".

    Raises:
        NotFound: the row does not exist.
    """
    row = rows.first()
    if row is None:
        raise NotFound(resource=resource, ref=ref)
    return row
