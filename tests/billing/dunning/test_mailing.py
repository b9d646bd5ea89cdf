"""A finalised invoice is mailed once with its PDF, through a mail server that takes it, refuses it, or goes away."""

import smtplib
from collections.abc import Iterator
from datetime import timedelta
from email import policy
from email.parser import BytesParser
from io import StringIO
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.core import mail as outbox
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from billing.documents.sellers import record_seller
from billing.dunning import delivery
from billing.dunning.delivery import DeliveredMails, deliver_due
from billing.dunning.errors import MailNotStopped
from billing.dunning.models import Mail
from billing.dunning.outcomes import note_bounce, send_again
from billing.errors import NotFound
from billing.models import Customer, Invoice
from billing.orders.customers import change_customer
from billing.orders.erasure import erase_customer
from ledger.errors import Invalid
from tests.billing.admin.conftest import client
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ports import free_port

pytestmark = pytest.mark.django_db

__all__ = ["client"]


class MailServer:
    """Takes mail, or refuses it with the next answer."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.recipient_answers: list[str] = []
        self.taken: list[Any] = []

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        """Called by aiosmtpd with each recipient."""
        if self.recipient_answers:
            return self.recipient_answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd with each mail."""
        if self.answers:
            return self.answers.pop(0)
        self.taken.append((envelope.rcpt_tos, BytesParser(policy=policy.default).parsebytes(envelope.content)))
        return "250 OK"


@pytest.fixture
def server(settings: Settings) -> Iterator[MailServer]:
    """A mail server on this machine, which the deployment uses."""
    made = MailServer()
    controller = Controller(made, hostname="127.0.0.1", port=free_port())
    controller.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", controller.port
    try:
        yield made
    finally:
        controller.stop()


@pytest.fixture(autouse=True)
def _mailing_seller() -> None:
    record_seller(SELLER | {"mails_invoices": True}, actor="t")


def issued(email: str = "ada@example.com", language: str = "en", **options: Any) -> Invoice:
    customer = CustomerFactory(email=email, language=language)
    plan = PlanFactory(prices=[recurring(unit_amount="100.00")])
    [made] = bill(SubscriptionFactory(plan=plan.code, customer=customer.ref), at(1, 1), **options)
    return Invoice.objects.get(pk=made["id"])


def mails() -> list[tuple[str, str, int]]:
    return list(Mail.objects.order_by("pk").values_list("state", "recipient", "tries"))


def all_due_now() -> None:
    Mail.objects.update(due_at=timezone.now())


# Queued ----------------------------------------------------------------------------------------------


def test_a_finalised_invoice_is_queued_once_with_its_finalisation() -> None:
    draft = issued(finalize=False)
    assert mails() == []
    transition(draft.pk, "finalize")
    assert mails() == [("waiting", "ada@example.com", 0)]
    transition(draft.pk, "pay")
    assert len(mails()) == 1


def test_without_an_address_or_a_seller_that_mails_nothing_is_queued() -> None:
    issued(email="")
    record_seller(SELLER | {"mails_invoices": False}, actor="t")
    issued()
    assert mails() == []


@pytest.mark.parametrize(
    "email", ["ada", "ada@", "@x.de", "a b@x.de", "a@x.de\n", "a@x.de, b@x.de", "ä@x.de", f"{'a' * 250}@x.de", "a@x"]
)
def test_a_wrong_address_is_refused(email: str) -> None:
    with pytest.raises(Invalid) as wrong:
        CustomerFactory(email=email)
    assert wrong.value.facts["pointer"] == "/email"
    assert not Customer.objects.exists()


def test_a_seller_that_mails_needs_an_address() -> None:
    with pytest.raises(Invalid) as wrong:
        record_seller(
            SELLER | {"ref": "other", "email": "", "mails_invoices": True, "invoice_prefix": "X", "credit_note_prefix": "Y"},
            actor="t",
        )
    assert wrong.value.facts["pointer"] == "/email"


# Sent ------------------------------------------------------------------------------------------------


def test_an_invoice_is_mailed_once_with_its_pdf(server: MailServer) -> None:
    invoice = issued()
    assert deliver_due(dry_run=True) == DeliveredMails(due=1)
    assert deliver_due() == DeliveredMails(due=1, sent=1)
    assert deliver_due() == DeliveredMails()
    [(recipients, mail)] = server.taken
    [row] = Mail.objects.all()
    assert (recipients, row.state, row.error) == (["ada@example.com"], "sent", "")
    assert mail["Subject"] == f"Invoice {invoice.number} from {SELLER['name']}"
    assert mail["From"].addresses[0].addr_spec == SELLER["email"]
    assert mail["Message-ID"] == f"<{row.identity}@nimbus.example>"
    _, pdf = mail.iter_parts()
    text = mail.get_body(("plain",)).get_content().replace("\xa0", " ")
    assert f"please find attached our invoice {invoice.number}" in text
    assert "Please pay 100.00 EUR by " in text
    assert (pdf.get_content_type(), pdf.get_content()[:5]) == ("application/pdf", b"%PDF-")
    assert str(invoice.number) in pdf.get_filename()


