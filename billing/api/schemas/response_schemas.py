"""The responses of billing's calls. Each field is declared once, for the body and for the OpenAPI document."""

from datetime import date
from operator import attrgetter, itemgetter
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.documents.sellers import CashSteps, NewSeller, ReminderDays
from billing.generator.run.differences import Because
from billing.generator.run.preview import UpcomingInvoice
from billing.generator.run.steps import GenerationResult
from billing.models import Amendment, Customer, Plan, Seller
from billing.orders import plans
from billing.orders.customers import NewCustomer
from billing.rating.money import decimal_text
from billing.rating.prices.overage import is_overage
from billing.rating.prices.reading import price_dict
from billing.rating.prices.steps import STEP_MEMBERS, StepReason
from billing.rating.vat import suggested_status
from billing.reads.calendar import Calendar
from billing.reads.catalogue import GivenCoupon, seller_countries
from billing.reads.document_schemas import InvoiceSerializer, PeriodSerializer
from billing.reads.response_fields import decimal, minor, response_of, sum_of_minor, text, time, whole
from billing.reads.subscriptions import SubscriptionDetail, SubscriptionRow
from ledger.json_values import in_key_order, time_text
from ledger.records import Field, declared_fields
from ledger.responses import ResponseSchema, computed
from ledger.values import Boolean, Integer

# Customers and the catalogue -------------------------------------------------------------------------


class PayingCreditsSerializer(ResponseSchema):
    """The credits that pay."""

    credit_type = text()
    unit_value = decimal(attrgetter("credit_unit_value"))


def _suggested_status(customer: Customer) -> str | None:
    country = getattr(customer, "seller_country", None)
    if country is None:
        country = seller_countries([customer.seller]).get(customer.seller, "")
    return suggested_status(customer.vat_status, customer.vat_id, country)


def _suggested_status_field() -> Any:
    return text(
        _suggested_status,
        null=True,
        help_text="`reverse_charge` if the VAT id is of another member state of the EU than the seller, and the customer is "
        "taxable; otherwise null.",
    )


def _paying_credits_field() -> Any:
    return computed(
        PayingCreditsSerializer(allow_null=True), lambda customer: None if customer.credit_unit_value is None else customer
    )


CustomerSerializer = response_of(
    NewCustomer,
    "CustomerSerializer",
    "Who pays.",
    instead={
        "holder_id": lambda: text(lambda customer: customer.holder_id or None, null=True),
        "credits": _paying_credits_field,
    },
    after={"vat_status": {"suggested_vat_status": _suggested_status_field}},
)


def _of_seller(field: Field) -> Any:
    """Return how a response shows a field of a seller: as the request has it, with the default of what is not set."""

    def value(seller: Seller) -> Any:
        return (
            seller.ref
            if field.name == "ref"
            else seller.details.get(field.name, field.make_default() if field.make_default else field.default)
        )

    shown: Any = serializers.BooleanField() if isinstance(field.value, Boolean) else serializers.CharField()
    if isinstance(field.value, Integer):
        shown = serializers.IntegerField(allow_null=True)
    if field.make_default:
        is_number = isinstance(field.value, CashSteps)
        if isinstance(field.value, ReminderDays):
            return computed(serializers.ListField(child=serializers.IntegerField()), value)
        shown = serializers.DictField(child=serializers.IntegerField() if is_number else serializers.CharField())
    return computed(shown, value)


SellerSerializer: Any = type(
    "SellerSerializer",
    (ResponseSchema,),
    {
        "__doc__": "A seller, in its current version.",
        "__module__": __name__,
        **{field.name: _of_seller(field) for field in declared_fields(NewSeller)},
        "recorded_at": time(),
        "recorded_by": text(),
    },
)


class IntervalSerializer(ResponseSchema):
    """A billing period."""

    unit = text(attrgetter("interval_unit"))
    count = whole(attrgetter("interval_count"))


