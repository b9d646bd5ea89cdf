"""The rows of billing: intent, what was billed, and the documents.

Intent (plans, customers, subscriptions, item versions, amendments, charges) is written by orders and amendments; the
generator only reads it. What was billed are claims. Documents are invoices with lines and taxes, frozen once finalised.

Note [No foreign keys towards intent]
    A database foreign key from a claim or an invoice to a subscription takes FOR KEY SHARE on the parent row, and a
    deferred one makes COMMIT wait while somebody holds that row FOR UPDATE. So every reference to a subscription,
    customer, plan, price, item or holder is `db_constraint=False`; the audit finds orphans instead.
"""

from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models.functions import Now

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 12}


def _reference(to: str, **options: Any) -> Any:
    """Point at a row without a database constraint. See Note [No foreign keys towards intent]."""
    return models.ForeignKey(to, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **options)


# Intent ----------------------------------------------------------------------------------------------


class Customer(models.Model):
    """Who pays: name and address for the document, terms, and the holder whose credits may pay."""

    ref = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    currency = models.CharField(max_length=3, db_comment="ISO 4217")
    time_zone = models.CharField(max_length=64, default="UTC")
    language = models.CharField(max_length=16, default="en", db_comment="BCP 47")
    address = models.JSONField(default=dict)
    vat_id = models.CharField(max_length=32, blank=True, default="")
    vat_status = models.CharField(max_length=16, default="taxable", db_comment="taxable, reverse_charge or exempt")
    terms_days = models.PositiveIntegerField(default=30, db_comment="days from issue to due date")
    grace_days = models.PositiveIntegerField(default=0, db_comment="days for which an invoice stays a draft that is rated anew")
    holder_id = models.CharField(max_length=64, blank=True, default="", db_comment="whose credits pay; empty: nobody's")
    credit_type = models.CharField(max_length=32, blank=True, default="")
    credit_unit_value = models.DecimalField(**MONEY, null=True, db_comment="money in major units that one credit pays")
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.ref


class Plan(models.Model):
    """One version of a plan. Never changed: a new version is a new row, and subscriptions stay on theirs until amended."""

    code = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    name = models.CharField(max_length=200)
    currency = models.CharField(max_length=3, db_comment="ISO 4217")
    interval_unit = models.CharField(max_length=10, db_comment="day, week, month, quarter, half_year or year")
    interval_count = models.PositiveIntegerField()
    minimum = models.DecimalField(**MONEY, null=True, db_comment="least per period, major units, before tax")
    maximum = models.DecimalField(**MONEY, null=True, db_comment="most per period, major units, before tax")
    allowance = models.JSONField(null=True, db_comment="credits granted each period: credit_type, amount, rollover_cap")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["code", "version"], name="billing_plan_code_version")]

    def __str__(self) -> str:
        return f"{self.code} v{self.version}"


class Price(models.Model):
    """One price of one version of a plan, as `billing.rating.pricing` reads it."""

    plan = _reference("Plan")
    position = models.PositiveIntegerField()
    key = models.CharField(max_length=64)
    kind = models.CharField(max_length=10, db_comment="recurring or usage")
    timing = models.CharField(max_length=10, db_comment="advance or arrears")
    model = models.CharField(max_length=24)
    meter = models.CharField(max_length=64, blank=True, default="")
    definition = models.JSONField(db_comment="the whole price, as the API takes and gives it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plan", "key"], name="billing_price_plan_key")]

    def __str__(self) -> str:
        return self.key


class Subscription(models.Model):
    """What a customer ordered. The generator never writes this row, and nothing that it writes locks it."""

    ref = models.CharField(max_length=64, unique=True)
    customer = _reference("Customer")
    started_at = models.DateTimeField()
    anchor_at = models.DateTimeField(db_comment="boundary n is anchor + n intervals, in time_zone")
    time_zone = models.CharField(max_length=64)
    trial_end = models.DateTimeField(null=True, db_comment="recurring charges begin here")
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.ref


class Item(models.Model):
    """One price key of a subscription, through all its versions. The empty key stands for the subscription as a whole."""

    subscription = _reference("Subscription")
    price_key = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "price_key"], name="billing_item_key")]

    def __str__(self) -> str:
        return self.price_key


