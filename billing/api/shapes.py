"""What billing's calls answer with: the bodies, and their shapes for the OpenAPI document."""

from typing import Any

from rest_framework import serializers

from billing.models import Amendment, Charge, Coupon, Customer, CustomerCoupon, DocumentMove, Parking, Plan, Subscription
from billing.orders import plans
from billing.rating.money import decimal_text
from billing.rating.price_input import price_dict
from billing.reads.catalogue import GivenCoupon
from billing.reads.subscriptions import Detail, SubscriptionRow
from billing.reads.usage import EventRow
from ledger.api.kit.rendering import in_key_order, optional_time_text, time_text


def customer_body(customer: Customer) -> dict[str, Any]:
    """A customer as it is answered."""
    paying = None
    if customer.credit_unit_value is not None:
        paying = {"credit_type": customer.credit_type, "unit_value": decimal_text(customer.credit_unit_value)}
    return {
        "ref": customer.ref,
        "name": customer.name,
        "currency": customer.currency,
        "time_zone": customer.time_zone,
        "language": customer.language,
        "address": in_key_order(customer.address),
        "vat_id": customer.vat_id,
        "vat_status": customer.vat_status,
        "terms_days": customer.terms_days,
        "grace_days": customer.grace_days,
        "holder_id": customer.holder_id or None,
        "credits": paying,
    }


def plan_body(plan: Plan) -> dict[str, Any]:
    """A version of a plan as it is answered."""
    return {
        "code": plan.code,
        "version": plan.version,
        "name": plan.name,
        "currency": plan.currency,
        "interval": {"unit": plan.interval_unit, "count": plan.interval_count},
        "prices": [price_dict(price) for _, price in plans.terms_of(plan.pk).prices],
        "minimum": None if plan.minimum is None else decimal_text(plan.minimum),
        "maximum": None if plan.maximum is None else decimal_text(plan.maximum),
        "allowance": None
        if plan.allowance is None
        else {name: plan.allowance[name] for name in ("credit_type", "amount", "rollover_cap")},
    }


def subscription_body(subscription: Subscription, *, customer: str, plan: str) -> dict[str, Any]:
    """A subscription as it is answered."""
    return {
        "ref": subscription.ref,
        "customer": customer,
        "plan": plan,
        "started_at": time_text(subscription.started_at),
        "anchor_at": time_text(subscription.anchor_at),
        "time_zone": subscription.time_zone,
        "trial_end": optional_time_text(subscription.trial_end),
    }


def amendment_body(amendment: Amendment, ref: str) -> dict[str, Any]:
    """An amendment as it is answered."""
    change = dict(amendment.change)
    if "plan" in change:
        terms = plans.terms_of(change["plan"])
        change["plan"] = terms.code
    return {
        "subscription": ref,
        "sequence": amendment.sequence,
        "effective_at": time_text(amendment.effective_at),
        "change": in_key_order(change),
        "recorded_at": time_text(amendment.recorded_at),
        "actor": amendment.actor,
    }


def charge_body(charge: Charge, ref: str) -> dict[str, Any]:
    """A one-off charge as it is answered."""
    return {
        "subscription": ref,
        "sequence": charge.sequence,
        "currency": charge.currency,
        "amount_minor": charge.amount_minor,
        "description": charge.description,
        "tax_rate": decimal_text(charge.tax_rate),
        "recorded_at": time_text(charge.recorded_at),
    }


def coupon_body(coupon: Coupon) -> dict[str, Any]:
    """A coupon as it is answered."""
    return {
        "code": coupon.code,
        "kind": coupon.kind,
        "value": decimal_text(coupon.value),
        "currency": coupon.currency or None,
        "duration": coupon.duration,
        "periods": coupon.periods,
        "prices": coupon.prices,
        "plans": coupon.plans,
    }


def given_coupon_body(given: CustomerCoupon, *, customer: str, coupon: str) -> dict[str, Any]:
    """That a customer has a coupon."""
    return {"customer": customer, "coupon": coupon, "given_at": time_text(given.given_at)}


def customer_coupon_body(given: GivenCoupon, *, customer: str) -> dict[str, Any]:
    """A customer's coupon with what invoices have used of it."""
    return {
        **given_coupon_body(given.row, customer=customer, coupon=given.code),
        "taken_off_at": optional_time_text(given.row.taken_off_at),
        "used_minor": given.used_minor,
        "used_invoices": given.used_invoices,
    }


