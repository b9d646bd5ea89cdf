"""Django's models of the tables of API keys. migrations/schema.sql creates them, and its comments explain each column."""

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from ledger.keys.permissions import PERMISSIONS
from ledger.operators.permissions import added_to
from ledger.scopes import SCOPES

SCOPES_SPLIT = {"ledger:spend": ("ledger:refund", "ledger:hold", "ledger:transfer")}
"""Scopes that included others until those became separate scopes: an older key keeps its rights."""

KEY_STATES = ("active", "expired", "revoked")
"""The states of an API key."""


class ApiKey(models.Model):
    """The right to call the REST API, within scopes. The key itself is shown once and never stored."""

    name = models.CharField(max_length=100, unique=True)
    prefix = models.CharField(max_length=8)
    key_digest = models.BinaryField(unique=True)
    scopes = models.JSONField()
    is_before_split = models.BooleanField(default=False, db_default=True)
    holder_id = models.TextField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True, db_default={})
    parent_id = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.TextField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    requests_per_second = models.IntegerField(null=True, blank=True)
    concurrent_requests = models.IntegerField(null=True, blank=True)
    rotated_at = models.DateTimeField(null=True, blank=True)
    former_digest = models.BinaryField(null=True, blank=True, unique=True)
    former_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ledger_api_key"
        default_permissions = ("add", "view")
        permissions = added_to("apikey", PERMISSIONS)
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def actor(self) -> str:
        """The actor of what is done with the key."""
        return f"key:{self.name}"

    @property
    def state(self) -> str:
        """One of KEY_STATES: whether the key still works, and if not, why."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or self.expires_at > timezone.now() else "expired"

    @property
    def granted_scopes(self) -> list[str]:
        """The scopes on record; for a key made before a scope was split also those that it included then."""
        split = SCOPES_SPLIT if self.is_before_split else {}
        granted = {each for scope in self.scopes for each in (scope, *split.get(scope, ()))}
        return [*self.scopes, *(scope for scope in SCOPES if scope in granted and scope not in self.scopes)]

    @property
    def labels_text(self) -> str:
        """Its labels in words; empty for a key without labels."""
        return ", ".join(f"{name}={value}" for name, value in sorted(self.labels.items()))

    @property
    def former_text(self) -> str:
        """The end of the secret that the last rotation replaced, in words."""
        end = self.former_until
        return f"the former secret is valid until {end:%Y-%m-%d %H:%M} UTC" if end else "every earlier secret ended"


class KeyRequest(models.Model):
    """A change of an API key over REST. `confined_to` is as in `BatchColumns`; the answer has no secret. Append-only."""

    pk = models.CompositePrimaryKey("idempotency_key", "confined_to")
    idempotency_key = models.TextField()
    confined_to = models.TextField()
    request_digest = models.BinaryField()
    key_id = models.BigIntegerField()
    answer = models.JSONField()
    recorded_at = models.DateTimeField(db_default=Now())
    actor = models.TextField()
    request_id = models.TextField()

    class Meta:
        db_table = "ledger_key_request"
        default_permissions = ()

    def __str__(self) -> str:
        return self.idempotency_key