class ItemVersion(models.Model):
    """At which price and quantity an item counted in [starts_at, ends_at).

    Invariant: versions of an item that are not superseded do not overlap (exclusion constraint). An amendment
    supersedes the versions that it cuts and inserts what is true now, so what was believed before stays readable.
    """

    subscription = _reference("Subscription")
    item = _reference("Item")
    plan = _reference("Plan")
    price = _reference("Price", null=True)
    quantity = models.DecimalField(**MONEY)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    is_termination = models.BooleanField(default=False, db_comment="it ends because the subscription does, not by a change")
    amendment = models.PositiveIntegerField(null=True, db_comment="sequence of the amendment that made it")
    recorded_at = models.DateTimeField(db_default=Now())
    superseded_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["subscription"], name="billing_itemversion_current", condition=models.Q(superseded_at__isnull=True)
            )
        ]


class Amendment(models.Model):
    """The wish to change a subscription from an instant on. Append-only; numbered 1, 2, 3 … per subscription."""

    subscription = _reference("Subscription")
    sequence = models.PositiveIntegerField()
    effective_at = models.DateTimeField()
    change = models.JSONField(db_comment="one of plan, quantities, ends_at, paused")
    actor = models.CharField(max_length=128, blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "sequence"], name="billing_amendment_sequence")]


class Charge(models.Model):
    """A one-off charge: on the next invoice, once. Append-only; numbered 1, 2, 3 … per subscription."""

    subscription = _reference("Subscription")
    sequence = models.PositiveIntegerField()
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    description = models.CharField(max_length=500)
    tax_category = models.CharField(max_length=32, default="S")
    tax_rate = models.DecimalField(**MONEY, default=Decimal(0), db_comment="percent")
    actor = models.CharField(max_length=128, blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "sequence"], name="billing_charge_sequence")]


class Coupon(models.Model):
    """A discount that customers can be given. Never changed."""

    code = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=10, db_comment="amount or percentage")
    value = models.DecimalField(**MONEY, db_comment="major units, or percent")
    currency = models.CharField(max_length=3, blank=True, default="")
    duration = models.CharField(max_length=10, db_comment="once, recurring or forever")
    periods = models.PositiveIntegerField(null=True, db_comment="how many invoices a recurring one lasts")
    prices = models.JSONField(default=list, db_comment="price keys that it is limited to; empty: all")
    plans = models.JSONField(default=list, db_comment="plan codes that it is limited to; empty: all")
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.code


class CustomerCoupon(models.Model):
    """A coupon in a customer's hands. What is left of it follows from its uses."""

    customer = _reference("Customer")
    coupon = _reference("Coupon")
    given_at = models.DateTimeField(db_default=Now())
    taken_off_at = models.DateTimeField(null=True, db_comment="from then on no invoice uses it; null: it may be used")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["customer", "coupon"], name="billing_customercoupon_once")]


# Usage -----------------------------------------------------------------------------------------------


class UsageKey(models.Model):
    """The idempotency key of a usage event, kept for good, also when the event's partition has been dropped."""

    idempotency_key = models.CharField(max_length=255, primary_key=True)
    content_digest = models.BinaryField(db_comment="SHA-256 of the event's canonical form: the same key with other content")
    subscription = _reference("Subscription", db_index=False)
    occurred_at = models.DateTimeField(db_comment="with the subscription: where the event is found by its key")


class UsageEvent(models.Model):
    """One thing that was used. Append-only, partitioned by `occurred_at`; see docs/BILLING.md."""

    pk = models.CompositePrimaryKey("subscription_id", "meter", "occurred_at", "idempotency_key")
    subscription = _reference("Subscription")
    meter = models.CharField(max_length=64)
    occurred_at = models.DateTimeField()
    idempotency_key = models.CharField(max_length=255)
    value = models.DecimalField(**MONEY)
    properties = models.JSONField(default=dict)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        managed = False
        db_table = "billing_usageevent"


class DroppedMonth(models.Model):
    """A month whose usage events were dropped once billed: their keys stay, and are more than the events by as many."""

    month = models.DateField(primary_key=True, db_comment="its first day")
    events = models.BigIntegerField()
    dropped_at = models.DateTimeField(db_default=Now())


