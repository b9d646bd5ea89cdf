"""The invoices of a list: their index, their sums, and their columns in a file."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.admin.cells import money
from billing.models import Customer, Invoice, Line, Subscription
from billing.reads.documents import bills, is_overdue
from ledger.staff.kit.bounded_reads import WINDOW_ROWS, FilteredRows, ListOrder, Sums
from ledger.staff.kit.cells import day_words, number_text
from ledger.staff.kit.filters import read_day
from ledger.staff.kit.saved_lists import ListTotals


def totals_of(sums: Sums, noun: str, words: Sequence[str]) -> ListTotals:
    """Sums of minor units for each currency, as sentences.

    Args:
        words: the names of the sums, such as "in total" and "due".
    """
    sentences = [
        format_html(
            "<strong>{}</strong> {} {}{}: {}.",
            currency,
            number_text(rows),
            noun,
            "" if rows == 1 else "s",
            format_html_join(", ", "{} {}", ((money(minor, currency), word) for minor, word in zip(amounts, words, strict=True))),
        )
        for currency, rows, *amounts in sums.rows
    ]
    note = "" if sums.is_whole else f"The sums cover the first {WINDOW_ROWS:,} rows; there are more."
    return ListTotals(sentences=sentences, note=note)


def with_lateness(invoices: Sequence[Any]) -> None:
    """Say of each invoice whether it is overdue, in `is_late`, by one query."""
    late = set(Invoice.objects.filter(is_overdue(), pk__in=[row.pk for row in invoices]).values_list("pk", flat=True))
    for row in invoices:
        row.is_late = row.pk in late


def state_text(row: Any) -> str:
    """Return the state of an invoice `with_lateness`: an open one past its due date is overdue."""
    return "overdue" if row.is_late else str(row.state)


def state_cell(row: Any) -> SafeString | str:
    """Return the same, red if it is overdue."""
    return format_html('<span class="overdue">{}</span>', state_text(row)) if row.is_late else str(row.state)


def due_cell(row: Any) -> SafeString | str:
    """Return the day on which it is due, red if that has passed."""
    words = day_words(row.due_date)
    return format_html('<span class="overdue">{}</span>', words) if row.is_late else words


STILL_DUE = Sum(F("amount_due_minor") - F("amount_paid_minor"), filter=Q(state=Invoice.State.OPEN), default=0)
"""What is still to be paid of open invoices."""
OVERDUE = ListOrder(("due_date", "id"), is_descending=False)
"""The longest overdue first."""
BY_DAY = ListOrder(("issue_date", "id"))


def wanted_invoices(rows: QuerySet[Invoice], values: Mapping[str, str], order: ListOrder | None = None) -> FilteredRows:
    """Return the invoices that match the filters, selected and ordered by one index.

    The first filter that is set chooses the index: overdue, customer or subscription, days of issue, state. In an order that the
    operator has chosen, its index is read, and all filters are compared.
    """
    fits = Q()
    if "plan" in values:
        lines = Line.objects.filter(invoice_id=OuterRef("pk"), price__plan__code=values["plan"])
        fits &= Q(Exists(lines))
    if "currency" in values:
        fits &= Q(currency=values["currency"].upper())
    since, until = read_day(values, "since"), read_day(values, "until")
    issued = Q(issue_date__isnull=False) if since or until else Q()
    issued &= Q(issue_date__gte=since) if since else Q()
    issued &= Q(issue_date__lt=until) if until else Q()
    of = _owner(values)
    state = Q(state=values["state"]) if "state" in values else Q()
    if order is not None:
        late = is_overdue() if "overdue" in values else Q()
        # Drafts have no day of issue; an index that is read from a row on would not return to them.
        is_sorted = rows.filter(issue_date__isnull=False) if "issue_date" in order.columns else rows
        return FilteredRows(rows=is_sorted, fits=fits & of & issued & state & late, order=order, words=str)
    if "overdue" in values:
        return FilteredRows(rows=rows.filter(is_overdue()), fits=fits & of & issued & state, order=OVERDUE, words=_due_words)
    if of:
        return FilteredRows(rows=rows.filter(of), fits=fits & issued & state)
    if issued:
        return FilteredRows(rows=rows.filter(issued), fits=fits & state, order=BY_DAY, words=_issue_words)
    return FilteredRows(rows=rows.filter(state), fits=fits)


def _owner(values: Mapping[str, str]) -> Q:
    """The filter by a subscription or a customer."""
    condition = Q()
    if "subscription" in values:
        condition &= bills(_pk(Subscription, values["subscription"]))
    if "customer" in values:
        condition &= Q(customer_id=_pk(Customer, values["customer"]))
    return condition


def _pk(model: Any, ref: str) -> int:
    """The id of the row with that reference; an id that no row has if there is no such row."""
    found: int | None = model.objects.filter(ref=ref).values_list("pk", flat=True).first()
    return found or 0


def _due_words(row: Invoice) -> str:
    return f"what was due on {day_words(row.due_date)}"


def _issue_words(row: Invoice) -> str:
    return day_words(row.issue_date)
