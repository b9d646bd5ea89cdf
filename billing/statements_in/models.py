"""The receipts of bank statements."""

from django.db import models
from django.db.models.functions import Now


class BankReceipt(models.Model):
    """Money that a bank's statement says came in: booked, left for a person, or put aside. What the bank said never changes."""

    class State(models.TextChoices):
        LEFT = "left"
        BOOKED = "booked"
        PUT_ASIDE = "put_aside"

    CHANGES = ("state", "why", "waits_for_person", "invoice_id", "payment_intent_id", "settled_by", "settled_at", "note")
    """The columns that change; the others are what the bank said."""

    name = models.CharField(max_length=64, unique=True, db_comment="our name for it; the payment's id once it is booked")
    account = models.CharField(max_length=64, blank=True, default="", db_comment="the account that the statement is of")
    bank_reference = models.CharField(max_length=200, blank=True, default="", db_comment="the bank's own id of the entry")
    end_to_end_reference = models.CharField(max_length=200, blank=True, default="", db_comment="the id that the payer gave")
    booked_on = models.DateField(db_comment="the day on which the bank booked it")
    value_on = models.DateField(db_comment="the day from which the bank counts it")
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    text = models.CharField(max_length=2000, blank=True, default="", db_comment="what the payer wrote")
    party = models.CharField(max_length=500, blank=True, default="", db_comment="who paid: name, account or both")
    file = models.CharField(max_length=64, db_comment="SHA-256 of the file, in hexadecimal")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=16, default=State.LEFT, choices=State.choices)
    why = models.CharField(max_length=500, blank=True, default="", db_comment="why it is left; empty: it is not")
    waits_for_person = models.BooleanField(default=False, db_comment="no file books it any more")
    invoice_id = models.BigIntegerField(null=True, db_comment="billing_invoice.id that it paid")
    payment_intent_id = models.BigIntegerField(null=True, db_comment="billing_paymentintent.id that it paid")
    settled_by = models.CharField(max_length=200, blank=True, default="", db_comment="who booked it or put it aside")
    settled_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=500, blank=True, default="", db_comment="why it was put aside")

    class Meta:
        db_table = "billing_bankreceipt"
        constraints = [
            models.CheckConstraint(name="billing_bankreceipt_amount", condition=models.Q(amount_minor__gte=1)),
            models.CheckConstraint(
                name="billing_bankreceipt_state",
                condition=(
                    models.Q(state="left", settled_at__isnull=True, invoice_id__isnull=True, payment_intent_id__isnull=True)
                    & ~models.Q(why="")
                )
                | models.Q(state="booked", settled_at__isnull=False, invoice_id__isnull=False, payment_intent_id__isnull=True)
                | models.Q(state="booked", settled_at__isnull=False, invoice_id__isnull=True, payment_intent_id__isnull=False)
                | models.Q(state="put_aside", settled_at__isnull=False, invoice_id__isnull=True, payment_intent_id__isnull=True),
            ),
        ]
        indexes = [
            models.Index(fields=["-id"], name="billing_bankreceipt_left", condition=models.Q(state="left")),
            models.Index(fields=["amount_minor", "currency", "booked_on"], name="billing_bankreceipt_equal"),
        ]

    def __str__(self) -> str:
        return f"receipt {self.pk}"
