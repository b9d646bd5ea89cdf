"""The columns and checks that billing's tables share, and rows found by a name.

Note [No foreign keys towards intent]
    A database foreign key from a claim or an invoice to a subscription takes FOR KEY SHARE on the parent row, and a
    deferred one makes COMMIT wait while another transaction holds that row FOR UPDATE. So every reference to a subscription,
    customer, plan, price, item or holder is `db_constraint=False`; the audit finds orphans instead.
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
    """These times lie in the years that billing knows; null passes."""
    within = models.Q()
    for column in columns:
        within &= models.Q((f"{column}__gte", EARLIEST), (f"{column}__lt", LATEST))
    return models.CheckConstraint(name=f"{table}_years", condition=within)


def digest_column(covers: str) -> Any:
    """What the server computes when the row is inserted, and nobody else writes."""
    return models.BinaryField(null=True, editable=False, db_comment=f"SHA-256 over {covers}: docs/BILLING.md")


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
