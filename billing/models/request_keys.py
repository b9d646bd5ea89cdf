"""The keys of writes over REST."""

from django.db import models
from django.db.models.functions import Now


class RequestKey(models.Model):
    """The Idempotency-Key of a write over REST and its result. Append-only, kept for good."""

    pk = models.CompositePrimaryKey("collection", "idempotency_key")
    collection = models.CharField(max_length=64, db_comment="the resource collection, e.g. plans")
    idempotency_key = models.CharField(max_length=255)
    request_digest = models.BinaryField(db_comment="SHA-256 of route and body")
    status = models.PositiveSmallIntegerField(null=True, db_comment="null: it was refused")
    body = models.JSONField(null=True)
    refusal = models.CharField(
        max_length=64, blank=True, default="", db_comment="code of the error, or what tells it from others with that code"
    )
    facts = models.JSONField(null=True)
    refused_request = models.CharField(max_length=64, blank=True, default="", db_comment="id of the request that was refused")
    recorded_at = models.DateTimeField(db_default=Now())