class AllowanceIntervalSerializer(ResponseSchema):
    """How often credits are granted, if more often than the plan is billed."""

    unit = text(itemgetter("unit"))
    count = whole(itemgetter("count"))


class AllowanceSerializer(ResponseSchema):
    """Credits granted each period."""

    credit_type = text(itemgetter("credit_type"))
    interval = computed(AllowanceIntervalSerializer(allow_null=True), itemgetter("interval"))
    amount = whole(itemgetter("amount"))
    per_quantity_of = text(itemgetter("per_quantity_of"), null=True)
    in_trial = computed(serializers.BooleanField(), itemgetter("in_trial"))
    rollover_cap = whole(itemgetter("rollover_cap"), null=True)
    applies_to = computed(
        serializers.DictField(allow_null=True, help_text="What the credits can pay for, as in a grant; null for everything."),
        itemgetter("applies_to"),
    )


@extend_schema_field({"$ref": "#/components/schemas/OveragePrice"})
class OveragePriceField(serializers.DictField):
    """The price of an overage, in the form of requests."""


class PlanOverageSerializer(ResponseSchema):
    """Credits that may be used beyond those of the holder, and their price."""

    credit_type = text(itemgetter("credit_type"))
    price = computed(OveragePriceField(), itemgetter("price"))
    per_quantity_of = text(itemgetter("per_quantity_of"), null=True)
    limit_credits = whole(itemgetter("limit_credits"), null=True)
    limit_minor = whole(itemgetter("limit_minor"), null=True)


class PlanBudgetSerializer(ResponseSchema):
    """A budget that the account of the customer's holder has while the subscription is on the plan."""

    budget = text(itemgetter("budget"))
    credit_type = text(itemgetter("credit_type"))
    limit = whole(itemgetter("limit"))
    per_quantity_of = text(itemgetter("per_quantity_of"), null=True)
    window = text(itemgetter("window"))
    hours = whole(itemgetter("hours"), null=True)
    by = text(itemgetter("by"))
    label = text(itemgetter("label"), null=True)  # type: ignore[assignment]
    subject = text(itemgetter("subject"), null=True)
    mode = text(itemgetter("mode"))
    parent = text(itemgetter("parent"), null=True)  # type: ignore[assignment]


def _prices_of(plan: Plan) -> list[dict[str, Any]]:
    return [price_dict(price) for _, price in plans.terms_of(plan.pk).prices if not is_overage(price)]


@extend_schema_field({"type": "array", "items": {"$ref": "#/components/schemas/Price"}})
class PricesField(serializers.ListField):
    """Prices, in the form of requests."""


class PlanSerializer(ResponseSchema):
    """A version of a plan."""

    ref = text("code")
    version = whole()
    name = text()
    names = serializers.DictField(child=serializers.CharField())
    currency = text()
    interval = computed(IntervalSerializer(), lambda plan: plan)
    prices = computed(PricesField(), _prices_of)
    minimum = decimal(null=True)
    maximum = decimal(null=True)
    usage_threshold = decimal(null=True)
    tax_behavior = text()
    allowance = AllowanceSerializer(allow_null=True)
    overage = PlanOverageSerializer(allow_null=True)
    budgets = computed(PlanBudgetSerializer(many=True), lambda plan: plan.budgets or [])
    trial_days = whole(null=True)
    on_sale = serializers.BooleanField()


class CouponSerializer(ResponseSchema):
    """A discount."""

    ref = text("code")
    name = text(lambda coupon: coupon.name or None, null=True)
    names = serializers.DictField(child=serializers.CharField())
    kind = text()
    value = decimal()
    currency = text(lambda coupon: coupon.currency or None, null=True)
    duration = text()
    periods = whole(null=True)
    per = text(lambda coupon: coupon.per or None, null=True)
    prices = serializers.ListField(child=serializers.CharField(allow_null=False))
    plans = serializers.ListField(child=serializers.CharField(allow_null=False))


