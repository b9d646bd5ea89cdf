"""Billing's part of the search: documents by their number, other rows by the beginning of a reference or name.

Subscriptions and documents are also found by the name or reference of their customer.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q

from billing.admin.references import spellings
from billing.models import Coupon, CreditNote, Customer, Invoice, InvoicePayment, Meter, NumberSeries, Plan, Subscription, Tax
from billing.permissions import (
    VIEW_COUPON,
    VIEW_CREDITNOTE,
    VIEW_CUSTOMER,
    VIEW_INVOICE,
    VIEW_INVOICEPAYMENT,
    VIEW_METER,
    VIEW_PLAN,
    VIEW_SUBSCRIPTION,
    VIEW_TAX,
)
from billing.rating.money import money_text
from billing.rating.values import MANUAL
from ledger.operators.additions import SearchResult
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.filters import WrongFilter
from ledger.staff.spelling import begins, misspellings, resembles, words_of

Fits = Callable[[Iterable[str], Iterable[str]], bool]
MOST = 5
MOST_SERIES = 100
MOST_WORDS = 3
NAMES_READ = 500
SHORTEST_NAME = 3
SHORTEST_VAT_ID = 8
LONGEST_NUMBER = 12

# By the indexes on e-mails, on VAT ids, and on words of names.
BY_EMAIL = f"SELECT id FROM billing_customer WHERE email <> '' AND lower(email) LIKE %s ORDER BY lower(email), id LIMIT {MOST}"
BY_VAT_ID = f"""
    SELECT id FROM billing_customer
    WHERE vat_id <> '' AND billing_plain_number(vat_id) = %s ORDER BY id LIMIT {MOST}
"""
SIMILAR = f"SELECT id FROM billing_customer WHERE name_words @@ %s::tsquery ORDER BY id DESC LIMIT {MOST}"
MOST_NAMED = 200
"""The most customers of one name whose subscriptions and documents a list looks for."""


def find(request: Any, word: str) -> list[SearchResult]:
    """Return the rows of billing for that word, as far as the operator may see them."""
    customers = {row.pk: row for row in (*_find_named(Customer, "ref", word), *_by_contact(word))}
    return _about(request, word, customers, begins)


def guess(request: Any, word: str) -> list[SearchResult]:
    """Return the same for a name with one typo in its words."""
    return _about(request, word, {row.pk: row for row in _similar_customers(word)}, resembles)


def _about(request: Any, word: str, customers: dict[int, Customer], fits: Fits) -> list[SearchResult]:
    may = request.user.has_perm
    findings: list[SearchResult] = []
    if may(VIEW_CUSTOMER):
        findings += [show_row(row, f"{row.ref}: {row.name}", "customer", "groups") for row in customers.values()]
    if may(VIEW_SUBSCRIPTION):
        subscriptions = _first(_by_beginning(Subscription, "ref", word), Subscription, customer_id__in=customers)
        findings += [show_row(row, row.ref, f"subscription{_of(row, customers)}", "autorenew") for row in subscriptions]
    if may(VIEW_INVOICE):
        invoices = _first(_by_number(Invoice, word), Invoice, customer_id__in=customers)
        findings += [
            show_row(row, str(row), f"invoice{_of(row, customers) or f' of {row.customer_ref}'}, {row.state}", "description")
            for row in invoices
        ]
    if may(VIEW_CREDITNOTE):
        theirs = Subscription.objects.filter(customer_id__in=customers).values("pk") if customers else ()
        notes = _first(_by_number(CreditNote, word), CreditNote, subscription_id__in=theirs)
        findings += [show_row(row, str(row), "credit note", "undo") for row in notes]
    if may(VIEW_PLAN):
        findings += [show_row(row, f"{row.name} ({row})", "plan", "sell") for row in _plans(word, fits)]
    return [*findings, *_payments(may, word), *_catalogue(may, word, fits)]


def _plans(word: str, fits: Fits) -> list[Plan]:
    return _find_named(Plan, "code", word) or named_so(Plan, word, fits)


def _by_contact(word: str) -> list[Customer]:
    """Return customers by the beginning of their e-mail, or by their VAT id, whatever signs stand between its characters."""
    with connection.cursor() as cursor:
        if "@" in word:
            beginning = word.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            cursor.execute(BY_EMAIL, [f"{beginning}%"])
        elif len(vat_id := re.sub(r"[^A-Z0-9]", "", word.upper())) >= SHORTEST_VAT_ID:
            cursor.execute(BY_VAT_ID, [vat_id])
        else:
            return []
        return list(Customer.objects.filter(pk__in=[pk for (pk,) in cursor.fetchall()]).order_by("pk"))


def _similar_customers(word: str) -> list[Customer]:
    """Return customers with a name of these words, each with at most one typo, by the index on words of names."""
    typed = words_of(word)[:MOST_WORDS]
    if not typed or not any(misspellings(each) for each in typed):
        return []
    query = " & ".join(f"({' | '.join((f'{each}:*', *misspellings(each)))})" for each in typed)
    with connection.cursor() as cursor:
        cursor.execute(SIMILAR, [query])
        return list(Customer.objects.filter(pk__in=[pk for (pk,) in cursor.fetchall()]).order_by("pk"))


def _payments(may: Any, word: str) -> list[SearchResult]:
    """Return payments of invoices by the provider's id of the payment."""
    if not may(VIEW_INVOICEPAYMENT):
        return []
    providers = [MANUAL, *getattr(settings, "PAYMENT_PROVIDERS", {})]
    payments = InvoicePayment.objects.filter(provider__in=providers, payment__in=spellings(word))[:MOST]
    return [show_row(row, f"Payment {row.payment}", _money_of(row), "payments") for row in payments]


