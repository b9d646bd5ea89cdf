"""Bodies, queries and examples of the calls about mails with documents."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from rest_framework import serializers

from billing.api.schemas.request_schemas import OfCustomer
from billing.dunning.holds import NewHoldRelease, NewReminderHold
from billing.dunning.models import Mail
from billing.dunning.reminding import NewReminder
from billing.reads.response_fields import minor, text, time, whole
from ledger.records import Shape
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.queries import ListQuery, QueryInteger
from ledger.values import Choice

HOLD_BODY = Shape(NewReminderHold, without={"actor"})
REMINDER_BODY = Shape(NewReminder, without={"actor"})
RELEASE_BODY = Shape(NewHoldRelease, without={"actor", "hold"})


@dataclass(frozen=True, kw_only=True)
class MailsQuery(ListQuery):
    """Which mails."""

    invoice: Annotated[int | None, QueryInteger("Only mails with this invoice, by its id.", least=1, most=2**63 - 1)] = None
    customer: OfCustomer = None
    state: Annotated[str | None, Choice(Mail.State.values, "Only mails in this state.")] = None


class MailSerializer(ResponseSchema):
    """A mail with a document."""

    id = whole(attrgetter("pk"))
    kind = text()
    invoice = whole(attrgetter("invoice_id"))
    customer = text(attrgetter("customer.ref"))
    recipient = text()
    state = text(
        help_text="waiting, handed_over (a mail server is about to get it), sent, bounced, failed, or unknown: whether the "
        "server has it."
    )
    identity = text(lambda mail: str(mail.identity), help_text="What stands before the @ of the Message-ID.")
    tries = whole()
    error = text(lambda mail: mail.error or None, null=True)
    queued_at = time()
    ended_at = time(null=True)


@dataclass(frozen=True, kw_only=True)
class RemindersQuery(ListQuery):
    """Which reminders."""

    invoice: Annotated[int | None, QueryInteger("Only reminders of this invoice, by its id.", least=1, most=2**63 - 1)] = None
    customer: OfCustomer = None


class ReminderSerializer(ResponseSchema):
    """A reminder of an overdue invoice."""

    id = whole(attrgetter("pk"))
    invoice = whole(attrgetter("invoice_id"))
    customer = text(attrgetter("customer.ref"))
    step = whole()
    remaining_minor = minor(help_text="What was still to be paid.")
    fee_minor = minor()
    suspends = computed(serializers.BooleanField(help_text="Whether it suspended the billing of the subscription."))
    reminded_on = text(lambda reminder: reminder.reminded_on.isoformat())
    actor = text(help_text="billing, or who sent it at once.")
    recorded_at = time()


@dataclass(frozen=True, kw_only=True)
class ReminderHoldsQuery(ListQuery):
    """Which holds of reminders."""

    invoice: Annotated[int | None, QueryInteger("Only holds of this invoice, by its id.", least=1, most=2**63 - 1)] = None
    customer: OfCustomer = None


class ReminderHoldSerializer(ResponseSchema):
    """A hold: no reminders of an invoice, or of any invoice of a customer."""

    id = whole(attrgetter("pk"))
    invoice = whole(attrgetter("invoice_id"), null=True, help_text="null: all invoices of the customer.")
    customer = text(attrgetter("customer.ref"))
    until = text(
        lambda hold: hold.until.isoformat() if hold.until else None, null=True, help_text="The first day with reminders."
    )
    reason = text()
    actor = text()
    recorded_at = time()
    released_at = time(null=True)
    released_by = text(lambda hold: hold.released_by if hold.released_at else None, null=True)
    release_reason = text(lambda hold: hold.release_reason if hold.released_at else None, null=True)


HOLD_EXAMPLE_BODY: dict[str, Any] = {"invoice": 1, "until": "2026-04-30", "reason": "payment plan"}
HOLD: dict[str, Any] = {
    "id": 1, "invoice": 1, "customer": "CUST-7", "until": "2026-04-30", "reason": "payment plan", "actor": "api:billing",
    "recorded_at": "2026-03-10T09:00:00.000000Z", "released_at": None, "released_by": None, "release_reason": None,
}  # fmt: skip
RELEASED_HOLD: dict[str, Any] = {
    **HOLD, "released_at": "2026-03-20T09:00:00.000000Z", "released_by": "api:billing", "release_reason": "the plan was not kept",
}  # fmt: skip
REMINDER: dict[str, Any] = {
    "id": 1, "invoice": 1, "customer": "CUST-7", "step": 2, "remaining_minor": 1680, "fee_minor": 500, "suspends": False,
    "reminded_on": "2026-03-08", "actor": "billing", "recorded_at": "2026-03-08T06:00:00.000000Z",
}  # fmt: skip
MAIL: dict[str, Any] = {
    "id": 1, "kind": "invoice", "invoice": 1, "customer": "CUST-7", "recipient": "ada@example.com", "state": "bounced",
    "identity": "9a1f0c7e-5f0e-4c58-8f2f-0d5b0a3c9e11", "tries": 1, "error": "mailbox full",
    "queued_at": "2026-02-01T00:00:05.000000Z", "ended_at": "2026-02-01T00:01:07.000000Z",
}  # fmt: skip
BOUNCE_BODY: dict[str, Any] = {
    "message_id": "<9a1f0c7e-5f0e-4c58-8f2f-0d5b0a3c9e11@nimbus.example>", "reason": "mailbox full",
}  # fmt: skip
