"""Django's models of the tables of approvals and preferences. migrations/schema.sql creates them, and explains each column."""

from django.db import models

from ledger.models import AppendOnly


class Approval(AppendOnly):
    """A form that waits for a second operator, or waited. Only `ledger.staff.approvals` writes it."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.TextField()
    title = models.TextField()
    path = models.TextField()
    query = models.TextField()
    form = models.JSONField()
    stakes = models.JSONField()
    reason = models.TextField()
    requested_by = models.TextField()
    requested_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_approval"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.title


class ApprovalDecision(AppendOnly):
    """What a second operator decided about an approval."""

    approval_id = models.BigIntegerField(primary_key=True)
    decision = models.TextField()
    decided_by = models.TextField()
    reason = models.TextField()
    decided_at = models.DateTimeField()

    class Meta:
        db_table = "ledger_approval_decision"
        default_permissions = ()


class Operator(models.Model):
    """The preferences of an operator for pages."""

    user_id = models.IntegerField(primary_key=True)
    time_zone = models.CharField(max_length=64)

    class Meta:
        db_table = "ledger_operator"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.user_id)
