"""Packs, which are on sale, money for purchases with the credits that it bought, what providers are asked for, and top-ups.

Note [Money first]
    A purchase and a return are facts about money: each is committed when it is known, and never changes. What follows from it in
    the ledger is a second row, written in one transaction with the entries. Without that row, the step is still to be done: then
    `DuePurchase` names the purchase, and a worker tries it again.
"""

from typing import Final

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import reference, years
from billing.payments.permissions import PERMISSIONS
from ledger.operators.permissions import added_to


class Pack(models.Model):
    """One version of a pack of credits. Never changed: a new version is a new row."""

    code = models.CharField("ref", max_length=64)
    version = models.PositiveIntegerField()
    name = models.CharField(max_length=200)
    names = models.JSONField(default=dict, db_comment="the name in languages in which it differs, by their codes")
    credit_type = models.CharField(max_length=32)
    credits = models.BigIntegerField(db_comment="purchased credits, in the smallest unit")
    bonus = models.BigIntegerField(default=0, db_comment="promotional credits beside them")
    currency = models.CharField(max_length=3, db_comment="ISO 4217")
    price_minor = models.BigIntegerField()
    expires_days = models.PositiveIntegerField(null=True, db_comment="days from when the credits are added; null: never")
    applies_to = models.JSONField(null=True, db_comment="what the credits can pay for, as in a grant; null: everything")
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, db_comment="from then on it is not on sale; null: no end")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_pack"
        constraints = [
            models.UniqueConstraint(fields=["code", "version"], name="billing_pack_code_version"),
            models.CheckConstraint(
                name="billing_pack_amounts", condition=models.Q(credits__gte=1, bonus__gte=0, price_minor__gte=1)
            ),
            years("billing_pack", "valid_from", "valid_until"),
        ]

    def __str__(self) -> str:
        return f"{self.code} v{self.version}"


