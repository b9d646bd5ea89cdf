"""Plans and prices, written once and never changed; coupons, the customers who have them, and their discounts on invoices."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, digest_column, reference


class Meter(models.Model):
    """One version of how a meter makes the quantity of an event. Never changed: a new version is a new row."""

    code = models.CharField("ref", max_length=64)
    version = models.PositiveIntegerField()
    expression = models.CharField(
        max_length=500, blank=True, db_comment="computes the quantity from the properties; empty: events send their value"
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["code", "version"], name="billing_meter_code_version")]

    def __str__(self) -> str:
        return f"{self.code} v{self.version}"


class Plan(models.Model):
    """One version of a plan. Never changed: a new version is a new row, and subscriptions keep theirs until amended."""

    code = models.CharField("ref", max_length=64)
    version = models.PositiveIntegerField()
    name = models.CharField(max_length=200)
    names = models.JSONField(default=dict, db_comment="the name in languages in which it differs, by their codes")
    currency = models.CharField(max_length=3, db_comment="ISO 4217")
    interval_unit = models.CharField(max_length=10, db_comment="day, week, month, quarter, half_year or year")
    interval_count = models.PositiveIntegerField()
    minimum = models.DecimalField(**MONEY, null=True, db_comment="least per period, major units, before tax")
    maximum = models.DecimalField(**MONEY, null=True, db_comment="most per period, major units, before tax")
    usage_threshold = models.DecimalField(
        **MONEY, null=True, db_comment="usage of running periods not invoiced yet that makes an invoice, major units"
    )
    tax_behavior = models.CharField(
        max_length=10,
        default="exclusive",
        db_default="exclusive",
        db_comment="exclusive (of tax) or inclusive: all its amounts",
    )
    allowance = models.JSONField(null=True, db_comment="credits granted each period: credit_type, amount, rollover_cap")
    overage = models.JSONField(
        null=True, db_comment="credits used beyond those of the holder: credit_type, price, limit_credits, limit_minor"
    )
    budgets = models.JSONField(null=True, db_comment="budgets of the holder's account: a list of their terms; null: none")
    trial_days = models.PositiveIntegerField(null=True, db_comment="of the trial of an order that names no other; null: none")
    on_sale = models.BooleanField(default=True, db_default=True, db_comment="false: no order takes the plan any more")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["code", "version"], name="billing_plan_code_version")]
        indexes = [models.Index(fields=["on_sale", "id"], name="billing_plan_on_sale")]

    def __str__(self) -> str:
        return f"{self.code} v{self.version}"


class Price(models.Model):
    """One price of one version of a plan, as `billing.rating.prices.pricing` reads it; or as one subscription negotiated it."""

    plan = reference("Plan")
    subscription = reference("Subscription", null=True, db_comment="whose negotiated price it is; null: the plan's own price")
    list_price = reference("Price", null=True, db_index=False, db_comment="the plan's own price that a negotiated price replaces")
    position = models.PositiveIntegerField()
    key = models.CharField(max_length=64)
    kind = models.CharField(max_length=10, db_comment="recurring or usage")
    timing = models.CharField(max_length=10, db_comment="advance or arrears")
    model = models.CharField(max_length=24)
    meter = models.CharField(max_length=64, blank=True, default="")
    definition = models.JSONField(db_comment="the whole price, as the API takes and gives it")
    digest = digest_column("the plan's row and this one")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "key"], name="billing_price_plan_key", condition=models.Q(subscription__isnull=True)
            ),
            models.CheckConstraint(
                name="billing_price_negotiated",
                condition=models.Q(subscription__isnull=True, list_price__isnull=True)
                | models.Q(subscription__isnull=False, list_price__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.key


class Coupon(models.Model):
    """A discount for customers. Never changed."""

    code = models.CharField("ref", max_length=64, unique=True)
    name = models.CharField(max_length=200, blank=True, default="", db_comment="as documents print it; empty: the code in words")
    names = models.JSONField(default=dict, db_comment="the name in languages in which it differs, by their codes")
    kind = models.CharField(max_length=10, db_comment="amount or percentage")
    value = models.DecimalField(**MONEY, db_comment="major units, or percent")
    currency = models.CharField(max_length=3, blank=True, default="")
    duration = models.CharField(max_length=10, db_comment="once, recurring or forever")
    periods = models.PositiveIntegerField(null=True, db_comment="how many periods a recurring one lasts")
    per = models.CharField(
        max_length=12, blank=True, default="", db_comment="whose periods a recurring one counts: subscription or customer"
    )
    prices = models.JSONField(default=list, db_comment="price keys that it is limited to; empty: all")
    plans = models.JSONField(default=list, db_comment="plan codes that it is limited to; empty: all")
    created_at = models.DateTimeField(db_default=Now())
    digest = digest_column("this row")

    def __str__(self) -> str:
        return self.code


class Tax(models.Model):
    """A version of a tax: a rate in a region, for some tax classes, from a day on. Append-only."""

    provider = models.CharField(
        max_length=32, blank=True, default="", db_default="", db_comment="of taxes, that found it; empty: it was declared"
    )
    code = models.CharField(max_length=64)
    name = models.CharField(max_length=60, db_comment="as documents print it")
    names = models.JSONField(default=dict, db_comment="the name in languages in which it differs, by their codes")
    category = models.CharField(max_length=32, db_comment="UNTDID 5305; O is a tax that is not VAT")
    rate = models.DecimalField(**MONEY, db_comment="percent")
    country = models.CharField(max_length=2, db_comment="ISO 3166")
    subdivision = models.CharField(max_length=3, blank=True, default="", db_comment="ISO 3166-2 without the country; empty: all")
    city = models.CharField(max_length=60, blank=True, default="", db_comment="empty: all")
    postal_codes = models.JSONField(default=list, db_comment="how a postal code may begin; empty: all")
    classes = models.JSONField(db_comment="the tax classes that bear it")
    is_compound = models.BooleanField(default=False, db_comment="computed on the net amount and the other taxes")
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, db_comment="the first day without it; null: until the next version")
    recorded_by = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    digest = digest_column("this row")

    class Meta:
        verbose_name_plural = "taxes"
        default_permissions = ("add", "view")
        indexes = [
            models.Index(fields=["code", "-id"], name="billing_tax_code"),
            models.Index(fields=["country"], name="billing_tax_country"),
        ]

    def __str__(self) -> str:
        return f"{self.code} {self.rate.normalize():f} %"


class CustomerCoupon(models.Model):
    """A customer has a coupon, for all subscriptions or for one. Its rest follows from its uses."""

    customer = reference("Customer")
    subscription = reference("Subscription", null=True, db_comment="the only one that uses it; null: each of the customer's")
    coupon = reference("Coupon")
    given_at = models.DateTimeField(db_default=Now())
    taken_off_at = models.DateTimeField(null=True, db_comment="from then on no invoice uses it; null: it may be used")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["customer", "coupon"], name="billing_customercoupon_once", condition=models.Q(subscription=None)
            ),
            models.UniqueConstraint(fields=["subscription", "coupon"], name="billing_customercoupon_of_subscription"),
        ]


class CouponUse(models.Model):
    """The discount of a customer's coupon on an invoice. Released when the invoice is voided or the draft deleted."""

    customer_coupon = reference("CustomerCoupon")
    invoice_id = models.BigIntegerField()
    subscription = reference("Subscription", db_index=False)
    amount_minor = models.BigIntegerField()
    periods = models.JSONField(
        default=list, db_comment="of a recurring one: start of each period, what it took off, what credits made free again"
    )
    counted_from = models.DateTimeField(null=True, db_comment="start of the first period that counts for the subscription")
    counted_until = models.DateTimeField(null=True, db_comment="end of the last")
    currency = models.CharField(max_length=3)
    used_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["customer_coupon", "invoice_id", "subscription"],
                name="billing_couponuse_once",
                condition=models.Q(released_at=None),
            )
        ]
        indexes = [models.Index(fields=["invoice_id"], name="billing_couponuse_invoice")]
