"""Customers and their orders. The generator only reads these rows, except those of suspended billing."""

from datetime import datetime
from decimal import Decimal

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, digest_column, reference, years
from billing.models.personal import AboutPeople, impersonal, personal
from billing.permissions import PERMISSIONS
from ledger.operators.permissions import added_to


class Customer(AboutPeople):
    """The buyer: name and address for documents, terms, and the holder whose credits may pay."""

    ref = impersonal(models.CharField(max_length=64, unique=True))
    name = personal(models.CharField(max_length=200), words="name", is_name=True, on_documents=True)
    currency = impersonal(models.CharField(max_length=3, db_comment="ISO 4217"))
    time_zone = impersonal(models.CharField(max_length=64, default="UTC"))
    language = impersonal(models.CharField(max_length=16, default="en", db_comment="BCP 47"), on_documents=True)
    address = personal(models.JSONField(default=dict), words="address", on_documents=True)
    email = personal(
        models.CharField(max_length=254, blank=True, default="", db_default="", db_comment="where documents are mailed to"),
        words="e-mail",
    )
    vat_id = personal(models.CharField(max_length=32, blank=True, default=""), words="VAT id", on_documents=True)
    vat_status = impersonal(
        models.CharField(max_length=16, default="taxable", db_comment="taxable, reverse_charge or exempt"), on_documents=True
    )
    e_invoice_format = impersonal(
        models.CharField(max_length=16, default="en16931", db_default="en16931", db_comment="en16931, xrechnung or peppol"),
        on_documents=True,
    )
    buyer_reference = personal(
        models.CharField(max_length=100, blank=True, default="", db_default="", db_comment="BT-10 of e-invoices"),
        words="buyer reference",
        on_documents=True,
    )
    electronic_address = personal(
        models.CharField(max_length=105, blank=True, default="", db_default="", db_comment="BT-49 of e-invoices with its scheme"),
        words="electronic address",
        on_documents=True,
    )
    terms_days = impersonal(models.PositiveIntegerField(default=30, db_comment="days from issue to due date"))
    grace_days = impersonal(
        models.PositiveIntegerField(default=0, db_comment="days for which an invoice stays a draft that is rated again")
    )
    seller = impersonal(models.CharField(max_length=64, default="default", db_default="default", db_comment="billing_seller.ref"))
    hold_days = impersonal(models.PositiveIntegerField(default=0, db_comment="days by which periods are invoiced later than due"))
    consolidated_invoicing = impersonal(
        models.BooleanField(
            default=False, db_default=False, db_comment="one invoice for all subscriptions that are invoiced on the same day"
        )
    )
    holder_id = impersonal(
        models.CharField(max_length=64, blank=True, default="", db_comment="whose credits pay; empty: nobody's")
    )
    credit_type = impersonal(models.CharField(max_length=32, blank=True, default=""))
    credit_unit_value = impersonal(
        models.DecimalField(**MONEY, null=True, db_comment="money in major units that one credit pays")
    )
    created_at = impersonal(models.DateTimeField(db_default=Now()))

    class Meta:
        permissions = added_to("customer", PERMISSIONS)
        indexes = [
            models.Index(fields=["holder_id"], name="billing_customer_holder", condition=~models.Q(holder_id="")),
            models.Index(fields=["name", "id"], name="billing_customer_by_name"),
            models.Index(fields=["id"], name="billing_customer_vat_id", condition=~models.Q(vat_id="")),
        ]

    def __str__(self) -> str:
        return self.ref


class VatLookup(AboutPeople):
    """What VIES said about the VAT id of a customer. Append-only; an erasure empties what names the customer."""

    customer = impersonal(reference("Customer", db_index=False))
    vat_id = personal(models.CharField(max_length=32, db_comment="empty: erased"), words="VAT id", is_relied_on=True)
    buyer = personal(
        models.JSONField(default=dict, db_comment="name and address of the customer as they were; {}: erased"),
        words="name and address",
    )
    outcome = impersonal(models.CharField(max_length=16, db_comment="valid, invalid or unavailable"))
    requester = impersonal(
        models.CharField(max_length=32, blank=True, default="", db_comment="the seller's VAT id that was sent; or empty")
    )
    consultation = impersonal(
        models.CharField(max_length=64, blank=True, default="", db_comment="the consultation number of VIES")
    )
    name = personal(
        models.CharField(max_length=500, blank=True, default="", db_comment="as VIES says; empty: it says none, or erased"),
        words="name",
    )
    address = personal(
        models.CharField(max_length=1000, blank=True, default="", db_comment="as VIES says; empty: it says none, or erased"),
        words="address",
    )
    error = impersonal(models.CharField(max_length=64, blank=True, default="", db_comment="why VIES gave no answer"))
    asked_at = impersonal(models.DateTimeField())
    recorded_at = impersonal(models.DateTimeField(db_default=Now()))

    class Meta:
        verbose_name = "VAT lookup"
        default_permissions = ("view",)
        indexes = [models.Index(fields=["customer", "-id"], name="billing_vatlookup_customer")]
        constraints = [
            models.CheckConstraint(
                name="billing_vatlookup_outcome",
                condition=models.Q(outcome__in=["valid", "invalid"], error="")
                | (models.Q(outcome="unavailable") & ~models.Q(error="")),
            ),
        ]

    def __str__(self) -> str:
        return f"VAT lookup {self.pk}"