def test_the_words_are_in_the_language_of_the_buyer(server: MailServer) -> None:
    invoice = issued(language="de-AT")
    deliver_due()
    [(_, mail)] = server.taken
    assert mail["Subject"] == f"Rechnung {invoice.number} von {SELLER['name']}"
    assert "Bitte zahlen Sie 100,00 EUR" in mail.get_body(("plain",)).get_content().replace("\xa0", " ")


def test_a_mail_that_is_refused_for_now_is_tried_again_and_its_message_id_stays(server: MailServer) -> None:
    issued()
    server.answers.append("451 later")
    assert deliver_due() == DeliveredMails(due=1, failed=1)
    assert deliver_due() == DeliveredMails(), "it waits"
    [row] = Mail.objects.all()
    assert (row.state, row.tries, "451" in row.error) == ("waiting", 1, True)
    assert timedelta(minutes=4) < row.due_at - timezone.now() <= timedelta(minutes=5)
    all_due_now()
    assert deliver_due() == DeliveredMails(due=1, sent=1)
    assert [mail["Message-ID"] for _, mail in server.taken] == [f"<{row.identity}@nimbus.example>"]


@pytest.mark.slow
@pytest.mark.check
def test_a_mail_server_that_is_away_is_tried_again_until_the_mail_has_failed(server: MailServer, settings: Settings) -> None:
    settings.EMAIL_PORT = 1
    issued()
    for tried in range(1, delivery.MOST_TRIES + 1):
        all_due_now()
        assert deliver_due() == DeliveredMails(due=1, failed=1)
        [row] = Mail.objects.all()
        assert (row.tries, row.state) == (tried, "failed" if tried == delivery.MOST_TRIES else "waiting")
    assert "refused" in row.error
    all_due_now()
    assert deliver_due() == DeliveredMails()


@pytest.mark.parametrize(
    ("answers", "recipients", "state"),
    [(["554 spam"], [], "failed"), ([], ["550 no such user"], "bounced"), ([], ["450 busy"], "waiting")],
)
def test_what_the_server_refuses_for_good_is_not_tried_again(
    server: MailServer, answers: list[str], recipients: list[str], state: str
) -> None:
    issued()
    server.answers, server.recipient_answers = answers, recipients
    deliver_due()
    assert [one for one, *_ in mails()] == [state]
    assert server.taken == []


