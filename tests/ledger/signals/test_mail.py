"""Signals as mail: a webhook with a `mailto:` URL, through Django's backend and through a mail server that refuses."""

from collections.abc import Callable, Iterator
from email import policy
from email.parser import BytesParser
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.core import mail as outbox
from django.db import connection
from pytest_django.fixtures import Settings

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import Invalid
from ledger.signals import delivery
from ledger.signals.alert_declarations import AlertRequest, set_alert
from ledger.signals.delivery import Summary, deliver
from ledger.signals.models import Webhook
from ledger.signals.webhooks import PingRequest, WebhookRequest, create_webhook, ping
from ledger.testing import unique
from tests.ledger.signals.conftest import work
from tests.ports import free_port

SENDER = "Ledger <ledger@shop.example>"
READER = "finance@shop.example"


@pytest.fixture
def sends_mail(settings: Settings) -> None:
    """The deployment sends mail, into `django.core.mail.outbox`."""
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_MAIL_FROM": SENDER}


def mailed(*types: str) -> int:
    """The id of a webhook that is a mail address."""
    made: dict[str, Any] = create_webhook(WebhookRequest(url=f"mailto:{READER}", types=types or ("entry.recorded",))).body
    return int(made["id"])


def grant(holder: str, amount: int = 10) -> None:
    services.grant(holder_id=holder, amount=amount, idempotency_key=unique("k"))


def attempts() -> list[tuple[str, str]]:
    """Error and response of each attempt, in their order."""
    return fetch_rows(lambda *row: row, "SELECT error, response FROM ledger_delivery_attempt ORDER BY id")


def test_a_signal_is_mailed_with_what_a_webhook_would_get(db: None, sends_mail: None) -> None:
    mailed()
    grant("ada")
    assert work() == Summary(attempts=1, delivered=1)
    [got] = outbox.outbox
    assert (got.from_email, got.to, got.subject) == (SENDER, [READER], "ada [entry.recorded]")
    assert got.body.startswith("An entry was recorded, of any kind except a refusal.\n\n")
    for line in ("holder_id: ada", "kind: grant", "amount: 10", "balance: 10"):
        assert f"\n{line}\n" in got.body
    [signal] = fetch_rows(str, "SELECT id FROM ledger_signal")
    assert got.extra_headers["Message-ID"] == f"<{signal}@shop.example>"
    assert signal in got.body
    assert attempts() == [("", "The mail server has accepted it.")]
    assert work() == Summary()


def test_a_low_balance_is_the_subject(db: None, sends_mail: None) -> None:
    mailed("balance.low", "balance.recovered", "balance.depleted")
    set_alert(AlertRequest(alert="low", below=5))
    grant("ada")
    services.spend(holder_id="ada", amount=6, idempotency_key="s")
    services.spend(holder_id="ada", amount=4, idempotency_key="t")
    grant("ada")
    work()
    assert [each.subject for each in outbox.outbox] == [
        "ada: 4 credits left [balance.low]",
        "ada: nothing left [balance.depleted]",
        "ada: 10 credits again [balance.recovered]",
    ]


def test_a_ping_is_mailed(db: None, sends_mail: None) -> None:
    webhook = mailed()
    ping(PingRequest(webhook=webhook))
    work()
    assert [each.subject for each in outbox.outbox] == [f"{webhook} [webhook.ping]"]


@pytest.mark.parametrize(
    "url",
    [
        "mailto:",
        "mailto:nobody",
        "mailto:a@b.example,c@d.example",
        "mailto:a@b.example?bcc=c@d.example",
        "mailto:a@b.example\nBcc: x@y.example",
    ],
)
def test_what_is_not_one_address_is_refused_and_not_stored(db: None, sends_mail: None, url: str) -> None:
    with pytest.raises(Invalid) as refused:
        create_webhook(WebhookRequest(url=url, types=["entry.recorded"]))
    assert (refused.value.pointer, refused.value.rule) == ("/url", "not-a-url")
    assert not Webhook.objects.exists()


def test_without_a_sender_an_address_is_refused_and_nothing_is_sent(db: None, settings: Settings) -> None:
    with pytest.raises(Invalid, match="LEDGER_SIGNAL_MAIL_FROM is not set"):
        mailed()
    assert not Webhook.objects.exists()
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_MAIL_FROM": SENDER}
    mailed()
    grant("ada")
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_MAIL_FROM": ""}
    assert work() == Summary(attempts=1, failed=1)
    assert attempts() == [("this deployment sends no mail: LEDGER_SIGNAL_MAIL_FROM is not set", "")]
    assert outbox.outbox == []


# A real mail server ----------------------------------------------------------------------------------


class MailServer:
    """Takes mail, or refuses it with the next answer."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.taken: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd with each mail."""
        if self.answers and (answer := self.answers.pop(0)) != "take":
            return answer
        self.taken.append((envelope.rcpt_tos, BytesParser(policy=policy.default).parsebytes(envelope.content)))
        return "250 OK"


@pytest.fixture
def mail_server(settings: Settings, sends_mail: None) -> Iterator[MailServer]:
    """A mail server on this machine, which the deployment uses."""
    server = MailServer()
    controller = Controller(server, hostname="127.0.0.1", port=free_port())
    controller.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", controller.port
    try:
        yield server
    finally:
        controller.stop()


def all_due_now() -> None:
    """Let the time until the next attempts pass."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_delivery_stream SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
        cursor.execute("UPDATE ledger_webhook_pace SET retry_at = NULL")


def test_a_mail_that_is_refused_is_sent_again_before_the_next_one(db: None, mail_server: MailServer) -> None:
    mailed()
    grant("ada", 1)
    grant("ada", 2)
    mail_server.answers.append("451 later")
    assert work() == Summary(attempts=1, failed=1)
    assert mail_server.taken == []
    all_due_now()
    assert deliver() == Summary(attempts=2, delivered=2)
    assert [to for to, _ in mail_server.taken] == [[READER]] * 2
    for amount, (_, mail) in enumerate(mail_server.taken, 1):
        assert f"\namount: {amount}\n" in mail.get_content().replace("\r", "")
    assert mail_server.taken[0][1]["Auto-Submitted"] == "auto-generated"
    errors = [error for error, _ in attempts()]
    assert "451" in errors[0]
    assert errors[1:] == ["", ""]


def test_a_worker_that_ends_before_its_commit_sends_the_same_mail_again(
    db: None, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailed()
    grant("ada")
    record: Callable[..., None] = delivery._record
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "_record", lambda *arguments: (record(*arguments), 1 / 0))
        assert work().broken == 1
    assert attempts() == []
    work()
    identities = {mail["Message-ID"] for _, mail in mail_server.taken}
    assert (len(mail_server.taken), len(identities)) == (2, 1), "readers recognise the copy"


def test_a_mail_server_that_is_away_is_an_attempt_on_record(db: None, mail_server: MailServer, settings: Settings) -> None:
    settings.EMAIL_PORT = 1
    mailed()
    grant("ada")
    assert work() == Summary(attempts=1, failed=1)
    assert "Connection refused" in attempts()[0][0]
