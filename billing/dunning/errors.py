"""What is refused about mails and reminders."""

from typing import Annotated, Final

from ledger.errors import Refused
from ledger.values import Choice, Count, EntryNumber, Text


class MailNotStopped(Refused):
    """Only a mail that bounced or failed, or whose outcome is unknown, can be sent again."""

    code = "mail-not-stopped"
    title = "The mail waits, or was sent"

    mail: Annotated[int, Count("The mail, by its id.")]
    state: Annotated[str, Text("Its state.", most=32)]


WHY_NOT_REMINDED: Final = {
    "draft": "it is a draft",
    "paid": "it is paid",
    "void": "it is void",
    "uncollectible": "it is marked as uncollectible",
    "not-overdue": "it is not overdue",
    "disputed": "the bank took back a payment of it, and the dispute is open",
    "first-payment": "its subscription waits for this first payment",
    "on-hold": "its reminders are on hold",
    "reminded-today": "it was reminded of today",
    "no-address": "its customer has no e-mail address",
    "no-sender": "its seller has no e-mail address",
}
"""The reasons against a reminder at once, in the words that follow "because"."""


class NotReminded(Refused):
    """No reminder of the invoice can be sent at once, for a reason that its state or its customer has."""

    code = "not-reminded"
    title = "The invoice cannot be reminded of now"

    invoice: Annotated[int, EntryNumber("The invoice, by its id.")]
    reason: Annotated[str, Choice(list(WHY_NOT_REMINDED), "Why.")]