# What was billed -------------------------------------------------------------------------------------


class Claim(models.Model):
    """That [starts_at, ends_at) of an item is billed, at which price and how much; released when voided or corrected.

    Invariant: claims of an item and kind that are not released do not overlap (exclusion constraint), whatever the
    locks did. A correction releases the claim and inserts what is left of it, so the claims that are not released are
    always the whole of what has been billed.
    """

    class Kind(models.IntegerChoices):
        RECURRING = 1
        USAGE = 2
        CHARGE = 3
        BOUND = 4
        ALLOWANCE = 5

    subscription = _reference("Subscription")
    item_id = models.BigIntegerField(db_comment="billing_item.id; for a one-off charge billing_charge.id")
    kind = models.SmallIntegerField(choices=Kind.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    price = _reference("Price", null=True)
    quantity = models.DecimalField(**MONEY, db_comment="billed, after aggregation")
    amount_minor = models.BigIntegerField(db_comment="billed for this period so far, net of line discounts")
    invoice_id = models.BigIntegerField(null=True, db_comment="null: nothing was used and nothing is owed, so there is no line")
    line_position = models.PositiveIntegerField(null=True, db_comment="the line that it comes from")
    basis = models.JSONField(default=dict, db_comment="what a correction needs to know: shares of the period, or the usage rated")
    created_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)
    made_by = models.BigIntegerField(null=True, db_comment="the invoice that wrote the row; not that of the line on what is left")
    released_by = models.BigIntegerField(null=True, db_comment="the invoice that corrected or voided it")
    restores = models.BigIntegerField(null=True, db_comment="the released claim that counts again with this one")

    class Meta:
        indexes = [
            models.Index(fields=["subscription", "ends_at"], name="billing_claim_held", condition=models.Q(released_at=None)),
            models.Index(fields=["invoice_id"], name="billing_claim_invoice"),
            models.Index(fields=["made_by"], name="billing_claim_made_by"),
            models.Index(fields=["released_by"], name="billing_claim_released_by", condition=models.Q(released_by__isnull=False)),
        ]


class Cursor(models.Model):
    """Where the generator got to. A hint for finding work, never the truth: the claims are. May be deleted at any time."""

    subscription = models.OneToOneField(
        "Subscription", on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", primary_key=True
    )
    recurring_due_at = models.DateTimeField(null=True, db_comment="null: nothing will be due until an amendment")
    usage_due_at = models.DateTimeField(null=True)
    recurring_amendments_seen = models.PositiveIntegerField(default=0)
    usage_amendments_seen = models.PositiveIntegerField(default=0)
    charges_seen = models.PositiveIntegerField(default=0)
    claims_from = models.DateTimeField(null=True, db_comment="claims that end before are settled; null: look at all")
    looked_at = models.DateTimeField()


class Parking(models.Model):
    """A subscription that the generator will not bill until somebody has looked at it, and why."""

    subscription = _reference("Subscription")
    reason = models.CharField(max_length=64)
    facts = models.JSONField(default=dict)
    parked_at = models.DateTimeField(db_default=Now())
    run_id = models.UUIDField(null=True)
    unparked_at = models.DateTimeField(null=True)
    unparked_by = models.CharField(max_length=128, blank=True, default="")
    unparked_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subscription"], name="billing_parking_one", condition=models.Q(unparked_at__isnull=True)
            )
        ]


# Documents -------------------------------------------------------------------------------------------


class NumberSeries(models.Model):
    """Where a gapless series of invoice numbers stands. Its row is locked last in the transaction, until COMMIT."""

    name = models.CharField(max_length=32, primary_key=True)
    last_value = models.BigIntegerField(default=0)