class VatCheck(AboutPeople):
    """When the VAT id of a customer is looked up next. Work in progress."""

    customer = impersonal(reference("Customer", db_index=False))
    due_at = impersonal(models.DateTimeField(db_default=Now()))
    asked_at = impersonal(models.DateTimeField(null=True, db_comment="when a command took it last"))
    tries = impersonal(models.PositiveIntegerField(default=0, db_default=0, db_comment="in a row without an answer"))
    error = impersonal(
        models.CharField(max_length=64, blank=True, default="", db_default="", db_comment="why the last one had no answer")
    )
    outcome = impersonal(
        models.CharField(
            max_length=16,
            blank=True,
            default="",
            db_default="",
            db_comment="the last answer about the present id; empty: none",
        )
    )

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["customer"], name="billing_vatcheck_once")]
        indexes = [
            models.Index(fields=["due_at", "customer"], name="billing_vatcheck_due"),
            models.Index(fields=["asked_at"], name="billing_vatcheck_asked"),
            models.Index(fields=["customer"], name="billing_vatcheck_invalid", condition=models.Q(outcome="invalid")),
        ]


class Subscription(models.Model):
    """An order of a customer. The generator never writes this row, and none of its writes locks it."""

    ref = models.CharField(max_length=64, unique=True)
    customer = reference("Customer")
    started_at = models.DateTimeField()
    anchor_at = models.DateTimeField(db_comment="boundary n is anchor + n intervals, in time_zone")
    time_zone = models.CharField(max_length=64)
    trial_end = models.DateTimeField(null=True, db_comment="recurring charges begin here")
    hold_days = models.PositiveIntegerField(null=True, db_comment="as of the customer; null: the customer's")
    consolidated_invoicing = models.BooleanField(null=True, db_comment="as of the customer; null: the customer's")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [years("billing_subscription", "started_at", "anchor_at", "trial_end")]
        indexes = [models.Index(fields=["started_at", "id"], name="billing_subscription_started")]

    def __str__(self) -> str:
        return self.ref


class Item(models.Model):
    """A price key of a subscription, with all its versions. The empty key stands for the subscription as a whole."""

    subscription = reference("Subscription")
    price_key = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "price_key"], name="billing_item_key")]

    def __str__(self) -> str:
        return self.price_key


class ItemVersion(models.Model):
    """The price and quantity of an item in [starts_at, ends_at).

    Invariant: versions of an item that are not superseded do not overlap (exclusion constraint). An amendment supersedes the
        versions that it cuts and inserts the versions that hold now, so the earlier ones stay readable.
    """

    subscription = reference("Subscription")
    item = reference("Item")
    plan = reference("Plan")
    price = reference("Price", null=True)
    quantity = models.DecimalField(**MONEY)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    is_termination = models.BooleanField(default=False, db_comment="it ends because the subscription does, not by a change")
    anchor_at = models.DateTimeField(null=True, db_comment="from which its periods count; null: the subscription's")
    skips_unused = models.BooleanField(default=False, db_comment="its end gives back nothing of a charge in advance")
    allowance_change = models.CharField(
        max_length=8,
        default="prorate",
        db_default="prorate",
        db_comment="what its start does with the allowance of the running period: prorate, keep or full",
    )
    amendment = models.PositiveIntegerField(null=True, db_comment="sequence of the amendment that made it")
    recorded_at = models.DateTimeField(db_default=Now())
    superseded_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [years("billing_itemversion", "starts_at", "ends_at", "anchor_at")]
        indexes = [
            models.Index(
                fields=["subscription"], name="billing_itemversion_current", condition=models.Q(superseded_at__isnull=True)
            )
        ]


