"""Money in a few numbers: what is unpaid and overdue, what was invoiced and paid, month by month. Bounded, by index."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

from django.db import connection
from django.db.models import BooleanField, ExpressionWrapper, F

from billing import additions
from billing.models import Invoice
from billing.reads.documents import is_overdue
from ledger.database.statements import fetch_rows

MOST_INVOICES: Final = 10_000
"""At most how many unpaid invoices, and how many invoices of the last months, are added up."""
MOST_PAYMENTS: Final = 5_000
"""At most how many payments, and sales of a kind, are added up, the newest ones."""

# By the index on days of issue. A voided invoice brings nothing; what is not paid yet may be overdue.
ISSUED: Final = f"""
    SELECT date_trunc('month', newest.issue_date)::date, newest.currency, count(*),
        count(*) FILTER (WHERE newest.state <> 'void'),
        coalesce(sum(newest.total_minor) FILTER (WHERE newest.state <> 'void'), 0)::bigint,
        coalesce(sum(newest.amount_due_minor - newest.amount_paid_minor) FILTER (WHERE newest.state = 'open'), 0)::bigint
    FROM (
        SELECT issue_date, currency, state, total_minor, amount_due_minor, amount_paid_minor
        FROM billing_invoice
        WHERE issue_date IS NOT NULL AND issue_date >= %(since)s
        ORDER BY issue_date DESC, id DESC
        LIMIT {MOST_INVOICES}
    ) AS newest
    GROUP BY 1, 2
"""
_RECEIVED: Final = """
    SELECT date_trunc('month', newest.paid_at AT TIME ZONE 'UTC')::date, newest.currency, count(*), sum(newest.minor)::bigint
    FROM (SELECT paid_at, currency, {minor} AS minor FROM {table} ORDER BY id DESC LIMIT {most}) AS newest
    WHERE newest.paid_at >= %(since)s
    GROUP BY 1, 2