class Invoice(models.Model):
    """A document. Deletable as a draft; frozen by trigger but for its state once it has a number."""

    class State(models.TextChoices):
        DRAFT = "draft"
        OPEN = "open"
        PAID = "paid"
        VOID = "void"
        UNCOLLECTIBLE = "uncollectible"

    series = models.CharField(max_length=32, default="INV")
    series_value = models.BigIntegerField(null=True)
    number = models.CharField(max_length=48, null=True, unique=True)
    subscription = _reference("Subscription")
    subscription_ref = models.CharField(max_length=64)
    customer = _reference("Customer")
    customer_ref = models.CharField(max_length=64)
    buyer = models.JSONField(default=dict, db_comment="name, address, VAT id and language as they were")
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=16, choices=State.choices, default=State.DRAFT)
    scope = models.CharField(max_length=10, blank=True, default="", db_comment="usage or recurring when only that was billed")
    as_of = models.DateTimeField(db_comment="up to when it bills")
    issue_date = models.DateField(null=True)
    due_date = models.DateField(null=True)
    subtotal_minor = models.BigIntegerField()
    discount_minor = models.BigIntegerField(default=0)
    tax_minor = models.BigIntegerField()
    total_minor = models.BigIntegerField()
    credit_notes_minor = models.BigIntegerField(default=0)
    credits_applied_minor = models.BigIntegerField(default=0)
    amount_due_minor = models.BigIntegerField()
    run_id = models.UUIDField(null=True)
    grace_ends_at = models.DateTimeField(null=True, db_comment="until when the draft is rated anew; null: it has no grace")
    created_at = models.DateTimeField(db_default=Now())
    finalized_at = models.DateTimeField(null=True)
    paid_at = models.DateTimeField(null=True)
    voided_at = models.DateTimeField(null=True)
    uncollectible_at = models.DateTimeField(null=True)
    digest = models.BinaryField(null=True, db_comment="SHA-256, chained within the series: docs/BILLING.md")

    class Meta:
        permissions = [
            ("finalize_invoice", "Can finalise a draft"),
            ("pay_invoice", "Can mark an invoice as paid"),
            ("void_invoice", "Can void an invoice"),
            ("give_up_invoice", "Can mark an invoice as uncollectible"),
            ("delete_draft", "Can delete a draft"),
            ("credit_invoice", "Can credit an invoice"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["series", "series_value"], name="billing_invoice_series"),
            models.CheckConstraint(
                name="billing_invoice_numbered",
                condition=models.Q(state="draft", number=None, series_value=None, digest=None)
                | (~models.Q(state="draft") & models.Q(number__isnull=False, series_value__isnull=False, digest__isnull=False)),
            ),
            models.CheckConstraint(
                name="billing_invoice_adds_up",
                condition=models.Q(total_minor=models.F("subtotal_minor") - models.F("discount_minor") + models.F("tax_minor"))
                & models.Q(
                    amount_due_minor=models.F("total_minor") - models.F("credit_notes_minor") - models.F("credits_applied_minor")
                )
                & models.Q(total_minor__gte=0, amount_due_minor__gte=0, credits_applied_minor__gte=0),
            ),
        ]
        indexes = [
            models.Index(fields=["subscription", "-id"], name="billing_invoice_subscription"),
            models.Index(fields=["customer", "-id"], name="billing_invoice_customer"),
            models.Index(fields=["state", "-id"], name="billing_invoice_state"),
            models.Index(
                fields=["subscription", "grace_ends_at"],
                name="billing_invoice_in_grace",
                condition=models.Q(state="draft", grace_ends_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"draft {self.pk}"


class DocumentMove(models.Model):
    """Who moved a document from state to state, or deleted a draft, and why. Append-only."""

    invoice_id = models.BigIntegerField()
    move = models.CharField(max_length=16, db_comment="finalize, pay, void, give_up or delete")
    actor = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    subscription_id = models.BigIntegerField(null=True, db_comment="whose draft was deleted; null for every other move")
    draft = models.JSONField(null=True, db_comment="what the draft was that was deleted")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(fields=["invoice_id", "id"], name="billing_documentmove_invoice"),
            models.Index(
                fields=["subscription_id", "id"],
                name="billing_documentmove_deleted",
                condition=models.Q(subscription_id__isnull=False),
            ),
        ]


class Line(models.Model):
    """One line of an invoice, in the order in which it is printed."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(
        max_length=20,
        db_comment="recurring, usage, late_usage, credit, charge, minimum or carried",
    )
    item_id = models.BigIntegerField(null=True)
    price = _reference("Price", null=True)
    price_key = models.CharField(max_length=64, blank=True, default="")
    description = models.CharField(max_length=500)
    starts_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    quantity = models.DecimalField(**MONEY)
    unit_amount = models.DecimalField(**MONEY, null=True)
    amount_minor = models.BigIntegerField(db_comment="before discounts and tax; negative on a credit")
    discount_minor = models.BigIntegerField(default=0, db_comment="its share of the discounts")
    tax_category = models.CharField(max_length=32, default="S")
    tax_rate = models.DecimalField(**MONEY, default=Decimal(0), db_comment="percent")
    rating = models.JSONField(default=dict, db_comment="how the amount came about")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["invoice", "position"], name="billing_line_position")]


class InvoiceTax(models.Model):
    """The tax of one category and rate on an invoice: its base rounded, times the rate, rounded once."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="taxes")
    category = models.CharField(max_length=32)
    rate = models.DecimalField(**MONEY, db_comment="percent")
    base_minor = models.BigIntegerField()
    amount_minor = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["invoice", "category", "rate"], name="billing_invoicetax_category")]


