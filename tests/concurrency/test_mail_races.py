"""Two workers at one mail, and a worker that is killed at each step: the mail server gets the mail at most once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from aiosmtpd.controller import Controller
from django.conf import settings as project
from django.core import mail as outbox
from django.utils import timezone

from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.sellers import record_seller
from billing.dunning import delivery
from billing.dunning.delivery import deliver_due
from billing.dunning.models import Mail
from billing.testing import CustomerFactory
from tests.billing.documents.issued import SELLER
from tests.concurrency.meetings import LOCKED, meet
from tests.conftest import database_url
from tests.ports import free_port

KILLED = """
import os, signal, sys
import django
django.setup()
from billing.dunning import delivery

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

where, real = sys.argv[1], delivery.hand_over
if where == "before it takes the mail":
    delivery.take = die
elif where == "before it hands the mail over":
    delivery.hand_over = die
elif where == "after it hands the mail over":
    delivery._send = die
elif where == "after the server has it":
    delivery._end = die
delivery.deliver_due()
"""


def queued() -> Mail:
    """A committed mail that waits."""
    record_seller(SELLER | {"mails_invoices": True}, actor="t")
    request = NewOneOffInvoice(lines=[OneOffLine(description="Work", unit_amount=Decimal(100))])
    made = issue_one_off_in(customer_ref=CustomerFactory(email="ada@example.com").ref, request=request)
    return Mail.objects.get(invoice_id=made.pk)


def _taken_without_a_lock(mail_id: int) -> Mail | None:
    return Mail.objects.filter(pk=mail_id, state="waiting").first()


@LOCKED
def test_two_workers_send_a_mail_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    mail = queued()
    outbox.outbox = []
    if not is_locked:
        monkeypatch.setattr(delivery, "take", _taken_without_a_lock)
        monkeypatch.setattr(delivery, "hand_over", lambda mail: True)
    meeting = meet(monkeypatch, (delivery, "hand_over"), is_locked=is_locked)

    def deliver(_: int) -> Any:
        try:
            return delivery.deliver(mail.pk)
        finally:
            meeting.end()  # the one that leaves the mail to the other does not come

    results = run_threads(deliver, 2)
    assert sorted(map(str, results)) == (["None", "sent"] if is_locked else ["sent", "sent"])
    assert len(outbox.outbox) == (1 if is_locked else 2)


def test_a_worker_whose_mail_was_taken_by_another_does_not_send_it(committed_db: None) -> None:
    mail = queued()
    outbox.outbox = []
    first = delivery.take(mail.pk)
    assert first is not None
    assert delivery.take(mail.pk) is None
    Mail.objects.filter(pk=mail.pk).update(due_at=timezone.now())
    assert delivery.deliver(mail.pk) == "sent"
    assert delivery.hand_over(first) is False
    with mock.patch.object(delivery, "take", return_value=first):
        assert delivery.deliver(mail.pk) is None
    assert len(outbox.outbox) == 1


class Server:
    """Takes every mail."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd with each mail."""
        self.taken.append(envelope.content)
        return "250 OK"


@pytest.fixture
def smtp() -> Iterator[tuple[Server, int]]:
    """A mail server on this machine, and its port."""
    made = Server()
    controller = Controller(made, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield made, controller.port
    finally:
        controller.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "taken", "state"),
    [
        ("before it takes the mail", 1, "sent"),
        ("before it hands the mail over", 1, "sent"),
        ("after it hands the mail over", 0, "unknown"),
        ("after the server has it", 1, "unknown"),
    ],
)
def test_a_killed_worker_never_has_a_mail_sent_twice(
    committed_db: None, smtp: tuple[Server, int], settings: Any, where: str, taken: int, state: str
) -> None:
    mail = queued()
    Mail.objects.exclude(pk=mail.pk).delete()
    server, port = smtp
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, where],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests", "EMAIL_URL": f"smtp://127.0.0.1:{port}",
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        },
        cwd=project.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    for _ in range(2):
        long_ago = timezone.now() - delivery.LOST_AFTER - timedelta(seconds=1)
        Mail.objects.filter(pk=mail.pk, state="handed_over").update(handed_over_at=long_ago)
        Mail.objects.filter(pk=mail.pk).update(due_at=timezone.now())
        deliver_due()
    mail.refresh_from_db()
    assert (len(server.taken), mail.state) == (taken, state)
    # A person looks at a mail whose outcome is unknown, and has it sent again if the customer does not have it.
    if (taken, state) == (0, "unknown"):
        Mail.objects.filter(pk=mail.pk).update(state="waiting", due_at=timezone.now())
        deliver_due()
        assert len(server.taken) == 1
