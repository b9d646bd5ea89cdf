"""A customer whose invoice has all that an invoice can have, for pages that a browser looks at."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import time_machine
from django.core.management import call_command

from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine, IssuedNote
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.sellers import record_seller
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Invoice, Subscription, Tax, VatLookup
from billing.orders import coupons
from billing.orders.tax_declarations import NewTax, declare
from billing.orders.vat_lookups import VatAnswer, keep
from billing.rating.vat import LookupOutcome
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, use

SELLER = {"name": "Fern Software GmbH", "line1": "Lindenstr. 4", "postal_code": "10969", "city": "Berlin", "country": "DE"}


def billed_with_everything() -> tuple[Invoice, Invoice, IssuedNote]:
    """A customer's overdue invoice with tiers, free units, a discount and a credit note, and the draft of the next month."""
    record_seller(SELLER, actor="admin:mara")
    tiers = [{"up_to": "1000", "unit_amount": "0.05"}, {"unit_amount": "0.02"}]
    graduated = {key: value for key, value in metered(key="calls", tax_rate="19").items() if key != "unit_amount"}
    prices = [
        recurring("seats", "49.00", model="unit", tax_rate="19"),
        metered(key="tokens", unit_amount="0.00002", tax_rate="19", free_units="1000000"),
        graduated | {"model": "graduated", "tiers": tiers},
    ]
    plan = PlanFactory(code="team", name="Team", prices=prices, allowance={"credit_type": "credits", "amount": 500})
    address = {"line1": "12 St James's Square", "postal_code": "10117", "city": "Berlin", "country": "DE"}
    customer = CustomerFactory(
        ref="C-7", name="Ada Lovelace Analytical Engines Ltd", address=address, time_zone="Europe/Berlin", holder_id="acme-gmbh"
    )
    start = datetime(2025, 12, 31, 23, tzinfo=UTC)
    subscription = SubscriptionFactory(
        ref="SUB-1234", customer=customer.ref, plan=plan.code, quantities={"seats": Decimal(5)}, started_at=start,
        time_zone="Europe/Berlin",
    )  # fmt: skip
    use(subscription, "5390000", at(1, 10), meter="tokens")
    use(subscription, "2400", at(1, 12), meter="calls")
    coupons.create_coupon(code="WELCOME", kind="percentage", value=Decimal(10), duration="recurring", periods=3)
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code="WELCOME")
    with time_machine.travel(datetime.now(UTC) - timedelta(days=60), tick=False):
        [made] = generate_in(ref=subscription.ref, options=Options(as_of=at(2, 2))).invoices
        [draft] = generate_in(ref=subscription.ref, options=Options(as_of=at(3, 2), finalize=False)).invoices
    line = CreditLine(position=1, amount_minor=1000)
    note = credit_notes.issue(
        invoice_id=made.invoice_id, lines=[line], reason="goodwill", actor="admin:mara", idempotency_key="goodwill"
    )
    return Invoice.objects.get(pk=made.invoice_id), Invoice.objects.get(pk=draft.invoice_id), note


def looked_up() -> VatLookup:
    """What VIES said about the VAT id of a customer, on whose evidence an invoice relies."""
    customer = CustomerFactory(ref="C-FR", name="ACME SA", vat_id="FR40303265045", vat_status="reverse_charge")
    said = VatAnswer(
        vat_id=customer.vat_id, outcome=LookupOutcome.VALID, asked_at=datetime.now(UTC), requester="DE123456788",
        consultation="WAPIAAAAZxT0vM3d", name="ACME SA", address="1 RUE X, 75001 PARIS",
    )  # fmt: skip
    lookup = keep(customer, said, tries=0)
    line = OneOffLine(description="Set-up", unit_amount=Decimal("10.00"))
    issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line]))
    return lookup


def consolidated_with_taxes() -> tuple[Invoice, Subscription, Tax]:
    """A consolidated invoice with two taxes and grouped usage; a subscription that waits for its payment; a tax."""
    record_seller({**SELLER, "tax_rules": "region"}, actor="admin:mara")
    terms: dict[str, Any] = {"category": "O", "country": "CA", "valid_from": date(2020, 1, 1)}
    declare(NewTax(code="ca-gst", name="GST", rate=Decimal(5), **terms), actor="admin:mara")
    qst = declare(NewTax(code="ca-qst", name="QST", rate=Decimal("9.975"), subdivision="QC", **terms), actor="admin:mara")
    address = {
        "line1": "12 rue Sainte-Catherine",
        "city": "Montréal",
        "postal_code": "H2X 1Y4",
        "subdivision": "QC",
        "country": "CA",
    }
    customer = CustomerFactory(
        ref="C-8", name="Atelier Tremblay", address=address, time_zone="America/Toronto", consolidated_invoicing=True
    )
    grouped = metered(key="calls", unit_amount="0.05", group_by=["region", "model"], free_units="100")
    team = PlanFactory(code="studio", name="Studio", prices=[recurring("seats", "49.00"), grouped])
    extra = PlanFactory(code="archive", name="Archive", prices=[recurring("storage", "20.04")])
    first = SubscriptionFactory(ref="STUDIO-1", customer=customer.ref, plan=team.code, time_zone="America/Toronto")
    SubscriptionFactory(ref="ARCHIVE-1", customer=customer.ref, plan=extra.code, time_zone="America/Toronto")
    for region, model, units in (("eu", "large", "1200"), ("us", "small", "350"), ("eu", "", "20")):
        use(first, units, at(1, 10), meter="calls", **({"region": region} | ({"model": model} if model else {})))
    call_command("generate_invoices", "--as-of", at(2, 2).isoformat(), "--no-progress", stdout=StringIO(), stderr=StringIO())
    waiting = SubscriptionFactory(ref="WAITING-8", customer=customer.ref, plan=extra.code, starts_when_paid=True)
    invoice = Invoice.objects.filter(customer_id=customer.pk, subscription_id=None).latest("id")
    return invoice, Subscription.objects.get(pk=waiting.pk), qst
