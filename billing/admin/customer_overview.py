"""The first look at a customer: credits, what a month brings, open invoices, the next invoice, usage by day, and who did what."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from billing import reads
from billing.admin.cells import by_pk, document_link, list_url, money, subscription_link
from billing.admin.document_page import paid_words
from billing.admin.prose import change_words
from billing.admin.transitions import WORDS
from billing.models import Amendment, CreditNote, Customer, Invoice, InvoicePayment, Plan, Subscription, Transition
from billing.permissions import VIEW_CREDITNOTE, VIEW_INVOICE, VIEW_SUBSCRIPTION, VIEW_USAGEEVENT
from billing.rating.money import money_text
from billing.reads.documents import open_credit_of
from billing.reads.money_at_a_glance import debts
from billing.reads.subscriptions import SubscriptionRow
from ledger.operators.permissions import VIEW_ACCOUNT
from ledger.services import time_of
from ledger.staff.balances import shown_balances
from ledger.staff.kit import charts
from ledger.staff.kit.cells import timestamp
from ledger.staff.kit.columns import table_of
from ledger.typesetting.languages import ENGLISH

SUBSCRIPTIONS_LOOKED_AT: Final = 20
"""The newest subscriptions, from which the page counts usage and what a month brings."""
USAGE_DAYS: Final = 60
EVENTS_OF_A_METER: Final = 2_000
CHARTS_SHOWN: Final = 3
PAYMENTS_SHOWN: Final = 20
DEEDS_SHOWN: Final = 25


class Card(NamedTuple):
    """A figure with its name, a sentence below it, and where it leads."""

    title: str
    figure: str
    note: str = ""
    url: str = ""
    link: str = ""
    is_bad: bool = False


def overview(request: HttpRequest, customer: Customer, subscriptions: Sequence[SubscriptionRow]) -> dict[str, Any]:
    """Return the cards and charts about a customer that the operator may see.

    Args:
        subscriptions: the customer's newest ones.
    """
    may = request.user.has_perm
    cards: list[Card] = []
    if may(VIEW_ACCOUNT) and customer.holder_id:
        cards += _balances(customer)
    if may(VIEW_SUBSCRIPTION):
        cards.append(_monthly(subscriptions))
    if may(VIEW_INVOICE):
        cards.append(_open(customer))
    if may(VIEW_CREDITNOTE) and (left := open_credit_of(customer.pk)):
        cards.append(_credit(customer, left))
    if may(VIEW_SUBSCRIPTION):
        cards.append(_next(customer, subscriptions))
    usage = _usage(customer, subscriptions) if may(VIEW_USAGEEVENT) else []
    return {"cards": cards, "usage": usage}


def _balances(customer: Customer) -> list[Card]:
    return [
        Card(shown.name, shown.available, f"available to {customer.holder_id}", shown.url, "Lots and history")
        for shown in shown_balances(customer.holder_id)[:CHARTS_SHOWN]
    ]


def _monthly(subscriptions: Sequence[SubscriptionRow]) -> Card:
    monthly = reads.monthly_minor(subscriptions)
    sums: dict[str, int] = {}
    for row in subscriptions:
        sums[row.currency] = sums.get(row.currency, 0) + monthly[row.id]
    active = sum(row.state == "active" for row in subscriptions)
    many = f"the newest {len(subscriptions)}" if len(subscriptions) == SUBSCRIPTIONS_LOOKED_AT else str(len(subscriptions))
    note = f"{active} active of {many} subscription{'' if len(subscriptions) == 1 else 's'}"
    return Card("Monthly amount", _sums(sums) or "nothing", note)


def _sums(sums: dict[str, int]) -> str:
    return ", ".join(money_text(amount, currency) for currency, amount in sorted(sums.items()))


def _open(customer: Customer) -> Card:
    owed = debts(customer_id=customer.pk).rows
    number, late = (sum(debt.invoices for debt in owed), sum(debt.overdue_invoices for debt in owed))
    if not number:
        return Card("Open invoices", "none", "", list_url(Invoice, customer=customer.ref), "All invoices")
    sums = _sums({debt.currency: debt.overdue_minor for debt in owed if debt.overdue_minor})
    first = min((debt.first_due for debt in owed if debt.overdue_minor and debt.first_due), default=None)
    since = f"; {late} overdue, {sums}, the first since {ENGLISH.day(first)}" if first else ""
    note = f"{number} invoice{'' if number == 1 else 's'}{since}"
    figure = _sums({debt.currency: debt.minor for debt in owed})
    return Card("Open invoices", figure, note, list_url(Invoice, customer=customer.ref, state="open"), "Show them", late > 0)


def _credit(customer: Customer, left: Sequence[CreditNote]) -> Card:
    sums: dict[str, int] = {}
    for note in left:
        sums[note.currency] = sums.get(note.currency, 0) + note.left_minor
    return Card("Credit", _sums(sums), "pays for the next invoices", list_url(CreditNote, customer=customer.ref), "Show it")


def next_due(subscriptions: Iterable[SubscriptionRow]) -> SubscriptionRow | None:
    """Return the subscription that is billed next; None if nothing becomes due."""
    due = [row for row in subscriptions if row.due_at is not None and row.suspended_reason is None]
    return min(due, key=lambda row: (row.due_at, row.id), default=None)


def _next(customer: Customer, subscriptions: Sequence[SubscriptionRow]) -> Card:
    row = next_due(subscriptions)
    if row is None or row.due_at is None:
        return Card("Next invoice", "none", "Nothing becomes due.")
    zone, now = ZoneInfo(customer.time_zone), time_of(customer.holder_id)
    due = ENGLISH.day(row.due_at.astimezone(zone).date())
    url = reverse("admin:billing_customer_preview", args=[customer.pk])
    figure, note = ("by the next run", f"of {row.ref}, due since {due}") if row.due_at < now else (due, f"of {row.ref}")
    return Card("Next invoice", figure, note, url, "Preview")


# Usage -----------------------------------------------------------------------------------------------


def _usage(customer: Customer, subscriptions: Sequence[SubscriptionRow]) -> list[dict[str, Any]]:
    """Return a chart for each of the meters with most use, of the last days in the customer's zone."""
    zone = ZoneInfo(customer.time_zone)
    today = time_of(customer.holder_id).astimezone(zone).date()
    days = [today - timedelta(days=back) for back in range(USAGE_DAYS - 1, -1, -1)]
    since, until = (datetime.combine(day, time(), zone) for day in (days[0], today + timedelta(days=1)))
    ids = [row.id for row in subscriptions]
    if not ids:
        return []
    usage_days, is_whole = reads.usage_by_day(ids, since=since, until=until, zone=zone.key, limit=EVENTS_OF_A_METER)
    note = "" if is_whole else f" Of each subscription, the newest {EVENTS_OF_A_METER:,} events count."
    most = sorted(usage_days, key=lambda meter: (-sum(usage_days[meter].values()), meter))[:CHARTS_SHOWN]
    return [_chart(meter, [usage_days[meter].get(day, Decimal(0)) for day in days], days, note) for meter in sorted(most)]