class GivenCouponSerializer(ResponseSchema):
    """A coupon of a customer or of one of its subscriptions."""

    customer = text()
    subscription = text(null=True, help_text="The only subscription that uses it; null: each of the customer's.")
    coupon = text()
    given_at = time()


class CustomerCouponSerializer(GivenCouponSerializer):
    """A customer's coupon with its discounts so far."""

    taken_off_at = time(null=True)
    used_minor = sum_of_minor()
    used_invoices = whole()


def customer_coupon(found: GivenCoupon) -> dict[str, Any]:
    """Return a customer's coupon with its discounts so far."""
    return CustomerCouponSerializer.body(
        found.row,
        customer=found.customer,
        subscription=found.subscription,
        coupon=found.code,
        used_minor=found.used_minor,
        used_invoices=found.used_invoices,
    )


# Subscriptions ---------------------------------------------------------------------------------------


ACTIVATION = "The first payment, of a subscription that starts when it is paid; otherwise null."
CONSOLIDATED = "Whether it shares invoices with the customer's other subscriptions: as ordered, or as the customer's."
HOLD_DAYS = "By how many days invoices come later than due: as ordered, or as the customer's."


class ActivationSerializer(ResponseSchema):
    """The payment for which the start of a subscription waits, or waited."""

    state = text(
        help_text="`waiting` for the payment; `started`, because the invoice was paid or there was nothing to pay; `expired`, "
        "because it was not paid in time; or `canceled`."
    )
    invoice = whole("invoice_id", null=True, help_text="The first invoice, by its id; null: there was nothing to pay.")
    expires_at = time(help_text="Until when the invoice must be paid.")
    settled_at = time(null=True, help_text="When it stopped waiting.")


class SubscriptionSerializer(ResponseSchema):
    """An order of a customer."""

    ref = text()
    customer = text()
    plan = text()
    started_at = time()
    anchor_at = time()
    time_zone = text()
    trial_ends_at = time("trial_end", null=True)
    hold_days = whole(help_text=HOLD_DAYS)
    consolidated_invoicing = serializers.BooleanField(help_text=CONSOLIDATED)
    activation = ActivationSerializer(allow_null=True, help_text=ACTIVATION)


def _change_of(amendment: Amendment) -> dict[str, Any]:
    change = dict(amendment.change)
    if "plan" in change:
        change["plan"] = plans.terms_of(change["plan"]).code
    if "trial_end" in change:
        change["trial_ends_at"] = change.pop("trial_end")
    shown: dict[str, Any] = in_key_order(change)
    return shown


class CalendarStretchSerializer(ResponseSchema):
    """A stretch of time at the same terms."""

    starts_at = time()
    ends_at = time(null=True)
    phase = whole(null=True, help_text="The number of its phase; null if the subscription has none.")
    is_trial = serializers.BooleanField()
    plan = text(attrgetter("plan.code"))
    plan_version = whole(attrgetter("plan.version"))
    quantities = computed(
        serializers.DictField(child=serializers.CharField()),
        lambda stretch: {key: decimal_text(quantity) for key, quantity in stretch.quantities.items()},
    )
    is_negotiated = serializers.BooleanField(help_text="Some of its prices are negotiated.")
    currency = text(attrgetter("plan.currency"))
    per_period_minor = minor(
        help_text="What its recurring prices cost in a full period, before discounts and tax, in minor units; 0 in a trial."
    )


class CalendarSerializer(ResponseSchema):
    """What a subscription is charged for from now on, as far as it is ordered. What lies between the stretches is not billed."""

    subscription = text()
    as_of = time()
    is_incomplete = serializers.BooleanField(help_text="It waits for its first payment; nothing is billed before it.")
    stretches = CalendarStretchSerializer(many=True)


