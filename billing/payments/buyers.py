"""Customers as the providers know them."""

from billing.models import Customer
from billing.payments.models import ProviderCustomer
from billing.payments.providers.configured import able
from billing.payments.providers.interface import KeepsMethods


def buyer_of(provider_name: str, customer_id: int) -> str:
    """Return the provider's id of a customer; make a customer with the provider if there is none. Raises: as `Provider.start`."""
    buyer = ProviderCustomer.objects.filter(provider=provider_name, customer_id=customer_id).first()
    if buyer is None:
        ref = able(provider_name, KeepsMethods).make_buyer(Customer.objects.values_list("ref", flat=True).get(pk=customer_id))
        buyer, _ = ProviderCustomer.objects.get_or_create(
            provider=provider_name, customer_id=customer_id, defaults={"provider_id": ref}
        )
    return buyer.provider_id
