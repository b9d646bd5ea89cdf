"""Saved methods of customers: the providers keep them, and nothing of them is stored here."""

from billing.errors import NotFound
from billing.models import ProviderCustomer
from billing.orders.customers import customer_of
from billing.payments.providers.configured import able, is_configured
from billing.payments.providers.interface import KeepsMethods, Method


def methods_of(ref: str) -> list[Method]:
    """Return the saved methods of a customer, of all providers that know the customer.

    Raises:
        NotFound: the customer does not exist.
        ProviderUnavailable, ProviderRefused: a provider does not answer, or refuses.
    """
    known = ProviderCustomer.objects.filter(customer_id=customer_of(ref).pk).order_by("pk")
    return [
        method
        for row in known
        if is_configured(row.provider)
        for method in able(row.provider, KeepsMethods).methods(row.provider_id)
    ]


def forget_method(ref: str, method: str, *, dry_run: bool = False) -> list[Method]:
    """Have the provider forget a saved method of a customer; return the methods that are left. A dry run changes nothing.

    Raises:
        NotFound: the customer does not exist, or has no such method.
        ProviderUnavailable, ProviderRefused: as `methods_of`.
    """
    methods = methods_of(ref)
    for each in methods:
        if each.id == method:
            if not dry_run:
                able(each.provider, KeepsMethods).forget_method(method)
            return [other for other in methods if other is not each]
    raise NotFound(resource="payment method", ref=method)
