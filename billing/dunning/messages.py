"""The mail of an invoice, as text and as HTML: its words in the customer's language, what is to be paid, and the PDF."""

from decimal import Decimal
from email.utils import formataddr
from typing import Any, Final

from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from billing.documents.pay_links import pay_link_of
from billing.documents.printed_pages import grouped
from billing.documents.printing import invoice_pdf
from billing.documents.sellers import seller_of
from billing.dunning.holds import on_hold
from billing.dunning.models import Mail, Reminder
from billing.errors import InvalidTransition
from billing.models import Invoice
from billing.rating.money import minor_digits
from billing.reads.documents import today_of
from ledger.typesetting.languages import Language, language_of

REMINDER: Final = "reminder_"
"""The kind of the mail of a reminder, before its step."""

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "subject": "Invoice {number} from {seller}",
        "greeting": "Hello {name},",
        "attached": "please find attached our invoice {number} of {issued}.",
        "due": "Please pay {amount} by {due}.",
        "nothing_due": "Nothing is to be paid.",
        "reminder_subject": "Reminder: invoice {number} from {seller} is overdue",
        "overdue": "our invoice {number} of {issued} was due on {due}. {amount} is still due.",
        "please": "Please pay it now. If you have just paid it, please ignore this mail.",
        "fee": "This reminder costs {fee}, which your next invoice has.",
        "suspended": "Your subscription is suspended until the invoice is paid.",
        "pay": "Pay now",
        "pay_here": "Pay here: {url}",
        "invoice": "Invoice",
        "amount_due": "To pay",
        "due_on": "Due",
        "account_holder": "Account holder",
        "reference": "Reference",
        "regards": "Kind regards",
    },
    "de": {
        "subject": "Rechnung {number} von {seller}",
        "greeting": "Guten Tag {name},",
        "attached": "anbei erhalten Sie unsere Rechnung {number} vom {issued}.",
        "due": "Bitte zahlen Sie {amount} bis zum {due}.",
        "nothing_due": "Es ist nichts zu zahlen.",
        "reminder_subject": "Mahnung: Rechnung {number} von {seller} ist überfällig",
        "overdue": "unsere Rechnung {number} vom {issued} war bis zum {due} zahlbar. {amount} sind noch offen.",
        "please": "Bitte zahlen Sie jetzt. Falls Sie gerade gezahlt haben, betrachten Sie diese E-Mail als gegenstandslos.",
        "fee": "Diese Mahnung kostet {fee}; sie steht auf Ihrer nächsten Rechnung.",
        "suspended": "Ihr Abonnement ruht, bis die Rechnung bezahlt ist.",
        "pay": "Jetzt bezahlen",
        "pay_here": "Hier bezahlen: {url}",
        "invoice": "Rechnung",
        "amount_due": "Zu zahlen",
        "due_on": "Zahlbar bis",
        "account_holder": "Kontoinhaber",
        "reference": "Verwendungszweck",
        "regards": "Mit freundlichen Grüßen",
    },
}
"""In every language of `ledger.typesetting.languages`."""


def message_id(mail: Mail, sender: str) -> str:
    """Return the Message-ID of a mail: the same on each try, so that readers recognise a second copy."""
    return f"<{mail.identity}@{sender.rpartition('@')[2]}>"


def message_of(mail: Mail) -> EmailMultiAlternatives:
    """Return the mail of an invoice or reminder, with the PDF of the invoice.

    Raises:
        InvalidTransition: the invoice is void, or nothing is left of it of which to remind, or its reminders are on hold.
        SellerMissing, DocumentTooLong: the document cannot be printed.
    """
    invoice = Invoice.objects.get(pk=mail.invoice_id)
    reminder = None
    if mail.kind != "invoice":
        reminder = Reminder.objects.get(invoice_id=invoice.pk, step=int(mail.kind.removeprefix(REMINDER)))
    if invoice.state == Invoice.State.VOID or (reminder and invoice.state != Invoice.State.OPEN):
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="mailed")
    if reminder and on_hold([invoice], today=today_of):
        raise InvalidTransition(invoice=invoice.pk, state="on hold", wanted="reminded of")
    seller = seller_of(invoice.seller_id)
    assert seller is not None
    language, sender = language_of(invoice.buyer["language"]), seller.details["email"]
    texts = TEXTS[language.code]
    assert invoice.issue_date is not None
    assert invoice.due_date is not None
    facts = {
        "number": invoice.number,
        "seller": seller.details["name"],
        "name": invoice.buyer["name"],
        "issued": language.day(invoice.issue_date),
        "due": language.day(invoice.due_date),
        "amount": _amount(invoice.amount_remaining_minor, invoice.currency, language),
        "fee": "" if reminder is None else _amount(reminder.fee_minor, invoice.currency, language),
    }
    terms = seller.details.get("payment_terms", {}).get(language.code, "")
    names = ["greeting", "attached", "due" if invoice.amount_remaining_minor else "nothing_due"]
    if reminder is not None:
        also = (("fee", reminder.fee_minor), ("suspended", reminder.suspends))
        names = ["greeting", "overdue", "please", *(name for name, holds in also if holds)]
    before = [texts[name].format(**facts) for name in names]
    after = [*([terms] if terms else []), f"{texts['regards']}\n{facts['seller']}"]
    rows = _rows(invoice, seller.details, facts, texts) if invoice.amount_remaining_minor else []
    pay_url = pay_link_of(invoice) or ""
    account = "\n".join(f"{label}: {text}" for label, text in rows)
    payment = [*([texts["pay_here"].format(url=pay_url)] if pay_url else []), *([account] if account else [])]
    subject = texts["subject" if reminder is None else "reminder_subject"].format(**facts)
    context = {
        "language": language.code, "subject": subject, "before": before, "after": after, "rows": rows,
        "pay_url": pay_url, "pay_text": texts["pay"],
    }  # fmt: skip
    printed = invoice_pdf(invoice.pk)
    message = EmailMultiAlternatives(
        subject=subject,
        body="\n\n".join([*before, *payment, *after]) + "\n",
        from_email=formataddr((facts["seller"], sender)),
        to=[mail.recipient],
        headers={"Message-ID": message_id(mail, sender), "Auto-Submitted": "auto-generated"},
    )
    message.attach_alternative(render_to_string("billing/mail.html", context), "text/html")
    message.attach(printed.file_name, printed.content, "application/pdf")
    return message


def _rows(invoice: Invoice, seller: dict[str, str], facts: dict[str, Any], texts: dict[str, str]) -> list[tuple[str, str]]:
    """Return what a customer needs to pay an invoice, as label and text."""
    rows = [
        (texts["invoice"], facts["number"]), (texts["amount_due"], facts["amount"]), (texts["due_on"], facts["due"]),
        (texts["account_holder"], seller["name"] if seller.get("iban") else ""),
        ("IBAN", grouped(seller.get("iban", ""))), ("BIC", seller.get("bic", "") if seller.get("iban") else ""),
        (texts["reference"], facts["number"] if seller.get("iban") else ""),
    ]  # fmt: skip
    return [(label, text) for label, text in rows if text]


def _amount(minor: int, currency: str, language: Language) -> str:
    digits = minor_digits(currency)
    return f"{language.number(Decimal(minor).scaleb(-digits), decimals=digits)} {currency}"
