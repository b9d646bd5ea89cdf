"""For the tests of a project with payments: packs and purchases. Needs the extra `[testing]`."""

from typing import Any

import factory

from billing.payments.models import Pack, Purchase
from billing.payments.packs import create_pack
from billing.payments.purchase_recording import record_purchase
from billing.payments.purchase_settling import settle
from ledger.testing import unique


class PackFactory(factory.Factory):
    """A pack on sale: 1,000 credits and a bonus of 100 for 20.00 EUR."""

    class Meta:
        model = Pack

    code = factory.LazyFunction(lambda: unique("pack"))
    name = "Starter"
    credits = 1000
    bonus = 100
    currency = "EUR"
    price_minor = 2000

    @classmethod
    def _create(cls, model_class: type[Pack], *args: Any, **kwargs: Any) -> Pack:
        return create_pack(**kwargs)


class PurchaseFactory(factory.Factory):
    """A purchase of a pack by a new holder, with its credits."""

    class Meta:
        model = Purchase

    pack = factory.LazyFunction(lambda: PackFactory().code)
    holder_id = factory.LazyFunction(lambda: unique("holder"))
    payment = factory.LazyFunction(lambda: unique("payment"))

    @classmethod
    def _create(cls, model_class: type[Purchase], *args: Any, **kwargs: Any) -> Purchase:
        purchase = record_purchase(**kwargs)
        settle(purchase.pk)
        return purchase
