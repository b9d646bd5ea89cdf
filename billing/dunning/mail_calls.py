"""Calls about mails with documents: reading them, bounces, and sending again."""

from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import INVOICES, NO_CUSTOMER, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import INVOICE_PATH
from billing.api.schemas.request_schemas import Nothing
from billing.dunning import reads, schemas
from billing.dunning.errors import MailNotStopped, NotReminded
from billing.dunning.holds import hold_reminders, release_hold
from billing.dunning.outcomes import NewBounce, note_bounce, send_again
from billing.dunning.paths import HOLD_PATH, MAIL_PATH
from billing.dunning.reminding import remind_now
from billing.errors import InvalidTransition
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Mails(WriteEndpoint):
    """Mails with documents."""

    collection = "mails"
    get = list_operation(
        "listMails", "List mails with documents", "Newest first.", tag=INVOICES, path="/v1/mails", query=schemas.MailsQuery,
        shape=schemas.MailSerializer, example=schemas.MAIL, rows=reads.mails, problems=[NO_CUSTOMER],
    )  # fmt: skip


class OneMail(WriteEndpoint):
    """One mail."""

    collection = "mails"

    @operation(
        "readMail", "Read a mail", tag=INVOICES, scope=BILLING_READ, parameters=[MAIL_PATH],
        responses={200: ResponseBody(schemas.MailSerializer, schemas.MAIL, "The mail.")}, problems=[MAIL_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, mail_id: int) -> Response:
        return json_response(schemas.MailSerializer.body(reads.mail(mail_id)))


class Reminders(WriteEndpoint):
    """Reminders of overdue invoices."""

    collection = "reminders"
    location = "/v1/reminders?invoice={invoice}"
    get = list_operation(
        "listReminders", "List reminders of overdue invoices", "Newest first.", tag=INVOICES, path="/v1/reminders",
        query=schemas.RemindersQuery, shape=schemas.ReminderSerializer, example=schemas.REMINDER, rows=reads.reminders,
        problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "sendReminder", "Send a reminder at once",
        "The next reminder of an overdue invoice, also before its day, with the fee and the suspension of its step; the next "
        "step keeps its distance from it. A reminder after the last step has neither. At most one a day.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(schemas.REMINDER_BODY, {"an invoice": {"invoice": 1}}),
        responses={201: ResponseBody(schemas.ReminderSerializer, {**schemas.REMINDER, "actor": "api:billing"}, "The reminder.")},
        problems=[INVOICE_PATH.missing, NotReminded(invoice=1, reason="reminded-today")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            reminder = remind_now(**fields, actor=self.key.actor)
            return 201, schemas.ReminderSerializer.body(reads.reminder(reminder.pk))

        return self.once(request, schemas.REMINDER_BODY, act)


class ReminderHolds(WriteEndpoint):
    """Holds of reminders."""

    collection = "reminder-holds"
    location = "/v1/reminder-holds/{id}"
    get = list_operation(
        "listReminderHolds", "List holds of reminders", "Newest first; also those that have ended.", tag=INVOICES,
        path="/v1/reminder-holds", query=schemas.ReminderHoldsQuery, shape=schemas.ReminderHoldSerializer, example=schemas.HOLD,
        rows=reads.reminder_holds, problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "holdReminders", "Put reminders on hold",
        "No reminder, no fee and no suspension for the invoice, or for all invoices of the customer, until the day or until the "
        "hold is released. Afterwards the next reminder comes at once if its day is over; the others keep their distance.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(schemas.HOLD_BODY, {"a payment plan": schemas.HOLD_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.ReminderHoldSerializer, schemas.HOLD, "The hold.")},
        problems=[INVOICE_PATH.missing, NO_CUSTOMER, InvalidTransition(invoice=1, state="draft", wanted="reminders on hold")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            made = hold_reminders.execute(schemas.HOLD_BODY.make(fields | {"actor": self.key.actor}))
            return 201, schemas.ReminderHoldSerializer.body(reads.reminder_hold(made.pk))

        return self.once(request, schemas.HOLD_BODY, act)


class OneReminderHold(BillingEndpoint):
    """One hold of reminders."""

    @operation(
        "readReminderHold", "Read a hold of reminders", tag=INVOICES, scope=BILLING_READ, parameters=[HOLD_PATH],
        responses={200: ResponseBody(schemas.ReminderHoldSerializer, schemas.HOLD, "The hold.")}, problems=[HOLD_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, hold_id: int) -> Response:
        return json_response(schemas.ReminderHoldSerializer.body(reads.reminder_hold(hold_id)))


class ReminderHoldRelease(WriteEndpoint):
    """The release of a hold."""

    collection = "reminder-hold-releases"
    takes_nothing = True

    @operation(
        "releaseReminderHold", "Release a hold of reminders", "A hold that is released already stays as it is.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[HOLD_PATH],
        takes=RequestBody(schemas.RELEASE_BODY, {"a reason": {"reason": "the plan was not kept"}}),
        responses={200: ResponseBody(schemas.ReminderHoldSerializer, schemas.RELEASED_HOLD, "The hold.")},
        problems=[HOLD_PATH.missing],
    )  # fmt: skip
    def post(self, request: HttpRequest, hold_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            given = fields | {"hold": hold_id, "actor": self.key.actor}
            return 200, schemas.ReminderHoldSerializer.body(release_hold(**given))

        return self.once(request, schemas.RELEASE_BODY, act)


class MailAgain(WriteEndpoint):
    """Sending a mail again."""

    collection = "mails"
    takes_nothing = True

    @operation(
        "sendMailAgain", "Send a mail again",
        "Only a mail that bounced or failed, or whose outcome is unknown: to the present address of its customer.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[MAIL_PATH],
        takes=RequestBody(shape_of(Nothing), {"nothing": {}}),
        responses={200: ResponseBody(schemas.MailSerializer, {**schemas.MAIL, "state": "waiting"}, "The mail, which waits.")},
        problems=[MAIL_PATH.missing, MailNotStopped(mail=1, state="sent")],
    )  # fmt: skip
    def post(self, request: HttpRequest, mail_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, schemas.MailSerializer.body(reads.mail(send_again(mail_id).pk))

        return self.once(request, Nothing, act)


class MailBounces(WriteEndpoint):
    """Mails that came back."""

    collection = "mail-bounces"

    @operation(
        "recordBounce", "Record that a mail bounced",
        "By the Message-ID of the mail that came back. A second bounce of it changes nothing.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(shape_of(NewBounce), {"a bounce": schemas.BOUNCE_BODY}),
        responses={200: ResponseBody(schemas.MailSerializer, schemas.MAIL, "The mail.")},
        problems=[MAIL_PATH.missing],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, schemas.MailSerializer.body(reads.mail(note_bounce(**fields).pk))

        return self.once(request, NewBounce, act)
