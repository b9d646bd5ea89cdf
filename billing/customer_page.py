"""Billing's part of the customer's page: subscriptions, documents with their PDFs, what is on sale, and whom to ask."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.db.models import Count, F, QuerySet, Sum

from billing import reads
from billing.additions import customer_payments
from billing.customer_plans import CustomerPlans
from billing.documents.printing import PrintedDocument, credit_note_pdf, invoice_pdf
from billing.documents.sellers import current_seller
from billing.models import CreditNote, Customer, Invoice
from billing.reads.money_words import money
from billing.reads.pages import page
from billing.reads.subscriptions import SubscriptionRow
from ledger.json_values import time_text
from ledger.portal.parts import Cell, Document, IntermediatePage, PageDisplay, PageList
from ledger.services import time_of
from ledger.typesetting.languages import Language
from ledger.typesetting.typeset import IS_INSTALLED

ROWS_SHOWN: Final = 50
INVOICE_NAME, CREDIT_NOTE_NAME = "invoice-", "credit-note-"
MAX_DIGITS: Final = 18

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "subscriptions": "Subscriptions",
        "no_subscriptions": "There is no subscription.",
        "plan": "Plan",
        "state": "State",
        "period": "Current period",
        "change": "Change",
        "incomplete": "Begins when its first invoice is paid",
        "expired": "Not begun",
        "scheduled": "Begins on {day}",
        "active": "Active",
        "ending": "Active until {day}",
        "paused": "Paused",
        "ended": "Ended on {day}",
        "invoices": "Invoices",
        "no_invoices": "There is no invoice yet.",
        "number": "Number",
        "issued": "Date",
        "due": "Due",
        "open": "Open",
        "overdue": "Overdue",
        "paid": "Paid",
        "void": "Void",
        "uncollectible": "Open",
        "overdue_one": "1 invoice is overdue: {sum}.",
        "overdue_many": "{count} invoices are overdue, {sum} in all.",
        "overdue_one_hidden": "1 invoice is overdue.",
        "overdue_many_hidden": "{count} invoices are overdue.",
        "see": "See invoices",
        "see_and_pay": "See and pay",
        "total": "Total",
        "amount_remaining": "Amount due",
        "file": "File",
        "pdf": "{number} as PDF",
        "credit_notes": "Credit notes",
        "no_credit_notes": "There is no credit note.",
        "corrects": "Corrects",
        "payment": "Payment",
        "questions": "Questions? Ask {seller}",
        "contact": "By",
        "address": "Address",
        "email": "E-mail",
        "phone": "Phone",
    },
    "de": {
        "subscriptions": "Abonnements",
        "no_subscriptions": "Es gibt kein Abonnement.",
        "plan": "Tarif",
        "state": "Stand",
        "period": "Laufender Zeitraum",
        "change": "Änderung",
        "incomplete": "Beginnt, wenn die erste Rechnung bezahlt ist",
        "expired": "Nicht begonnen",
        "scheduled": "Beginnt am {day}",
        "active": "Aktiv",
        "ending": "Aktiv bis {day}",
        "paused": "Pausiert",
        "ended": "Beendet am {day}",
        "invoices": "Rechnungen",
        "no_invoices": "Es gibt noch keine Rechnung.",
        "number": "Nummer",
        "issued": "Datum",
        "due": "Zahlbar bis",
        "open": "Offen",
        "overdue": "Überfällig",
        "paid": "Bezahlt",
        "void": "Storniert",
        "uncollectible": "Offen",
        "overdue_one": "1 Rechnung ist überfällig: {sum}.",
        "overdue_many": "{count} Rechnungen sind überfällig, zusammen {sum}.",
        "overdue_one_hidden": "1 Rechnung ist überfällig.",
        "overdue_many_hidden": "{count} Rechnungen sind überfällig.",
        "see": "Rechnungen ansehen",
        "see_and_pay": "Ansehen und bezahlen",
        "total": "Summe",
        "amount_remaining": "Noch zu zahlen",
        "file": "Datei",
        "pdf": "{number} als PDF",
        "credit_notes": "Rechnungskorrekturen",
        "no_credit_notes": "Es gibt keine Rechnungskorrektur.",
        "corrects": "Korrigiert",
        "payment": "Zahlung",
        "questions": "Fragen? Wenden Sie sich an {seller}",
        "contact": "Per",
        "address": "Adresse",
        "email": "E-Mail",
        "phone": "Telefon",
    },
}


def find(holder_id: str) -> "CustomerOfHolder | None":
    """Return the only customer with this holder; None otherwise: several customers must not see each other's invoices."""
    found = list(Customer.objects.filter(holder_id=holder_id).exclude(holder_id="").order_by("pk")[:2])
    return CustomerOfHolder(found[0]) if len(found) == 1 else None


