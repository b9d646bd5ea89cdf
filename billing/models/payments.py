"""Money that came in for invoices, or credit that was set against them, and what went back."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import reference, years
from billing.permissions import PERMISSIONS
from ledger.operators.permissions import added_to


class InvoicePayment(models.Model):
    """Money that came in for an invoice, or credit of the customer that was set against it. Append-only.

    What exceeds the amount due is a deposit of the customer.
    """

    invoice_id = models.BigIntegerField()
    customer = reference("Customer", db_index=False)
    provider = models.CharField(max_length=32, db_comment="who took the money; manual: booked by hand")
    payment = models.CharField(max_length=200, db_comment="the provider's id of the payment")
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    applied_minor = models.BigIntegerField(db_comment="what of it paid the invoice")
    deposit_id = models.BigIntegerField(null=True, db_comment="billing_creditnote.id of the rest; null: no rest")
    credit_refund_id = models.BigIntegerField(
        null=True, db_comment="billing_creditrefund.id of the customer's credit that paid; null: money came in"
    )
    paid_at = models.DateTimeField()
    reference = models.CharField(max_length=200, blank=True, default="", db_comment="the text of the payment")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions = added_to("invoicepayment", PERMISSIONS)
        constraints = [
            models.UniqueConstraint(fields=["provider", "payment"], name="billing_invoicepayment_payment"),
            models.CheckConstraint(
                name="billing_invoicepayment_amounts",
                condition=models.Q(amount_minor__gte=1, applied_minor__gte=0)
                & (
                    models.Q(applied_minor=models.F("amount_minor"), deposit_id=None)
                    | models.Q(applied_minor__lt=models.F("amount_minor"), deposit_id__isnull=False)
                ),
            ),
            models.CheckConstraint(
                name="billing_invoicepayment_credit",
                condition=models.Q(provider="credit", credit_refund_id__isnull=False, deposit_id=None)
                | (~models.Q(provider="credit") & models.Q(credit_refund_id=None)),
            ),
            models.UniqueConstraint(
                fields=["credit_refund_id"],
                name="billing_invoicepayment_refund",
                condition=models.Q(credit_refund_id__isnull=False),
            ),
            years("billing_invoicepayment", "paid_at"),
        ]
        indexes = [
            models.Index(fields=["invoice_id", "id"], name="billing_invoicepayment_invoice"),
            models.Index(fields=["customer", "-id"], name="billing_invoicepayment_owner"),
        ]

    def __str__(self) -> str:
        return f"payment {self.pk}"


class PaymentReturn(models.Model):
    """Money of an invoice's payment that went back. Append-only.

    It is taken from credit that the money had become, then from the invoice, which is due again. The rest is a claim.
    """

    class Kind(models.TextChoices):
        REFUND = "refund"
        DISPUTE = "dispute"

    invoice_payment = reference("InvoicePayment", db_index=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    payment = models.CharField(max_length=200, db_comment="the provider's id of the refund or dispute")
    amount_minor = models.BigIntegerField()
    credit_minor = models.BigIntegerField(db_comment="taken from the payment's deposit and the invoice's credit notes")
    credit_refund_id = models.BigIntegerField(null=True, db_comment="billing_creditrefund.id of that; null: nothing was taken")
    reopened_minor = models.BigIntegerField(db_comment="by how much the invoice is due again")
    claim_minor = models.BigIntegerField(db_comment="money whose credit had paid other invoices, or was paid out")
    returned_at = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True, default="")
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["invoice_payment", "kind", "payment"], name="billing_paymentreturn_payment"),
            models.CheckConstraint(
                name="billing_paymentreturn_amounts",
                condition=models.Q(
                    amount_minor=models.F("credit_minor") + models.F("reopened_minor") + models.F("claim_minor"),
                    amount_minor__gte=1,
                    credit_minor__gte=0,
                    reopened_minor__gte=0,
                    claim_minor__gte=0,
                )
                & (
                    models.Q(credit_minor=0, credit_refund_id=None) | models.Q(credit_minor__gt=0, credit_refund_id__isnull=False)
                ),
            ),
            years("billing_paymentreturn", "returned_at"),
        ]