class Purchase(models.Model):
    """Money that came in for a pack. Append-only; see Note [Money first]."""

    provider = models.CharField(max_length=32, db_comment="who took the money; manual: booked by hand")
    payment = models.CharField(max_length=200, db_comment="the provider's id of the payment")
    pack = reference("Pack")
    quantity = models.PositiveIntegerField(default=1, db_default=1, db_comment="how many packs")
    holder_id = models.CharField(max_length=64)
    customer = reference("billing.Customer", null=True, db_index=False)
    credit_type = models.CharField(max_length=32)
    credits = models.BigIntegerField()
    bonus = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    paid_minor = models.BigIntegerField()
    paid_at = models.DateTimeField()
    reference = models.CharField(max_length=200, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_purchase"
        permissions = added_to("purchase", PERMISSIONS)
        constraints = [
            models.UniqueConstraint(fields=["payment", "provider"], name="billing_purchase_payment"),
            models.CheckConstraint(
                name="billing_purchase_amounts", condition=models.Q(credits__gte=1, bonus__gte=0, paid_minor__gte=1)
            ),
            years("billing_purchase", "paid_at"),
        ]
        indexes = [
            models.Index(fields=["holder_id", "-id"], name="billing_purchase_holder"),
            models.Index(
                fields=["customer", "-id"], name="billing_purchase_customer", condition=models.Q(customer__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"purchase {self.pk}"


class PurchaseGrant(models.Model):
    """The credits of a purchase, added to the ledger: without what was returned before. Append-only."""

    purchase = reference("Purchase", db_index=False)
    credits = models.BigIntegerField()
    bonus = models.BigIntegerField()
    entries = models.JSONField(db_comment="the grants: source, sequence and amount of each")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_purchasegrant"
        constraints = [models.UniqueConstraint(fields=["purchase"], name="billing_purchasegrant_once")]


class PurchaseReturn(models.Model):
    """Money of a purchase that went back, or came in again after a dispute. Append-only; see Note [Money first]."""

    class Kind(models.TextChoices):
        REFUND = "refund"
        DISPUTE = "dispute"
        REINSTATED = "reinstated"

    purchase = reference("Purchase", db_index=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    payment = models.CharField(max_length=200, db_comment="the provider's id of the refund or dispute")
    amount_minor = models.BigIntegerField(db_comment="of the money of the purchase")
    loss_minor = models.BigIntegerField(
        default=0, db_default=0, db_comment="what a dispute took beyond the rest of the purchase's money"
    )
    returned_at = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_purchasereturn"
        constraints = [
            models.UniqueConstraint(fields=["purchase", "kind", "payment"], name="billing_purchasereturn_payment"),
            models.CheckConstraint(
                name="billing_purchasereturn_amount",
                condition=models.Q(amount_minor__gte=1, loss_minor__gte=0)
                | (models.Q(amount_minor=0, loss_minor__gte=1) & ~models.Q(kind="refund")),
            ),
            models.CheckConstraint(
                name="billing_purchasereturn_loss", condition=models.Q(loss_minor=0) | ~models.Q(kind="refund")
            ),
            years("billing_purchasereturn", "returned_at"),
        ]

    @property
    def signed_minor(self) -> int:
        """The amount; below 0 if the money came in again."""
        return -self.amount_minor if self.kind == self.Kind.REINSTATED else self.amount_minor

    @property
    def signed_loss_minor(self) -> int:
        """The loss; below 0 if it came in again."""
        return -self.loss_minor if self.kind == self.Kind.REINSTATED else self.loss_minor


class ReturnSettlement(models.Model):
    """What a return did to the credits. All amounts are below 0 where money came in again. Append-only."""

    purchase_return = reference("PurchaseReturn", db_index=False)
    purchase = reference("Purchase", db_index=False)
    share_credits = models.BigIntegerField(db_comment="purchased credits that the returned money had bought")
    share_bonus = models.BigIntegerField(db_comment="promotional credits that came with them")
    taken_credits = models.BigIntegerField(db_comment="of these, what was revoked, or had not been added yet")
    taken_bonus = models.BigIntegerField()
    claim_minor = models.BigIntegerField(db_comment="the money for credits that were gone already")
    entries = models.JSONField(db_comment="revocations or grants: source, sequence and amount of each")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_returnsettlement"
        constraints = [models.UniqueConstraint(fields=["purchase_return"], name="billing_returnsettlement_once")]
        indexes = [models.Index(fields=["purchase", "id"], name="billing_settlement_purchase")]


class DuePurchase(models.Model):
    """A purchase with a step to be done; the row is deleted when all steps are done. Work in progress."""

    purchase = reference("Purchase", db_index=False)
    since = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now(), db_comment="when it is tried next")
    tries = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=500, blank=True, default="", db_comment="why the last try failed")

    class Meta:
        db_table = "billing_duepurchase"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["purchase"], name="billing_duepurchase_once")]
        indexes = [models.Index(fields=["due_at", "id"], name="billing_duepurchase_due")]


# Providers -------------------------------------------------------------------------------------------


OPEN_INTENT: Final = ("requested", "waiting", "processing")
"""The states of a payment intent about which the provider is asked again."""


class PaymentIntent(models.Model):
    """Money that a provider is asked for, for a pack or an invoice. Recorded before the provider is asked."""

    CHANGES = (
        "state", "checkout", "payment", "url", "error", "is_canceled", "returned_minor", "settled_at", "due_at",
        "asked_at", "tries",
    )  # fmt: skip
    """The columns that change; the others are what was asked for."""

    key = models.CharField(max_length=64, unique=True, db_comment="our name for it with the provider")
    provider = models.CharField(max_length=32)
    pack = reference("Pack", null=True)
    quantity = models.PositiveIntegerField(default=1, db_default=1, db_comment="how many packs")
    holder_id = models.CharField(max_length=64, null=True)
    top_up = reference("TopUp", null=True, db_index=False)
    invoice_id = models.BigIntegerField(null=True)
    customer = reference("billing.Customer", null=True)
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    method = models.CharField(max_length=200, blank=True, default="", db_comment="the saved method; empty: a checkout")
    customer_present = models.BooleanField(default=False)
    saves_method = models.BooleanField(default=False)
    return_url = models.CharField(max_length=2000, blank=True, default="")
    reference = models.CharField(max_length=200, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    state = models.CharField(
        max_length=16, default="requested", db_comment="requested, waiting, processing, succeeded, failed or canceled"
    )
    checkout = models.CharField(max_length=200, blank=True, default="", db_comment="the provider's id of the checkout")
    payment = models.CharField(max_length=200, blank=True, default="", db_comment="the provider's id of the payment")
    url = models.CharField(max_length=2000, blank=True, default="", db_comment="where the customer pays or confirms")
    error = models.CharField(max_length=500, blank=True, default="")
    is_canceled = models.BooleanField(default=False, db_comment="the provider is asked to give it up")
    returned_minor = models.BigIntegerField(default=0)
    settled_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_comment="when the provider is asked next; null: nothing is open")
    asked_at = models.DateTimeField(null=True, db_comment="when the provider was asked last")
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "billing_paymentintent"
        permissions = added_to("paymentintent", PERMISSIONS)
        constraints = [
            models.CheckConstraint(
                name="billing_paymentintent_target",
                condition=models.Q(pack__isnull=False, holder_id__isnull=False, invoice_id__isnull=True)
                | models.Q(pack__isnull=True, holder_id__isnull=True, invoice_id__isnull=False),
            ),
            models.CheckConstraint(
                name="billing_paymentintent_amounts", condition=models.Q(amount_minor__gte=1, returned_minor__gte=0)
            ),
            # An invoice is asked for once at a time.
            models.UniqueConstraint(
                name="billing_paymentintent_open", fields=["invoice_id"], condition=models.Q(state__in=OPEN_INTENT)
            ),
            models.UniqueConstraint(
                name="billing_paymentintent_of_top_up", fields=["top_up"], condition=models.Q(state__in=OPEN_INTENT)
            ),
            models.UniqueConstraint(
                name="billing_paymentintent_payment", fields=["provider", "payment"], condition=~models.Q(payment="")
            ),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], name="billing_paymentintent_due", condition=models.Q(due_at__isnull=False)),
            models.Index(
                fields=["provider", "checkout"], name="billing_paymentintent_checkout", condition=~models.Q(checkout="")
            ),
            models.Index(
                fields=["invoice_id", "-id"], name="billing_paymentintent_invoice", condition=models.Q(invoice_id__isnull=False)
            ),
            models.Index(
                fields=["holder_id", "-id"], name="billing_paymentintent_holder", condition=models.Q(holder_id__isnull=False)
            ),
            models.Index(fields=["top_up", "-id"], name="billing_paymentintent_topup", condition=models.Q(top_up__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"payment intent {self.pk}"


class ProviderRefund(models.Model):
    """Money of a payment intent that a provider is asked to send back. Recorded before the provider is asked."""

    key = models.CharField(max_length=64, unique=True, db_comment="our name for it with the provider")
    intent = reference("PaymentIntent")
    amount_minor = models.BigIntegerField()
    reason = models.CharField(max_length=500, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=16, default="requested", db_comment="requested, processing, succeeded or failed")
    refund = models.CharField(max_length=200, blank=True, default="", db_comment="the provider's id of the refund")
    error = models.CharField(max_length=500, blank=True, default="")
    due_at = models.DateTimeField(null=True, db_comment="when the provider is asked next; null: nothing is open")
    asked_at = models.DateTimeField(null=True, db_comment="when the provider was asked last")
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "billing_providerrefund"
        default_permissions = ()
        constraints = [models.CheckConstraint(name="billing_providerrefund_amount", condition=models.Q(amount_minor__gte=1))]
        indexes = [
            models.Index(fields=["due_at", "id"], name="billing_providerrefund_due", condition=models.Q(due_at__isnull=False))
        ]


class ProviderEvent(models.Model):
    """An event that a provider signed: once, however often it comes. It only says that an intent is worth asking about."""

    provider = models.CharField(max_length=32)
    event = models.CharField(max_length=200, db_comment="the provider's id of the event")
    type = models.CharField(max_length=100)
    key = models.CharField(max_length=64, blank=True, default="")
    checkout = models.CharField(max_length=200, blank=True, default="")
    payment = models.CharField(max_length=200, blank=True, default="")
    received_at = models.DateTimeField(db_default=Now())
    handled_at = models.DateTimeField(null=True)
    intent_id = models.BigIntegerField(null=True, db_comment="billing_paymentintent.id; null: the event is about none of ours")
    due_at = models.DateTimeField(null=True, db_default=Now(), db_comment="when it is handled next; null: it was")
    asked_at = models.DateTimeField(null=True, db_comment="when it was handled last")
    tries = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        db_table = "billing_providerevent"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["provider", "event"], name="billing_providerevent_once")]
        indexes = [
            models.Index(fields=["due_at", "id"], name="billing_providerevent_due", condition=models.Q(due_at__isnull=False)),
            models.Index(
                fields=["intent_id", "-id"], name="billing_providerevent_intent", condition=models.Q(intent_id__isnull=False)
            ),
        ]


