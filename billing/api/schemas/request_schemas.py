"""The bodies of billing's writes and the queries of its reads."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from billing.documents.invoices import MAX_NOTE_CHARACTERS
from billing.documents.sellers import NewSeller
from billing.generator.activations import CanceledOrder
from billing.generator.options import Scope
from billing.generator.run.preview import MAX_INVOICES
from billing.metering.corrections import EventCancellation, EventCorrection
from billing.metering.usage import MAX_EVENTS, NewEvent
from billing.models import Invoice
from billing.orders.customers import CustomerChange
from billing.orders.subscriptions import NewCharge, NewSubscription, Wish
from billing.orders.tax_declarations import NewTax
from billing.rating.prices.price import Price
from billing.rating.prices.reading import PriceValue
from billing.rating.values import Currency, OneLine, Ref, Units, Used
from billing.reads.subscriptions import STATES
from ledger.records import Nested, Record, Shape, field_of, shape_of
from ledger.rest.kit.queries import DryRunQuery, ListQuery, QueryBoolean, QueryInteger
from ledger.values import (
    MAX_REASON_CHARACTERS,
    Amount,
    Boolean,
    Choice,
    Day,
    Holder,
    Integer,
    ListOf,
    Metadata,
    Text,
    Time,
    Value,
)

CHARGE = Shape(NewCharge, without={"ref"})
CANCELED_ORDER = Shape(CanceledOrder, without={"ref"})
USAGE_EVENT = Shape(NewEvent, name="NewUsageEvent")
SELLER = Shape(NewSeller, without={"ref"})
TAX = Shape(NewTax, without={"code"})
EVENT_SHAPES: dict[str, Shape[Any]] = {"corrects": shape_of(EventCorrection), "cancels": shape_of(EventCancellation)}
"""What corrects or cancels an event, by the member that only it has."""
CUSTOMER_CHANGE = Shape(CustomerChange, without={"ref"})


@dataclass(frozen=True, kw_only=True)
class RatedEvent(Record):
    """A usage event to rate."""

    value: Annotated[Decimal, Used("The used quantity.")]
    occurred_at: Annotated[datetime, Time("When.")]
    properties: Annotated[dict[str, Any], Metadata("Properties for the filters of prices.")] = field(default_factory=dict)


class PartOf(Nested):
    """An object with a part of a record's fields, and further ones."""

    def __init__(self, shape: Shape[Any], text: str) -> None:
        Value.__init__(self, text)
        self.shape = shape

    def made(self, item: Any) -> Any:
        return item


PREVIEWED_ORDER = Shape(NewSubscription, name="PreviewedSubscription", without={"ref", "customer"})
PREVIEWED_AMENDMENT = Shape(
    Wish,
    name="PreviewedAmendment",
    text="A change of one of the customer's subscriptions from an instant on.",
    before=[
        field_of("subscription", Ref("The subscription."), required=True),
        field_of("effective_at", Time("When the change takes effect."), required=True),
    ],
)


@dataclass(frozen=True, kw_only=True)
class NewPreview(Record):
    """What is not ordered yet: at least one of subscription, amendment and coupon."""

    subscription: Annotated[dict[str, Any] | None, PartOf(PREVIEWED_ORDER, "A new subscription.")] = None
    amendment: Annotated[dict[str, Any] | None, PartOf(PREVIEWED_AMENDMENT, "A change of a subscription.")] = None
    coupon: Annotated[str | None, Ref("A coupon that the customer gets.")] = None
    invoices: Annotated[int, Integer("How many invoices ahead.", least=1, most=MAX_INVOICES)] = 1


@dataclass(frozen=True, kw_only=True)
class PreviewQuery(Record):
    """The query of a preview."""

    invoices: Annotated[int, QueryInteger("How many invoices ahead.", least=1, most=MAX_INVOICES)] = 1