def _money_of(payment: InvoicePayment) -> str:
    return f"payment of {money_text(payment.amount_minor, payment.currency)}"


def _catalogue(may: Any, word: str, fits: Fits) -> list[SearchResult]:
    """Return coupons, meters and taxes by their references and names, among the newest NAMES_READ of each."""
    findings: list[SearchResult] = []
    for model, permission, noun, icon in (
        (Coupon, VIEW_COUPON, "coupon", "percent"),
        (Meter, VIEW_METER, "meter", "speed"),
        (Tax, VIEW_TAX, "tax", "account_balance"),
    ):
        if may(permission):
            findings += [show_row(row, title_of(row), noun, icon) for row in named_so(model, word, fits)]
    return findings


def title_of(row: Any) -> str:
    """Return the name of a row of the catalogue with its reference."""
    name = getattr(row, "name", "")
    return f"{name} ({row.code})" if name else str(row.code)


def named_so(model: Any, word: str, fits: Fits) -> list[Any]:
    """Return the newest version of each row whose reference or name has words like those typed."""
    typed = words_of(word)
    if not typed or len(word) < SHORTEST_NAME:
        return []
    rows = {row.code: row for row in reversed(model.objects.order_by("-pk")[:NAMES_READ])}
    return [row for row in rows.values() if fits(typed, words_of(f"{row.code} {getattr(row, 'name', '')}"))][:MOST]


def customers_of(word: str) -> list[int]:
    """Return the customers of that reference, and those whose names have these words.

    Raises:
        WrongFilter: more than MOST_NAMED customers have such a name.
    """
    customers = list(Customer.objects.filter(Q(ref=word) | Q(name__named=word)).values_list("pk", flat=True)[: MOST_NAMED + 1])
    if len(customers) > MOST_NAMED:
        raise WrongFilter(f"More than {MOST_NAMED} customers are named “{word[:40]}”. Type more of the name, or the reference.")
    return customers


def show_row(row: Any, title: str, description: str, icon: str) -> SearchResult:
    """Return a row as a result that leads to its page."""
    return SearchResult(title=title, description=description, url=row_url(type(row), row.pk), icon=icon)


def _of(row: Any, customers: Mapping[int, Customer]) -> str:
    """Return the customer of a row that was found by its customer."""
    customer = customers.get(row.customer_id)
    return f" of {customer.ref}: {customer.name}" if customer else ""


def _find_named(model: Any, field: str, word: str) -> list[Any]:
    """Return rows by the beginning of their reference, then by their name."""
    return _first(_by_beginning(model, field, word), model, name__named=word)


def _first(rows: list[Any], model: Any, **others: Any) -> list[Any]:
    """Return the rows, then the newest others, each once; at most MOST."""
    more = model.objects.filter(**others).order_by("-pk")[:MOST] if len(rows) < MOST else ()
    return list({row.pk: row for row in (*rows, *more)}.values())[:MOST]


def _by_beginning(model: Any, field: str, word: str) -> list[Any]:
    """Return rows whose reference begins with the word, as typed or in capitals."""
    matches = (model.objects.filter(**{f"{field}__startswith": each}).order_by(field)[:MOST] for each in spellings(word))
    return list({row.pk: row for rows in matches for row in rows}.values())[:MOST]


def _by_number(model: Any, word: str) -> list[Any]:
    """Return documents by their whole number, or by what stands in it behind the prefix and the zeros: 18 is INV-000018."""
    found = list(model.objects.filter(number__in=spellings(word))[:MOST])
    if not found and word.isascii() and word.isdecimal() and len(word) <= LONGEST_NUMBER:
        series = list(NumberSeries.objects.values_list("name", flat=True)[:MOST_SERIES])
        found = list(model.objects.filter(series__in=series, series_value=int(word)).order_by("pk")[:MOST])
    return found
