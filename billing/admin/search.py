"""Billing's part of the search: documents by their number, other rows by the beginning of a reference or name.

Subscriptions and documents are also found by the name or reference of their customer.
"""

from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from billing.models import CreditNote, Customer, Invoice, Plan, Subscription
from billing.permissions import VIEW_CREDITNOTE, VIEW_CUSTOMER, VIEW_INVOICE, VIEW_PLAN, VIEW_SUBSCRIPTION
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.filters import WrongFilter
from ledger.operators.additions import Found

MOST = 5
MOST_NAMED = 200
"""The most customers of one name whose subscriptions and documents a list looks for."""


def find(request: Any, word: str) -> list[Found]:
    """Return customers, subscriptions, invoices, credit notes and plans for that word, as far as the operator may see them."""
    may = request.user.has_perm
    customers = {row.pk: row for row in _called(Customer, "ref", word)}
    found: list[Found] = []
    if may(VIEW_CUSTOMER):
        found += [_found(row, f"{row.ref}: {row.name}", "customer", "groups") for row in customers.values()]
    if may(VIEW_SUBSCRIPTION):
        subscriptions = _first(_by_beginning(Subscription, "ref", word), Subscription, customer_id__in=customers)
        found += [_found(row, row.ref, f"subscription{_of(row, customers)}", "autorenew") for row in subscriptions]
    if may(VIEW_INVOICE):
        invoices = _first(_by_number(Invoice, word), Invoice, customer_id__in=customers)
        found += [
            _found(row, str(row), f"invoice{_of(row, customers) or f' of {row.customer_ref}'}, {row.state}", "description")
            for row in invoices
        ]
    if may(VIEW_CREDITNOTE):
        theirs = Subscription.objects.filter(customer_id__in=customers).values("pk") if customers else ()
        notes = _first(_by_number(CreditNote, word), CreditNote, subscription_id__in=theirs)
        found += [_found(row, str(row), "credit note", "undo") for row in notes]
    if may(VIEW_PLAN):
        found += [_found(row, f"{row.name} ({row})", "plan", "sell") for row in _called(Plan, "code", word)]
    return found


def customers_of(word: str) -> list[int]:
    """Return the customers of that reference, and those whose names have these words.

    Raises:
        WrongFilter: more than MOST_NAMED customers have such a name.
    """
    found = list(Customer.objects.filter(Q(ref=word) | Q(name__named=word)).values_list("pk", flat=True)[: MOST_NAMED + 1])
    if len(found) > MOST_NAMED:
        raise WrongFilter(f"More than {MOST_NAMED} customers are named “{word[:40]}”. Type more of the name, or the reference.")
    return found


def _found(row: Any, title: str, description: str, icon: str) -> Found:
    return Found(title=title, description=description, url=row_url(type(row), row.pk), icon=icon)


def _of(row: Any, customers: Mapping[int, Customer]) -> str:
    """Return the customer of a row that was found by its customer."""
    customer = customers.get(row.customer_id)
    return f" of {customer.ref}: {customer.name}" if customer else ""


def _called(model: Any, field: str, word: str) -> list[Any]:
    """Return rows by the beginning of their reference, then by their name."""
    return _first(_by_beginning(model, field, word), model, name__named=word)


def _first(rows: list[Any], model: Any, **others: Any) -> list[Any]:
    """Return the rows, then the newest others, each once; at most MOST."""
    more = model.objects.filter(**others).order_by("-pk")[:MOST] if len(rows) < MOST else ()
    return list({row.pk: row for row in (*rows, *more)}.values())[:MOST]


def _by_beginning(model: Any, field: str, word: str) -> list[Any]:
    """Return rows whose reference begins with the word, as typed or in capitals."""
    matches = (model.objects.filter(**{f"{field}__startswith": each}).order_by(field)[:MOST] for each in _spellings(word))
    return list({row.pk: row for rows in matches for row in rows}.values())[:MOST]


def _by_number(model: Any, word: str) -> list[Any]:
    return list(model.objects.filter(number__in=_spellings(word))[:MOST])


def _spellings(word: str) -> list[str]:
    """Return the word as typed, and in capitals, which most numbers and references use."""
    return list(dict.fromkeys((word, word.upper())))
