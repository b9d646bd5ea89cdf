"""What billing's calls take: bodies of writes and queries of reads."""

from typing import Any

from billing.api.request_fields import CurrencyField, PriceField, RawEventField, RefField, ZoneField, money, units, used
from billing.generator.options import Scope
from billing.metering.usage import MAX_EVENTS
from billing.models import Invoice
from billing.rating.limits import MAX_COUPON_PERIODS, MAX_GRACE_DAYS, MAX_MONEY, MAX_TERMS_DAYS, SMALLEST_MONEY
from billing.rating.periods import MAX_INTERVAL_COUNT, IntervalUnit
from billing.rating.tax import VatStatus
from billing.rating.totals import CouponPer
from billing.reads.subscriptions import STATES
from ledger.api.kit.reading.fields import (
    MAX_AMOUNT,
    ChoiceField,
    CreditTypeField,
    DayField,
    DecimalStringField,
    HolderField,
    MetadataField,
    StrictField,
    TextField,
    TimeField,
    TruthField,
    WholeNumberField,
)
from ledger.api.kit.reading.queries import DryRunQuery, ListQuery, QueryNumberField, QueryTruthField
from ledger.api.kit.reading.strict_serializers import ListOfField, MapField, StrictSerializer
from ledger.api.kit.request_errors import FieldError


class NewCreditsSerializer(StrictSerializer):
    """Which credits of the holder pay."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    unit_value = DecimalStringField(
        min_value=SMALLEST_MONEY, max_value=MAX_MONEY, help_text="Money that one credit pays, in major units; above 0."
    )


class NewCustomerSerializer(StrictSerializer):
    """Who pays."""

    ref = RefField(help_text="Your name for the customer.")
    name = TextField(max_length=200, min_length=1, help_text="As printed on the invoice.")
    currency = CurrencyField(help_text="ISO 4217.")
    time_zone = ZoneField(default="UTC", help_text="For dates on documents.")
    language = TextField(max_length=16, min_length=2, default="en", help_text="BCP 47.")
    address = MetadataField(required=False, help_text="As printed on the invoice.")
    vat_id = TextField(max_length=32, default="", help_text="VAT identification number; needed for reverse charge.")
    vat_status = ChoiceField(
        choices=[status.value for status in VatStatus], default=VatStatus.TAXABLE.value,
        help_text="What is standard-rated is charged without tax under reverse charge (category AE) and to the exempt (E).",
    )  # fmt: skip
    terms_days = WholeNumberField(min_value=0, max_value=MAX_TERMS_DAYS, default=30, help_text="Days from issue to due date.")
    grace_days = WholeNumberField(
        min_value=0,
        max_value=MAX_GRACE_DAYS,
        default=0,
        help_text="Days for which an invoice stays a draft; each run rates it again.",
    )
    holder_id = HolderField(required=False, allow_null=True, help_text="Whose credits pay first.")
    credits = NewCreditsSerializer(required=False, allow_null=True, help_text="Which of them, and what one is worth.")


class NewIntervalSerializer(StrictSerializer):
    """How long a period is."""

    unit = ChoiceField(choices=[unit.value for unit in IntervalUnit], help_text="What is counted.")
    count = WholeNumberField(min_value=1, max_value=MAX_INTERVAL_COUNT, default=1, help_text="How many.")


class NewAllowanceSerializer(StrictSerializer):
    """Credits that the customer's holder is given each period."""

    credit_type = CreditTypeField(default="credits", help_text="What is granted.")
    amount = WholeNumberField(min_value=1, max_value=MAX_AMOUNT, help_text="Per full period; part of one gets its share of days.")
    rollover_cap = WholeNumberField(
        min_value=0, max_value=MAX_AMOUNT, required=False, allow_null=True,
        help_text="How many unspent ones are taken along into the next period; without it they expire with their period.",
    )  # fmt: skip