class CustomerOfHolder:
    """See `ledger.portal.parts.PortalCustomer`."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._payments = customer_payments(customer)
        self._plans = CustomerPlans(customer)
        self.name = customer.name
        self.language = customer.language
        self.time_zone = customer.time_zone

    def sections(self, shown: PageDisplay) -> Sequence[PageList]:
        """Return invoices, what is on sale, subscriptions and credit notes, each list with the newest first, and whom to ask.

        Drafts are no invoices yet.
        """
        now = time_of(self._customer.holder_id)
        payments = self._payments if shown.allows_payments else None
        subscriptions = reads.subscriptions(
            customer=self._customer.ref, before=shown.before.get("subscriptions"), limit=ROWS_SHOWN + 1
        )
        names = reads.plan_names((row.plan_id for row in subscriptions), shown.language.code)
        invoices = page(self._invoices(), before=shown.before.get("invoices"), limit=ROWS_SHOWN + 1)
        notes = page(self._credit_notes(), before=shown.before.get("credit_notes"), limit=ROWS_SHOWN + 1)
        corrected = dict(Invoice.objects.filter(pk__in={note.invoice_id for note in notes}).values_list("pk", "number"))
        today = now.astimezone(ZoneInfo(self.time_zone)).date()
        return [
            _continue_section(
                replace(
                    _invoice_list(
                        [_invoice(row, shown, today) for row in invoices[:ROWS_SHOWN]],
                        [payments.pay_cell(row, shown) for row in invoices[:ROWS_SHOWN]] if payments else None,
                        shown,
                    ),
                    notice=self._overdue_notice(shown, today),
                    notice_link=TEXTS[shown.language.code]["see_and_pay" if payments else "see"],
                ),
                [row.pk for row in invoices],
            ),
            *(payments.sections(shown) if payments else ()),
            _continue_section(
                _subscriptions(
                    [_subscription(row, now, names[row.plan_id]) for row in subscriptions[:ROWS_SHOWN]],
                    [self._plans.change_cell(row, now, shown) for row in subscriptions[:ROWS_SHOWN]],
                    shown,
                    ZoneInfo(self.time_zone),
                ),
                [row.id for row in subscriptions],
            ),
            _continue_section(
                _credit_note_list(
                    [_credit_note(row, corrected.get(row.invoice_id or 0), shown) for row in notes[:ROWS_SHOWN]], shown
                ),
                [row.pk for row in notes],
            ),
            *self._contact(shown),
        ]

    def _overdue_notice(self, shown: PageDisplay, today: date) -> str:
        """Return how many invoices are overdue, and how much they are in each currency; "" for none."""
        overdue = self._invoices().filter(state=Invoice.State.OPEN, due_date__lt=today)
        remaining = Sum(F("amount_due_minor") - F("amount_paid_minor"))
        sums = list(overdue.order_by("currency").values_list("currency").annotate(count=Count("pk"), remaining=remaining))
        count = sum(each for _, each, _ in sums)
        if not count:
            return ""
        name = f"overdue_{'one' if count == 1 else 'many'}{'_hidden' if shown.hides_amounts else ''}"
        amounts = " + ".join(money(minor, currency, shown.language) for currency, _, minor in sums)
        return TEXTS[shown.language.code][name].format(count=count, sum=amounts)

    def act(self, name: str, given: Mapping[str, str], shown: PageDisplay) -> IntermediatePage | str | None:
        """Pay, buy, set a top-up, change a card, or change a plan; see `ledger.portal.parts.PortalCustomer`."""
        if shown.allows_plan_changes and self._plans.knows(name):
            return self._plans.act(name, shown)
        if self._payments is None or not shown.allows_payments:
            return None
        return self._payments.act(name, given, shown)

    def step(self, name: str, shown: PageDisplay, *, is_back: bool) -> IntermediatePage | None:
        """Return a step of a payment, of setting a top-up, or of changing a plan."""
        if shown.allows_plan_changes and self._plans.knows(name):
            return self._plans.step(name, shown)
        if self._payments is None or not shown.allows_payments:
            return None
        return self._payments.step(name, shown, is_back=is_back)

    def _contact(self, shown: PageDisplay) -> list[PageList]:
        """Return the seller's addresses for questions, if the seller has any."""
        seller, texts = current_seller(self._customer.seller), TEXTS[shown.language.code]
        details = seller.details if seller else {}
        ways = [("email", f"mailto:{details.get('email')}"), ("phone", f"tel:{details.get('phone', '').replace(' ', '')}")]
        rows = [{"kind": name, "text": details[name]} for name, _ in ways if details.get(name)]
        if not rows:
            return []
        cells = [[Cell(texts[name]), Cell(details[name], url)] for name, url in ways if details.get(name)]
        headers = [Cell(texts["contact"]), Cell(texts["address"])]
        title = texts["questions"].format(seller=details["name"])
        return [PageList(name="contact", title=title, empty="", headers=headers, cells=cells, rows=rows)]

    def document(self, name: str) -> Document | None:
        """Return an invoice or credit note of this customer as PDF, by the name that `_invoice` or `_credit_note` gives it."""
        for prefix, rows, printed_as in self._documents():
            number = name.removeprefix(prefix)
            is_number = number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS
            if name.startswith(prefix) and is_number and IS_INSTALLED and rows.filter(pk=int(number)).exists():
                printed = printed_as(int(number))
                return Document(printed.content, printed.file_name)
        return None

    def _documents(self) -> list[tuple[str, QuerySet[Any], Callable[[int], PrintedDocument]]]:
        return [
            (INVOICE_NAME, self._invoices(), invoice_pdf),
            (CREDIT_NOTE_NAME, self._credit_notes(), credit_note_pdf),
        ]

    def _invoices(self) -> QuerySet[Invoice]:
        return Invoice.objects.filter(customer_id=self._customer.pk).exclude(state=Invoice.State.DRAFT)

    def _credit_notes(self) -> QuerySet[CreditNote]:
        """Those that are documents, with a number; a carried one is a line of its invoice."""
        return CreditNote.objects.filter(invoice_id__in=self._invoices().values("pk"), number__isnull=False)


