"""The use of services by customers."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, reference


class UsageKey(models.Model):
    """The idempotency key of a usage event; it stays when the event's partition is dropped."""

    idempotency_key = models.CharField(max_length=255, primary_key=True)
    content_digest = models.BinaryField(db_comment="SHA-256 of the event's canonical form: the same key with other content")
    subscription = reference("Subscription", db_index=False)
    occurred_at = models.DateTimeField(db_comment="with the subscription: where the event is found by its key")
    recorded_at = models.DateTimeField(db_default=Now(), db_comment="that of the event: whether it came late")
    meter_version = models.PositiveIntegerField(null=True, db_comment="that of the event: what computed its value")


class UsageEvent(models.Model):
    """One use of a service, or what corrects or cancels another. Append-only, partitioned by `occurred_at`.

    Args:
        corrects: the key of the event that no longer counts, because of this one.
        counts: false: it cancels that event and does not count itself.
        meter_version: the version of the meter whose expression computed the value; null: the value was sent.
    """

    pk = models.CompositePrimaryKey("subscription_id", "meter", "occurred_at", "idempotency_key")
    subscription = reference("Subscription")
    meter = models.CharField(max_length=64)
    occurred_at = models.DateTimeField()
    idempotency_key = models.CharField(max_length=255)
    value = models.DecimalField(**MONEY)
    properties = models.JSONField(default=dict)
    recorded_at = models.DateTimeField(db_default=Now())
    corrects = models.CharField(max_length=255, null=True)
    counts = models.BooleanField(db_default=True)
    meter_version = models.PositiveIntegerField(null=True)

    class Meta:
        managed = False
        db_table = "billing_usageevent"


class DroppedMonth(models.Model):
    """A month whose billed usage events were dropped, with their number: their keys stay."""

    month = models.DateField(primary_key=True, db_comment="its first day")
    events = models.BigIntegerField()
    keys_digest = models.BinaryField(null=True, db_comment="SHA-256 over the month's keys that have no event any more")
    dropped_at = models.DateTimeField(db_default=Now())