class ProviderCustomer(models.Model):
    """A customer's id with a provider. Append-only."""

    provider = models.CharField(max_length=32)
    customer = reference("billing.Customer", db_index=False)
    provider_id = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_providercustomer"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["customer", "provider"], name="billing_providercustomer_once")]


# Top-ups -------------------------------------------------------------------------------------------


class TopUp(models.Model):
    """When an account runs low, a saved method is charged for packs. The terms never change: new terms are a new row."""

    holder_id = models.CharField(max_length=64)
    credit_type = models.CharField(max_length=32)
    threshold = models.BigIntegerField(db_comment="topped up when fewer credits are available")
    pack_ref = models.CharField(max_length=64, db_comment="billing_pack.code; the version on sale then is bought")
    packs = models.PositiveIntegerField(null=True, db_comment="bought each time; null: as many as up_to takes")
    up_to = models.BigIntegerField(null=True)
    customer = reference("billing.Customer")
    provider = models.CharField(max_length=32)
    method = models.CharField(max_length=200, db_comment="the saved method, by the provider's id")
    cap_minor = models.BigIntegerField(null=True, db_comment="the most that is charged in a period; null: no limit")
    cap_period = models.CharField(max_length=8, db_comment="day, week or month, in UTC")
    cooldown_seconds = models.PositiveIntegerField(db_comment="between the beginnings of two payments")
    declines = models.PositiveIntegerField(db_comment="the number of declines in a row after which it is paused")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    paused_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True, db_comment="declines before do not count")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "billing_topup"
        verbose_name = "top-up"
        constraints = [
            models.UniqueConstraint(
                name="billing_topup_account", fields=["holder_id", "credit_type"], condition=models.Q(ended_at=None)
            ),
            models.CheckConstraint(
                name="billing_topup_terms",
                condition=models.Q(threshold__gte=1)
                & (models.Q(packs__gte=1, up_to=None) | models.Q(packs=None, up_to__gte=models.F("threshold")))
                & models.Q(declines__gte=1),
            ),
        ]

    def __str__(self) -> str:
        return f"top-up {self.pk}"