class Amendment(models.Model):
    """A change of a subscription from an instant on. Append-only; numbered 1, 2, 3 … per subscription."""

    subscription = reference("Subscription")
    sequence = models.PositiveIntegerField()
    effective_at = models.DateTimeField()
    change = models.JSONField(
        db_comment="one of plan, quantities, price_override, ends_at, paused, trial_end, anchor_at, hold_days,"
        " consolidated_invoicing"
    )
    actor = models.CharField(max_length=128, blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())
    digest = digest_column("the subscription's amendment before it and this row")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subscription", "sequence"], name="billing_amendment_sequence"),
            years("billing_amendment", "effective_at"),
        ]

    @property
    def counts_from(self) -> datetime:
        """When the change begins to count: a moved billing day at a boundary of the new periods."""
        moves_at: str | None = self.change.get("moves_at")
        return datetime.fromisoformat(moves_at) if moves_at else self.effective_at


class Charge(models.Model):
    """A one-off charge: on the next invoice, once. Append-only; numbered 1, 2, 3 … per subscription."""

    subscription = reference("Subscription")
    sequence = models.PositiveIntegerField()
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    description = models.CharField(max_length=500)
    tax_category = models.CharField(max_length=32, default="S")
    tax_rate = models.DecimalField(**MONEY, default=Decimal(0), db_comment="percent")
    tax_class = models.CharField(max_length=32, default="standard", db_default="standard", db_comment="what is sold")
    actor = models.CharField(max_length=128, blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())
    digest = digest_column("the subscription's charge before it and this row")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "sequence"], name="billing_charge_sequence")]


class Activation(models.Model):
    """The payment for which the start of a subscription waits, and what became of the order.

    Invariant: it leaves WAITING once, together with the invoice that is paid or voided: docs/explanation/billing.md.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        STARTED = "started"
        EXPIRED = "expired"
        CANCELED = "canceled"

    subscription = reference("Subscription", db_index=False)
    invoice = reference("Invoice", db_index=False, null=True, db_comment="the first invoice; null: not made, or nothing to pay")
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    expires_at = models.DateTimeField(db_comment="until when the invoice must be paid")
    settled_at = models.DateTimeField(null=True, db_comment="when it stopped waiting")
    settled_by = models.CharField(max_length=128, blank=True, default="", db_comment="who canceled it")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["subscription"], name="billing_activation_once"),
            models.UniqueConstraint(fields=["invoice"], name="billing_activation_invoice"),
            models.CheckConstraint(
                name="billing_activation_settled",
                condition=models.Q(state="waiting", settled_at=None) | (~models.Q(state="waiting") & ~models.Q(settled_at=None)),
            ),
            years("billing_activation", "expires_at"),
        ]
        indexes = [
            models.Index(fields=["expires_at"], name="billing_activation_waiting", condition=models.Q(state="waiting")),
        ]


class SuspendedBilling(models.Model):
    """The reason why the generator does not bill a subscription; later who resumed its billing, and why."""

    subscription = reference("Subscription")
    reason = models.CharField(max_length=64)
    facts = models.JSONField(default=dict)
    suspended_at = models.DateTimeField(db_default=Now())
    run_id = models.UUIDField(null=True)
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.CharField(max_length=128, blank=True, default="")
    resume_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subscription"], name="billing_suspendedbilling_one", condition=models.Q(resumed_at__isnull=True)
            )
        ]


# Plan moves -------------------------------------------------------------------------------------------


class PlanMove(models.Model):
    """The order to move subscriptions from earlier versions of a plan to one version. Append-only."""

    plan = reference("Plan")
    from_plans = models.JSONField(db_comment="billing_plan.id of the versions that subscriptions are moved from")
    subscriptions = models.JSONField(null=True, db_comment="the refs of the only subscriptions to move; null: all")
    effective_at = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [years("billing_planmove", "effective_at")]
        indexes = [models.Index(fields=["plan", "-id"], name="billing_planmove_list")]


class MovedSubscription(models.Model):
    """What a plan move did to a subscription, written with its amendments. Append-only."""

    class Outcome(models.TextChoices):
        MOVED = "moved"
        ENDED = "ended"
        ALREADY_THERE = "already-there"
        ANOTHER_PLAN = "another-plan"

    move = reference("PlanMove", db_index=False)
    subscription = reference("Subscription", db_index=False)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    amendments = models.JSONField(default=list, db_comment="the sequences of the amendments that move it")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["move", "subscription"], name="billing_movedsubscription_once")]
        indexes = [models.Index(fields=["move", "-id"], name="billing_movedsubscription_list")]


class OpenPlanMove(models.Model):
    """A plan move with subscriptions left to look at; the row is deleted when there are none. Work in progress."""

    move = reference("PlanMove", db_index=False)
    since = models.DateTimeField(db_default=Now())
    error = models.CharField(max_length=500, blank=True, default="", db_comment="why the last try of a subscription failed")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["move"], name="billing_openplanmove_once")]
