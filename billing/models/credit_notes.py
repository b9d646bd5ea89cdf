"""Credit notes with their parts, and the amounts that invoices took from them."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, reference


class CreditNote(models.Model):
    """An amount that an invoice gives back, with its tax: carried, if credits on it exceeded its charges, or on request.

    The rest of it pays for the next invoices of the subscription. A note on request is a document with a number, frozen with its
    lines and taxes; a carried note is a line of its invoice.
    """

    class Kind(models.TextChoices):
        CARRIED = "carried"
        REQUESTED = "requested"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.CARRIED, db_default=Kind.CARRIED)
    series = models.CharField(max_length=96, blank=True, default="", db_default="")
    series_value = models.BigIntegerField(null=True)
    number = models.CharField(max_length=120, null=True, unique=True)
    subscription = reference("Subscription")
    invoice_id = models.BigIntegerField(db_comment="the invoice that it arose on, or corrects")
    currency = models.CharField(max_length=3)
    issue_date = models.DateField(null=True)
    seller_id = models.BigIntegerField(null=True, db_comment="billing_seller.id when it was issued; null: none was recorded")
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
    digest = models.BinaryField(null=True, db_comment="SHA-256, chained within the series: docs/explanation/billing.md")

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
        return self.number or "carried credit"


class CreditNoteLine(models.Model):
    """The amount that a credit note credits of a line of its invoice."""

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
    """The amount that an invoice took from a credit note: a later invoice, or the invoice that the note corrects."""

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
