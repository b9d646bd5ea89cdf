"""Django's models of the tables of signals, which migrations/schema.sql creates."""

from django.db import models
from django.db.models.functions import Now

from ledger.models import AppendOnly, ExactJSON
from ledger.operators.permissions import added_to
from ledger.signals.permissions import PERMISSIONS


class Webhook(models.Model):
    """A destination of signals. Only `ledger.signals` writes it; its secret is shown when it is made or rotated."""

    id = models.BigAutoField(primary_key=True)
    url = models.TextField("URL")
    description = models.TextField(blank=True)
    types = models.JSONField()
    holder_id = models.TextField("holder", null=True)
    secret = models.TextField()
    former_secret = models.TextField(null=True)
    former_until = models.DateTimeField(null=True)
    rotated_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.TextField(blank=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_because = models.TextField(null=True)
    removed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "ledger_webhook"
        default_permissions = ("view",)
        permissions = added_to("webhook", PERMISSIONS)

    def __str__(self) -> str:
        return f"#{self.pk} {self.url}"


class WebhookChange(AppendOnly):
    """What was done with a webhook."""

    id = models.BigAutoField(primary_key=True)
    webhook_id = models.BigIntegerField()
    action = models.TextField()
    idempotency_key = models.TextField(null=True)
    request_digest = models.BinaryField(null=True)
    body = ExactJSON(null=True)
    actor = models.TextField()
    request_id = models.TextField()
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_webhook_change"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.action} #{self.webhook_id}"


class Alert(AppendOnly):
    """An alert as it was declared or ended; the last row of its name and scope counts."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    holder_id = models.TextField("holder", null=True)
    credit_type = models.TextField(null=True)
    is_ended = models.BooleanField()
    below = models.BigIntegerField(null=True)
    below_percent = models.IntegerField(null=True)
    days_left = models.IntegerField(null=True)
    rate_days = models.IntegerField(null=True)
    expiring_days = models.IntegerField(null=True)
    idempotency_key = models.TextField(null=True)
    request_digest = models.BinaryField(null=True)
    reason = models.TextField(blank=True)
    actor = models.TextField()
    request_id = models.TextField()
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_alert"
        default_permissions = ("view",)
        permissions = added_to("alert", PERMISSIONS)

    def __str__(self) -> str:
        return self.name
