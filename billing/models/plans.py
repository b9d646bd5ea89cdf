"""What can be ordered, and at which prices. Written once, never changed."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, digest_column, reference


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

    plan = reference("Plan")
    position = models.PositiveIntegerField()
    key = models.CharField(max_length=64)
    kind = models.CharField(max_length=10, db_comment="recurring or usage")
    timing = models.CharField(max_length=10, db_comment="advance or arrears")
    model = models.CharField(max_length=24)
    meter = models.CharField(max_length=64, blank=True, default="")
    definition = models.JSONField(db_comment="the whole price, as the API takes and gives it")
    digest = digest_column("the plan's row and this one")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plan", "key"], name="billing_price_plan_key")]

    def __str__(self) -> str:
        return self.key
