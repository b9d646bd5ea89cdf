"""Invoices with their parts, and the rows that give them seller, number and state."""

from decimal import Decimal
from typing import Final, NamedTuple

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, digest_column, reference, years
from billing.permissions import PERMISSIONS
from ledger.operators.permissions import added_to


class DocumentKind(NamedTuple):
    """A kind of document that has numbers, a chain and a printed form.

    Args:
        word: its name in refusals, lists and findings and, without the space, the key of its title in printed texts.
        table: the table of the documents; the function of this name and `_digest` computes their digest.
        series: the prefix of their numbers, unless the seller has its own.
        chained_if: the condition for rows with a number and a digest.
        e_invoice_code: its type in e-invoices. Source: UNTDID 1001.
    """

    word: str
    table: str
    series: str
    chained_if: str
    e_invoice_code: str


INVOICE: Final = DocumentKind("invoice", "billing_invoice", "INV", "state <> 'draft'", "380")
CREDIT_NOTE: Final = DocumentKind("credit note", "billing_creditnote", "CN", "number IS NOT NULL", "381")
DOCUMENT_KINDS: Final = (INVOICE, CREDIT_NOTE)


def of_documents(sql: str, *, between: str) -> str:
    """Return the SQL once for each kind of documents; `{table}` and `{chained_if}` stand for the kind's values."""
    return between.join(sql.format(**kind._asdict()) for kind in DOCUMENT_KINDS)


DEFAULT_SELLER: Final = "default"
"""The seller of customers who name no other."""


class NumberSeries(models.Model):
    """The last number of a gapless series of documents. Its row is locked last in the transaction, until COMMIT."""

    name = models.CharField(max_length=96, primary_key=True)
    last_value = models.BigIntegerField(default=0)


class Seller(models.Model):
    """A seller on documents. Append-only: the last row of a ref counts, and each document names the row at its issue."""

    ref = models.CharField(max_length=64, default=DEFAULT_SELLER, db_default=DEFAULT_SELLER)
    details = models.JSONField(db_comment="name, address, VAT id, bank account …: billing/documents/sellers.py")
    recorded_by = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    digest = digest_column("this row")

    class Meta:
        default_permissions = ("add", "view")
        indexes = [models.Index(fields=["ref", "-id"], name="billing_seller_ref")]

    def __str__(self) -> str:
        return str(self.details.get("name", self.pk))


