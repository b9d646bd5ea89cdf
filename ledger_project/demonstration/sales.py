"""The billing of the demo's company: plans, customers and subscriptions since three months, their invoices, and who paid when."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo

from django.apps import apps
from django.db import transaction
from django.db.models.signals import pre_save
from django.utils import timezone

from billing.documents import credit_notes
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import current_seller, record_seller
from billing.errors import AlreadyExists, NotFound
from billing.generator.options import Options
from billing.generator.run import generate
from billing.metering import usage
from billing.metering.meters import create_meter
from billing.models import Customer, Invoice, InvoicePayment, ItemVersion, Meter, PaymentReturn, Tax, VatLookup
from billing.orders import customers, plans, subscriptions
from billing.orders.coupons import create_coupon
from billing.orders.tax_declarations import NewTax, declare
from billing.rating.periods import Interval, IntervalUnit
from ledger.signals.alert_declarations import AlertRequest, set_alert
from ledger.signals.models import Alert, Webhook
from ledger.signals.webhooks import WebhookRequest, create_webhook
from ledger_project.demonstration.company import (
    COMPANIES,
    COUPONS,
    CURRENCY,
    METER,
    PLANS,
    SELLER,
    USAGE,
    Company,
    subscription_of,
)

ZONE: Final = "Europe/Berlin"
MONTHS: Final = 3
"""So many months before the present one are invoiced."""
ACTOR: Final = "admin:demo"
UNANSWERED: Final = "https://hooks.nimbus.example/ledger"
"""Where the demo's webhook sends to; nobody answers there."""
DISPUTED: Final = "alpenblick"
CREDITED: Final = "juniper"


def make_catalogue(now: datetime) -> None:
    """Record the seller, plans, packs, coupons, a meter that computes, a tax abroad, a webhook and an alert."""
    if current_seller() is None:
        record_seller(SELLER, actor=ACTOR)
    for code, terms in PLANS.items():
        try:
            plans.plan_of(code)
        except NotFound:
            plans.create_plan(code=code, currency=CURRENCY, interval=Interval(IntervalUnit.MONTH), **terms)
    if apps.is_installed("billing.payments"):
        _payments().make_packs(months_until(now)[0])
    for coupon in COUPONS:
        with suppress(AlreadyExists):
            create_coupon(**coupon)
    if not Meter.objects.filter(code="image-points").exists():
        create_meter(code="image-points", expression="properties.width * properties.height / 1000000")
    if not Tax.objects.filter(code="ch-mwst").exists():
        declare(
            NewTax(code="ch-mwst", name="MWST", rate=Decimal("8.1"), country="CH", valid_from=timezone.now().date()), actor=ACTOR
        )
    if not Alert.objects.exists():
        set_alert(AlertRequest(alert="running-low", below=1_000, actor=ACTOR))


def _payments() -> Any:
    from ledger_project.demonstration import packs

    return packs


def make_customers(now: datetime) -> None:
    """Create the customers and their subscriptions, which began MONTHS months ago."""
    months = months_until(now)
    for number, company in enumerate(COMPANIES):
        with suppress(AlreadyExists):
            customers.create_customer(**company.details)
        with suppress(AlreadyExists), transaction.atomic():
            subscriptions.create_subscription(
                ref=subscription_of(number), customer=company.ref, plan=company.plan, actor=ACTOR,
                started_at=months[-1] if has_allowance(company) else months[0],
                quantities={"seats": Decimal(company.seats)} if company.seats else {},
            )  # fmt: skip
            _record_since_start(subscription_of(number), now)


def _record_since_start(ref: str, now: datetime) -> None:
    """Record until now what a subscription has as if it had been on record since its start: the recurring revenue of a month that
    is over is what was on record at its end.
    """
    known = list(ItemVersion.objects.filter(subscription__ref=ref, starts_at__lt=now))
    for version in known:
        version.pk, version.recorded_at, version.superseded_at = None, version.starts_at, now
    ItemVersion.objects.bulk_create(known)


def make_documents(now: datetime) -> None:
    """Record the usage of each month, invoice it on the day on which it was due; record who paid, disputed and was credited."""
    months = months_until(now)
    for month, following in zip(months, [*months[1:], now], strict=True):
        at = month + timedelta(hours=2)
        if at > now:
            break
        with _issued_at(at):
            for number, company in enumerate(COMPANIES):
                if not has_allowance(company):
                    generate.generate(ref=subscription_of(number), options=Options(as_of=at))
        _record_usage(month, following)
    for number, company in enumerate(COMPANIES):
        if has_allowance(company):
            generate.generate(ref=subscription_of(number), options=Options(as_of=now))
        _record_payments(subscription_of(number), company, now)
    if apps.is_installed("billing.payments"):
        _payments().make_purchases(now)
    _leave_open(now)


def has_allowance(company: Company) -> bool:
    """Return whether its plan grants credits: these subscriptions begin this month, for the ledger grants at its own time."""
    return "allowance" in PLANS[company.plan]


