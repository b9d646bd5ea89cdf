"""The address at which a customer pays an invoice, for mails and PDFs. The application that has such a page registers it."""

from collections.abc import Callable
from typing import Final

from billing.models import Customer, Invoice

FindPayLink = Callable[[Customer, Invoice], str | None]
"""Takes an invoice with its customer; None if nobody can pay it there."""

_registered: Final[list[FindPayLink]] = []


def register(find: FindPayLink) -> None:
    """Let this function name the address; the one that was registered last is asked."""
    if find not in _registered:
        _registered.append(find)


def pay_link_of(invoice: Invoice) -> str | None:
    """Return the address at which the invoice's customer pays it; None if there is none, or nothing is to be paid now."""
    return link_on_paper(invoice) if is_payable(invoice) else None


def link_on_paper(invoice: Invoice) -> str | None:
    """Return the same address whatever was paid since: what is printed stays the same."""
    return _registered[-1](Customer.objects.get(pk=invoice.customer_id), invoice) if _registered else None


def is_payable(invoice: Invoice) -> bool:
    """Return whether something is to be paid for an invoice now."""
    return invoice.state == Invoice.State.OPEN and invoice.amount_remaining_minor > 0
