"""Saved methods of customers: the providers keep them, and nothing of them is stored here.

So their readers wait for a provider, alone of all calls and pages: few at a time, so that a provider that does not answer
leaves the threads of a process to the others.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from billing.errors import NotFound
from billing.orders.customers import customer_of
from billing.payments.buyers import buyer_of
from billing.payments.errors import ProviderUnavailable
from billing.payments.models import ProviderCustomer
from billing.payments.providers.configured import able, is_configured
from billing.payments.providers.interface import KeepsMethods, Method

AT_ONCE: Final = 2
"""How many calls of a process wait for providers at the same time."""
WAIT_S: Final = 1.0
"""How long another one waits for its turn."""

_free: Final = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def _one_of_few() -> Iterator[None]:
    if not _free.acquire(timeout=WAIT_S):
        raise ProviderUnavailable(why="other calls wait for the provider already")
    try:
        yield
    finally:
        _free.release()


def methods_of(ref: str) -> list[Method]:
    """Return the saved methods of a customer, of all providers that know the customer.

    Raises:
        NotFound: the customer does not exist.
        ProviderUnavailable, ProviderRefused: a provider does not answer, or refuses; or AT_ONCE calls wait for one already.
    """
    customer_of(ref)
    with _one_of_few():
        return _methods_of(ref)


def _methods_of(ref: str) -> list[Method]:
    known = ProviderCustomer.objects.filter(customer_id=customer_of(ref).pk).order_by("pk")
    return [
        method
        for row in known
        if is_configured(row.provider)
        for method in able(row.provider, KeepsMethods).methods(row.provider_id)
    ]


def start_saving_method(ref: str, provider: str, return_url: str) -> str:
    """Return the address at which a customer saves a method with a provider, without a payment.

    Args:
        return_url: where the customer's browser goes afterwards.

    Raises:
        Invalid: there is no such provider, or it keeps no methods.
        NotFound, ProviderUnavailable, ProviderRefused: as `methods_of`.
    """
    adapter, customer = able(provider, KeepsMethods), customer_of(ref)
    with _one_of_few():
        return adapter.start_saving(buyer_of(provider, customer.pk), return_url)


def forget_method(ref: str, method: str, *, dry_run: bool = False) -> list[Method]:
    """Have the provider forget a saved method of a customer; return the methods that are left. A dry run changes nothing.

    Raises:
        NotFound: the customer does not exist, or has no such method.
        ProviderUnavailable, ProviderRefused: as `methods_of`.
    """
    customer_of(ref)
    with _one_of_few():
        methods = _methods_of(ref)
        for each in methods:
            if each.id == method:
                if not dry_run:
                    able(each.provider, KeepsMethods).forget_method(method)
                return [other for other in methods if other is not each]
    raise NotFound(resource="payment method", ref=method)
