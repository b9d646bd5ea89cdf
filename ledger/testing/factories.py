"""History made through the use-cases, as a project makes it: locked, checked and chained like any other."""

import uuid
from typing import Any

import factory

from ledger import services
from ledger.keys import api_keys
from ledger.rules import Entry


def unique(prefix: str) -> str:
    """Return a name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


class _EntryFactory(factory.Factory):
    """Calls the use-case of its name with its declarations; further arguments are those of the use-case."""

    class Meta:
        abstract = True
        model = Entry

    idempotency_key = factory.LazyFunction(lambda: unique("key"))

    @classmethod
    def _build(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        raise NotImplementedError("an entry is stored as soon as it exists: call the factory, or its create()")


class GrantFactory(_EntryFactory):
    """A grant of 100 credits to a new holder."""

    holder_id = factory.LazyFunction(lambda: unique("holder"))
    amount = 100

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.grant(**kwargs)


class SpendFactory(_EntryFactory):
    """A spend of 10 credits, by a new holder of 100."""

    holder_id = factory.LazyFunction(lambda: holder_with_credits(100))
    amount = 10

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.spend(**kwargs)


class HoldFactory(_EntryFactory):
    """A hold of 10 credits, by a new holder of 100."""

    holder_id = factory.LazyFunction(lambda: holder_with_credits(100))
    amount = 10

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.hold(**kwargs)


def holder_with_credits(amount: int, **grant: Any) -> str:
    """Grant credits and return the holder, a new one by default.

    Args:
        grant: other arguments of `services.grant`, such as `holder_id`, `credit_type`, `expires_at`.
    """
    entry: Entry = GrantFactory.create(amount=amount, **grant)
    return entry.holder_id


def api_key(*scopes: str, **confines: Any) -> str:
    """Make an API key and return its secret, for `Authorization: Bearer …`.

    Args:
        scopes: such as "ledger:spend".
        confines: other arguments of `api_keys.create_api_key`, such as `holder_id`.
    """
    _, secret = api_keys.create_api_key(**({"name": unique("key")} | confines), scopes=scopes)
    return secret
