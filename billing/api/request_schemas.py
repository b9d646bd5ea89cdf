"""What billing's calls take: bodies of writes and queries of reads."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from billing.generator.options import Scope
from billing.metering.usage import MAX_EVENTS
from billing.models import Invoice
from billing.rating.limits import MAX_COUPON_PERIODS, MAX_GRACE_DAYS, MAX_MONEY, MAX_TERMS_DAYS, SMALLEST_MONEY
from billing.rating.periods import MAX_INTERVAL_COUNT, IntervalUnit
from billing.rating.tax import VatStatus
from billing.rating.totals import CouponPer
from billing.rating.values import Currency, Money, PriceValue, Ref, Units, Used, Zone
from billing.reads.subscriptions import STATES
from ledger.api.kit.reading.queries import DryRunQuery, ListQuery, QueryBoolean, QueryInteger
from ledger.records import Nested, Record
from ledger.values import (
    Amount,
    Boolean,
    Choice,
    CreditType,
    Day,
    Holder,
    Integer,
    ListOf,
    MapOf,
    Metadata,
    Number,
    Text,
    Time,
    Value,
)

Quantities = dict[str, Decimal]


@dataclass(frozen=True, kw_only=True)
class NewCredits(Record):
    """Which credits of the holder pay."""

    credit_type: Annotated[str, CreditType()] = "credits"
    unit_value: Annotated[
        Decimal, Number("Money that one credit pays, in major units; above 0.", least=SMALLEST_MONEY, most=MAX_MONEY)
    ]


@dataclass(frozen=True, kw_only=True)
class NewCustomer(Record):
    """Who pays."""

    ref: Annotated[str, Ref("Your name for the customer.")]
    name: Annotated[str, Text("As printed on the invoice.", most=200, least=1)]
    currency: Annotated[str, Currency()]
    time_zone: Annotated[str, Zone("For dates on documents.")] = "UTC"
    language: Annotated[str, Text("BCP 47.", most=16, least=2)] = "en"
    address: Annotated[dict[str, Any], Metadata("As printed on the invoice.")] = field(default_factory=dict)
    vat_id: Annotated[str, Text("VAT identification number; needed for reverse charge.", most=32)] = ""
    vat_status: Annotated[
        str,
        Choice(
            VatStatus,
            "What is standard-rated is charged without tax under reverse charge (category AE) and to the exempt (E).",
        ),
    ] = VatStatus.TAXABLE.value
    terms_days: Annotated[int, Integer("Days from issue to due date.", least=0, most=MAX_TERMS_DAYS)] = 30
    grace_days: Annotated[
        int, Integer("Days for which an invoice stays a draft; each run rates it again.", least=0, most=MAX_GRACE_DAYS)
    ] = 0
    holder_id: Annotated[str | None, Holder("Whose credits pay first.", null=True)] = None
    credits: Annotated[NewCredits | None, Nested(NewCredits, "Which of them, and what one is worth.", null=True)] = None


@dataclass(frozen=True, kw_only=True)
class NewInterval(Record):
    """How long a period is."""

    unit: Annotated[str, Choice(IntervalUnit, "What is counted.")]
    count: Annotated[int, Integer("How many.", least=1, most=MAX_INTERVAL_COUNT)] = 1


@dataclass(frozen=True, kw_only=True)
class NewAllowance(Record):
    """Credits that the customer's holder is given each period."""

    credit_type: Annotated[str, CreditType("What is granted.")] = "credits"
    amount: Annotated[int, Amount("Per full period; part of one gets its share of days.")]
    rollover_cap: Annotated[
        int | None,
        Amount(
            "How many unspent ones are taken along into the next period; without it they expire with their period.",
            least=0,
            null=True,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewPlan(Record):
    """A plan, or the next version of it."""

    code: Annotated[str, Ref("A code that is there already gets a new version.")]
    name: Annotated[str, Text("For people.", most=200, least=1)]
    currency: Annotated[str, Currency()]
    interval: Annotated[NewInterval, Nested(NewInterval, "The billing period.")]
    prices: Annotated[list[Any], ListOf(PriceValue(), "With distinct keys.", least=1, most=100)]
    minimum: Annotated[Decimal | None, Money("Least per subscription and period, before tax.", null=True)] = None
    maximum: Annotated[Decimal | None, Money("Most per subscription and period, before tax.", null=True)] = None
    allowance: Annotated[NewAllowance | None, Nested(NewAllowance, "Credits granted each period.", null=True)] = None


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
class NewSubscription(Record):
    """What a customer orders."""

    ref: Annotated[str, Ref('Your name for it, e.g. "SUB-1234".')]
    customer: Annotated[str, Ref("Who pays.")]
    plan: Annotated[str, Ref("The newest version of this plan.")]
    started_at: Annotated[datetime, Time("From when on it is billed.")]
    anchor_at: Annotated[datetime | None, Time("What periods are counted from; the start by default.", null=True)] = None
    time_zone: Annotated[str, Zone("In which days and months are counted.")] = "UTC"
    quantities: Annotated[Quantities | None, MapOf(Units(), "By price key; 1 by default.", max_keys=100)] = None
    trial_end: Annotated[datetime | None, Time("Nothing is charged before.", null=True)] = None
    ends_at: Annotated[datetime | None, Time("The end; never by default.", null=True)] = None


@dataclass(frozen=True, kw_only=True)
class NewAmendment(Record):
    """One change from an instant on."""

    keeps_null = frozenset({"ends_at"})

    effective_at: Annotated[datetime, Time("Past or future.")]
    plan: Annotated[str | None, Ref("The newest version of this plan.")] = None
    quantities: Annotated[Quantities | None, MapOf(Units(), "By price key.", max_keys=100)] = None
    ends_at: Annotated[
        datetime | None,
        Time(
            "When the subscription ends; null withdraws a planned end. An ended subscription becomes active again "
            "from `effective_at`; billing skips the time between.",
            null=True,
        ),
    ] = None
    paused: Annotated[bool | None, Boolean("True stops it, false resumes it.")] = None
    trial_end: Annotated[datetime | None, Time("Extends a trial that has not ended yet; later than its end is now.")] = None


@dataclass(frozen=True, kw_only=True)
class AmendmentQuery(DryRunQuery):
    """How to amend."""

    as_of: Annotated[
        datetime | None,
        Time("With `dry_run`: up to when, past or future; when the amendment takes effect by default, now if that is past."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewCharge(Record):
    """A one-off charge."""

    amount_minor: Annotated[int, Amount("In minor units of the customer's currency.")]
    description: Annotated[str, Text("As printed on the invoice.", most=500, least=1)]
    tax_rate: Annotated[Decimal, Number("Percent.", least=0, most=100)] = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class NewCoupon(Record):
    """A discount."""

    code: Annotated[str, Ref("What it is called.")]
    kind: Annotated[str, Choice(("amount", "percentage"), "What `value` is.")]
    value: Annotated[Decimal, Money("Money in major units, or percent.")]
    currency: Annotated[str | None, Currency("Of an amount.", null=True)] = None
    duration: Annotated[str, Choice(("once", "recurring", "forever"), "How long it lasts.")]
    periods: Annotated[int | None, Integer("Of a recurring one.", least=1, most=MAX_COUPON_PERIODS, null=True)] = None
    per: Annotated[
        str | None,
        Choice(
            CouponPer,
            "Whose periods a recurring one counts: of each `subscription` by itself, the default, or of the `customer`.",
            null=True,
        ),
    ] = None
    prices: Annotated[list[str] | None, ListOf(Ref(), "The coupon applies only to these price keys.", most=100)] = None
    plans: Annotated[list[str] | None, ListOf(Ref(), "The coupon applies only to these plans.", most=100)] = None


@dataclass(frozen=True, kw_only=True)
class NewGivenCoupon(Record):
    """A coupon for a customer."""

    coupon: Annotated[str, Ref("Its code.")]


@dataclass(frozen=True, kw_only=True)
class UsageEvent(Record):
    """One thing that was used."""

    idempotency_key: Annotated[str, Text("Permanently unique.", most=255, least=1, pattern=r"[\x20-\x7e]+")]
    subscription: Annotated[str, Ref("Whose use it is.")]
    meter: Annotated[str, Ref("What was used.")]
    value: Annotated[Decimal, Used("How much.")]
    occurred_at: Annotated[datetime, Time("When.")]
    properties: Annotated[dict[str, Any], Metadata("What filters look at.")] = field(default_factory=dict)


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


@dataclass(frozen=True, kw_only=True)
class CustomerChange(Record):
    """The changes, from the next document on. Other fields stay."""

    name: Annotated[str | None, Text("As printed on the invoice.", most=200, least=1)] = None
    language: Annotated[str | None, Text("BCP 47.", most=16, least=2)] = None
    address: Annotated[dict[str, Any] | None, Metadata("As printed on the invoice; replaces the whole address.")] = None
    vat_id: Annotated[str | None, Text("VAT identification number; needed for reverse charge.", most=32)] = None
    vat_status: Annotated[str | None, Choice(VatStatus, "See the creation.")] = None
    terms_days: Annotated[int | None, Integer("Days from issue to due date.", least=0, most=MAX_TERMS_DAYS)] = None
    grace_days: Annotated[int | None, Integer("Days for which an invoice stays a draft.", least=0, most=MAX_GRACE_DAYS)] = None


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