class CouponUse(models.Model):
    """What a customer's coupon took off an invoice. Released when the invoice is voided or the draft deleted."""

    customer_coupon = _reference("CustomerCoupon")
    invoice_id = models.BigIntegerField()
    amount_minor = models.BigIntegerField()
    periods = models.PositiveIntegerField(default=1, db_comment="due instants that it was used for; a recurring one has so many")
    currency = models.CharField(max_length=3)
    used_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["customer_coupon", "invoice_id"], name="billing_couponuse_once", condition=models.Q(released_at=None)
            )
        ]
        indexes = [models.Index(fields=["invoice_id"], name="billing_couponuse_invoice")]


class CreditNote(models.Model):
    """What an invoice gives back, with its tax: carried, because credits on it were larger than its charges, or on request.

    What is left of it is set against the next invoices of the subscription. One on request is a document with a number,
    frozen with its lines and taxes; a carried one stands as a line on its invoice.
    """

    class Kind(models.TextChoices):
        CARRIED = "carried"
        REQUESTED = "requested"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.CARRIED, db_default=Kind.CARRIED)
    series = models.CharField(max_length=32, blank=True, default="", db_default="")
    series_value = models.BigIntegerField(null=True)
    number = models.CharField(max_length=48, null=True, unique=True)
    subscription = _reference("Subscription")
    invoice_id = models.BigIntegerField(db_comment="the invoice that it arose on, or corrects")
    currency = models.CharField(max_length=3)
    issue_date = models.DateField(null=True)
    subtotal_minor = models.BigIntegerField(null=True, db_comment="before tax; null on a carried one")
    tax_minor = models.BigIntegerField(null=True)
    amount_minor = models.BigIntegerField(db_comment="with tax; what is left follows from its uses and credits_returned_minor")
    credits_returned = models.BigIntegerField(default=0, db_default=0, db_comment="prepaid credits that went back to the holder")
    credits_returned_minor = models.BigIntegerField(default=0, db_default=0, db_comment="the part of the payment that they were")
    refund_sequence = models.BigIntegerField(null=True, db_comment="the ledger's entry of it")
    reason = models.CharField(max_length=500, blank=True, default="", db_default="")
    actor = models.CharField(max_length=200, blank=True, default="", db_default="")
    recorded_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True, db_comment="when its invoice was voided, and it with it")
    digest = models.BinaryField(null=True, db_comment="SHA-256, chained within the series: docs/BILLING.md")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["series", "series_value"], name="billing_creditnote_series"),
            models.CheckConstraint(
                name="billing_creditnote_figures",
                condition=models.Q(kind="carried", number=None, series_value=None, credits_returned_minor=0)
                | models.Q(kind="requested", amount_minor=models.F("subtotal_minor") + models.F("tax_minor"), amount_minor__gt=0),
            ),
            models.CheckConstraint(
                name="billing_creditnote_numbered",
                condition=models.Q(number=None, digest=None) | models.Q(number__isnull=False, digest__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["subscription", "-id"], name="billing_creditnote_list"),
            models.Index(fields=["subscription"], name="billing_creditnote_held", condition=models.Q(released_at=None)),
            models.Index(fields=["invoice_id"], name="billing_creditnote_invoice"),
        ]

    def __str__(self) -> str:
        return self.number or f"carried {self.pk}"