def months_until(now: datetime) -> list[datetime]:
    """Return the beginnings of the last MONTHS months and of the present one, in the zone of the customers."""
    first = now.astimezone(ZoneInfo(ZONE)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = [first]
    for _ in range(MONTHS):
        found.append((found[-1] - timedelta(days=1)).replace(day=1))
    return [each.astimezone(UTC) for each in found[::-1]]


@contextmanager
def _issued_at(instant: datetime) -> Iterator[None]:
    """Inside the block, documents get their dates as on that day: the process's clock is set to it; the database's is not."""
    clock = timezone.now
    setattr(timezone, "now", lambda: instant)  # noqa: B010
    try:
        yield
    finally:
        setattr(timezone, "now", clock)  # noqa: B010


def _record_usage(month: datetime, until: datetime) -> None:
    """Record the tokens of the plans that charge for them, every third day of the month."""
    metered = [
        (subscription_of(number), company) for number, company in enumerate(COMPANIES) if USAGE in PLANS[company.plan]["prices"]
    ]
    days = range(1, max(1, (until - month).days), 3)
    events = [
        usage.NewEvent(
            idempotency_key=f"demo:{ref}:{month:%Y-%m}:{day}", subscription=ref, meter=METER,
            value=Decimal(company.a_day * 300 + 11_000 * day), occurred_at=month + timedelta(days=day, hours=9),
            properties={"model": "nimbus-large" if day % 2 else "nimbus-small"},
        )
        for ref, company in metered
        for day in days
    ]  # fmt: skip
    if events:
        usage.take_in(events)


def _record_payments(ref: str, company: Company, now: datetime) -> None:
    invoices = Invoice.objects.filter(subscription__ref=ref).order_by("issue_date", "pk")
    for invoice, days in zip(invoices, company.pays_after, strict=False):
        if days is None or invoice.issue_date is None or invoice.state != Invoice.State.OPEN:
            continue
        paid_at = datetime.combine(invoice.issue_date, datetime.min.time(), UTC) + timedelta(days=days, hours=10)
        if paid_at < now:
            with _recorded_at(paid_at):
                record_payment(
                    invoice=invoice.pk, payment=f"TRF-{invoice.number}", amount_minor=invoice.amount_remaining_minor,
                    paid_at=paid_at, reference=f"{company.name}, {invoice.number}", actor=ACTOR,
                )  # fmt: skip


@contextmanager
def _recorded_at(instant: datetime) -> Iterator[None]:
    """Inside the block, payments are on record since that instant: what none on record paid was unpaid at the end of a month."""

    def set_time(instance: InvoicePayment, **signal: Any) -> None:
        instance.recorded_at = instant

    pre_save.connect(set_time, sender=InvoicePayment)
    try:
        yield
    finally:
        pre_save.disconnect(set_time, sender=InvoicePayment)


def _leave_open(now: datetime) -> None:
    """Leave something for a person: a disputed payment, a credit note, a transfer that names no invoice, an order."""
    disputed = InvoicePayment.objects.filter(customer__ref=f"CUST-{DISPUTED.upper()}").order_by("-pk").first()
    if disputed is not None and not PaymentReturn.objects.filter(payment="DISPUTE-1").exists():
        record_payment_return(
            invoice_payment=disputed.pk, kind="dispute", payment="DISPUTE-1", amount_minor=disputed.amount_minor,
            returned_at=now - timedelta(days=1), reason="The card holder does not know the charge.", actor=ACTOR,
        )  # fmt: skip
    paid = Invoice.objects.filter(customer_ref=f"CUST-{CREDITED.upper()}", state=Invoice.State.PAID).order_by("pk").first()
    if paid is not None:
        credit_notes.issue(
            invoice_id=paid.pk, lines=[credit_notes.CreditLine(position=1, amount_minor=20_00)],
            reason="Outage of two hours", actor=ACTOR, idempotency_key="demo:credit-note",
        )  # fmt: skip
    if apps.is_installed("billing.statements_in"):
        _show_bank_receipt(now)
    if apps.is_installed("billing.payments"):
        _payments().leave_order_open()
    _show_what_others_say(now)
    if not Webhook.objects.exists():
        create_webhook(WebhookRequest(url=UNANSWERED, types=["invoice.paid"], description="Nimbus back office", actor=ACTOR))


def _show_bank_receipt(now: datetime) -> None:
    from billing.statements_in.models import BankReceipt

    BankReceipt.objects.get_or_create(
        name="demo-receipt-1",
        defaults={
            "account": "DE89370400440532013000", "bank_reference": "2026-0001", "booked_on": (now - timedelta(days=2)).date(),
            "value_on": (now - timedelta(days=2)).date(), "currency": CURRENCY, "amount_minor": 120_00, "text": "Rechnung Nimbus",
            "party": "ATLAS REISEN GMBH", "file": "0" * 64, "actor": ACTOR, "why": "it names no invoice",
            "waits_for_person": True,
        },
    )  # fmt: skip


def _show_mails(now: datetime) -> None:
    from billing.dunning.models import Mail

    harbor = Customer.objects.get(ref="CUST-HARBOR")
    invoices = Invoice.objects.filter(customer_id=harbor.pk, number__isnull=False).order_by("pk")
    for number, invoice in enumerate(invoices):
        Mail.objects.get_or_create(
            kind="invoice", invoice_id=invoice.pk,
            defaults={
                "customer_id": harbor.pk, "identity": uuid5(NAMESPACE_URL, f"{UNANSWERED}/{invoice.pk}"),
                "recipient": harbor.email, "state": Mail.State.BOUNCED if number == len(invoices) - 1 else Mail.State.SENT,
                "ended_at": now - timedelta(days=1), "tries": 1,
            },
        )  # fmt: skip


def _show_what_others_say(now: datetime) -> None:
    """Record an example of what comes from outside, which this server does not ask: mails, VIES, a top-up that ended."""
    if apps.is_installed("billing.dunning"):
        _show_mails(now)
    abroad = Customer.objects.get(ref="CUST-ALPENBLICK")
    VatLookup.objects.get_or_create(
        customer_id=abroad.pk, vat_id=abroad.vat_id, defaults={"outcome": "valid", "asked_at": now - timedelta(days=92)}
    )
    if apps.is_installed("billing.payments"):
        _payments().show_ended_top_up(now)
