"""What is refused about mails."""

from typing import Annotated

from ledger.errors import Refused
from ledger.values import Count, Text


class MailNotStopped(Refused):
    """Only a mail that bounced or failed, or whose outcome is unknown, can be sent again."""

    code = "mail-not-stopped"
    title = "The mail waits, or was sent"

    mail: Annotated[int, Count("The mail, by its id.")]
    state: Annotated[str, Text("Its state.", most=32)]