def _continue_section(section: PageList, ids: Sequence[int]) -> PageList:
    """Return the list with where its next page begins, if one more was read than is shown."""
    return replace(section, older_than=ids[ROWS_SHOWN - 1]) if len(ids) > ROWS_SHOWN else section


def _subscription(row: SubscriptionRow, now: datetime, plan_name: str) -> dict[str, Any]:
    period = row.current_period(now)
    return {
        "ref": row.ref,
        "plan": row.plan,
        "plan_name": plan_name,
        "state": row.state,
        "started_at": time_text(row.started_at),
        "ends_at": row.ends_at and time_text(row.ends_at),
        "period": period and {"start": time_text(period.start), "end": time_text(period.end)},
    }


def _subscriptions(rows: Sequence[dict[str, Any]], change_cells: Sequence[Cell], shown: PageDisplay, zone: ZoneInfo) -> PageList:
    """Return the list of subscriptions; without changes of plans, no buttons are a column of it."""
    texts = TEXTS[shown.language.code]
    return PageList(
        name="subscriptions",
        title=texts["subscriptions"],
        empty=texts["no_subscriptions"],
        headers=[Cell(texts[name]) for name in ("plan", "state", "period", *(["change"] if shown.allows_plan_changes else []))],
        cells=[
            [
                Cell(row["plan_name"]),
                Cell(_state(row, shown.language, zone)),
                Cell(_period(row, shown.language, zone)),
                *([change_cell] if shown.allows_plan_changes else []),
            ]
            for row, change_cell in zip(rows, change_cells, strict=True)
        ],
        rows=rows,
    )


def _state(row: dict[str, Any], language: Language, zone: ZoneInfo) -> str:
    state = "ending" if row["state"] == "active" and row["ends_at"] else row["state"]
    at = row["started_at"] if state == "scheduled" else row["ends_at"]
    day = language.day(datetime.fromisoformat(at).astimezone(zone).date()) if at else ""
    return TEXTS[language.code][state].format(day=day)


def _period(row: dict[str, Any], language: Language, zone: ZoneInfo) -> str:
    period = row["period"]
    if not period:
        return ""
    start, end = (datetime.fromisoformat(period[name]) for name in ("start", "end"))
    return language.period(start, end, zone)


