"""Django's models of the tables of totals, which migrations/schema.sql creates."""

from django.db import models

from ledger.models import AppendOnly, ExactJSON
from ledger.rules.kinds import LINES


class DailyTotal(models.Model):
    """The sums of the entries of a day (UTC) over all accounts of a credit type. Only `ledger.totals` writes it.

    It also has a column for each line of the totals.
    """

    pk = models.CompositePrimaryKey("day", "credit_type")
    day = models.DateField()
    credit_type = models.TextField()
    held_change = models.DecimalField(max_digits=38, decimal_places=0)
    refusals = models.BigIntegerField()
    entries = models.BigIntegerField()
    late_entries = models.BigIntegerField(default=0)

    class Meta:
        db_table = "ledger_daily_total"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.day} {self.credit_type}"


for line in LINES:
    DailyTotal.add_to_class(line, models.DecimalField(max_digits=38, decimal_places=0))


class ExpiringTotal(models.Model):
    """The credits in open lots that expire at an instant, of all accounts of a credit type. Only `ledger.totals` writes it."""

    pk = models.CompositePrimaryKey("expires_us", "credit_type")
    expires_us = models.BigIntegerField()
    credit_type = models.TextField()
    credits = models.DecimalField(max_digits=38, decimal_places=0)

    class Meta:
        db_table = "ledger_expiring_total"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.expires_us} {self.credit_type}"


class TotalState(models.Model):
    """The instant up to which entries are counted; one row."""

    is_only = models.BooleanField(primary_key=True, default=True)
    counted_until = models.DateTimeField()
    entries = models.JSONField(default=dict)

    class Meta:
        db_table = "ledger_total_state"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.counted_until)


class MonthClose(AppendOnly):
    """The sums over all accounts of a credit type at the end of a month."""

    pk = models.CompositePrimaryKey("month", "credit_type")
    month = models.DateField()
    credit_type = models.TextField()
    accounts = models.BigIntegerField()
    entries = models.BigIntegerField()
    balance = models.DecimalField(max_digits=38, decimal_places=0)
    held = models.DecimalField(max_digits=38, decimal_places=0)
    outstanding = ExactJSON()
    paid = ExactJSON()
    ties = ExactJSON()
    costs = ExactJSON()
    closed_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_month_close"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} {self.credit_type}"
