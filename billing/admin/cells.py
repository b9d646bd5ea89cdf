"""Contents of the cells of billing's pages: money, periods, and links from row to row; and the rows of a customer."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Model, QuerySet
from django.forms.utils import pretty_name
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from billing.models import Customer, Invoice, Plan, Subscription
from billing.nouns import noun_fields
from billing.rating.money import minor_digits, money_text
from ledger.records import Record
from ledger.staff.kit.cells import digits, link, row_link, timestamp
from ledger.staff.kit.columns import Column, Value, getter
from ledger.units import unit_of

MORE_ROWS = 100


def ids_of_customer(ref: str) -> QuerySet[Customer, Any]:
    """Return the id of the customer with this reference, for a filter of rows: none if there is no such customer."""
    return Customer.objects.filter(ref=ref).values("pk")


def money(amount_minor: int | None, currency: str) -> SafeString | str:
    """Return an amount of minor units in words, with its currency."""
    if amount_minor is None:
        return ""
    return digits(money_text(amount_minor, currency))


def money_column(title: str, value: Value, *, csv_title: str = "") -> Column:
    """An amount of minor units in the row's `currency`; in major units in a file."""
    get = getter(value)
    return Column(
        title, lambda row: money(get(row), row.currency), lambda row: decimal(get(row), row.currency), csv_title=csv_title
    )


def decimal(amount_minor: int, currency: str) -> Decimal:
    """An amount of minor units in major units, for a file."""
    return Decimal(amount_minor).scaleb(-minor_digits(currency))


def file_columns(declared: type[Record]) -> list[Column]:
    """Return the columns that the file of a noun's list has, of those fields that it declares."""
    return [
        Column(each.out.column or pretty_name(each.name), each.name)
        for each in noun_fields(declared)
        if each.out.column is not None
    ]


def credits_text(amount: int, credit_type: str) -> str:
    """An amount of credits with the decimals and the unit of its type."""
    return unit_of(credit_type).amount(amount)


def plain(value: Decimal | None) -> str:
    """Return a decimal without zeros at its end."""
    return "" if value is None else f"{value.normalize():f}"


def period(starts_at: datetime | None, ends_at: datetime | None) -> SafeString | str:
    """Return [start, end) in the operator's zone."""
    if starts_at is None:
        return ""
    return format_html("{} – {}", timestamp(starts_at), timestamp(ends_at) or "open")


def pairs(found: Mapping[str, Any] | None) -> SafeString:
    """Return a JSON object, one name a line."""
    return format_html_join("", "<div><code>{}</code>: {}</div>", ((name, str(value)) for name, value in (found or {}).items()))


def list_url(model: type[Model], **filters: Any) -> str:
    """Return the address of the model's list with these filters."""
    opts = model._meta
    return f"{reverse(f'admin:{opts.app_label}_{opts.model_name}_changelist')}?{urlencode(filters)}"


def customer_link(pk: int, ref: str, name: str = "") -> SafeString:
    """Return a link to a customer by the name, with the reference below it; without a name, by the reference."""
    linked = row_link(Customer, pk, name or ref)
    # Under the link, because a link within a text needs more than its colour to be seen.
    return format_html('{}<div class="note">{}</div>', linked, ref) if name else linked


def customer_names(rows: Iterable[Any]) -> dict[int, str]:
    """Return the current names of the customers of these rows, by one query."""
    pks = {row.customer_id for row in rows}
    return dict(Customer.objects.filter(pk__in=pks).values_list("pk", "name"))


def with_customers(rows: Iterable[Any]) -> None:
    """Give the rows the current name and zone of their customers, by one query."""
    found = Customer.objects.in_bulk({row.customer_id for row in rows})
    for row in rows:
        customer = found.get(row.customer_id)
        row.customer_name, row.customer_zone = (customer.name, customer.time_zone) if customer else ("", "UTC")


def subscription_link(pk: int | None, ref: str) -> SafeString | str:
    """Return a link to a subscription; an invoice without one has no link."""
    return "" if pk is None else row_link(Subscription, pk, ref)


def document_link(invoice: Invoice | None) -> SafeString | str:
    """Return a link to an invoice by its number; a draft has no number."""
    return "" if invoice is None else row_link(Invoice, invoice.pk, invoice.number or "draft")


def pdf_link(invoice: Invoice) -> SafeString:
    """Return a link to the PDF of an invoice."""
    return link(reverse("admin:billing_invoice_show_pdf", args=[invoice.pk]), "PDF")


def plan_link(plan: Plan) -> SafeString:
    return row_link(Plan, plan.pk, str(plan))


def by_pk(model: type[Model], pks: Iterable[int | None]) -> dict[Any, Any]:
    """Return the rows of these keys, by one query; rows that are gone are missing."""
    return model._default_manager.in_bulk({pk for pk in pks if pk is not None})
