"""What of mails and reminders can be exported."""

from typing import Final

from billing.dunning.models import Mail, Reminder, ReminderHold
from billing.exports import THEIRS, export_of

_CUSTOMER: Final = {"customer": THEIRS["customer"]}

EXPORTS: Final = (
    export_of("reminders", "a reminder of an invoice", Reminder, _CUSTOMER, order="e.id", dated="recorded_at"),
    export_of(
        "reminder-holds", "a hold of the reminders of an invoice or a customer", ReminderHold, _CUSTOMER, order="e.id",
        dated="recorded_at",
    ),
    export_of("mails", "a mail with a document", Mail, _CUSTOMER, order="e.id", dated="queued_at"),
)  # fmt: skip