"""
PAYMENTS: Final = _RECEIVED.format(table="billing_invoicepayment", minor="amount_minor", most=MOST_PAYMENTS)


class CurrencySums(NamedTuple):
    """Sums of minor units by currency, of how many rows, and whether these are all."""

    minor: Mapping[str, int]
    rows: int
    is_whole: bool = True
    first: date | None = None


class Issued(NamedTuple):
    """The invoices of a month in a currency; `rows` counts the voided ones too."""

    month: date
    currency: str
    rows: int
    invoices: int
    total_minor: int
    unpaid_minor: int


class Received(NamedTuple):
    """The money that came in a month in a currency."""

    month: date
    currency: str
    payments: int
    minor: int


class CustomerDebt(NamedTuple):
    """What a customer owes in a currency, in minor units: of how many open invoices, and how much of it is overdue."""

    customer_id: int
    currency: str
    minor: int = 0
    invoices: int = 0
    overdue_minor: int = 0
    overdue_invoices: int = 0
    first_due: date | None = None

    def plus(self, minor: int, due: date | None, *, is_late: bool) -> "CustomerDebt":
        """Return the debt with one more invoice."""
        return self._replace(
            minor=self.minor + minor,
            invoices=self.invoices + 1,
            overdue_minor=self.overdue_minor + minor * is_late,
            overdue_invoices=self.overdue_invoices + is_late,
            first_due=min((day for day in (self.first_due, due) if day is not None), default=None),
        )


class Debts(NamedTuple):
    """The debts of customers, and whether these are all."""

    rows: list[CustomerDebt]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class MonthMoney:
    """What came in and what was invoiced since a month began; `is_whole` if no invoice was left out."""

    issued: list[Issued]
    payments: list[Received]
    sales: Mapping[str, list[Received]]
    """What came in for sales without an invoice, by what was sold, such as packs."""
    is_whole: bool


def sales_sql(sales: additions.Sales) -> str:
    """Return the query for the money of sales without an invoice."""
    return _RECEIVED.format(table=sales.table, minor=sales.minor, most=MOST_PAYMENTS)


def unpaid() -> CurrencySums:
    """Return what is still to be paid of open invoices, those that are due first."""
    return _sums(Invoice.objects.filter(state=Invoice.State.OPEN, amount_due_minor__gt=0))


def overdue() -> CurrencySums:
    """Return what is still to be paid of invoices past their due date, and the first of these dates."""
    return _sums(Invoice.objects.filter(is_overdue()))


def _sums(invoices: Any) -> CurrencySums:
    left = F("amount_due_minor") - F("amount_paid_minor")
    page_rows = list(invoices.order_by("due_date", "id").values_list("currency", left, "due_date")[: MOST_INVOICES + 1])
    minor: Counter[str] = Counter()
    for currency, rest, _ in page_rows[:MOST_INVOICES]:
        minor[currency] += rest
    return CurrencySums(
        minor, min(len(page_rows), MOST_INVOICES), len(page_rows) <= MOST_INVOICES, page_rows[0][2] if page_rows else None
    )


def debts(*, customer_id: int | None = None) -> Debts:
    """Return what customers owe: of each customer and currency the sum of its open invoices, the largest sums first.

    Args:
        customer_id: only this customer's, of its newest invoices; None: of all, of the invoices that are due first.
    """
    invoices = Invoice.objects.filter(state=Invoice.State.OPEN, amount_due_minor__gt=0).order_by("due_date", "id")
    if customer_id is not None:
        # By the index on the customer's invoices.
        invoices = invoices.filter(customer_id=customer_id).order_by("-id")
    is_late = ExpressionWrapper(is_overdue(), output_field=BooleanField())
    columns = ("customer_id", "currency", F("amount_due_minor") - F("amount_paid_minor"), "due_date", is_late)
    page_rows = list(invoices.values_list(*columns)[: MOST_INVOICES + 1])
    sums: dict[tuple[int, str], CustomerDebt] = {}
    for customer, currency, left, due, late in page_rows[:MOST_INVOICES]:
        sums[customer, currency] = sums.get((customer, currency), CustomerDebt(customer, currency)).plus(left, due, is_late=late)
    return Debts(sorted(sums.values(), key=lambda debt: (-debt.minor, debt.customer_id)), len(page_rows) <= MOST_INVOICES)


def money_since(month: date) -> MonthMoney:
    """Return the money of that month and of those after it, by month and currency."""
    named = {"since": month}
    issued = fetch_rows(Issued, ISSUED, named)
    return MonthMoney(
        issued,
        fetch_rows(Received, PAYMENTS, named),
        {what: fetch_rows(Received, sales_sql(each), named) for what, each in additions.SALES.items()},
        is_whole=sum(row.rows for row in issued) < MOST_INVOICES,
    )


# Whose plan ------------------------------------------------------------------------------------------

# Of each holder the plan of the newest subscription of its customers, by their indexes.
_PLANS: Final = """
    SELECT holder.id, plan.name
    FROM unnest(%(holders)s::text[]) AS holder (id)
    CROSS JOIN LATERAL (
        SELECT v.plan_id
        FROM billing_customer AS c
        JOIN billing_subscription AS s ON s.customer_id = c.id
        JOIN billing_itemversion AS v ON v.subscription_id = s.id AND v.superseded_at IS NULL
        WHERE c.holder_id = holder.id AND c.holder_id <> ''
        ORDER BY s.id DESC, v.id DESC
        LIMIT 1
    ) AS newest
    JOIN billing_plan AS plan ON plan.id = newest.plan_id
"""


def plan_names(holder_ids: Iterable[str]) -> dict[str, str]:
    """Return the name of the plan of each of these holders that has one."""
    with connection.cursor() as cursor:
        cursor.execute(_PLANS, {"holders": list(holder_ids)})
        return dict(cursor.fetchall())
