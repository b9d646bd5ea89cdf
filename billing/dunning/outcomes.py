"""What people and mail systems say about mails later: a bounce, or that a mail is to be sent again."""

import re
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from django.utils import timezone

from billing.dunning.errors import MailNotStopped
from billing.dunning.models import Mail
from billing.errors import NotFound
from billing.models import Customer
from billing.models.columns import first_of
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_REASON_CHARACTERS, Text

IDENTITY: Final = re.compile(r"<?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})@[^\s<>]{1,255}>?")
State = Mail.State
STOPPED: Final = {State.BOUNCED, State.FAILED, State.UNKNOWN}


@dataclass(frozen=True, kw_only=True)
class NewBounce(Record):
    """A mail came back."""

    message_id: Annotated[str, Text("The Message-ID of the mail that came back.", most=320, least=1)]
    reason: Annotated[str, Text("Why, as the mail system says.", most=MAX_REASON_CHARACTERS)] = ""


def _note(request: NewBounce) -> Mail:
    """Note that a mail bounced, or raise and write nothing. A second bounce of it changes nothing.

    Raises:
        NotFound: no mail has this Message-ID.
    """
    match = IDENTITY.fullmatch(request.message_id.strip())
    rows = Mail.objects.filter(identity=UUID(match.group(1))) if match else Mail.objects.none()
    with own_or_joined():
        mail = rows.select_for_update().first()
        if mail is None:
            raise NotFound(resource="mail", ref=request.message_id[:64])
        if mail.state != State.BOUNCED:
            mail.state, mail.error, mail.ended_at = State.BOUNCED, request.reason, timezone.now()
            mail.save(update_fields=["state", "error", "ended_at"])
    return mail


note_bounce = UseCase(NewBounce, _note)


def send_again(mail_id: int) -> Mail:
    """Have a mail sent again, to the present address of its customer; or raise and write nothing.

    Raises:
        NotFound: it does not exist.
        MailNotStopped: it waits, is being sent, or was sent.
        Invalid: the customer has no e-mail address.
    """
    with own_or_joined():
        mail = first_of(Mail.objects.select_for_update().filter(pk=mail_id), "mail", mail_id)
        if mail.state not in STOPPED:
            raise MailNotStopped(mail=mail.pk, state=mail.state)
        email = Customer.objects.get(pk=mail.customer_id).email
        if not email:
            raise Invalid(pointer="/email", rule="required", detail="The customer has no e-mail address.")
        now = timezone.now()
        mail.recipient, mail.state, mail.tries, mail.due_at, mail.ended_at = email, State.WAITING, 0, now, None
        mail.error, mail.handed_over_at = "", None
        mail.save()
    return mail