class CreditNoteLine(models.Model):
    """What a credit note takes back of a line of its invoice."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="lines")
    position = models.PositiveIntegerField(db_comment="of the invoice's line")
    description = models.CharField(max_length=500)
    amount_minor = models.BigIntegerField(db_comment="after discounts, before tax; negative where a credit is taken back")
    tax_category = models.CharField(max_length=32)
    tax_rate = models.DecimalField(**MONEY, db_comment="percent")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["credit_note", "position"], name="billing_creditnoteline_position")]


class CreditNoteTax(models.Model):
    """The tax of one category and rate that goes back with a credit note."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="taxes")
    category = models.CharField(max_length=32)
    rate = models.DecimalField(**MONEY, db_comment="percent")
    base_minor = models.BigIntegerField()
    amount_minor = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["credit_note", "category", "rate"], name="billing_creditnotetax_category")]


class CreditNoteUse(models.Model):
    """What an invoice took from a credit note: a later one, or the one that it corrects, of which it lowers what is due."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="uses")
    invoice_id = models.BigIntegerField()
    amount_minor = models.BigIntegerField()
    recorded_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["credit_note", "invoice_id"], name="billing_creditnoteuse_once", condition=models.Q(released_at=None)
            )
        ]
        indexes = [models.Index(fields=["invoice_id"], name="billing_creditnoteuse_invoice")]


class CreditPayment(models.Model):
    """Prepaid credits that paid part of an invoice, and the ledger entries of it: the spend, and its refund once voided."""

    invoice_id = models.BigIntegerField(unique=True)
    holder_id = models.CharField(max_length=64)
    credit_type = models.CharField(max_length=32)
    credits = models.BigIntegerField()
    amount_minor = models.BigIntegerField()
    spend_sequence = models.BigIntegerField()
    refund_sequence = models.BigIntegerField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())


# Runs ------------------------------------------------------------------------------------------------


class Run(models.Model):
    """One call of generate_invoices, on one machine."""

    run_id = models.UUIDField(primary_key=True)
    as_of = models.DateTimeField()
    options = models.JSONField(default=dict)
    host = models.CharField(max_length=255, blank=True, default="")
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    exit_code = models.SmallIntegerField(null=True)
    summary = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["started_at"], name="billing_run_started")]

    def __str__(self) -> str:
        return f"of {self.started_at:%Y-%m-%d %H:%M:%S}"


class Outcome(models.Model):
    """What a run did with one subscription; kept with its traceback when it failed."""

    run_id = models.UUIDField()
    subscription_ref = models.CharField(max_length=64)
    outcome = models.CharField(max_length=16)
    detail = models.CharField(max_length=500, blank=True, default="")
    traceback = models.TextField(blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["run_id", "outcome", "id"], name="billing_outcome_run")]


class ScheduledTask(models.Model):
    """A task that one worker does at a time, such as the daily audit: when it is due, and how it last went."""

    name = models.CharField(max_length=64, primary_key=True)
    due_at = models.DateTimeField(db_comment="while it runs: when another worker takes it, should this one not finish")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    exit_code = models.SmallIntegerField(null=True)
    host = models.CharField(max_length=255, blank=True, default="")

    def __str__(self) -> str:
        return self.name


# Requests --------------------------------------------------------------------------------------------


class RequestKey(models.Model):
    """The Idempotency-Key of a write over REST and the answer that it got. Append-only, kept for good."""

    pk = models.CompositePrimaryKey("collection", "idempotency_key")
    collection = models.CharField(max_length=64, db_comment="the resource collection, e.g. plans")
    idempotency_key = models.CharField(max_length=255)
    request_digest = models.BinaryField(db_comment="SHA-256 of route and body")
    status = models.PositiveSmallIntegerField(null=True, db_comment="null: it was refused")
    body = models.JSONField(null=True)
    refusal = models.CharField(max_length=64, blank=True, default="", db_comment="code of the error class")
    facts = models.JSONField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())