class Invoice(models.Model):
    """A document. A draft can be deleted; a trigger freezes everything but the state once it has a number."""

    class State(models.TextChoices):
        DRAFT = "draft"
        OPEN = "open"
        PAID = "paid"
        VOID = "void"
        UNCOLLECTIBLE = "uncollectible"

    series = models.CharField(max_length=96, default=INVOICE.series)
    series_value = models.BigIntegerField(null=True)
    number = models.CharField(max_length=120, null=True, unique=True)
    subscription = reference("Subscription", null=True)
    subscription_ref = models.CharField(max_length=64, blank=True, db_comment="empty: a one-off or consolidated invoice")
    customer = reference("Customer")
    customer_ref = models.CharField(max_length=64)
    buyer = models.JSONField(default=dict, db_comment="name, address, VAT id and language as they were")
    seller_id = models.BigIntegerField(null=True, db_comment="billing_seller.id when it was finalised; null: none was recorded")
    credit_units = models.JSONField(
        null=True, db_comment="unit and decimals of each credit type on it, as they were when it was finalised; null: a draft"
    )
    currency = models.CharField(max_length=3)
    note = models.CharField(max_length=1000, blank=True, default="", db_default="", db_comment="a text for this document")
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
    rounding_minor = models.BigIntegerField(
        default=0, db_default=0, db_comment="what prices with tax cost beyond net and tax, and the rounding for cash"
    )
    amount_due_minor = models.BigIntegerField()
    amount_paid_minor = models.BigIntegerField(default=0, db_default=0, db_comment="what payments paid, less what went back")
    payment_changes = models.PositiveIntegerField(default=0, db_default=0, db_comment="how often amount_paid_minor changed")
    amendments_seen = models.PositiveIntegerField(default=0, db_comment="the last of the subscription's amendments that it bills")
    run_id = models.UUIDField(null=True)
    grace_ends_at = models.DateTimeField(null=True, db_comment="until when the draft is rated again; null: it has no grace")
    consolidates_on = models.DateField(
        null=True, db_comment="a draft that goes onto the customer's consolidated invoice of this day; null: it does not"
    )
    stays_draft = models.BooleanField(
        default=False, db_default=False, db_comment="with consolidates_on: a person finalises that consolidated invoice"
    )
    created_at = models.DateTimeField(db_default=Now())
    finalized_at = models.DateTimeField(null=True)
    paid_at = models.DateTimeField(null=True)
    voided_at = models.DateTimeField(null=True)
    uncollectible_at = models.DateTimeField(null=True)
    digest = models.BinaryField(null=True, db_comment="SHA-256, chained within the series: docs/explanation/billing.md")

    class Meta:
        permissions = added_to("invoice", PERMISSIONS)
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
                    amount_due_minor=models.F("total_minor")
                    - models.F("credit_notes_minor")
                    - models.F("credits_applied_minor")
                    + models.F("rounding_minor")
                )
                & models.Q(total_minor__gte=0, amount_due_minor__gte=0, credits_applied_minor__gte=0),
            ),
            models.CheckConstraint(
                name="billing_invoice_paid",
                condition=models.Q(amount_paid_minor__gte=0, amount_paid_minor__lte=models.F("amount_due_minor"))
                & (~models.Q(state="paid") | models.Q(amount_paid_minor=models.F("amount_due_minor")))
                & (models.Q(state__in=["open", "paid", "uncollectible"]) | models.Q(amount_paid_minor=0)),
            ),
            models.CheckConstraint(
                name="billing_invoice_consolidates",
                condition=models.Q(consolidates_on=None, stays_draft=False)
                | models.Q(state="draft", consolidates_on__isnull=False, subscription__isnull=False, grace_ends_at=None),
            ),
            years("billing_invoice", "as_of"),
        ]
        indexes = [
            models.Index(fields=["subscription", "-id"], name="billing_invoice_subscription"),
            models.Index(fields=["customer", "-id"], name="billing_invoice_customer"),
            models.Index(fields=["state", "-id"], name="billing_invoice_state"),
            models.Index(
                fields=["issue_date", "id"], name="billing_invoice_issued", condition=models.Q(issue_date__isnull=False)
            ),
            models.Index(
                fields=["due_date", "id"],
                name="billing_invoice_due",
                condition=models.Q(state="open", amount_due_minor__gt=0),
            ),
            models.Index(
                fields=["subscription", "grace_ends_at"],
                name="billing_invoice_in_grace",
                condition=models.Q(state="draft", grace_ends_at__isnull=False),
            ),
            models.Index(
                fields=["customer", "consolidates_on"],
                name="billing_invoice_consolidating",
                condition=models.Q(state="draft", consolidates_on__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"draft for {self.subscription_ref or self.customer_ref}"

    @property
    def amount_remaining_minor(self) -> int:
        """What is still to be paid; 0 if nobody has to pay it."""
        return 0 if self.state == self.State.VOID else self.amount_due_minor - self.amount_paid_minor


class InvoicedSubscription(models.Model):
    """A subscription that a consolidated invoice bills, as the run read it. Frozen with the invoice."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="subscriptions")
    subscription = reference("Subscription", db_index=False)
    subscription_ref = models.CharField(max_length=64)
    as_of = models.DateTimeField(db_comment="up to when its lines bill")
    amendments_seen = models.PositiveIntegerField(db_comment="the last of the subscription's amendments that its lines bill")

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["invoice", "subscription"], name="billing_invoicedsubscription_once"),
            years("billing_invoicedsubscription", "as_of"),
        ]
        indexes = [models.Index(fields=["subscription", "-invoice"], name="billing_invoicedsub_of")]


class Transition(models.Model):
    """A transition of a document's state, or a draft's deletion; who did it, and why.

    Append-only; numbered per subscription, and per customer for invoices without one.
    """

    subscription = reference("Subscription", null=True)
    customer = reference("Customer", null=True, db_comment="of an invoice without a subscription; null: it has one")
    sequence = models.PositiveIntegerField()
    invoice_id = models.BigIntegerField()
    kind = models.CharField(max_length=20, db_comment="finalize, pay, void, mark_uncollectible or delete")
    actor = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    draft = models.JSONField(null=True, db_comment="what the draft was that was deleted; null for every other transition")
    recorded_at = models.DateTimeField(db_default=Now())
    digest = digest_column("the subscription's transition before it and this row")

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["subscription", "sequence"], name="billing_transition_sequence"),
            models.UniqueConstraint(fields=["customer", "sequence"], name="billing_transition_customer_sequence"),
            models.CheckConstraint(
                name="billing_transition_of_one",
                condition=models.Q(subscription=None, customer__isnull=False)
                | models.Q(subscription__isnull=False, customer=None),
            ),
        ]
        indexes = [models.Index(fields=["invoice_id", "id"], name="billing_transition_invoice")]


class Line(models.Model):
    """One line of an invoice, in the printed order."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(
        max_length=20,
        db_comment="recurring, usage, late_usage, credit, charge, minimum, maximum, carried or one_off",
    )
    subscription = reference(
        "Subscription", null=True, db_index=False, db_comment="on a consolidated invoice; null: the invoice's, or none"
    )
    item_id = models.BigIntegerField(null=True)
    price = reference("Price", null=True)
    price_key = models.CharField(max_length=64, blank=True, default="")
    description = models.CharField(max_length=500)
    starts_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    quantity = models.DecimalField(**MONEY)
    unit_amount = models.DecimalField(**MONEY, null=True)
    amount_minor = models.BigIntegerField(db_comment="before discounts and tax; negative on a credit")
    discount_minor = models.BigIntegerField(default=0, db_comment="its share of the discounts")
    tax_category = models.CharField(max_length=32, default="S")
    tax_rate = models.DecimalField(**MONEY, default=Decimal(0), db_comment="percent, of all its taxes together")
    taxes = models.JSONField(default=list, db_default=[], db_comment="the declared taxes that it bears; empty: its rate")
    rating = models.JSONField(default=dict, db_comment="how the amount came about")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["invoice", "position"], name="billing_line_position")]


class InvoiceTax(models.Model):
    """One tax at one rate on an invoice: its base rounded, times the rate, rounded once."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="taxes")
    category = models.CharField(max_length=32)
    rate = models.DecimalField(**MONEY, db_comment="percent")
    code = models.CharField(max_length=64, blank=True, default="", db_default="", db_comment="of a declared tax; empty: prices")
    tax_id = models.BigIntegerField(null=True, db_comment="billing_tax.id of the declared version; null: the rate of prices")
    base_minor = models.BigIntegerField()
    amount_minor = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["invoice", "category", "rate", "code"], name="billing_invoicetax_category")
        ]


class CreditPayment(models.Model):
    """Prepaid credits that paid a part of an invoice, with their ledger entries: the spend, and the refund after voiding."""

    invoice_id = models.BigIntegerField(unique=True)
    holder_id = models.CharField(max_length=64)
    credit_type = models.CharField(max_length=32)
    credits = models.BigIntegerField()
    amount_minor = models.BigIntegerField()
    spend_sequence = models.BigIntegerField()
    refund_sequence = models.BigIntegerField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())
