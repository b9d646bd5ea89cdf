"""Mails, reminders and their holds, for display only: nothing is decided from them."""

from typing import Any

from billing.dunning.models import Mail, Reminder, ReminderHold
from billing.models import Customer
from billing.models.columns import first_of
from billing.reads.pages import page


def mail(mail_id: int) -> Mail:
    """Return the mail of that id, with its customer.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Mail.objects.select_related("customer").filter(pk=mail_id), "mail", mail_id)


def mails(
    *,
    invoice: int | None = None,
    customer: str | None = None,
    state: str | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Mail]:
    """Return mails with documents, the newest first, by keyset on the id. Args: as in `billing.reads.invoices`.

    Raises:
        NotFound: the customer does not exist.
    """
    filters: dict[str, Any] = {"invoice_id": invoice, "state": state}
    if customer is not None:
        filters["customer_id"] = first_of(Customer.objects.filter(ref=customer), "customer", customer).pk
    rows = Mail.objects.select_related("customer").filter(**{name: value for name, value in filters.items() if value is not None})
    return page(rows, before=before, after=after, limit=limit)


def reminders(
    *,
    invoice: int | None = None,
    customer: str | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Reminder]:
    """Return reminders of overdue invoices, the newest first, by keyset on the id. Args: as in `billing.reads.invoices`.

    Raises:
        NotFound: the customer does not exist.
    """
    rows = Reminder.objects.select_related("customer")
    if invoice is not None:
        rows = rows.filter(invoice_id=invoice)
    if customer is not None:
        rows = rows.filter(customer_id=first_of(Customer.objects.filter(ref=customer), "customer", customer).pk)
    return page(rows, before=before, after=after, limit=limit)


def reminder(reminder_id: int) -> Reminder:
    """Return a reminder. Raises: NotFound."""
    return first_of(Reminder.objects.select_related("customer").filter(pk=reminder_id), "reminder", reminder_id)


def reminder_holds(
    *,
    invoice: int | None = None,
    customer: str | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[ReminderHold]:
    """Return holds of reminders, the newest first, also those that have ended. Args: as in `billing.reads.invoices`.

    Raises:
        NotFound: the customer does not exist.
    """
    rows = ReminderHold.objects.select_related("customer")
    if invoice is not None:
        rows = rows.filter(invoice_id=invoice)
    if customer is not None:
        rows = rows.filter(customer_id=first_of(Customer.objects.filter(ref=customer), "customer", customer).pk)
    return page(rows, before=before, after=after, limit=limit)


def reminder_hold(hold_id: int) -> ReminderHold:
    """Return a hold of reminders. Raises: NotFound."""
    return first_of(ReminderHold.objects.select_related("customer").filter(pk=hold_id), "hold of reminders", hold_id)