class NewPlanSerializer(StrictSerializer):
    """A plan, or the next version of it."""

    code = RefField(help_text="A code that is there already gets a new version.")
    name = TextField(max_length=200, min_length=1, help_text="For people.")
    currency = CurrencyField(help_text="ISO 4217.")
    interval = NewIntervalSerializer(help_text="The billing period.")
    prices = ListOfField(child=PriceField(), min_items=1, max_items=100, help_text="With distinct keys.")
    minimum = money(required=False, allow_null=True, help_text="Least per subscription and period, before tax.")
    maximum = money(required=False, allow_null=True, help_text="Most per subscription and period, before tax.")
    allowance = NewAllowanceSerializer(required=False, allow_null=True, help_text="Credits granted each period.")


class RatedEventSerializer(StrictSerializer):
    """A usage event to rate."""

    value = used(help_text="What was used.")
    occurred_at = TimeField(help_text="When.")
    properties = MetadataField(required=False, help_text="What filters look at.")


class NewRatingSerializer(StrictSerializer):
    """What to rate: a quantity, or events."""

    currency = CurrencyField(help_text="ISO 4217.")
    price = PriceField(help_text="The price.")
    quantity = units(required=False, help_text="All units of the period so far, what was billed before included.")
    events = ListOfField(
        child=RatedEventSerializer(), max_items=MAX_EVENTS, required=False, help_text="Or all events of the period so far."
    )
    already_billed = units(
        required=False, help_text="How many of these units were billed before; the response is what the rest costs."
    )
    credits_available = WholeNumberField(
        min_value=0, max_value=MAX_AMOUNT, required=False,
        help_text="Of a price that takes credits: how many there are to cover units first.",
    )  # fmt: skip


class NewSubscriptionSerializer(StrictSerializer):
    """What a customer orders."""

    ref = RefField(help_text='Your name for it, e.g. "SUB-1234".')
    customer = RefField(help_text="Who pays.")
    plan = RefField(help_text="The newest version of this plan.")
    started_at = TimeField(help_text="From when on it is billed.")
    anchor_at = TimeField(required=False, allow_null=True, help_text="What periods are counted from; the start by default.")
    time_zone = ZoneField(default="UTC", help_text="In which days and months are counted.")
    quantities = MapField(
        child=units(),
        max_keys=100,
        required=False,
        help_text="By price key; 1 by default.",
    )
    trial_end = TimeField(required=False, allow_null=True, help_text="Nothing is charged before.")
    ends_at = TimeField(required=False, allow_null=True, help_text="The end; never by default.")


