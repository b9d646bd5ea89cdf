"""Django's models of the ledger's tables and views.

The ORM only reads entries: `ledger.journal` alone writes them, by SQL. migrations/schema.sql creates the tables with their
constraints, triggers and views, and its comments explain each column.
"""

from typing import Any

from django.db import models

from ledger.permissions import added_to

SCOPES = (
    "ledger:read",
    "ledger:spend",
    "ledger:refund",
    "ledger:hold",
    "ledger:transfer",
    "ledger:grant",
    "ledger:admin",
    "billing:read",
    "billing:write",
)

SCOPES_SPLIT = {"ledger:spend": ("ledger:refund", "ledger:hold", "ledger:transfer")}
"""Scopes that included others until those became scopes: a key made before keeps what it could."""


class ExactJSON(models.JSONField):
    """A column of PostgreSQL's type `json`, which keeps the text as it was written: digests are computed over that text."""

    def db_type(self, connection: Any) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return the value unchanged: psycopg has decoded it."""
        return value


class AppendOnly(models.Model):
    """Refuses `save` and `delete`, before anything is sent to the database, which would refuse them too."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("append-only: written by SQL alone")

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("append-only")


class EntryColumns(AppendOnly):
    """The columns of an entry, in its table and in the views that show it."""

    holder_id = models.TextField("holder")
    credit_type = models.TextField()
    sequence = models.BigIntegerField()
    amount = models.BigIntegerField()
    balance = models.BigIntegerField()
    held = models.BigIntegerField()
    refers_to = models.BigIntegerField(null=True)
    refunded_total = models.BigIntegerField(null=True)
    overdraft = models.BigIntegerField(null=True)
    effective_at = models.DateTimeField()
    recorded_at = models.DateTimeField()
    kind = models.TextField()
    lots = ExactJSON()
    drawn = ExactJSON()
    holds = ExactJSON(null=True)
    counterpart = ExactJSON(null=True)
    rating = ExactJSON(null=True)
    refusal = ExactJSON(null=True)
    idempotency_key = models.TextField(null=True)
    request_digest = models.BinaryField(null=True)
    actor = models.TextField()
    reason = models.TextField()
    reference = models.TextField()
    metadata = ExactJSON(null=True)
    digest = models.BinaryField()

    class Meta:
        abstract = True


class Entry(EntryColumns):
    """One movement of credits, or a refusal, and the account's state after it."""

    pk = models.CompositePrimaryKey("holder_id", "credit_type", "sequence")
    effective_at = models.DateTimeField(null=True)  # type: ignore[assignment]
    """Null in the table if it equals `recorded_at`; the views always show a time."""

    class Meta:
        db_table = "ledger_entry"
        default_permissions = ()
        verbose_name_plural = "entries"


class EntryListing(EntryColumns):
    """An entry with a key of one column, `holder/credit type/sequence`, because Django's admin cannot show composite keys."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_entry_listing"
        default_permissions = ("view",)
        permissions = added_to("entrylisting")
        verbose_name = "entry"
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return self.id


class Account(EntryColumns):
    """The last entry of an account: its whole state."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_account"
        default_permissions = ("view",)
        permissions = added_to("account")
        verbose_name = "account"
        verbose_name_plural = "holders with balances"

    def __str__(self) -> str:
        return self.id


class RefusalListing(AppendOnly):
    """A refusal, with its members as columns and a key of one column, `holder/credit type/sequence`."""

    id = models.TextField(primary_key=True)
    holder_id = models.TextField("holder")
    credit_type = models.TextField()
    sequence = models.BigIntegerField()
    recorded_at = models.DateTimeField()
    idempotency_key = models.TextField()
    operation = models.TextField()
    code = models.TextField()
    facts = ExactJSON()
    request = ExactJSON()
    request_id = models.TextField()
    actor = models.TextField()
    balance = models.BigIntegerField()
    held = models.BigIntegerField()
    lots = ExactJSON()

    class Meta:
        managed = False
        db_table = "ledger_refusal_listing"
        default_permissions = ("view",)
        verbose_name = "refusal"
        verbose_name_plural = "refusals"

    def __str__(self) -> str:
        return self.id


class ApiKey(models.Model):
    """The right to call the REST API, within scopes. The key itself is shown once and never stored."""

    name = models.CharField(max_length=100, unique=True)
    prefix = models.CharField(max_length=8)
    key_digest = models.BinaryField(unique=True)
    scopes = models.JSONField()
    is_before_split = models.BooleanField(default=False, db_default=True)
    holder_id = models.TextField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ledger_api_key"
        default_permissions = ("add", "view")
        permissions = added_to("apikey")
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def granted_scopes(self) -> list[str]:
        """The scopes on record; for a key made before a scope was split also those that it included then."""
        split = SCOPES_SPLIT if self.is_before_split else {}
        granted = {each for scope in self.scopes for each in (scope, *split.get(scope, ()))}
        return [*self.scopes, *(scope for scope in SCOPES if scope in granted and scope not in self.scopes)]


