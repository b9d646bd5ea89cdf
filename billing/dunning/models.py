"""Reminders, their holds, and mails with documents."""

from django.db import models
from django.db.models.functions import Now

from billing.dunning.permissions import PERMISSIONS
from billing.models.columns import reference
from billing.models.personal import AboutPeople, impersonal, personal
from ledger.operators.permissions import added_to


class Reminder(models.Model):
    """A reminder of an overdue invoice: one for each step, and those that people sent beyond the last. Append-only."""

    invoice_id = models.BigIntegerField()
    customer = reference("billing.Customer", db_index=False)
    step = models.PositiveIntegerField(db_comment="1, 2, 3 …")
    remaining_minor = models.BigIntegerField(db_comment="what was still to be paid")
    fee_minor = models.BigIntegerField(default=0)
    charge_id = models.BigIntegerField(null=True, db_comment="billing_charge.id of the fee; null: no fee")
    suspends = models.BooleanField(default=False, db_comment="it suspended the billing of the subscription")
    reminded_on = models.DateField(db_comment="the day of the customer, by its test clock")
    actor = models.CharField(max_length=200, db_comment="who sent it: billing, or a person who sent it at once")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_reminder"
        default_permissions = ()
        permissions = added_to("reminder", PERMISSIONS)
        constraints = [
            models.UniqueConstraint(fields=["invoice_id", "step"], name="billing_reminder_once"),
            models.CheckConstraint(
                name="billing_reminder_fee",
                condition=models.Q(fee_minor=0, charge_id=None) | models.Q(fee_minor__gt=0, charge_id__isnull=False),
            ),
            models.CheckConstraint(name="billing_reminder_step", condition=models.Q(step__gte=1, remaining_minor__gte=1)),
        ]
        indexes = [models.Index(fields=["customer", "-id"], name="billing_reminder_customer")]


class ReminderHold(models.Model):
    """Nobody is reminded of an invoice, or of any invoice of a customer, while it lasts."""

    invoice_id = models.BigIntegerField(null=True, db_comment="null: all invoices of the customer")
    customer = reference("billing.Customer", db_index=False)
    until = models.DateField(null=True, db_comment="the first day of the customer with reminders; null: until it is released")
    reason = models.CharField(max_length=500)
    actor = models.CharField(max_length=200)
    recorded_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=200, blank=True, default="")
    release_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        db_table = "billing_reminderhold"
        default_permissions = ()
        permissions = added_to("reminderhold", PERMISSIONS)
        indexes = [
            models.Index(fields=["customer", "-id"], name="billing_reminderhold_customer"),
            models.Index(
                fields=["invoice_id", "-id"], name="billing_reminderhold_invoice", condition=models.Q(invoice_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"hold {self.pk} of reminders"


class Mail(AboutPeople):
    """A document that is mailed to its customer, once. Work in progress, and its outcome."""

    class State(models.TextChoices):
        WAITING = "waiting"
        HANDED_OVER = "handed_over"
        SENT = "sent"
        BOUNCED = "bounced"
        FAILED = "failed"
        UNKNOWN = "unknown"

    kind = impersonal(models.CharField(max_length=16, db_comment="invoice, or reminder_ and the step"))
    invoice_id = impersonal(models.BigIntegerField())
    customer = impersonal(reference("billing.Customer", db_index=False))
    identity = impersonal(models.UUIDField(unique=True, db_comment="in the Message-ID, the same on each try"))
    recipient = personal(models.CharField(max_length=254, db_comment="empty: the customer was erased"), words="address of mails")
    state = impersonal(models.CharField(max_length=16, choices=State.choices, default=State.WAITING, db_default=State.WAITING))
    tries = impersonal(models.PositiveIntegerField(default=0, db_default=0))
    due_at = impersonal(models.DateTimeField(db_default=Now(), db_comment="of a waiting one: when it is tried next"))
    error = impersonal(models.CharField(max_length=500, blank=True, default="", db_default=""))
    queued_at = impersonal(models.DateTimeField(db_default=Now()))
    handed_over_at = impersonal(models.DateTimeField(null=True, db_comment="when a mail server was about to get it"))
    ended_at = impersonal(models.DateTimeField(null=True, db_comment="when it was sent, bounced, or given up"))

    class Meta:
        db_table = "billing_mail"
        permissions = added_to("mail", PERMISSIONS)
        constraints = [models.UniqueConstraint(fields=["kind", "invoice_id"], name="billing_mail_once")]
        indexes = [
            models.Index(fields=["due_at", "id"], name="billing_mail_due", condition=models.Q(state="waiting")),
            models.Index(fields=["handed_over_at"], name="billing_mail_handed", condition=models.Q(state="handed_over")),
            models.Index(fields=["customer", "-id"], name="billing_mail_customer"),
            models.Index(fields=["invoice_id"], name="billing_mail_invoice"),
            models.Index(fields=["state", "-id"], name="billing_mail_state"),
        ]

    def __str__(self) -> str:
        return f"mail {self.pk}"