def subscription_summary(row: SubscriptionRow) -> dict[str, Any]:
    """A subscription in a list: what was ordered, and what it is now."""
    return {
        "ref": row.ref,
        "customer": row.customer,
        "plan": row.plan,
        "plan_version": row.plan_version,
        "state": row.state,
        "started_at": time_text(row.started_at),
        "anchor_at": time_text(row.anchor_at),
        "time_zone": row.time_zone,
        "trial_end": optional_time_text(row.trial_end),
        "ends_at": optional_time_text(row.ends_at),
        "due_at": optional_time_text(row.due_at),
        "suspended": None if row.suspended_at is None else {"reason": row.suspended_reason, "since": time_text(row.suspended_at)},
    }


def subscription_detail(found: Detail) -> dict[str, Any]:
    """A subscription with its current period, items and amendments."""
    period = found.row.current_period(found.as_of)
    return {
        **subscription_summary(found.row),
        "as_of": time_text(found.as_of),
        "current_period": None if period is None else {"start": time_text(period.start), "end": time_text(period.end)},
        "items": [
            {
                "price_key": item.price_key,
                "plan": item.plan,
                "plan_version": item.plan_version,
                "quantity": decimal_text(item.quantity),
                "starts_at": time_text(item.starts_at),
                "ends_at": optional_time_text(item.ends_at),
            }
            for item in found.items
        ],
        "amendments": [amendment_body(amendment, found.row.ref) for amendment in found.amendments],
    }


def usage_event_body(event: EventRow) -> dict[str, Any]:
    """A usage event as it was sent, and when it was taken in."""
    return {
        "idempotency_key": event.idempotency_key,
        "subscription": event.subscription,
        "meter": event.meter,
        "value": decimal_text(event.value),
        "occurred_at": time_text(event.occurred_at),
        "properties": in_key_order(event.properties),
        "recorded_at": time_text(event.recorded_at),
    }


def parking_body(parking: Parking, ref: str) -> dict[str, Any]:
    """That a subscription was parked, and no longer is."""
    return {
        "subscription": ref,
        "reason": parking.reason,
        "parked_at": time_text(parking.parked_at),
        "unparked_at": optional_time_text(parking.unparked_at),
        "unparked_by": parking.unparked_by,
        "unparked_reason": parking.unparked_reason,
    }


# What moves are called in paths, where the records have another word.
MOVE_WORDS = {"give_up": "mark-uncollectible"}


def move_body(move: DocumentMove) -> dict[str, Any]:
    """Who moved an invoice, or deleted a draft, and why."""
    return {
        "invoice": move.invoice_id,
        "move": MOVE_WORDS.get(move.move, move.move),
        "actor": move.actor,
        "reason": move.reason,
        "recorded_at": time_text(move.recorded_at),
        "draft": None if move.draft is None else _deleted_body(move.draft),
    }


def _deleted_body(draft: dict[str, Any]) -> dict[str, Any]:
    return {
        "subscription": draft["subscription_ref"],
        "customer": draft["customer_ref"],
        "currency": draft["currency"],
        "total_minor": draft["total_minor"],
    }


# Shapes ----------------------------------------------------------------------------------------------


def shape(name: str, doc: str, /, **fields: serializers.Field[Any, Any, Any, Any]) -> type[serializers.Serializer[Any]]:
    """The shape of an answer, for the OpenAPI document alone."""
    return type(name, (serializers.Serializer,), {"__doc__": doc, **fields})


def _text(*, null: bool = False) -> serializers.CharField:
    return serializers.CharField(allow_null=null)


def _minor(help_text: str = "In minor units.") -> serializers.IntegerField:
    return serializers.IntegerField(help_text=help_text)