class CreditType(models.Model):
    """How a credit type is shown to people. The ledger counts types that have no row here too, and never reads these."""

    code = models.TextField("credit type", primary_key=True, help_text="The type as requests name it, such as usd_cents.")
    name = models.CharField(max_length=60, help_text="What it is called in full, such as US dollars.")
    unit = models.CharField(max_length=16, help_text="What stands behind an amount, such as USD.")
    scale = models.SmallIntegerField(
        "decimals", default=0, db_default=0, help_text="How many decimals an amount has: with 2, 12345 is shown as 123.45."
    )

    class Meta:
        db_table = "ledger_credit_type"
        verbose_name = "credit type"

    def __str__(self) -> str:
        return self.code


class RateColumns(models.Model):
    """The columns of a version of a rate, in its table and in the view that shows it."""

    credit_type = models.TextField()
    code = models.TextField()
    version = models.IntegerField()
    price = models.BigIntegerField()
    per = models.BigIntegerField()
    published_at = models.DateTimeField()
    published_by = models.TextField(blank=True)
    published_because = models.TextField(blank=True)
    idempotency_key = models.TextField(null=True)
    request_digest = models.BinaryField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.code} v{self.version}: {self.price} per {self.per}"


class Rate(RateColumns):
    """A version of a named price of something in credits. Append-only: a new price is a new version."""

    pk = models.CompositePrimaryKey("credit_type", "code", "version")

    class Meta:
        db_table = "ledger_rate"
        default_permissions = ()


class RateListing(RateColumns):
    """A version of a rate with a key of one column, `credit type/code/version`."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_rate_listing"
        default_permissions = ("view",)
        permissions = added_to("ratelisting")
        verbose_name = "rate"


class BatchColumns(AppendOnly):
    """The columns of a batch. `confined_to` is the holder to which the API key is confined, empty if it is not confined."""

    idempotency_key = models.TextField()
    confined_to = models.TextField()
    request_digest = models.BinaryField()
    mode = models.TextField()
    outcomes = ExactJSON()
    recorded_at = models.DateTimeField()
    actor = models.TextField()
    request_id = models.TextField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.idempotency_key


class Batch(BatchColumns):
    """An executed batch with the outcome of each of its operations, so that a retry gets the same outcomes."""

    pk = models.CompositePrimaryKey("idempotency_key", "confined_to")

    class Meta:
        db_table = "ledger_batch"
        default_permissions = ()


class BatchListing(BatchColumns):
    """A batch with a key of one column, `confined to/idempotency key`."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_batch_listing"
        default_permissions = ("view",)
        verbose_name = "batch"
        verbose_name_plural = "batches"


class DailyTotal(models.Model):
    """What the entries of a day (UTC) come to over all accounts of a credit type. Written by `ledger.totals` alone."""

    pk = models.CompositePrimaryKey("day", "credit_type")
    day = models.DateField()
    credit_type = models.TextField()
    granted_purchased = models.DecimalField(max_digits=38, decimal_places=0)
    granted_promotional = models.DecimalField(max_digits=38, decimal_places=0)
    spent = models.DecimalField(max_digits=38, decimal_places=0)
    refunded = models.DecimalField(max_digits=38, decimal_places=0)
    expired = models.DecimalField(max_digits=38, decimal_places=0)
    revoked = models.DecimalField(max_digits=38, decimal_places=0)
    transferred_in = models.DecimalField(max_digits=38, decimal_places=0)
    transferred_out = models.DecimalField(max_digits=38, decimal_places=0)
    held_change = models.DecimalField(max_digits=38, decimal_places=0)
    refusals = models.BigIntegerField()
    entries = models.BigIntegerField()
    late_entries = models.BigIntegerField(default=0)

    class Meta:
        db_table = "ledger_daily_total"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.day} {self.credit_type}"


class ExpiringTotal(models.Model):
    """What open lots that expire at an instant hold, of all accounts of a credit type. Written by `ledger.totals` alone."""

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
    """How far the entries are counted; one row."""

    is_only = models.BooleanField(primary_key=True, default=True)
    counted_until = models.DateTimeField()
    entries = models.JSONField(default=dict)

    class Meta:
        db_table = "ledger_total_state"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.counted_until)


class MonthClose(AppendOnly):
    """What all accounts of a credit type come to at the end of a month."""

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
    closed_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_month_close"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} {self.credit_type}"


class StaffEvent(AppendOnly):
    """What an operator did, or who tried to log in. Written by `ledger.staff_log` alone."""

    id = models.BigAutoField(primary_key=True)
    recorded_at = models.DateTimeField()
    actor = models.TextField()
    address = models.TextField()
    action = models.TextField()
    object = models.TextField()
    details = models.TextField()
    request_id = models.TextField()

    class Meta:
        db_table = "ledger_staff_event"
        default_permissions = ("view",)
        verbose_name = "staff event"
        verbose_name_plural = "staff log"

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"


class Operator(models.Model):
    """How an operator wants pages to be shown."""

    user_id = models.IntegerField(primary_key=True)
    time_zone = models.CharField(max_length=64)

    class Meta:
        db_table = "ledger_operator"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.user_id)
