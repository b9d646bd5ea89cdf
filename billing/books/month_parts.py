"""What the sections of a month have in common: columns by currency, and references to documents and customers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ledger.totals.figures import Figure, FigureAmount, FigureColumn, FigureLink, Reference, money

DOCUMENT_PAGES = {"invoice": "billing_invoice_change", "creditnote": "billing_creditnote_change"}


def columns_of(currencies: Iterable[str], parts: Sequence[tuple[str, str]]) -> list[FigureColumn]:
    """Return a column for each part of each currency: its key is EUR/net, its title "EUR net"."""
    return [FigureColumn(f"{currency}/{key}", f"{currency} {title}") for currency in currencies for key, title in parts]


def split(column: str) -> tuple[str, str]:
    """Return the currency and the part of a column's key."""
    currency, _, part = column.partition("/")
    return currency, part


def money_figure(
    key: str,
    title: str,
    columns: Sequence[FigureColumn],
    minor: Callable[[str, str], int | None],
    **more: Any,
) -> Figure:
    """Return a figure in money.

    Args:
        minor: its amount, by currency and part; None: it does not exist there.
    """
    amounts: list[FigureAmount | None] = []
    for column in columns:
        currency, part = split(column.key)
        amount = minor(currency, part)
        amounts.append(None if amount is None else money(amount, currency))
    return Figure(key, title, amounts, **more)


def document(kind: str, pk: int, number: str) -> Reference:
    """Return a reference to an invoice or credit note."""
    return Reference(number, FigureLink(DOCUMENT_PAGES[kind], key=str(pk)), str(pk))


def customer(ref: str) -> Reference:
    """Return a reference to the customer with that ref."""
    return Reference(ref, FigureLink("billing_customer_changelist", {"q": ref}))