@dataclass(frozen=True, kw_only=True)
class NewRating(Record):
    """A quantity or events to rate."""

    currency: Annotated[str, Currency()]
    price: Annotated[Price, PriceValue("The price.")]
    quantity: Annotated[Decimal | None, Units("All units of the period so far, including units already billed.")] = None
    events: Annotated[
        list[RatedEvent] | None, ListOf(Nested(RatedEvent), "Or all events of the period so far.", most=MAX_EVENTS)
    ] = None
    already_billed: Annotated[
        Decimal | None, Units("How many of these units are billed already; the response is the price of the rest.")
    ] = None
    credits_available: Annotated[
        int | None, Amount("Of a price that takes credits: how many credits are available to cover units first.", least=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class AmendmentQuery(DryRunQuery):
    """The query of an amendment."""

    as_of: Annotated[
        datetime | None,
        Time(
            "With `dry_run`: the instant of the run, past or future; by default the instant of the amendment, or now "
            "if that is past."
        ),
    ] = None


class RawEvent(Value):
    """An event that is validated separately, so that a bad event does not reject the others."""

    def take(self, value: Any, pointer: str, field_errors: Any) -> Any:
        return value

    def openapi(self) -> Any:
        return {"anyOf": [USAGE_EVENT, *EVENT_SHAPES.values()]}


def event_shape(raw: Any) -> Shape[Any]:
    """Return the shape of an event, correction or cancellation."""
    names = raw.keys() & EVENT_SHAPES.keys() if isinstance(raw, dict) else ()
    return EVENT_SHAPES[min(names)] if names else USAGE_EVENT


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Usage events."""

    events: Annotated[list[Any], ListOf(RawEvent(), "Each is validated separately.", least=1, most=MAX_EVENTS)]
    allow_future: Annotated[
        bool,
        Boolean(
            "Also record events whose `occurred_at` is more than a day ahead of the present time, or of the test clock of the "
            "customer's holder."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Generation(Record):
    """The options of a run for one subscription."""

    as_of: Annotated[datetime, Time("Bill everything that is due at this instant.")]
    only: Annotated[str | None, Choice(Scope, "Only usage or only recurring charges; by default both.", null=True)] = None
    running_usage: Annotated[bool, Boolean("Also bill the usage of running periods so far, up to `as_of`.")] = False
    finalize: Annotated[bool, Boolean("Finalise the invoices, which gives them numbers; otherwise leave drafts.")] = True
    dry_run: Annotated[bool, Boolean("The same as `dry_run=true` in the query.")] = False
    note: Annotated[str, OneLine("A text that the new invoices print.", most=MAX_NOTE_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class Nothing(Record):
    """No fields."""


@dataclass(frozen=True, kw_only=True)
class Transition(Record):
    """The reason for a transition of an invoice."""

    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class Finalization(Transition):
    """The reason for finalising a draft, and a text that it prints."""

    note: Annotated[
        str, OneLine("A text that the invoice prints; empty: the draft keeps its note.", most=MAX_NOTE_CHARACTERS)
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ResumeBilling(Record):
    """The reason for resuming the billing."""

    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS, least=1)]


# Queries ---------------------------------------------------------------------------------------------

OfCustomer = Annotated[str | None, Ref("Of this customer.")]
OfSubscription = Annotated[str | None, Ref("Of this subscription.")]
OfNumber = Annotated[str | None, Text("With this number.", most=120, least=1)]
InCurrency = Annotated[str | None, Currency("In this currency.")]
IssuedSince = Annotated[date | None, Day("Issued on this day or later.")]
IssuedUntil = Annotated[date | None, Day("Issued before this day.")]
CreatedSince = Annotated[datetime | None, Time("Created at this time or later.")]
CreatedUntil = Annotated[datetime | None, Time("Created before this time.")]
ByName = Annotated[
    str | None,
    Text(
        "The beginnings of words of the name, without regard to case and accents: `mull` finds Jörg Müller and Mueller GmbH.",
        most=200,
        least=1,
    ),
]


@dataclass(frozen=True, kw_only=True)
class DeletionQuery(DryRunQuery):
    """The reason for deleting a draft; in the query, because the body of a DELETE has no meaning."""

    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class PlanQuery(Record):
    """The version of a plan."""

    version: Annotated[int | None, QueryInteger("The newest by default.", least=1, most=2**31 - 1)] = None


@dataclass(frozen=True, kw_only=True)
class CreditNotesQuery(ListQuery):
    """The filters of credit notes."""

    customer: OfCustomer = None
    subscription: OfSubscription = None
    number: OfNumber = None
    since: IssuedSince = None
    until: IssuedUntil = None
    invoice: Annotated[int | None, QueryInteger("Of the invoice with this id.", least=1, most=2**63 - 1)] = None


@dataclass(frozen=True, kw_only=True)
class InvoicesQuery(ListQuery):
    """Which invoices."""

    subscription: OfSubscription = None
    customer: OfCustomer = None
    number: OfNumber = None
    currency: InCurrency = None
    since: IssuedSince = None
    until: IssuedUntil = None
    state: Annotated[str | None, Choice(Invoice.State.values, "In this state.")] = None
    overdue: Annotated[
        bool | None, QueryBoolean("True: only open invoices whose due date has passed; false: only the others.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class CustomersQuery(ListQuery):
    """Which customers."""

    name: ByName = None
    holder: Annotated[str | None, Holder("Only customers whose invoices this holder's credits pay first.", named="holder_id")] = (
        None
    )
    currency: Annotated[str | None, Currency("Invoiced in this currency.")] = None
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class PlansQuery(ListQuery):
    """The filters of versions of plans."""

    code: Annotated[str | None, Ref("Only versions of this plan.", named="ref")] = None
    name: ByName = None
    currency: InCurrency = None
    newest: Annotated[bool, QueryBoolean("True: only the newest version of each plan.")] = False
    on_sale: Annotated[bool, QueryBoolean("True: only plans on sale, by their newest versions.")] = False
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class MetersQuery(ListQuery):
    """The filters of versions of meters."""

    code: Annotated[str | None, Ref("Only versions of this meter.", named="ref")] = None
    newest: Annotated[bool, QueryBoolean("True: only the newest version of each meter.")] = False


@dataclass(frozen=True, kw_only=True)
class CouponsQuery(ListQuery):
    """Which coupons."""

    kind: Annotated[str | None, Choice(("amount", "percentage"), "Of this kind.")] = None
    currency: Annotated[str | None, Currency("With an amount in this currency.")] = None
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionsQuery(ListQuery):
    """Which subscriptions."""

    customer: OfCustomer = None
    plan: Annotated[str | None, Ref("Only subscriptions that are now on a version of this plan.")] = None
    state: Annotated[str | None, Choice(STATES, "In this state now.")] = None
    suspended: Annotated[
        bool | None, QueryBoolean("True: only subscriptions whose billing is suspended; false: only the others.")
    ] = None
    since: Annotated[datetime | None, Time("Started at this time or later.")] = None
    until: Annotated[datetime | None, Time("Started before this time.")] = None


@dataclass(frozen=True, kw_only=True)
class UsageEventsQuery(ListQuery):
    """The filters of usage events: a subscription or a customer, and a meter."""

    subscription: OfSubscription = None
    customer: Annotated[str | None, Ref("Of all subscriptions of this customer.")] = None
    meter: Annotated[str | None, Text("Of this meter.", most=64, least=1)] = None
    since: Annotated[datetime | None, Time("Occurred at this time or later.")] = None
    until: Annotated[datetime | None, Time("Occurred before this time.")] = None


AllQuery = TransitionsQuery = ListQuery
