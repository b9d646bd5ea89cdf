"""Who pays."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY
from billing.permissions import PERMISSIONS
from ledger.permissions import added_to


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
    grace_days = models.PositiveIntegerField(default=0, db_comment="days for which an invoice stays a draft that is rated again")
    holder_id = models.CharField(max_length=64, blank=True, default="", db_comment="whose credits pay; empty: nobody's")
    credit_type = models.CharField(max_length=32, blank=True, default="")
    credit_unit_value = models.DecimalField(**MONEY, null=True, db_comment="money in major units that one credit pays")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions = added_to("customer", PERMISSIONS)
        indexes = [models.Index(fields=["holder_id"], name="billing_customer_holder", condition=~models.Q(holder_id=""))]

    def __str__(self) -> str:
        return self.ref