def _invoice(row: Invoice, shown: PageDisplay, today: date) -> dict[str, Any]:
    hides = shown.hides_amounts
    return {
        "number": row.number,
        "state": row.state,
        "is_overdue": row.state == Invoice.State.OPEN and row.due_date is not None and row.due_date < today,
        "issue_date": row.issue_date and f"{row.issue_date:%Y-%m-%d}",
        "due_date": row.due_date and f"{row.due_date:%Y-%m-%d}",
        "currency": row.currency,
        "total_minor": None if hides else row.total_minor,
        "amount_due_minor": None if hides else row.amount_due_minor,
        "amount_paid_minor": None if hides else row.amount_paid_minor,
        "amount_remaining_minor": None if hides else row.amount_remaining_minor,
        "pdf_url": None if hides or not IS_INSTALLED else shown.document_url(f"{INVOICE_NAME}{row.pk}"),
    }


def _invoice_list(rows: Sequence[dict[str, Any]], pay_cells: Sequence[Cell] | None, shown: PageDisplay) -> PageList:
    """Return the list of invoices; amounts and files are no columns of it if amounts are hidden, nor buttons without payments."""
    texts, language = TEXTS[shown.language.code], shown.language
    amounts = [] if shown.hides_amounts else ["total", "amount_remaining"]
    files = [] if shown.hides_amounts or not IS_INSTALLED else ["file"]
    buttons: Sequence[Cell | None] = pay_cells or [None] * len(rows)
    return PageList(
        name="invoices",
        title=texts["invoices"],
        empty=texts["no_invoices"],
        headers=[
            *(Cell(texts[name]) for name in ("number", "issued", "due", "state")),
            *(Cell(texts[name], is_number=True) for name in amounts),
            *(Cell(texts[name]) for name in files),
            *([Cell(texts["payment"])] if pay_cells is not None else []),
        ],
        cells=[
            [
                Cell(row["number"]),
                *(Cell(_day(row[name], language)) for name in ("issue_date", "due_date")),
                Cell(texts["overdue"], is_urgent=True) if row["is_overdue"] else Cell(texts[row["state"]]),
                *(Cell(money(row[f"{name}_minor"], row["currency"], language), is_number=True) for name in amounts),
                *(Cell(texts["pdf"].format(number=row["number"]), row["pdf_url"]) for _ in files),
                *([] if pay_cell is None else [pay_cell]),
            ]
            for row, pay_cell in zip(rows, buttons, strict=True)
        ],
        rows=rows,
    )


def _credit_note(row: CreditNote, corrected: str | None, shown: PageDisplay) -> dict[str, Any]:
    hides = shown.hides_amounts
    return {
        "number": row.number,
        "issue_date": row.issue_date and f"{row.issue_date:%Y-%m-%d}",
        "invoice": corrected,
        "currency": row.currency,
        "total_minor": None if hides else row.amount_minor,
        "pdf_url": None if hides or not IS_INSTALLED else shown.document_url(f"{CREDIT_NOTE_NAME}{row.pk}"),
    }


def _credit_note_list(rows: Sequence[dict[str, Any]], shown: PageDisplay) -> PageList:
    """Return the list of credit notes; amounts and files are no columns of it if amounts are hidden."""
    texts, language = TEXTS[shown.language.code], shown.language
    amounts = [] if shown.hides_amounts else ["total"]
    files = [] if shown.hides_amounts or not IS_INSTALLED else ["file"]
    return PageList(
        name="credit_notes",
        title=texts["credit_notes"],
        empty=texts["no_credit_notes"],
        headers=[
            *(Cell(texts[name]) for name in ("number", "issued", "corrects")),
            *(Cell(texts[name], is_number=True) for name in amounts),
            *(Cell(texts[name]) for name in files),
        ],
        cells=[
            [
                Cell(row["number"]),
                Cell(_day(row["issue_date"], language)),
                Cell(row["invoice"]),
                *(Cell(money(row["total_minor"], row["currency"], language), is_number=True) for _ in amounts),
                *(Cell(texts["pdf"].format(number=row["number"]), row["pdf_url"]) for _ in files),
            ]
            for row in rows
        ],
        rows=rows,
    )


def _day(text: str | None, language: Language) -> str:
    return language.day(date.fromisoformat(text)) if text else ""
