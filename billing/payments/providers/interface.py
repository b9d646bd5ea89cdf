"""What a provider of payments must be able to do. docs/reference/payment-providers.md says how another one is added.

No method opens a transaction or takes a lock, because each sends requests and waits. Each can be called again after an unknown
outcome: a provider executes a request with the same key once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

STRIPE: Final = "stripe"

REQUESTED: Final = "requested"
WAITING: Final = "waiting"
PROCESSING: Final = "processing"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
CANCELED: Final = "canceled"
STATES: Final = (REQUESTED, WAITING, PROCESSING, SUCCEEDED, FAILED, CANCELED)
"""Of an intent: recorded here; the customer has to act; the provider is at work; the money is in; declined; given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of a provider.

    Args:
        key: our name for the intent, never used again. The provider keeps it with what it makes.
        buyer: the provider's id of the customer, or empty.
        method: the saved method to charge; empty: a checkout.
        is_present: the customer is there to confirm a charge.
        return_url: where the customer's browser goes afterwards.
        saves_method: the checkout saves the method for later charges.
        checkout, payment: what the provider made for this order so far, by its ids.
    """

    key: str
    amount_minor: int
    currency: str
    title: str
    buyer: str = ""
    method: str = ""
    is_present: bool = False
    return_url: str = ""
    saves_method: bool = False
    checkout: str = ""
    payment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyBack:
    """A refund or dispute: its id with the provider, the amount, our key of a refund that we asked for, and how it stands."""

    id: str
    amount_minor: int
    key: str = ""
    is_final: bool = True
    """The money went back."""
    is_failed: bool = False
    is_won: bool = False
    """Of a dispute: the money is here again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How an order stands with the provider now."""

    state: str
    checkout: str = ""
    payment: str = ""
    url: str = ""
    """Where the customer pays or confirms."""
    error: str = ""
    received_minor: int = 0
    currency: str = ""
    paid_at: datetime | None = None
    """When the money was in; now by default."""
    is_recorded: bool = False
    """The payments are on record here already, so that nothing is recorded for the amount received."""
    refunds: tuple[MoneyBack, ...] = ()
    disputes: tuple[MoneyBack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEvent:
    """What an event is about: the order's key if the event names it, else the provider's ids."""

    id: str
    type: str
    key: str = ""
    checkout: str = ""
    payment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A saved method, as a person recognises it."""

    id: str
    provider: str
    text: str


class Provider(ABC):
    """One provider of payments: what each can do. The classes below have what only some can do."""

    name: ClassVar[str]
    has_page: ClassVar[bool] = True
    """The customer pays or confirms on a page of the provider, and comes back to `return_url`."""
    is_remote: ClassVar[bool] = True
    """Another machine answers, perhaps late or never: only workers ask it. False: its answers are read from this database."""

    @abstractmethod
    def start(self, order: Order) -> Found:
        """Make what the order needs next: a checkout, or the next step of a charge.

        Raises:
            ProviderUnavailable: the outcome is unknown; call it again with the same order.
            ProviderRefused: no money moved, and none will.
        """

    @abstractmethod
    def find(self, order: Order) -> Found:
        """Return how an order stands that has a checkout or payment. Raises: as `start`."""

    @abstractmethod
    def cancel(self, order: Order) -> None:
        """Give up an order that has a checkout or payment, so that nobody can pay it. `find` says whether it was in time.

        Raises:
            ProviderUnavailable: the outcome is unknown.
            ProviderRefused: it is paid, or over.
        """


class SendsMoneyBack(ABC):
    """A provider that sends money back."""

    @abstractmethod
    def refund(self, payment: str, amount_minor: int, currency: str, key: str) -> None:
        """Send money of a payment back, once for the key. Raises: as `start`."""


class SendsEvents(ABC):
    """A provider that says by signed events that there is news."""

    @abstractmethod
    def read_event(self, body: bytes, headers: Mapping[str, str]) -> SignedEvent:
        """Verify an event and return what it is about.

        Raises:
            EventRejected: the signature is wrong, missing or too old.
        """

    @abstractmethod
    def key_of(self, payment: str) -> str:
        """Return the key of the order for which a payment was made; empty if it is not one of ours. Raises: as `start`."""


class KeepsMethods(ABC):
    """A provider that keeps methods of customers, and charges them."""

    @abstractmethod
    def make_buyer(self, ref: str) -> str:
        """Make a customer with the provider, once for the ref, and return the provider's id. Raises: as `start`."""

    @abstractmethod
    def methods(self, buyer: str) -> list[Method]:
        """Return the saved methods of a customer. Raises: as `start`."""

    @abstractmethod
    def start_saving(self, buyer: str, return_url: str) -> str:
        """Return the address at which a customer saves a method without a payment, and from which the browser comes back.

        Nothing is charged. An address that nobody uses ends by itself. Raises: as `start`.
        """

    @abstractmethod
    def forget_method(self, method: str) -> None:
        """Forget a saved method. Raises: as `start`."""