def calendar_body(found: Calendar, ref: str) -> dict[str, Any]:
    """Return the calendar of a subscription."""
    stretches = [CalendarStretchSerializer.body(stretch) for stretch in found.stretches]
    return CalendarSerializer.body(found, subscription=ref, stretches=stretches)


class AmendmentSerializer(ResponseSchema):
    """A change from an instant on."""

    subscription = text()
    sequence = whole()
    effective_at = time()
    change = computed(serializers.DictField(), _change_of)
    recorded_at = time()
    actor = text()


class ChargeSerializer(ResponseSchema):
    """A one-off charge."""

    subscription = text()
    sequence = whole()
    currency = text()
    amount_minor = minor()
    description = text()
    tax_rate = decimal()
    recorded_at = time()


class SuspendedBillingSerializer(ResponseSchema):
    """The reason why billing of a subscription was suspended, and who resumed it."""

    subscription = text()
    reason = text()
    suspended_at = time()
    resumed_at = time(null=True)
    resumed_by = text()
    resume_reason = text()


class SuspensionSerializer(ResponseSchema):
    """The reason why billing is suspended until a person checks it."""

    reason = text(attrgetter("suspended_reason"))
    since = time(attrgetter("suspended_at"))


class SubscriptionSummarySerializer(ResponseSchema):
    """A subscription in its current state."""

    ref = text()
    customer = text()
    plan = text()
    plan_version = whole()
    state = text()
    started_at = time()
    anchor_at = time()
    time_zone = text()
    trial_ends_at = time("trial_end", null=True)
    hold_days = whole(help_text=HOLD_DAYS)
    consolidated_invoicing = serializers.BooleanField(help_text=CONSOLIDATED)
    ends_at = time(null=True)
    due_at = time(null=True, help_text="The next due instant; null if nothing will be due.")
    suspended = computed(SuspensionSerializer(allow_null=True), lambda row: None if row.suspended_at is None else row)
    activation = ActivationSerializer(allow_null=True, help_text=ACTIVATION)


class SubscriptionItemSerializer(ResponseSchema):
    """The price and quantity of an item, now or in the future."""

    price_key = text()
    plan = text()
    plan_version = whole()
    quantity = decimal()
    starts_at = time()
    ends_at = time(null=True)
    negotiated_price = serializers.DictField(
        allow_null=True, help_text="The price that the subscription pays in place of the plan's; null if it pays the plan's."
    )


class SubscriptionDetailSerializer(SubscriptionSummarySerializer):
    """A subscription in its current state, with its parts."""

    as_of = time()
    current_period = PeriodSerializer(allow_null=True)
    items = SubscriptionItemSerializer(many=True)
    amendments = AmendmentSerializer(many=True)


def subscription_detail(found: SubscriptionDetail) -> dict[str, Any]:
    """Return a subscription with its current period, items and amendments."""
    row: SubscriptionRow = found.row
    period = row.current_period(found.as_of)
    return SubscriptionDetailSerializer.body(
        row,
        as_of=time_text(found.as_of),
        current_period=None if period is None else PeriodSerializer.body(period),
        items=[SubscriptionItemSerializer.body(item) for item in found.items],
        amendments=[AmendmentSerializer.body(amendment, subscription=row.ref) for amendment in found.amendments],
    )


# Usage -----------------------------------------------------------------------------------------------


class MeterSerializer(ResponseSchema):
    """A version of a meter."""

    ref = text("code")
    version = whole()
    expression = text()
    created_at = time()


class UsageEventSerializer(ResponseSchema):
    """One use of a service."""

    idempotency_key = text()
    subscription = text()
    meter = text()
    value = decimal()
    occurred_at = time()
    properties = computed(serializers.DictField(), lambda event: in_key_order(event.properties))
    recorded_at = time()
    meter_version = whole(null=True, help_text="The version of the meter that computed the value; null: the value was sent.")
    corrects = text(null=True)
    cancels = text(null=True)
    corrected_by = text(null=True)


