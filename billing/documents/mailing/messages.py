"""The mail of an invoice: its words in the customer's language, and the PDF."""

from decimal import Decimal
from email.utils import formataddr
from typing import Final

from django.core.mail import EmailMessage

from billing.documents.printing.printed import invoice_pdf
from billing.documents.sellers import seller_of
from billing.errors import InvalidTransition
from billing.models import Invoice, Mail
from billing.rating.money import minor_digits
from ledger.typesetting.languages import Language, language_of

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "subject": "Invoice {number} from {seller}",
        "greeting": "Hello {name},",
        "attached": "please find attached our invoice {number} of {issued}.",
        "due": "Please pay {amount} by {due}.",
        "nothing_due": "Nothing is to be paid.",
        "regards": "Kind regards",
    },
    "de": {
        "subject": "Rechnung {number} von {seller}",
        "greeting": "Guten Tag {name},",
        "attached": "anbei erhalten Sie unsere Rechnung {number} vom {issued}.",
        "due": "Bitte zahlen Sie {amount} bis zum {due}.",
        "nothing_due": "Es ist nichts zu zahlen.",
        "regards": "Mit freundlichen Grüßen",
    },
}
"""In every language of `ledger.typesetting.languages`."""


def message_id(mail: Mail, sender: str) -> str:
    """Return the Message-ID of a mail: the same on each try, so that readers recognise a second copy."""
    return f"<{mail.identity}@{sender.rpartition('@')[2]}>"


def invoice_message(mail: Mail) -> EmailMessage:
    """Return the mail of an invoice, with its PDF.

    Raises:
        InvalidTransition: the invoice is void.
        SellerMissing, DocumentTooLong: the document cannot be printed.
    """
    invoice = Invoice.objects.get(pk=mail.invoice_id)
    if invoice.state == Invoice.State.VOID:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="mailed")
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
        "amount": _amount(invoice, language),
    }
    terms = seller.details.get("payment_terms", {}).get(language.code, "")
    paragraphs = [texts["greeting"], texts["attached"], texts["due" if invoice.amount_remaining_minor else "nothing_due"]]
    body = "\n\n".join([*(text.format(**facts) for text in paragraphs), *([terms] if terms else []), texts["regards"]])
    printed = invoice_pdf(invoice.pk)
    message = EmailMessage(
        subject=texts["subject"].format(**facts),
        body=f"{body}\n{facts['seller']}\n",
        from_email=formataddr((facts["seller"], sender)),
        to=[mail.recipient],
        headers={"Message-ID": message_id(mail, sender), "Auto-Submitted": "auto-generated"},
    )
    message.attach(printed.file_name, printed.content, "application/pdf")
    return message


def _amount(invoice: Invoice, language: Language) -> str:
    digits = minor_digits(invoice.currency)
    return f"{language.number(Decimal(invoice.amount_remaining_minor).scaleb(-digits), decimals=digits)} {invoice.currency}"
