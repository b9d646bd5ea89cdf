"""Billing's part of the search: documents by their number, other rows by the beginning of their reference or name."""

from typing import Any

from billing.models import CreditNote, Customer, Invoice, Plan, Subscription
from ledger.admin.kit.cells import row_url
from ledger.operator_pages import Found

MOST = 5


def find(request: Any, word: str) -> list[Found]:
    """Customers, subscriptions, invoices, credit notes and plans for that word, as far as the operator may see them."""
    may = request.user.has_perm
    found: list[Found] = []
    if may("billing.view_customer"):
        found += [_found(row, f"{row.ref}: {row.name}", "customer", "groups") for row in _by_beginning(Customer, "ref", word)]
    if may("billing.view_subscription"):
        found += [_found(row, row.ref, "subscription", "autorenew") for row in _by_beginning(Subscription, "ref", word)]
    if may("billing.view_invoice"):
        invoices = _by_number(Invoice, word)
        found += [_found(row, str(row), f"invoice of {row.customer_ref}, {row.state}", "description") for row in invoices]
    if may("billing.view_creditnote"):
        found += [_found(row, str(row), "credit note", "undo") for row in _by_number(CreditNote, word)]
    if may("billing.view_plan"):
        found += [_found(row, f"{row.name} ({row})", "plan", "sell") for row in _by_beginning(Plan, "code", word)]
    return found


def _found(row: Any, title: str, description: str, icon: str) -> Found:
    return Found(title=title, description=description, url=row_url(type(row), row.pk), icon=icon)


def _by_beginning(model: Any, field: str, word: str) -> list[Any]:
    """Rows whose reference begins with the word, as typed or in capitals."""
    wanted = (model.objects.filter(**{f"{field}__startswith": each}).order_by(field)[:MOST] for each in _spellings(word))
    return list({row.pk: row for rows in wanted for row in rows}.values())[:MOST]


def _by_number(model: Any, word: str) -> list[Any]:
    return list(model.objects.filter(number__in=_spellings(word))[:MOST])


def _spellings(word: str) -> list[str]:
    """The word as typed, and in capitals, which most numbers and references use."""
    return list(dict.fromkeys((word, word.upper())))