class UsageResultSerializer(ResponseSchema):
    """The result of one event."""

    idempotency_key = text(null=True)
    result = text()
    detail = text(help_text="Why the event is not accepted, or why no invoice will count it; otherwise empty.")
    code = computed(
        serializers.CharField(
            required=False,
            help_text="Why it is refused (`billed-by-entries`, `told-by-spends`), is invalid for its time (`in-the-future`), or "
            "is accepted and no invoice will count it (such as `before-start`).",
        ),
        lambda result: result.code or None,
    )
    rate = computed(
        serializers.CharField(
            required=False,
            help_text="Of an event that is refused because entries bill its use: the rate by which to spend or hold.",
        ),
        lambda result: result.rate or None,
    )


class UsageResultsSerializer(ResponseSchema):
    """One result per event, in order."""

    results = UsageResultSerializer(many=True)


# Lines store their rating in its shown form, so `Rating.as_dict` and `Step.as_dict` of `billing.rating.prices` make these bodies.
RatingStepSerializer = type(
    "RatingStepSerializer", (serializers.Serializer,),
    {
        "__doc__": "One step of a calculation.",
        **{member: text(null=member in ("from", "to")) for member in STEP_MEMBERS},
        "reason": serializers.ChoiceField(list(StepReason), required=False),
        "bucket": serializers.CharField(required=False),
    },
)  # fmt: skip


class CoveredUnitsSerializer(serializers.Serializer[Any]):
    """The units that credits pay for."""

    units = text()
    credits = whole()
    credit_type = text()


class ConvertedQuantitySerializer(serializers.Serializer[Any]):
    """The measured quantity in units of the price."""

    measured = text()
    quantity = text()
    divide_by = text(null=True)
    multiply_by = text(null=True)
    rounding = text()


class GroupRatingSerializer(serializers.Serializer[Any]):
    """The cost of one group of usage, rounded by itself; a value is null if its events do not have the property."""

    group = serializers.DictField(child=serializers.CharField(allow_null=True))
    quantity = text()
    amount_minor = minor()
    exact = text()
    steps = RatingStepSerializer(many=True)
    conversion = ConvertedQuantitySerializer(required=False)


class RatingSerializer(serializers.Serializer[Any]):
    """The cost of the usage.

    `covered` if the request gave credits_available, `conversion` if the price converts the quantity, `groups` if it groups the
    events: then the amount is the sum of theirs, and the steps are those of the price's minimum or maximum.
    """

    amount_minor = minor()
    exact = text()
    steps = RatingStepSerializer(many=True)
    covered = CoveredUnitsSerializer(required=False)
    conversion = ConvertedQuantitySerializer(required=False)
    groups = GroupRatingSerializer(many=True, required=False)


# Invoices --------------------------------------------------------------------------------------------


class DeletedDraftSerializer(ResponseSchema):
    """The deleted draft."""

    subscription = text(itemgetter("subscription_ref"))
    customer = text(itemgetter("customer_ref"))
    currency = text(itemgetter("currency"))
    total_minor = minor(itemgetter("total_minor"))


def _transition(row: Any) -> str:
    word: str = row.kind.replace("_", "-")
    return word


class InvoiceTransitionSerializer(ResponseSchema):
    """A transition of an invoice, with its actor and reason."""

    invoice = whole(attrgetter("invoice_id"))
    transition = text(_transition)
    actor = text()
    reason = text()
    recorded_at = time()
    draft = DeletedDraftSerializer(allow_null=True)


class LineDifferenceSerializer(ResponseSchema):
    """The lines of a price on two invoices, after discounts and before tax."""

    kind = text()
    price_key = text(null=True)
    title = text()
    before_minor = minor()
    after_minor = minor()
    because = computed(
        serializers.ListField(
            child=serializers.ChoiceField(choices=list(Because)), help_text="Why it changed; the amounts may be the same."
        ),
        lambda line: [reason.value for reason in line.because],
    )


