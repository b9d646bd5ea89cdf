"""The ledger's tables as Django sees them.

Rows of entries are written by `ledger.journal` alone, with SQL: the ORM's part here is to read, and to know the
schema.
migrations/schema.sql makes the tables, with their constraints, triggers and views, and says what each column is.
"""

from typing import Any

from django.db import models

SCOPES = ("ledger:read", "ledger:spend", "ledger:grant", "ledger:admin", "billing:read", "billing:write")


class ExactJSON(models.JSONField):
    """A column of PostgreSQL's `json` type, which keeps the text as it was written: digests are computed over it."""

    def db_type(self, connection: Any) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """psycopg has decoded it already."""
        return value


class AppendOnly(models.Model):
    """Refuses what the database refuses too, before it is sent."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("written by ledger.journal alone")

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("append-only")


class EntryColumns(AppendOnly):
    """What an entry has, for the table and for the views that show it."""

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
    """Null where it is `recorded_at`; the views show it always."""

    class Meta:
        db_table = "ledger_entry"
        default_permissions = ()
        verbose_name_plural = "entries"


class EntryListing(EntryColumns):
    """An entry under a key of one column, `holder/credit type/sequence`: Django's admin cannot show a composite one."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_entry_listing"
        default_permissions = ("view",)
        permissions = [
            ("grant_credits", "Can grant credits"),
            ("refund_spend", "Can refund a spend"),
            ("revoke_grant", "Can revoke the rest of a grant"),
            ("release_hold", "Can release a hold"),
        ]
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
        permissions = [
            ("view_locks", "Can view current locks"),
            ("set_overdraft", "Can set an overdraft"),
            ("transfer_credits", "Can transfer credits"),
        ]
        verbose_name = "account"
        verbose_name_plural = "holders with balances"

    def __str__(self) -> str:
        return self.id


class RefusalListing(AppendOnly):
    """A refusal, with its members as columns, under a key of one column, `holder/credit type/sequence`."""

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
    """Who may call the REST API, and for what. The key itself is shown once and never stored."""

    name = models.CharField(max_length=100, unique=True)
    prefix = models.CharField(max_length=8)
    key_digest = models.BinaryField(unique=True)
    scopes = models.JSONField()
    holder_id = models.TextField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ledger_api_key"
        default_permissions = ("add", "view")
        permissions = [("revoke_apikey", "Can revoke API key")]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class RateColumns(models.Model):
    """What a version of a rate has, for the table and for the view that shows it."""

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
    """A version of a rate under a key of one column, `credit type/code/version`."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_rate_listing"
        default_permissions = ("view",)
        permissions = [("publish_rate", "Can publish a rate")]
        verbose_name = "rate"


class BatchColumns(AppendOnly):
    """What a batch is made of; `confined_to` is the holder that the API key is confined to, empty for none."""

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
    """A batch that was answered: what came of each of its operations, so that a retry gets the same."""

    pk = models.CompositePrimaryKey("idempotency_key", "confined_to")

    class Meta:
        db_table = "ledger_batch"
        default_permissions = ()


class BatchListing(BatchColumns):
    """A batch under a key of one column, `confined to/idempotency key`."""

    id = models.TextField(primary_key=True)

    class Meta:
        managed = False
        db_table = "ledger_batch_listing"
        default_permissions = ("view",)
        verbose_name = "batch"
        verbose_name_plural = "batches"
