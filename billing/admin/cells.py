"""What stands in the cells of billing's pages: money, periods, and links from row to row."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from billing.models import Customer, Invoice, Plan, Subscription
from billing.rating.money import minor_digits
from ledger.admin.kit.pages import moment, row_link

MORE_ROWS = 100


def money(amount_minor: int | None, currency: str) -> SafeString | str:
    """An amount of minor units as people write it, with its currency."""
    if amount_minor is None:
        return ""
    digits = minor_digits(currency)
    major = Decimal(amount_minor).scaleb(-digits)
    figure = f"{major:,.{digits}f}".replace(",", "\u202f").replace("-", "−")
    return format_html('<span class="figure">{} {}</span>', figure, currency)


def plain(value: Decimal | None) -> str:
    """A decimal without zeros at its end."""
    return "" if value is None else f"{value.normalize():f}"


def period(starts_at: datetime | None, ends_at: datetime | None) -> SafeString | str:
    """[start, end) in UTC."""
    if starts_at is None:
        return ""
    return format_html("{} – {}", moment(starts_at), moment(ends_at) or "open")


def pairs(found: Mapping[str, Any] | None) -> SafeString:
    """A JSON object, one name a line."""
    return format_html_join("", "<div><code>{}</code>: {}</div>", ((name, str(value)) for name, value in (found or {}).items()))


def list_url(model: type[Model], **filters: Any) -> str:
    """Where the list of that model is, filtered so."""
    opts = model._meta
    return f"{reverse(f'admin:{opts.app_label}_{opts.model_name}_changelist')}?{urlencode(filters)}"


def customer_link(pk: int, ref: str) -> SafeString:
    return row_link(Customer, pk, ref)


def subscription_link(pk: int, ref: str) -> SafeString:
    return row_link(Subscription, pk, ref)


def invoice_link(pk: int | None, words: str = "") -> SafeString | str:
    return "" if pk is None else row_link(Invoice, pk, words or f"invoice {pk}")


def plan_link(plan: Plan) -> SafeString:
    return row_link(Plan, plan.pk, str(plan))


def by_pk(model: type[Model], pks: Iterable[int | None]) -> dict[Any, Any]:
    """The rows of these keys, in one query; rows that are gone are missing."""
    return model._default_manager.in_bulk({pk for pk in pks if pk is not None})