class DifferenceSerializer(ResponseSchema):
    """How an invoice differs from the subscription's invoice before it."""

    before = text(null=True, help_text="The number of that invoice; null if it is a preview too.")
    lines = LineDifferenceSerializer(many=True)


class AllowanceMoveSerializer(ResponseSchema):
    """Credits of a plan's allowance that a run grants, or takes back because a change has cut their time."""

    credit_type = text()
    amount = whole(help_text="Above 0: granted; below 0: taken back.")
    starts_at = time(help_text="The time for which they are.")
    ends_at = time()
    applies_to = serializers.DictField(allow_null=True, help_text="What they can pay for, as in a grant; null for everything.")


class UpcomingInvoiceSerializer(ResponseSchema):
    """An invoice that a run would make."""

    as_of = time(help_text="When a run would make it.")
    invoice = InvoiceSerializer()
    difference = DifferenceSerializer(allow_null=True)
    allowances = AllowanceMoveSerializer(many=True)


def upcoming_invoice(one: UpcomingInvoice) -> dict[str, Any]:
    """Return an invoice that a run would make, with its difference from the one before it."""
    lines = [LineDifferenceSerializer.body(line) for line in one.different]
    return UpcomingInvoiceSerializer.body(
        one, invoice=one.document, difference=None if one.is_first else {"before": one.before, "lines": lines},
        allowances=[AllowanceMoveSerializer.body(move) for move in one.allowances],
    )  # fmt: skip


class PreviewSerializer(ResponseSchema):
    """The next invoices."""

    invoices = UpcomingInvoiceSerializer(many=True)


class GeneratedInvoicesSerializer(ResponseSchema):
    """The new invoices, and the credits of allowances."""

    invoices = InvoiceSerializer(many=True)
    allowances = AllowanceMoveSerializer(many=True)


def generated_invoices(made: GenerationResult) -> dict[str, Any]:
    """Return what a run made."""
    return {"invoices": made.documents, "allowances": [AllowanceMoveSerializer.body(move) for move in made.allowances]}


# Taxes -----------------------------------------------------------------------------------------------


class TaxSerializer(ResponseSchema):
    """A version of a tax."""

    code = text()
    name = text()
    names = computed(serializers.DictField(child=serializers.CharField()))
    rate = decimal()
    category = text()
    country = text()
    subdivision = text()
    city = text()
    postal_codes = computed(serializers.ListField(child=serializers.CharField()))
    classes = computed(serializers.ListField(child=serializers.CharField()))
    is_compound = computed(serializers.BooleanField())
    valid_from = computed(serializers.CharField(), as_text=date.isoformat)
    valid_until = computed(serializers.CharField(allow_null=True), as_text=date.isoformat)
    recorded_at = time()
    recorded_by = text()


class VatLookupSerializer(ResponseSchema):
    """What VIES said about the VAT id of a customer."""

    id = whole(attrgetter("pk"))
    customer = text(attrgetter("customer.ref"))
    vat_id = text(help_text="Empty: the customer was erased, and no document relies on the lookup.")
    outcome = text(help_text="valid, invalid, or unavailable: VIES gave no answer.")
    asked_at = time()
    requester = text(lambda row: row.requester or None, null=True, help_text="The seller's VAT id that was sent.")
    consultation = text(lambda row: row.consultation or None, null=True, help_text="The consultation number; needs a requester.")
    name = text(lambda row: row.name or None, null=True, help_text="As VIES has it; null if it does not say, or erased.")
    address = text(lambda row: row.address or None, null=True, help_text="As VIES has it; null if it does not say, or erased.")
    buyer = computed(
        serializers.DictField(help_text="Name and address of the customer as they were; {} if erased."),
        lambda row: in_key_order(row.buyer),
    )
    error = text(lambda row: row.error or None, null=True, help_text="Why there was no answer, such as MS_UNAVAILABLE.")
    recorded_at = time()
