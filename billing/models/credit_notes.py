"""Credit notes with their parts, what invoices and refunds took from them, and deposits: the credit of a customer."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, reference
from billing.permissions import PERMISSIONS
from ledger.operators.permissions import added_to


class CreditNote(models.Model):
    """Credit of a customer: an amount that an invoice gives back, with its tax, or money that was received beyond what was due.

    The rest of it pays for the next invoices of the customer in its currency, or is paid out. A note on request is a document
    with a number, frozen with its lines and taxes; a carried note is a line of its invoice, whose credits exceeded its charges; a
    deposit has neither invoice nor number.
    """

    class Kind(models.TextChoices):
        CARRIED = "carried"
        REQUESTED = "requested"
        DEPOSIT = "deposit"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.CARRIED, db_default=Kind.CARRIED)
    series = models.CharField(max_length=96, blank=True, default="", db_default="")
    series_value = models.BigIntegerField(null=True)
    number = models.CharField(max_length=120, null=True, unique=True)
    customer = reference("Customer")
    subscription = reference("Subscription", null=True)
    invoice_id = models.BigIntegerField(null=True, db_comment="the invoice that it arose on, or corrects; null: a deposit")
    currency = models.CharField(max_length=3)
    issue_date = models.DateField(null=True)
    seller_id = models.BigIntegerField(null=True, db_comment="billing_seller.id when it was issued; null: none was recorded")
    subtotal_minor = models.BigIntegerField(null=True, db_comment="before tax; null on a carried one")
    tax_minor = models.BigIntegerField(null=True)
    rounding_minor = models.BigIntegerField(
        default=0, db_default=0, db_comment="what the step of cash payments of its invoice adds; negative: takes off"
    )
    amount_minor = models.BigIntegerField(db_comment="with tax and rounding")
    left_minor = models.BigIntegerField(db_comment="amount_minor less credits_returned_minor and the uses: a trigger keeps it")
    credits_returned = models.BigIntegerField(default=0, db_default=0, db_comment="prepaid credits that went back to the holder")
    credits_returned_minor = models.BigIntegerField(default=0, db_default=0, db_comment="the part of the payment that they were")
    refund_sequence = models.BigIntegerField(null=True, db_comment="the ledger's entry of it")
    reason = models.CharField(max_length=500, blank=True, default="", db_default="")
    reference = models.CharField(
        max_length=200, blank=True, default="", db_default="", db_comment="of a deposit: where the money came from"
    )
    actor = models.CharField(max_length=200, blank=True, default="", db_default="")
    recorded_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True, db_comment="when its invoice was voided, and it with it")
    digest = models.BinaryField(null=True, db_comment="SHA-256, chained within the series: docs/explanation/billing.md")

    class Meta:
        permissions = added_to("creditnote", PERMISSIONS)
        constraints = [
            models.UniqueConstraint(fields=["series", "series_value"], name="billing_creditnote_series"),
            models.CheckConstraint(
                name="billing_creditnote_figures",
                condition=models.Q(
                    kind="carried", number=None, series_value=None, credits_returned_minor=0, invoice_id__isnull=False
                )
                | models.Q(
                    kind="requested",
                    amount_minor=models.F("subtotal_minor") + models.F("tax_minor") + models.F("rounding_minor"),
                    subtotal_minor__gt=0,
                    amount_minor__gte=0,
                    invoice_id__isnull=False,
                    reference="",
                )
                | models.Q(
                    kind="deposit", number=None, series_value=None, credits_returned_minor=0, invoice_id=None, amount_minor__gt=0
                ),
            ),
            models.CheckConstraint(
                name="billing_creditnote_left",
                condition=models.Q(left_minor__gte=0)
                & models.Q(left_minor__lte=models.F("amount_minor") - models.F("credits_returned_minor")),
            ),
            models.CheckConstraint(
                name="billing_creditnote_numbered",
                condition=models.Q(number=None, digest=None) | models.Q(number__isnull=False, digest__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["subscription", "-id"], name="billing_creditnote_list"),
            models.Index(fields=["customer", "-id"], name="billing_creditnote_customer"),
            models.Index(
                fields=["customer", "currency", "id"],
                name="billing_creditnote_open",
                condition=models.Q(released_at=None, left_minor__gt=0),
            ),
            models.Index(fields=["invoice_id"], name="billing_creditnote_invoice"),
        ]

    def __str__(self) -> str:
        return self.number or ("deposit" if self.kind == self.Kind.DEPOSIT else "carried credit")


class CreditNoteLine(models.Model):
    """The amount that a credit note credits of a line of its invoice."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="lines")
    position = models.PositiveIntegerField(db_comment="of the invoice's line")
    description = models.CharField(max_length=500)
    amount_minor = models.BigIntegerField(db_comment="after discounts, before tax; negative where a credit is taken back")
    tax_category = models.CharField(max_length=32)
    tax_rate = models.DecimalField(**MONEY, db_comment="percent, of all its taxes together")
    taxes = models.JSONField(default=list, db_default=[], db_comment="the declared taxes of the invoice's line")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["credit_note", "position"], name="billing_creditnoteline_position")]


class CreditNoteTax(models.Model):
    """What goes back of one tax at one rate with a credit note."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="taxes")
    category = models.CharField(max_length=32)
    rate = models.DecimalField(**MONEY, db_comment="percent")
    code = models.CharField(max_length=64, blank=True, default="", db_default="", db_comment="of a declared tax; empty: prices")
    tax_id = models.BigIntegerField(null=True, db_comment="billing_tax.id of the declared version; null: the rate of prices")
    base_minor = models.BigIntegerField()
    amount_minor = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["credit_note", "category", "rate", "code"], name="billing_creditnotetax_category")
        ]


class CreditRefund(models.Model):
    """Credit of a customer that was paid out in money, or set against an open invoice by a payment. Append-only.

    Its parts are uses of credit notes.
    """

    customer = reference("Customer")
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    reason = models.CharField(max_length=500)
    reference = models.CharField(max_length=200, blank=True, default="", db_default="", db_comment="of the payment, at the bank")
    actor = models.CharField(max_length=200)
    invoice_id = models.BigIntegerField(
        null=True, db_comment="which gave back the unused time of an ended subscription; null: by request"
    )
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="billing_creditrefund_amount", condition=models.Q(amount_minor__gt=0)),
            models.UniqueConstraint(
                fields=["invoice_id"], name="billing_creditrefund_once", condition=models.Q(invoice_id__isnull=False)
            ),
        ]
        indexes = [models.Index(fields=["customer", "-id"], name="billing_creditrefund_list")]


class CreditNoteUse(models.Model):
    """The amount that was taken from a credit note: by a later invoice, by the invoice that it corrects, or by a refund."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.DO_NOTHING, related_name="uses")
    invoice_id = models.BigIntegerField(null=True)
    refund_id = models.BigIntegerField(null=True, db_comment="billing_creditrefund.id; null: an invoice took it")
    amount_minor = models.BigIntegerField()
    recorded_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["credit_note", "invoice_id"], name="billing_creditnoteuse_once", condition=models.Q(released_at=None)
            ),
            models.CheckConstraint(
                name="billing_creditnoteuse_taken_by",
                condition=models.Q(invoice_id__isnull=False, refund_id=None)
                | models.Q(invoice_id=None, refund_id__isnull=False, released_at=None),
            ),
        ]
        indexes = [
            models.Index(fields=["invoice_id"], name="billing_creditnoteuse_invoice"),
            models.Index(fields=["refund_id"], name="billing_creditnoteuse_refund", condition=models.Q(refund_id__isnull=False)),
        ]
