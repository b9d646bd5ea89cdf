"""What billing's calls take: bodies of writes and queries of reads."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from billing.generator.options import Scope
from billing.metering.usage import MAX_EVENTS
from billing.models import Invoice
from billing.orders.customers import CustomerChange
from billing.orders.subscriptions import NewCharge, Wish
from billing.rating.values import Currency, PriceValue, Ref, Units, Used
from billing.reads.subscriptions import STATES
from ledger.api.kit.reading.queries import DryRunQuery, ListQuery, QueryBoolean, QueryInteger
from ledger.records import Nested, Record, Shape, field_of
from ledger.values import (
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

AMENDMENT = Shape(
    Wish,
    name="NewAmendment",
    text="One change from an instant on.",
    before=[field_of("effective_at", Time("Past or future."), required=True)],
)
CHARGE = Shape(NewCharge, without={"ref"})
CUSTOMER_CHANGE = Shape(CustomerChange, without={"ref"})


@dataclass(frozen=True, kw_only=True)
class RatedEvent(Record):
    """A usage event to rate."""

    value: Annotated[Decimal, Used("What was used.")]
    occurred_at: Annotated[datetime, Time("When.")]
    properties: Annotated[dict[str, Any], Metadata("What filters look at.")] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewRating(Record):
    """What to rate: a quantity, or events."""

    currency: Annotated[str, Currency()]
    price: Annotated[Any, PriceValue("The price.")]
    quantity: Annotated[Decimal | None, Units("All units of the period so far, what was billed before included.")] = None
    events: Annotated[
        list[RatedEvent] | None, ListOf(Nested(RatedEvent), "Or all events of the period so far.", most=MAX_EVENTS)
    ] = None
    already_billed: Annotated[
        Decimal | None, Units("How many of these units were billed before; the response is what the rest costs.")
    ] = None
    credits_available: Annotated[
        int | None, Amount("Of a price that takes credits: how many there are to cover units first.", least=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class AmendmentQuery(DryRunQuery):
    """How to amend."""

    as_of: Annotated[
        datetime | None,
        Time("With `dry_run`: up to when, past or future; when the amendment takes effect by default, now if that is past."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewGivenCoupon(Record):
    """A coupon for a customer."""

    coupon: Annotated[str, Ref("Its code.")]


class RawEvent(Value):
    """An event that is validated separately, so that a bad event does not spoil the others."""

    def take(self, value: Any, pointer: str, field_errors: Any) -> Any:
        return value

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["idempotency_key", "subscription", "meter", "value", "occurred_at"],
            "properties": {
                "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
                "subscription": {"type": "string", "maxLength": 64},
                "meter": {"type": "string", "maxLength": 64},
                "value": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "occurred_at": {"type": "string", "format": "date-time"},
                "properties": {"type": "object"},
            },
        }


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Usage events."""

    events: Annotated[list[Any], ListOf(RawEvent(), "Each is validated separately.", least=1, most=MAX_EVENTS)]


@dataclass(frozen=True, kw_only=True)
class Generation(Record):
    """Make invoices."""

    as_of: Annotated[datetime, Time("Up to when.")]
    only: Annotated[str | None, Choice(Scope, "Both by default.", null=True)] = None
    finalize: Annotated[bool, Boolean("Give numbers; else leave drafts.")] = True
    dry_run: Annotated[bool, Boolean("The same as `dry_run=true` in the query.")] = False


@dataclass(frozen=True, kw_only=True)
class Nothing(Record):
    """No fields."""


@dataclass(frozen=True, kw_only=True)
class Transition(Record):
    """Why the state of an invoice changes."""

    reason: Annotated[str, Text("For those who ask later.", most=500)] = ""


@dataclass(frozen=True, kw_only=True)
class CreditLine(Record):
    """What to credit of a line."""

    position: Annotated[int, Integer("Of the invoice's line.", least=1, most=2**31 - 1)]
    amount_minor: Annotated[int, Amount("In minor units, after discounts, before tax.")]


@dataclass(frozen=True, kw_only=True)
class NewCreditNote(Record):
    """What to credit of an invoice, and why."""

    lines: Annotated[
        list[CreditLine] | None,
        ListOf(
            Nested(CreditLine),
            "The lines to credit; the whole rest of the invoice by default.",
            least=1,
            most=1000,
            null=True,
        ),
    ] = None
    reason: Annotated[str, Text("As printed on the credit note.", most=500, least=1)]


@dataclass(frozen=True, kw_only=True)
class ResumeBilling(Record):
    """Why billing is resumed."""

    reason: Annotated[str, Text("For those who ask later.", most=500, least=1)]


# Queries ---------------------------------------------------------------------------------------------

OfCustomer = Annotated[str | None, Ref("Of this customer.")]
OfSubscription = Annotated[str | None, Ref("Of this subscription.")]
OfNumber = Annotated[str | None, Text("With this number.", most=64, least=1)]
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
    """Why a draft is deleted; in the query, because the body of a DELETE has no meaning."""

    reason: Annotated[str, Text("For those who ask later.", most=500)] = ""


@dataclass(frozen=True, kw_only=True)
class PlanQuery(Record):
    """Which version of a plan."""

    version: Annotated[int | None, QueryInteger("The newest by default.", least=1, most=2**31 - 1)] = None


@dataclass(frozen=True, kw_only=True)
class CreditNotesQuery(ListQuery):
    """Which credit notes."""

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


@dataclass(frozen=True, kw_only=True)
class CustomersQuery(ListQuery):
    """Which customers."""

    name: ByName = None
    holder: Annotated[str | None, Holder("Whose credits of this holder pay first.")] = None
    currency: Annotated[str | None, Currency("Invoiced in this currency.")] = None
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class PlansQuery(ListQuery):
    """Which versions of plans."""

    code: Annotated[str | None, Ref("Of this plan.")] = None
    name: ByName = None
    currency: InCurrency = None
    newest: Annotated[bool, QueryBoolean("True: of each plan only its newest version.")] = False
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class CouponsQuery(ListQuery):
    """Which coupons."""

    kind: Annotated[str | None, Choice(("amount", "percentage"), "Of this kind.")] = None
    currency: Annotated[str | None, Currency("Over an amount in this currency.")] = None
    since: CreatedSince = None
    until: CreatedUntil = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionsQuery(ListQuery):
    """Which subscriptions."""

    customer: OfCustomer = None
    plan: Annotated[str | None, Ref("On any version of this plan now.")] = None
    state: Annotated[str | None, Choice(STATES, "In this state now.")] = None
    suspended: Annotated[bool | None, QueryBoolean("True: those whose billing is suspended; false: the others.")] = None
    since: Annotated[datetime | None, Time("Started at this time or later.")] = None
    until: Annotated[datetime | None, Time("Started before this time.")] = None


@dataclass(frozen=True, kw_only=True)
class UsageEventsQuery(ListQuery):
    """Which usage events."""

    subscription: Annotated[str, Ref("Of this subscription.")]
    meter: Annotated[str | None, Text("Of this meter.", most=64, least=1)] = None
    since: Annotated[datetime | None, Time("Occurred at this time or later.")] = None
    until: Annotated[datetime | None, Time("Occurred before this time.")] = None


AllQuery = TransitionsQuery = ListQuery