CreditsShape = shape("PayingCredits", "Which credits pay.", credit_type=_text(), unit_value=_text())
CustomerShape = shape(
    "Customer", "Who pays.",
    ref=_text(), name=_text(), currency=_text(), time_zone=_text(), language=_text(),
    address=serializers.DictField(), vat_id=_text(), vat_status=_text(), terms_days=serializers.IntegerField(),
    grace_days=serializers.IntegerField(), holder_id=_text(null=True),
    credits=CreditsShape(allow_null=True),
)  # fmt: skip
IntervalShape = shape("Interval", "A billing period.", unit=_text(), count=serializers.IntegerField())
AllowanceShape = shape(
    "Allowance", "Credits granted each period.",
    credit_type=_text(), amount=serializers.IntegerField(), rollover_cap=serializers.IntegerField(allow_null=True),
)  # fmt: skip
PlanShape = shape(
    "Plan", "A version of a plan.",
    code=_text(), version=serializers.IntegerField(), name=_text(), currency=_text(), interval=IntervalShape(),
    prices=serializers.ListField(child=serializers.DictField()), minimum=_text(null=True), maximum=_text(null=True),
    allowance=AllowanceShape(allow_null=True),
)  # fmt: skip
SubscriptionShape = shape(
    "Subscription", "What a customer ordered.",
    ref=_text(), customer=_text(), plan=_text(), started_at=_text(), anchor_at=_text(), time_zone=_text(),
    trial_end=_text(null=True),
)  # fmt: skip
AmendmentShape = shape(
    "Amendment", "A change from an instant on.",
    subscription=_text(), sequence=serializers.IntegerField(), effective_at=_text(), change=serializers.DictField(),
    recorded_at=_text(), actor=_text(),
)  # fmt: skip
ChargeShape = shape(
    "Charge", "A one-off charge.",
    subscription=_text(), sequence=serializers.IntegerField(), currency=_text(), amount_minor=_minor(), description=_text(),
    tax_rate=_text(), recorded_at=_text(),
)  # fmt: skip
CouponShape = shape(
    "Coupon", "A discount.",
    code=_text(), kind=_text(), value=_text(), currency=_text(null=True), duration=_text(),
    periods=serializers.IntegerField(allow_null=True), prices=serializers.ListField(child=_text()),
    plans=serializers.ListField(child=_text()),
)  # fmt: skip
CustomerCouponShape = shape(
    "CustomerCoupon", "A customer's coupon, and what invoices have used of it.",
    customer=_text(), coupon=_text(), given_at=_text(), taken_off_at=_text(null=True), used_minor=_minor(),
    used_invoices=serializers.IntegerField(),
)  # fmt: skip
GivenCouponShape = shape("GivenCoupon", "A customer's coupon.", customer=_text(), coupon=_text(), given_at=_text())
ParkingShape = shape(
    "Parking", "Why a subscription waited, and who let it go on.",
    subscription=_text(), reason=_text(), parked_at=_text(), unparked_at=_text(null=True), unparked_by=_text(),
    unparked_reason=_text(),
)  # fmt: skip
UsageResultShape = shape(
    "UsageResult", "The answer to one event.", idempotency_key=_text(null=True), result=_text(), detail=_text()
)
UsageResultsShape = shape("UsageResults", "One result per event, in order.", results=UsageResultShape(many=True))
StepShape = type(
    "RatingStep", (serializers.Serializer,),
    {
        "__doc__": "One step of a calculation.",
        **{name: _text(null=True) for name in ("from", "to")},
        **{name: _text() for name in ("units", "unit_amount", "flat_amount", "amount")},
    },
)  # fmt: skip
CoveredShape = shape(
    "CoveredUnits", "What of a quantity is paid in credits.",
    units=_text(), credits=serializers.IntegerField(), credit_type=_text(),
)  # fmt: skip
RatingShape = shape(
    "Rating", "What usage would cost; `covered` when credits_available was given.",
    amount_minor=_minor(), exact=_text(), steps=StepShape(many=True), covered=CoveredShape(required=False),
)  # fmt: skip
PeriodShape = shape("Period", "Half-open.", start=_text(), end=_text())
SuspendedShape = shape("Suspension", "Why billing is suspended until a person checks it.", reason=_text(), since=_text())
SUMMARY: dict[str, Any] = {
    "ref": _text(), "customer": _text(), "plan": _text(), "plan_version": serializers.IntegerField(),
    "state": _text(), "started_at": _text(), "anchor_at": _text(), "time_zone": _text(),
    "trial_end": _text(null=True), "ends_at": _text(null=True),
    "due_at": serializers.CharField(allow_null=True, help_text="When it next has something to bill; null: nothing will be due."),
    "suspended": SuspendedShape(allow_null=True),
}  # fmt: skip
SubscriptionSummaryShape = shape("SubscriptionSummary", "A subscription as it is now.", **SUMMARY)
ItemShape = shape(
    "SubscriptionItem", "At which price and quantity an item counts, or will.",
    price_key=_text(), plan=_text(), plan_version=serializers.IntegerField(), quantity=_text(), starts_at=_text(),
    ends_at=_text(null=True),
)  # fmt: skip
SubscriptionDetailShape = shape(
    "SubscriptionDetail", "A subscription as it is now, with its parts.",
    **SUMMARY, as_of=_text(), current_period=PeriodShape(allow_null=True), items=ItemShape(many=True),
    amendments=AmendmentShape(many=True),
)  # fmt: skip
UsageEventShape = shape(
    "UsageEvent", "One thing that was used.",
    idempotency_key=_text(), subscription=_text(), meter=_text(), value=_text(), occurred_at=_text(),
    properties=serializers.DictField(), recorded_at=_text(),
)  # fmt: skip
LineShape = shape(
    "InvoiceLine", "One line.",
    position=serializers.IntegerField(), kind=_text(), price_key=_text(null=True), description=_text(),
    period=PeriodShape(allow_null=True), quantity=_text(), unit_amount=_text(null=True), amount_minor=_minor(),
    discount_minor=_minor(), tax_category=_text(), tax_rate=_text(),
    rating=serializers.DictField(
        help_text="How the amount came about. `covered`: what of it is paid in credits, and by which entries of the ledger."
    ),
)  # fmt: skip
TaxShape = shape(
    "InvoiceTax", "Tax of one category.",
    category=_text(), rate=_text(), base_minor=_minor(), amount_minor=_minor(),
    note=serializers.CharField(required=False, help_text="Why the invoice has no tax, if there is a reason: `Reverse charge` …"),
)  # fmt: skip
InvoiceShape = shape(
    "Invoice", "A document.",
    id=serializers.IntegerField(), number=_text(null=True), subscription=_text(), customer=_text(), currency=_text(),
    state=_text(), issue_date=_text(null=True), due_date=_text(null=True), subtotal_minor=_minor(), discount_minor=_minor(),
    tax_minor=_minor(), total_minor=_minor(), credit_notes_minor=_minor(), credits_applied_minor=_minor(),
    amount_due_minor=_minor(), lines=LineShape(many=True), taxes=TaxShape(many=True),
)  # fmt: skip
CreditNoteLineShape = shape(
    "CreditNoteLine", "What of a line.",
    position=serializers.IntegerField(), description=_text(), amount_minor=_minor(), tax_category=_text(), tax_rate=_text(),
)  # fmt: skip
CreditNoteShape = shape(
    "CreditNote", "What corrects an invoice.",
    id=serializers.IntegerField(), kind=_text(), number=_text(null=True), state=_text(), invoice=serializers.IntegerField(),
    invoice_number=_text(null=True), subscription=_text(), customer=_text(), currency=_text(), issue_date=_text(null=True),
    reason=_text(), actor=_text(), subtotal_minor=serializers.IntegerField(allow_null=True, help_text="Before tax."),
    tax_minor=serializers.IntegerField(allow_null=True), total_minor=_minor(),
    lowers_due_minor=_minor("The amount by which the note lowers the amount due of its invoice."),
    credits_returned=serializers.IntegerField(help_text="Prepaid credits returned to the holder."),
    credits_returned_minor=_minor("The part of the payment that they were."),
    left_minor=_minor("What is left of it to be set against the next invoices."), lines=CreditNoteLineShape(many=True),
    taxes=TaxShape(many=True),
)  # fmt: skip
DeletedShape = shape(
    "DeletedDraft", "What a draft was.", subscription=_text(), customer=_text(), currency=_text(), total_minor=_minor()
)
DocumentMoveShape = shape(
    "DocumentMove", "Who moved an invoice, and why.",
    invoice=serializers.IntegerField(), move=_text(), actor=_text(), reason=_text(), recorded_at=_text(),
    draft=DeletedShape(allow_null=True),
)  # fmt: skip
InvoicesShape = shape("Invoices", "What was made.", invoices=InvoiceShape(many=True))