def _chart(meter: str, used: Sequence[Decimal], days: Sequence[date], note: str) -> dict[str, Any]:
    name = meter.replace("_", " ")
    labels = [f"{day.day} {day:%b}" for day in days]
    return {
        "title": f"Usage: {name}",
        "text": (
            f"{ENGLISH.number(sum(used))} {name} from {ENGLISH.day(days[0])} to {ENGLISH.day(days[-1])}; "
            f"at most {ENGLISH.number(max(used))} a day.{note}"
        ),
        "chart": charts.data(labels, charts.bars(name, [float(each) for each in used])),
        "options": charts.options(unit=name, decimals=2),
    }


# Payments, and who did what --------------------------------------------------------------------------


def payments_table(customer: Customer) -> dict[str, Any]:
    """Return the newest invoices that were paid: how, when, and who recorded it."""
    paid = list(Invoice.objects.filter(customer_id=customer.pk, state=Invoice.State.PAID).order_by("-pk")[:PAYMENTS_SHOWN])
    recorded = InvoicePayment.objects.filter(invoice_id__in=[row.pk for row in paid], applied_minor__gt=0).order_by("pk")
    by_invoice = {row.invoice_id: row for row in recorded}
    return table_of(
        paid,
        ("Paid", lambda row: timestamp(by_invoice[row.pk].paid_at if row.pk in by_invoice else row.paid_at)),
        ("Invoice", document_link),
        ("Total", lambda row: money(row.total_minor, row.currency)),
        ("How", lambda row: paid_words(row) or "by other means"),
        ("Recorded by", lambda row: by_invoice[row.pk].actor if row.pk in by_invoice else "the ledger"),
    )


def deeds_table(customer: Customer, subscriptions: Sequence[SubscriptionRow]) -> dict[str, Any]:
    """Return who changed orders and documents of the customer, and why, the latest first."""
    known = {row.id: row for row in subscriptions}
    zone = ZoneInfo(customer.time_zone)
    amendments = list(Amendment.objects.filter(subscription_id__in=known).order_by("-pk")[:DEEDS_SHOWN])
    plans = by_pk(Plan, [row.change.get("plan") for row in amendments])
    owned = Q(subscription_id__in=known) | Q(customer_id=customer.pk)
    transitions = list(Transition.objects.filter(owned).order_by("-pk")[:DEEDS_SHOWN])
    noted = list(CreditNote.objects.filter(customer_id=customer.pk, number__isnull=False).order_by("-pk")[:DEEDS_SHOWN])
    documents = by_pk(Invoice, [*(row.invoice_id for row in transitions), *(row.invoice_id for row in noted)])
    deeds = [
        *(
            (
                row.recorded_at,
                row.actor,
                change_words(row.change, plans=plans, zone=zone, is_order=row.sequence == 1),
                "",
                subscription_link(row.subscription_id, known[row.subscription_id].ref),
            )
            for row in amendments
        ),
        *(
            (row.recorded_at, row.actor, WORDS[row.kind].title, row.reason, document_link(documents.get(row.invoice_id)))
            for row in transitions
        ),
        *(
            (row.recorded_at, row.actor, f"Credit note {row.number}", row.reason, document_link(documents.get(row.invoice_id)))
            for row in noted
        ),
    ]
    deeds.sort(key=lambda deed: deed[0], reverse=True)
    return table_of(
        deeds[:DEEDS_SHOWN],
        ("When", lambda deed: timestamp(deed[0])),
        ("Who", lambda deed: deed[1] or "unknown"),
        ("What", lambda deed: deed[2]),
        ("Why", lambda deed: deed[3]),
        ("Of", lambda deed: deed[4]),
    )


def newest_subscriptions(customer: Customer) -> list[SubscriptionRow]:
    """Return the customer's newest subscriptions, with their present states."""
    pks = Subscription.objects.filter(customer_id=customer.pk).order_by("-pk").values_list("pk", flat=True)
    found = list(pks[:SUBSCRIPTIONS_LOOKED_AT])
    return reads.subscriptions(among=found, limit=SUBSCRIPTIONS_LOOKED_AT) if found else []