class NewAmendmentSerializer(StrictSerializer):
    """One change from an instant on."""

    effective_at = TimeField(help_text="Past or future.")
    plan = RefField(required=False, help_text="The newest version of this plan.")
    quantities = MapField(child=units(), max_keys=100, required=False, help_text="By price key.")
    ends_at = TimeField(
        required=False,
        allow_null=True,
        help_text="When the subscription ends; null withdraws a planned end. An ended subscription becomes active again "
        "from `effective_at`; billing skips the time between.",
    )
    paused = TruthField(required=False, help_text="True stops it, false resumes it.")
    trial_end = TimeField(required=False, help_text="Extends a trial that has not ended yet; later than its end is now.")

    @classmethod
    def take_fields(cls, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        """As in the base class, but an `ends_at` of null is kept: it means that there is no end."""
        taken = super().take_fields(value, pointer, field_errors)
        return {**taken, "ends_at": None} if value.get("ends_at", "") is None else taken


class AmendmentQuery(DryRunQuery):
    """How to amend."""

    as_of = TimeField(
        required=False,
        help_text="With `dry_run`: up to when, past or future; when the amendment takes effect by default, now if that is past.",
    )


class NewChargeSerializer(StrictSerializer):
    """A one-off charge."""

    amount_minor = WholeNumberField(min_value=1, max_value=MAX_AMOUNT, help_text="In minor units of the customer's currency.")
    description = TextField(max_length=500, min_length=1, help_text="As printed on the invoice.")
    tax_rate = DecimalStringField(default="0", min_value=0, max_value=100, help_text="Percent.")


class NewCouponSerializer(StrictSerializer):
    """A discount."""

    code = RefField(help_text="What it is called.")
    kind = ChoiceField(choices=["amount", "percentage"], help_text="What `value` is.")
    value = money(help_text="Money in major units, or percent.")
    currency = CurrencyField(required=False, allow_null=True, help_text="Of an amount.")
    duration = ChoiceField(choices=["once", "recurring", "forever"], help_text="How long it lasts.")
    periods = WholeNumberField(
        min_value=1, max_value=MAX_COUPON_PERIODS, required=False, allow_null=True, help_text="Of a recurring one."
    )
    per = ChoiceField(
        choices=[per.value for per in CouponPer], required=False, allow_null=True,
        help_text="Whose periods a recurring one counts: of each `subscription` by itself, the default, or of the `customer`.",
    )  # fmt: skip
    prices = ListOfField(
        child=RefField(), max_items=100, required=False, help_text="The coupon applies only to these price keys."
    )
    plans = ListOfField(child=RefField(), max_items=100, required=False, help_text="The coupon applies only to these plans.")


class NewGivenCouponSerializer(StrictSerializer):
    """A coupon for a customer."""

    coupon = RefField(help_text="Its code.")


class UsageEventSerializer(StrictSerializer):
    """One thing that was used."""

    idempotency_key = TextField(max_length=255, min_length=1, pattern=r"[\x20-\x7e]+", help_text="Permanently unique.")
    subscription = RefField(help_text="Whose use it is.")
    meter = RefField(help_text="What was used.")
    value = used(help_text="How much.")
    occurred_at = TimeField(help_text="When.")
    properties = MetadataField(required=False, help_text="What filters look at.")


class UsageSerializer(StrictSerializer):
    """Usage events."""

    events = ListOfField(child=RawEventField(), min_items=1, max_items=MAX_EVENTS, help_text="Each is validated separately.")


class GenerationSerializer(StrictSerializer):
    """Make invoices."""

    as_of = TimeField(help_text="Up to when.")
    only = ChoiceField(choices=[scope.value for scope in Scope], required=False, allow_null=True, help_text="Both by default.")
    finalize = TruthField(default=True, help_text="Give numbers; else leave drafts.")
    dry_run = TruthField(default=False, help_text="The same as `dry_run=true` in the query.")


class NothingSerializer(StrictSerializer):
    """No fields."""


class TransitionSerializer(StrictSerializer):
    """Why the state of an invoice changes."""

    reason = TextField(max_length=500, default="", help_text="For those who ask later.")


class CreditLineSerializer(StrictSerializer):
    """What to credit of a line."""

    position = WholeNumberField(min_value=1, max_value=2**31 - 1, help_text="Of the invoice's line.")
    amount_minor = WholeNumberField(min_value=1, max_value=MAX_AMOUNT, help_text="In minor units, after discounts, before tax.")


class NewCreditNoteSerializer(StrictSerializer):
    """What to credit of an invoice, and why."""

    lines = ListOfField(
        child=CreditLineSerializer(), min_items=1, max_items=1000, required=False, allow_null=True,
        help_text="The lines to credit; the whole rest of the invoice by default.",
    )  # fmt: skip
    reason = TextField(max_length=500, min_length=1, help_text="As printed on the credit note.")


class CreditNotesQuery(ListQuery):
    """Which credit notes."""

    customer = RefField(required=False, help_text="Of this customer.")
    subscription = RefField(required=False, help_text="Of this subscription.")
    number = TextField(max_length=64, min_length=1, required=False, help_text="With this number.")
    since = DayField(required=False, help_text="Issued on this day or later.")
    until = DayField(required=False, help_text="Issued before this day.")
    invoice = QueryNumberField(min_value=1, max_value=2**63 - 1, required=False, help_text="Of the invoice with this id.")


class DeletionQuery(DryRunQuery):
    """Why a draft is deleted; in the query, because the body of a DELETE has no meaning."""

    reason = TextField(max_length=500, default="", help_text="For those who ask later.")


class TransitionsQuery(ListQuery):
    """All transitions."""


class ResumeBillingSerializer(StrictSerializer):
    """Why billing is resumed."""

    reason = TextField(max_length=500, min_length=1, help_text="For those who ask later.")


class InvoicesQuery(ListQuery):
    """Which invoices."""

    subscription = RefField(required=False, help_text="Of this subscription.")
    customer = RefField(required=False, help_text="Of this customer.")
    number = TextField(max_length=64, min_length=1, required=False, help_text="With this number.")
    currency = CurrencyField(required=False, help_text="In this currency.")
    since = DayField(required=False, help_text="Issued on this day or later.")
    until = DayField(required=False, help_text="Issued before this day.")
    state = ChoiceField(choices=[state.value for state in Invoice.State], required=False, help_text="In this state.")


# Lists of what was created ---------------------------------------------------------------------------


def _created() -> dict[str, TimeField]:
    return {
        "since": TimeField(required=False, help_text="Created at this time or later."),
        "until": TimeField(required=False, help_text="Created before this time."),
    }


def _query(name: str, doc: str, /, **filters: StrictField) -> type[ListQuery]:
    return type(name, (ListQuery,), {"__doc__": doc, **filters})


def _name() -> TextField:
    text = "The beginnings of words of the name, without regard to case and accents: `mull` finds Jörg Müller and Mueller GmbH."
    return TextField(max_length=200, min_length=1, required=False, help_text=text)


CustomersQuery = _query(
    "CustomersQuery", "Which customers.", name=_name(),
    holder=HolderField(required=False, help_text="Whose credits of this holder pay first."),
    currency=CurrencyField(required=False, help_text="Invoiced in this currency."), **_created(),
)  # fmt: skip
PlansQuery = _query(
    "PlansQuery", "Which versions of plans.",
    code=RefField(required=False, help_text="Of this plan."), name=_name(),
    currency=CurrencyField(required=False, help_text="In this currency."),
    newest=QueryTruthField(default=False, help_text="True: of each plan only its newest version."), **_created(),
)  # fmt: skip
CouponsQuery = _query(
    "CouponsQuery", "Which coupons.",
    kind=ChoiceField(choices=["amount", "percentage"], required=False, help_text="Of this kind."),
    currency=CurrencyField(required=False, help_text="Over an amount in this currency."), **_created(),
)  # fmt: skip
SubscriptionsQuery = _query(
    "SubscriptionsQuery", "Which subscriptions.",
    customer=RefField(required=False, help_text="Of this customer."),
    plan=RefField(required=False, help_text="On any version of this plan now."),
    state=ChoiceField(choices=list(STATES), required=False, help_text="In this state now."),
    suspended=QueryTruthField(required=False, help_text="True: those whose billing is suspended; false: the others."),
    since=TimeField(required=False, help_text="Started at this time or later."),
    until=TimeField(required=False, help_text="Started before this time."),
)  # fmt: skip
UsageEventsQuery = _query(
    "UsageEventsQuery", "Which usage events.",
    subscription=RefField(help_text="Of this subscription."),
    meter=TextField(max_length=64, min_length=1, required=False, help_text="Of this meter."),
    since=TimeField(required=False, help_text="Occurred at this time or later."),
    until=TimeField(required=False, help_text="Occurred before this time."),
)  # fmt: skip
AllQuery = _query("AllQuery", "All of them.")


class PlanQuery(StrictSerializer):
    """Which version of a plan."""

    version = QueryNumberField(min_value=1, max_value=2**31 - 1, required=False, help_text="The newest by default.")


class CustomerChangeSerializer(StrictSerializer):
    """The changes, from the next document on. Other fields stay."""

    name = TextField(max_length=200, min_length=1, required=False, help_text="As printed on the invoice.")
    language = TextField(max_length=16, min_length=2, required=False, help_text="BCP 47.")
    address = MetadataField(required=False, help_text="As printed on the invoice; replaces the whole address.")
    vat_id = TextField(max_length=32, required=False, help_text="VAT identification number; needed for reverse charge.")
    vat_status = ChoiceField(choices=[status.value for status in VatStatus], required=False, help_text="See the creation.")
    terms_days = WholeNumberField(min_value=0, max_value=MAX_TERMS_DAYS, required=False, help_text="Days from issue to due date.")
    grace_days = WholeNumberField(
        min_value=0, max_value=MAX_GRACE_DAYS, required=False, help_text="Days for which an invoice stays a draft."
    )
