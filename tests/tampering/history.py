"""A history with a row in every table: a change of any of them has something to change."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.db import connection

from billing.documents import credit_notes, transitions
from billing.documents.credit_notes import CreditLine
from billing.documents.credit_payments import pay_with_credit
from billing.documents.credit_refunds import NewCreditRefund, deposit_in, refund_in
from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import record_seller
from billing.dunning.models import Reminder
from billing.generator.activations import cancel_order, order_subscription
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.metering import partitions
from billing.metering.meters import create_meter
from billing.metering.usage import NewEvent, take_in
from billing.models import Claim, CouponUse, CreditNote, CreditPayment, Invoice, VatLookup
from billing.orders import coupons, customers, subscriptions, suspension
from billing.orders.customers import NewCredits
from billing.orders.item_versions import UnusedTime
from billing.orders.overrides import PriceOverride
from billing.orders.phases import Phase
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_walk import carry_out
from billing.orders.tax_declarations import NewTax, declare
from billing.payments.advancing import apply
from billing.payments.models import PaymentIntent, ProviderCustomer, ProviderEvent, ProviderRefund, TopUp
from billing.payments.packs import create_pack
from billing.payments.providers.interface import SUCCEEDED, Found, MoneyBack
from billing.payments.purchase_recording import record_purchase, record_return
from billing.payments.purchase_settling import settle
from ledger import services
from ledger.entry_rows import copy_line
from ledger.errors import InsufficientCredits
from ledger.journal import COPY
from ledger.keys import api_keys, last_use
from ledger.keys.delegation import KeyCall, change_once
from ledger.models import CreditType
from ledger.operators import staff_log
from ledger.rules.requests import GrantRequest, SpendRequest
from ledger.signals.alert_declarations import AlertRequest, EndAlertRequest, end_alert, set_alert
from ledger.signals.webhooks import (
    WebhookChangeRequest,
    WebhookRequest,
    WebhookRotationRequest,
    change_webhook,
    create_webhook,
    rotate_secret,
)
from ledger.staff.models import Operator
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from ledger_project.work.turns import NOTE
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, use
from tests.browser.histories import some_weeks
from tests.tampering.owner import SELLER


def make_history() -> None:
    """Make it, committed: the ledger's, then billing's, then totals and what operators did."""
    _earlier_weeks()
    _credits()
    _operators()
    _webhooks()
    _alerts()
    _usage_that_was_dropped()
    _two_sellers()
    _taxed_by_region()
    _looked_up()
    _purchases()
    _payment_intents()
    _billed_customer()
    _corrected_subscription()
    _moved_subscription()
    _customer_with_minimum()
    _suspended_subscription()
    _paid_first()
    call_command("generate_invoices", "--as-of", "2026-03-02", stdout=StringIO(), stderr=StringIO())
    _task_of_the_timetable()
    assert not count_entries().is_held_up
    assert close_months()


def _earlier_weeks() -> None:
    """Entries of two months that are over, with which they can be closed."""
    entries = some_weeks("earlier", start=datetime(2026, 5, 20, tzinfo=UTC), end=datetime(2026, 6, 20, tzinfo=UTC))
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        copy.write("".join(map(copy_line, entries)))


def _credits() -> None:
    holder: dict[str, Any] = {"holder_id": "ada"}
    services.publish_rate(code="tokens", price=3, per=1000, actor="admin:mara", reason="start", idempotency_key="v1")
    services.grant(**holder, amount=500, idempotency_key="1", paid_minor=900, currency="EUR")
    services.grant(
        **holder, amount=100, idempotency_key="2", source="promotional", expires_at=datetime.now(UTC) + timedelta(days=90)
    )
    services.spend(**holder, rate="tokens", quantity=5500, idempotency_key="3", reason="chat", reference="req-1")
    services.publish_rate(code="tokens", price=4, per=1000, actor="admin:mara", reason="dearer")
    spend = services.spend(**holder, amount=30, idempotency_key="4", metadata={"order": "A"})
    services.refund(**holder, spend=spend.sequence, amount=10, idempotency_key="5")
    hold = services.hold(**holder, amount=20, idempotency_key="6")
    services.capture(**holder, hold=hold.sequence, amount=5, final=False, idempotency_key="7")
    services.transfer(**holder, to="bob", amount=7, idempotency_key="8")
    services.revoke(**holder, grant=1, amount=3, idempotency_key="9")
    services.set_overdraft(**holder, limit=50, idempotency_key="10")
    with suppress(InsufficientCredits):
        services.spend(**holder, amount=10**6, idempotency_key="11")
    for label in ("member", "project"):
        setting = {"budget": label, "limit": 900, "window": "month", "by": "label", "label": label}
        services.set_budget(**holder, **setting, idempotency_key=label)
    for interval in ("day", "month"):
        services.set_recurring_grant(
            **holder, recurring_grant=interval, interval=interval, amount=1, expiry="never", idempotency_key=interval
        )
    services.grant_due_period(holder_id=holder["holder_id"])
    for key in ("12", "13"):
        services.spend(**holder, amount=3, idempotency_key=key, partial=True, metadata={"member": key})
    for key in ("b1", "b2"):
        requests = [
            SpendRequest(holder_id="ada", amount=2, idempotency_key=f"{key}-1", actor="key:shop"),
            SpendRequest(holder_id="bob", amount=10**6, idempotency_key=f"{key}-2", actor="key:shop"),
            GrantRequest(holder_id="bob", amount=2, idempotency_key=f"{key}-3", actor="key:shop"),
        ]
        services.batch(requests, mode="each", idempotency_key=key, actor="key:shop", request_id=f"req_{key}")


def _operators() -> None:
    shop, secret = api_keys.create_api_key(name="shop", scopes=["ledger:spend"], actor="admin:mara")
    till, _ = api_keys.create_api_key(name="till", scopes=["ledger:read"], holder_id="bob", actor="admin:mara")
    last_use.record_uses(connection, [shop.pk, till.pk])
    for name in ("made-1", "made-2"):
        call = KeyCall("keys", api_keys.key_digest(secret), "", "key:shop", name, {"name": name}, request_id=f"req_{name}")
        change_once(call, partial(_another_key, name), lambda made: {"id": made.pk})
    for action, about in (("login", "mara"), ("key-created", "key shop"), ("exported", "entries.csv")):
        staff_log.record(None, action, about=about, details="from the office", actor="admin:mara")
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    CreditType.objects.create(code="sms", name="Messages", unit="SMS", scale=0)
    Operator.objects.create(user_id=1, time_zone="Europe/Berlin")
    Operator.objects.create(user_id=2, time_zone="UTC")


def _another_key(name: str, asker: Any, target: Any) -> Any:
    return api_keys.create_api_key(name=name, scopes=["ledger:spend"], actor=asker.actor)


def _webhooks() -> None:
    """Two that were changed; what is on its way to them is work in progress, which nothing registers."""
    for name in ("shop", "crm"):
        url = f"https://{name}.example/"
        made = create_webhook(
            WebhookRequest(url=url, types=["hold.expired"], holder_id="ada", actor="admin:mara", idempotency_key=name)
        )
        rotate_secret(WebhookRotationRequest(webhook=made.body["id"], former_until=datetime.now(UTC) + timedelta(days=9)))
        change_webhook(WebhookChangeRequest(webhook=made.body["id"], enabled=False))


def _alerts() -> None:
    """One of each kind, and one that ended; what is known of accounts is work in progress, which nothing registers."""
    for name, limits in (("low", {"below": 10}), ("part", {"below_percent": 20}), ("soon", {"expiring_days": 7})):
        set_alert(AlertRequest(alert=name, holder_id="ada", credit_type="credits", reason="r", actor="key:shop", **limits))
    set_alert(AlertRequest(alert="days", days_left=3, idempotency_key="days", request_id="r-1"))
    end_alert(EndAlertRequest(alert="days", reason="over", actor="key:shop", idempotency_key="end"))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_alert_look")


def _usage_that_was_dropped() -> None:
    """A month of usage before any price counted it."""
    subscription = SubscriptionFactory(ref="SUB-OLD", customer=CustomerFactory(ref="C-OLD").ref)
    partitions.make_month(connection, date(2025, 11, 1))
    use(subscription, "9", datetime(2025, 11, 3, tzinfo=UTC))
    partitions.drop_month(connection, date(2025, 11, 1))


def _two_sellers() -> None:
    record_seller(SELLER, actor="admin:mara")


def _taxed_by_region() -> None:
    """An invoice with two taxes, and a credit note of a part of it."""
    record_seller(
        {**SELLER, "ref": "ca", "tax_rules": "region", "invoice_prefix": "CA", "credit_note_prefix": "CAC"}, actor="admin:mara"
    )
    terms: dict[str, Any] = {"category": "O", "country": "CA", "valid_from": date(2020, 1, 1)}
    for code, rate in (("ca-gst", "5"), ("ca-qst", "9.975")):
        declare(NewTax(code=code, name=code, rate=Decimal(rate), **terms), actor="admin:mara")
    customer = CustomerFactory(ref="C-CA", address={"country": "CA"}, seller="ca")
    line = OneOffLine(description="Set-up", unit_amount=Decimal("33.33"))
    invoice = issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line]))
    credit_notes.issue_in(
        invoice_id=invoice.pk, lines=[CreditLine(position=1, amount_minor=1000)], reason="Part", actor="admin:mara"
    )


def _looked_up() -> None:
    """An invoice that relies on what VIES said."""
    customer = CustomerFactory(ref="C-FR", vat_id="FR40303265045", vat_status="reverse_charge")
    VatLookup.objects.create(
        customer_id=customer.pk, vat_id=customer.vat_id, buyer={"name": "Ada"}, outcome="valid", requester="DE987654328",
        consultation="W1", name="ACME SA", address="1 RUE X", asked_at=datetime.now(UTC),
    )  # fmt: skip
    line = OneOffLine(description="Set-up", unit_amount=Decimal("10.00"))
    issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line]))


def _purchases() -> None:
    """One that was granted and returned in part, and one whose money went back before its credits were added."""
    for name, refund in (("ada", 500), ("bob", 2000)):
        pack = create_pack(code=f"pack-{name}", name="Starter", credits=1000, bonus=100, currency="EUR", price_minor=2000)
        purchase = record_purchase(pack=pack.code, holder_id=name, payment=f"p-{name}", actor="key:shop")
        for kind, amount in (("refund", refund), ("dispute", 2000 - refund or None)):
            if amount:
                record_return(purchase=purchase.pk, kind=kind, payment=f"{kind}-{name}", amount_minor=amount, reason="r")
        settle(purchase.pk)


def _payment_intents() -> None:
    """One that succeeded and was refunded in part, and one that waits; what a provider sent, and whom it knows."""
    customer = CustomerFactory(ref="PAYER")
    pack = create_pack(code="pack-card", name="Starter", credits=1000, currency="EUR", price_minor=2000)
    asked: dict[str, Any] = {
        "provider": "stripe", "pack_id": pack.pk, "holder_id": "ada", "customer_id": customer.pk, "currency": "EUR",
        "amount_minor": 2000, "actor": "key:shop", "due_at": datetime.now(UTC) + timedelta(days=1),
    }  # fmt: skip
    paid = PaymentIntent.objects.create(key="one", method="pm_1", **asked)
    refund = ProviderRefund.objects.create(key="two", intent_id=paid.pk, amount_minor=500, reason="r", actor="key:shop")
    back = MoneyBack(id="re_1", amount_minor=500, key=refund.key)
    apply(paid.pk, Found(state=SUCCEEDED, payment="pi_1", received_minor=2000, currency="EUR", refunds=(back,)))
    PaymentIntent.objects.create(key="three", state="waiting", checkout="cs_1", url="https://pay.example/1", **asked)
    ProviderEvent.objects.create(
        provider="stripe", event="evt_1", type="payment_intent.succeeded", payment="pi_1", handled_at=datetime.now(UTC),
        intent_id=paid.pk, due_at=None,
    )  # fmt: skip
    terms: dict[str, Any] = {
        "holder_id": "ada", "threshold": 5, "pack_ref": "pack-card", "customer_id": customer.pk, "provider": "stripe",
        "method": "pm_1", "cap_minor": 9000, "cap_period": "month", "cooldown_seconds": 60, "declines": 2, "actor": "key:shop",
    }  # fmt: skip
    TopUp.objects.create(credit_type="credits", packs=2, **terms)
    TopUp.objects.create(credit_type="other", up_to=9, paused_at=datetime.now(UTC), resumed_at=datetime.now(UTC), **terms)
    ProviderCustomer.objects.create(provider="stripe", customer_id=customer.pk, provider_id="cus_1")


def _billed_customer() -> None:
    """Credits that pay, a coupon, usage, a charge, a new plan, an allowance, credit notes, payment, void and deletion."""
    services.grant(holder_id="acme", amount=900, idempotency_key="first")
    customer = CustomerFactory(
        ref="C-1", holder_id="acme", credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")),
        address={"line1": "Street 1"}, vat_id="DE123456788",
    )  # fmt: skip
    customers.change_customer(ref="C-1", name="Ada Lovelace Ltd")
    coupons.create_coupon(code="TEN", kind="percentage", value=Decimal(10), duration="recurring", periods=3)
    coupons.create_coupon(code="UNUSED", kind="percentage", value=Decimal(5), duration="once")
    for code in ("TEN", "UNUSED"):
        coupons.give_coupon(customer_id=customer.pk, customer_ref="C-1", customer_currency="EUR", code=code)
    coupons.take_coupon_off(customer_id=customer.pk, customer_ref="C-1", code="UNUSED")
    prices = [recurring(tax_rate="20"), metered(tax_rate="20")]
    PlanFactory(code="small", prices=prices, allowance={"credit_type": "sms", "amount": 50})
    PlanFactory(code="large", prices=[recurring(unit_amount="20.00", tax_rate="20"), metered(tax_rate="20")])
    subscription = SubscriptionFactory(ref="SUB-1", customer="C-1", plan="small", actor="key:crm")
    use(subscription, "100", at(1, 10), region="eu")
    use(subscription, "150", at(1, 20))
    _bill("SUB-1", at(1, 1))
    subscriptions.charge_once(ref="SUB-1", amount_minor=700, description="Setup", tax_rate=Decimal(20), actor="key:crm")
    [second] = _bill("SUB-1", at(2, 1))
    amend(subscription, at(2, 15), plan="large")
    amend(subscription, at(2, 20), price_override=PriceOverride(percent_off=Decimal(5)))
    use(subscription, "5", at(2, 20))
    [third] = _bill("SUB-1", at(3, 1))
    _move(third, "mark_uncollectible")
    _move(third, "pay")
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=70, reference="payment of 70", actor="key:bank")
    pay_with_credit(invoice=second.pk, amount_minor=40, reason="Left over", actor="admin:mara")
    pay_with_credit(invoice=second.pk, amount_minor=30, reason="More", actor="key:shop")
    for amount, name in ((700, "first"), (10**6, "second")):
        paid = record_payment(invoice=second.pk, payment=name, amount_minor=amount, reference=name, actor="key:bank")
        record_payment_return(invoice_payment=paid.pk, kind="dispute", payment=name, amount_minor=amount // 2, reason="r")
    for step in (1, 2):
        Reminder.objects.create(
            invoice_id=second.pk, customer_id=customer.pk, step=step, remaining_minor=1, reminded_on=date(2026, 3, step)
        )
    line = credit_notes.CreditLine(position=1, amount_minor=100)
    credit_notes.issue(invoice_id=second.pk, lines=[line], reason="Goodwill", actor="admin:mara", idempotency_key="note")
    for amount in (300, 200):
        deposited = {"currency": "EUR", "amount_minor": amount, "reference": f"payment of {amount}", "actor": "key:bank"}
        deposit_in(customer_id=customer.pk, **deposited)
        request = NewCreditRefund(amount_minor=amount - 50, reason="Asked for", reference=f"transfer of {amount}")
        refund_in(customer_ref="C-1", request=request, actor="admin:mara")
    use(subscription, "7", at(3, 4))
    subscriptions.charge_once(ref="SUB-1", amount_minor=90, description="Last", tax_rate=Decimal(20))


def _moved_subscription() -> None:
    """A subscription with phases that is moved to a new version of its plan, and ends with a refund."""
    CustomerFactory(ref="C-9")
    PlanFactory(code="moved", prices=[recurring(tax_rate="20", unit_amount="30.00")])
    phases = [Phase(intervals=1), Phase(price_override=PriceOverride(percent_off=Decimal(10)))]
    subscription = SubscriptionFactory(ref="SUB-9", customer="C-9", plan="moved", phases=phases)
    PlanFactory(code="moved", prices=[recurring(tax_rate="20", unit_amount="40.00")])
    start_plan_move.execute(NewPlanMove(plan="moved", effective_at=at(1, 11), reason="Dearer", actor="admin:mara"))
    carry_out()
    [first] = _bill("SUB-9", at(1, 11))
    _move(first, "pay")
    amend(subscription, at(1, 21), sets_end=True, ends_at=at(1, 21), unused_time=UnusedTime.REFUND)
    _bill("SUB-9", at(1, 21))


def _corrected_subscription() -> None:
    """A correction that was voided, so that claims count again; an invoice that was voided and billed again; a deleted draft."""
    services.grant(holder_id="voider", amount=100, idempotency_key="first")
    CustomerFactory(ref="C-2", holder_id="voider", credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    PlanFactory(code="seats", prices=[recurring(tax_rate="20", model="unit"), metered(tax_rate="20")])
    subscription = SubscriptionFactory(ref="SUB-2", customer="C-2", plan="seats", quantities={"base": Decimal(3)})
    coupons.create_coupon(code="ONCE", kind="percentage", value=Decimal(10), duration="forever")
    customer = subscription.customer_id
    coupons.give_coupon(customer_id=customer, customer_ref="C-2", customer_currency="EUR", code="ONCE")
    coupons.create_coupon(code="SEAT", kind="percentage", value=Decimal(5), duration="forever")
    coupons.give_subscription_coupon(ref="SUB-2", code="SEAT")
    [first] = _bill("SUB-2", at(1, 1))
    amend(subscription, at(1, 11), quantities={"base": Decimal(5)})
    [corrected] = _bill("SUB-2", at(1, 12))
    _move(corrected, "void")
    _bill("SUB-2", at(1, 12))
    amend(subscription, at(1, 21), quantities={"base": Decimal(1)})
    _bill("SUB-2", at(1, 22))
    [draft] = _bill("SUB-2", at(2, 1), finalize=False)
    _move(draft, "delete")
    _bill("SUB-2", at(2, 1))
    services.grant(holder_id="voider", amount=100, idempotency_key="second")
    [late] = _bill("SUB-2", at(3, 1))
    _move(late, "void")
    assert Claim.objects.filter(restores__isnull=False).exists()
    assert CouponUse.objects.filter(released_at__isnull=False).exists()
    assert CreditNote.objects.filter(kind="carried").exists()
    assert CreditPayment.objects.filter(refund_sequence__isnull=False).exists()
    assert first.number


def _customer_with_minimum() -> None:
    CustomerFactory(ref="C-3")
    PlanFactory(code="bounded", prices=[metered(), metered(key="tokens", meter="tokens")], minimum=Decimal("5.00"))
    subscription = SubscriptionFactory(ref="SUB-3", customer="C-3", plan="bounded")
    use(subscription, "3", at(1, 5))
    create_meter(code="tokens", expression="properties.input * 1.5")
    take_in([NewEvent("weighted", "SUB-3", "tokens", occurred_at=at(1, 6), properties={"input": 8})])
    _bill("SUB-3", at(2, 1))


def _suspended_subscription() -> None:
    for ref in ("SUB-4", "SUB-5"):
        SubscriptionFactory(ref=ref, customer="C-3", plan="bounded")
        suspension.suspend(ref=ref, reason="total-limit", facts={"total_minor": 10**9})
    suspension.resume(ref="SUB-5", actor="admin:mara", reason="checked")


def _paid_first() -> None:
    """Subscriptions that start when they are paid: one started, one that waits, one that was canceled."""
    plan = PlanFactory(code="paid-first", prices=[recurring(tax_rate="20")])
    for number in range(3):
        ref = f"SUB-PAID-{number}"
        fields = {"customer": CustomerFactory(ref=f"C-PAID-{number}").ref, "plan": plan.code, "started_at": at(1, 1)}
        order_subscription(ref=ref, starts_when_paid=True, actor="key:shop", **fields)
    _move(Invoice.objects.get(subscription_ref="SUB-PAID-0"), "pay")
    cancel_order(ref="SUB-PAID-2", reason="Ordered twice", actor="admin:mara")


def _task_of_the_timetable() -> None:
    values = {
        "name": "audit_ledger", "every": 86400, "started_at": datetime.now(UTC), "code": 0, "well": True, "host": "worker-1",
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(NOTE, values)


def _bill(ref: str, as_of: datetime, **options: Any) -> list[Invoice]:
    made = generate(ref=ref, options=Options(as_of=as_of, **options)).invoices
    return [Invoice.objects.get(pk=one.invoice_id) for one in made]


def _move(invoice: Invoice, kind: str) -> None:
    key = f"{kind} {invoice.pk}"
    transitions.apply(invoice_id=invoice.pk, kind=kind, actor="admin:mara", reason="asked for", idempotency_key=key)