def test_a_connection_that_breaks_before_the_answer_leaves_the_outcome_unknown(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued()
    with monkeypatch.context() as broken:

        def breaks(*arguments: Any, **named: Any) -> None:
            raise smtplib.SMTPServerDisconnected("Connection unexpectedly closed")

        broken.setattr(smtplib.SMTP, "sendmail", breaks)
        assert deliver_due() == DeliveredMails(due=1, failed=1)
    all_due_now()
    assert (deliver_due(), server.taken) == (DeliveredMails(), [])
    [row] = Mail.objects.all()
    assert row.state == "unknown"
    send_again(row.pk)
    assert deliver_due() == DeliveredMails(due=1, sent=1)


def test_a_message_that_cannot_be_written_has_failed_and_stops_no_other(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued()
    issued()
    first, make = Mail.objects.order_by("pk")[0].pk, delivery.message_of

    def message_of(mail: Mail) -> Any:
        message = make(mail)
        if mail.pk == first:
            message.subject = "Two\nlines"
        return message

    monkeypatch.setattr(delivery, "message_of", message_of)
    assert deliver_due() == DeliveredMails(due=2, sent=1, failed=1)
    assert ([state for state, *_ in mails()], len(server.taken)) == (["failed", "sent"], 1)


def test_a_worker_that_ends_after_the_hand_over_leaves_the_outcome_unknown(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued()
    with monkeypatch.context() as broken:
        broken.setattr(delivery, "_end", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            deliver_due()
    assert ([one for one, *_ in mails()], len(server.taken)) == (["handed_over"], 1)
    all_due_now()
    assert deliver_due() == DeliveredMails()
    Mail.objects.update(handed_over_at=timezone.now() - delivery.LOST_AFTER - timedelta(seconds=1))
    assert deliver_due() == DeliveredMails()
    assert ([one for one, *_ in mails()], len(server.taken)) == (["unknown"], 1)


def test_a_void_invoice_is_not_mailed(server: MailServer) -> None:
    transition(issued().pk, "void")
    assert deliver_due() == DeliveredMails(due=1, failed=1)
    assert ([one for one, *_ in mails()], server.taken) == (["failed"], [])


def test_the_command_says_how_it_went(server: MailServer) -> None:
    issued()
    server.answers.append("451 later")
    shown = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("deliver_mails", stdout=shown)
    assert (ended.value.code, shown.getvalue()) == (3, "1 due, 0 sent, 1 failed.\n")


# Later -----------------------------------------------------------------------------------------------


def sent() -> Mail:
    issued()
    deliver_due()
    return Mail.objects.get()


def test_a_bounce_is_noted_by_the_message_id(server: MailServer) -> None:
    mail = sent()
    for message_id in (f"<{mail.identity}@nimbus.example>", f"{mail.identity}@nimbus.example"):
        assert note_bounce(message_id=message_id, reason="mailbox full").state == "bounced"
    mail.refresh_from_db()
    assert (mail.state, mail.error) == ("bounced", "mailbox full")
    for unknown in ("<9a1f0c7e-5f0e-4c58-8f2f-0d5b0a3c9e11@nimbus.example>", "nonsense", "<@>"):
        with pytest.raises(NotFound):
            note_bounce(message_id=unknown)


def test_a_bounced_mail_is_sent_again_to_the_present_address(server: MailServer) -> None:
    mail = sent()
    with pytest.raises(MailNotStopped):
        send_again(mail.pk)
    note_bounce(message_id=f"<{mail.identity}@nimbus.example>")
    ref = Customer.objects.get(pk=mail.customer_id).ref
    change_customer(ref=ref, email="")
    with pytest.raises(Invalid):
        send_again(mail.pk)
    assert mails() == [("bounced", "ada@example.com", 1)]
    change_customer(ref=ref, email="new@example.com")
    send_again(mail.pk)
    deliver_due()
    assert [to for to, _ in server.taken] == [["ada@example.com"], ["new@example.com"]]


def test_the_address_of_an_erased_customer_is_gone_and_nothing_is_sent(server: MailServer) -> None:
    invoice = issued()
    customer = Customer.objects.get(pk=invoice.customer_id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_itemversion SET ends_at = '2026-01-02' WHERE ends_at IS NULL")
        cursor.execute("UPDATE billing_cursor SET recurring_due_at = NULL, usage_due_at = NULL")
    erase_customer(ref=customer.ref)
    customer.refresh_from_db()
    assert (customer.email, mails()) == ("", [("waiting", "", 0)])
    deliver_due()
    assert server.taken == []


def test_mails_over_rest(api: ApiClient, server: MailServer) -> None:
    mail = sent()
    [shown] = api.get(f"/v1/mails?invoice={mail.invoice_id}&state=sent").json()["results"]
    assert (shown["recipient"], shown["identity"]) == ("ada@example.com", str(mail.identity))
    assert api.post(f"/v1/mails/{mail.pk}/send-again", {}).status_code == 409
    bounced = api.post("/v1/mail-bounces", {"message_id": f"<{mail.identity}@nimbus.example>", "reason": "full"}, key="b")
    assert (bounced.status_code, bounced.json()["state"], bounced.json()["error"]) == (200, "bounced", "full")
    assert api.post("/v1/mail-bounces", {"message_id": "x"}).status_code == 404
    again = api.post(f"/v1/mails/{mail.pk}/send-again", {}, key="a")
    assert (again.json()["state"], api.get(f"/v1/mails/{mail.pk}").json()["state"]) == ("waiting", "waiting")


def test_mails_in_the_admin(client: Any, server: MailServer) -> None:
    mail = sent()
    note_bounce(message_id=f"<{mail.identity}@nimbus.example>", reason="mailbox full")
    for url in (
        "/admin/billing_dunning/mail/",
        f"/admin/billing_dunning/mail/{mail.pk}/change/",
        f"/admin/billing/invoice/{mail.invoice_id}/change/",
    ):
        page = client.get(url).content.decode()
        assert "mailbox full" in page, url
    assert "1 mail has not arrived" in client.get("/admin/").content.decode()
    url = f"/admin/billing_dunning/mail/{mail.pk}/send-again/"
    values = {"idempotency_key": "k-1", "reason": "address corrected"}
    assert [client.post(url, values).status_code for _ in range(2)] == [302, 302]
    assert [one for one, *_ in mails()] == ["waiting"]


def test_other_backends_of_django_send_it_too() -> None:
    issued()
    assert deliver_due() == DeliveredMails(due=1, sent=1)
    assert [one.to for one in outbox.outbox] == [["ada@example.com"]]
