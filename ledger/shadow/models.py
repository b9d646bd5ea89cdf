"""Django's models of the tables of the shadow, which migrations/schema.sql creates."""

from django.db import models

from ledger.models import AppendOnly, ExactJSON


class Observation(AppendOnly):
    """What another system of balances decided, beside what the ledger would have decided."""

    id = models.BigAutoField(primary_key=True)
    holder_id = models.TextField("holder")
    credit_type = models.TextField()
    number = models.BigIntegerField()
    idempotency_key = models.TextField(null=True)
    request_digest = models.BinaryField(null=True)
    operation = models.TextField()
    amount = models.BigIntegerField(null=True)
    is_allowed = models.BooleanField()
    balance = models.BigIntegerField()
    of_key = models.TextField(null=True)
    reference = models.TextField(blank=True)
    occurred_at = models.DateTimeField()
    ledger_allows = models.BooleanField(null=True)
    ledger_balance = models.BigIntegerField(null=True)
    refusal = ExactJSON(null=True)
    difference = models.TextField(null=True)
    differences = models.BigIntegerField()
    first_difference = models.BigIntegerField(null=True)
    sequence = models.BigIntegerField(null=True)
    parts = ExactJSON(null=True)
    state = ExactJSON()
    actor = models.TextField()
    request_id = models.TextField()
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_observation"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.holder_id}, {self.credit_type} #{self.number}"


class Promotion(AppendOnly):
    """A holder's credits came into the ledger, or went back."""

    id = models.BigAutoField(primary_key=True)
    holder_id = models.TextField("holder")
    number = models.BigIntegerField()
    is_return = models.BooleanField()
    accounts = ExactJSON()
    reason = models.TextField(blank=True)
    actor = models.TextField()
    request_id = models.TextField()
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_promotion"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.holder_id} #{self.number}"
