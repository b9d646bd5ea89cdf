"""Hands waiting mails to the mail server; any number of workers at the same time.

Note [Once, as far as SMTP allows]
    A mail passes two commits before the server gets it. The first takes it: its next try is moved into the future, so that a
    worker that ends after that leaves it to a later one. The second, when the connection to the server is open, says that it is
    handed over. From then on it is never sent again by itself: if the worker ends, or the connection breaks before the server's
    answer, nobody knows whether the server has it, so its state becomes `unknown`, and a person decides. A second copy would have
    the same Message-ID.
"""

import logging
import smtplib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.core.mail import EmailMessage, get_connection
from django.db import transaction
from django.utils import timezone

from billing.dunning.messages import message_of
from billing.dunning.models import Mail
from billing.errors import InvalidTransition
from billing.reads.pages import walked
from ledger import conf
from ledger.errors import LedgerError

log = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 300
LONGEST_WAIT_S: Final = 6 * 3600
MOST_TRIES: Final = 20
"""About three days; then the mail has failed."""
LOST_AFTER: Final = timedelta(minutes=15)
"""How long after it was handed over a mail without an outcome is unknown: its worker has ended."""
State = Mail.State


@dataclass(slots=True)
class DeliveredMails:
    """The counts of one run."""

    due: int = 0
    sent: int = 0
    failed: int = 0


def deliver_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> DeliveredMails:
    """Try each mail that is due once; skip those that another worker has.

    Args:
        dry_run: count what is due, and write and send nothing.
        stop: called before each mail; True ends the run.
    """
    counts = DeliveredMails()
    if not dry_run:
        _note_lost()
    for mail_id in walked(Mail.objects.filter(state=State.WAITING, due_at__lte=timezone.now())):
        if stop():
            break
        counts.due += 1
        if dry_run:
            continue
        state = deliver(mail_id)
        counts.sent += state == State.SENT
        counts.failed += state not in (State.SENT, None)
    return counts


def deliver(mail_id: int) -> str | None:
    """Try a mail once; return its state after that, or None if it is not due or another worker has it.

    See Note [Once, as far as SMTP allows].
    """
    mail = take(mail_id)
    if mail is None:
        return None
    try:
        message = message_of(mail)
        server = message.connection = get_connection(timeout=conf.SIGNAL_TIMEOUT_SECONDS.value)
        server.open()
    except InvalidTransition as error:
        return _end(mail, State.FAILED, error)
    except (LedgerError, ImportError, OSError, ValueError, smtplib.SMTPException) as error:
        return _end(mail, State.FAILED if mail.tries >= MOST_TRIES else State.WAITING, error)
    try:
        return _send(mail, message) if hand_over(mail) else None
    finally:
        _close(message)


def take(mail_id: int) -> Mail | None:
    """Take a mail that is due, and commit its next try; None if it is not due, or another worker has it."""
    with transaction.atomic():
        rows = Mail.objects.select_for_update(skip_locked=True)
        mail = rows.filter(pk=mail_id, state=State.WAITING, due_at__lte=timezone.now()).exclude(recipient="").first()
        if mail is None:
            return None
        wait_s = min(FIRST_WAIT_S * 2**mail.tries, LONGEST_WAIT_S)
        mail.tries += 1
        mail.due_at = timezone.now() + timedelta(seconds=wait_s)
        mail.save(update_fields=["tries", "due_at"])
    return mail


def hand_over(mail: Mail) -> bool:
    """Commit that the server is about to get the mail; False if another worker has taken it since."""
    mine = Mail.objects.filter(pk=mail.pk, state=State.WAITING, tries=mail.tries)
    return mine.update(state=State.HANDED_OVER, handed_over_at=timezone.now()) == 1


def _send(mail: Mail, message: EmailMessage) -> str:
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, _ = next(iter(error.recipients.values()))
        return _end(mail, State.BOUNCED if code >= 500 else _again(mail), error)
    except smtplib.SMTPResponseException as error:
        return _end(mail, State.FAILED if error.smtp_code >= 500 else _again(mail), error)
    except (OSError, smtplib.SMTPException) as error:
        return _end(mail, State.UNKNOWN, error)
    except ValueError as error:  # the message cannot be written, so the server has not got it
        return _end(mail, State.FAILED, error)
    return _end(mail, State.SENT)


def _again(mail: Mail) -> str:
    return State.FAILED if mail.tries >= MOST_TRIES else State.WAITING


def _end(mail: Mail, state: str, error: Exception | None = None) -> str:
    """Note the outcome of a try."""
    why = "" if error is None else f"{type(error).__name__}: {str(error).strip()}"[:500]
    if error is not None:
        log.info("mail %s: %s", mail.pk, why)
    ended_at = None if state == State.WAITING else timezone.now()
    Mail.objects.filter(pk=mail.pk, tries=mail.tries).update(state=state, error=why, ended_at=ended_at)
    return state


def _close(message: EmailMessage) -> None:
    try:
        if message.connection is not None:
            message.connection.close()
    except (OSError, smtplib.SMTPException) as error:
        log.info("closing the connection to the mail server: %s", error)


def _note_lost() -> None:
    """Note that the outcome of mails is unknown whose worker has ended while it handed them over."""
    lost = Mail.objects.filter(state=State.HANDED_OVER, handed_over_at__lt=timezone.now() - LOST_AFTER)
    lost.update(state=State.UNKNOWN, error="the worker ended while it handed the mail over", ended_at=timezone.now())
